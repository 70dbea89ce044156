package migrate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
)

// move copies, verifies, publishes and records a session. Requires the
// session's lock and the hold.
func (m *relocation) move(ctx context.Context) error {
	var err error
	for range attempts {
		err = m.try(ctx)
		if !errors.Is(err, ErrSourceChanged) {
			return err
		}
		m.Log.Info("source changed; copying it again", "session", m.sid)
	}
	return err
}

// part is one of the two trees that move: the session and its undo data.
type part struct {
	source, staged, dest string
	t                    *tree
	ready                bool // dest holds t already
}

func (m *relocation) try(ctx context.Context) error {
	p, err := m.Layout.Resolve(m.sid)
	if err != nil {
		return err
	}
	if p.Deleted {
		return ErrDeleted
	}
	if err := m.checkSource(p); err != nil {
		return err
	}
	parts, err := m.survey(ctx)
	if err != nil {
		return err
	}
	if err := m.stage(ctx, parts); err != nil {
		return err
	}
	return m.publishParts(ctx, parts, p.Recorded)
}

// survey takes the inventories, compares them with what is at the destination,
// and writes them down.
func (m *relocation) survey(ctx context.Context) ([]*part, error) {
	t, err := m.inventory(ctx, m.source, nil)
	if err != nil {
		return nil, err
	}
	m.total = t.bytes
	parts := []*part{{source: m.source, staged: m.staged(), dest: m.dest, t: t}}
	undo, undoTree := m.undoSource(), newTree()
	if undo != "" {
		if undoTree, err = m.inventory(ctx, undo, nil); err != nil {
			return nil, err
		}
		m.total += undoTree.bytes
	}
	undoDest := layout.RecoveryDir(m.dest, m.sid)
	if len(undoTree.entries) > 0 {
		parts = append(parts, &part{source: undo, staged: m.stagedUndo(), dest: undoDest, t: undoTree})
	} else {
		undo = ""
		// What an interrupted run published may be gone from the source.
		parts = append(parts, &part{dest: undoDest, t: undoTree, ready: true})
	}
	taken := []bool{m.provablyOurs(parts[0].dest, m.row.inventory, m.row.published), m.provablyOurs(undoDest, m.row.recovery, m.row.publishedR)}
	for i, part := range parts {
		if err := m.reclaim(ctx, part, taken[i], i); err != nil {
			return nil, err
		}
	}
	if undo == "" {
		parts = parts[:1]
	}
	return parts, m.write(StageInventory,
		jsonedit.Member{Key: "inventory", Raw: encodeInventory(t.entries)},
		jsonedit.Member{Key: "recovery_inventory", Raw: encodeInventory(undoTree.entries)},
		jsonedit.Member{Key: "recovery_source", Raw: jsonedit.EncodeString(undo)})
}

// provablyOurs reports that a directory is what a migration published there,
// unchanged.
func (m *relocation) provablyOurs(dest string, inventory []entry, published string) bool {
	t, err := m.inventory(context.Background(), dest, nil)
	if err != nil || len(t.entries) == 0 {
		return false
	}
	return digest(t.entries) == published || sameInventory(t, inventory)
}

// reclaim decides about a destination that exists, though nothing is recorded
// of it: what equals the source is used, what is empty or an outdated
// publication makes room, anything else is a conflict.
func (m *relocation) reclaim(ctx context.Context, p *part, ours bool, n int) error {
	gone, err := m.gone(p.dest)
	if err != nil || gone {
		return err
	}
	have, err := m.inventory(ctx, p.dest, nil)
	if err != nil {
		return err
	}
	if have.empty() {
		return m.FS.Remove(p.dest)
	}
	if rel, differ := p.t.difference(have); differ && !ours {
		if len(p.t.entries) == 0 {
			return nil // undo data that has nothing to do with this session's
		}
		return fmt.Errorf("%w: %s: %s", ErrConflict, p.dest, rel)
	} else if !differ {
		p.ready = true
		return nil
	}
	m.Log.Info("taking back an outdated publication", "session", m.sid, "dir", p.dest)
	back := m.stagingFor(fmt.Sprintf("outdated-%d", n))
	if err := m.FS.RemoveAll(back); err != nil {
		return err
	}
	if err := m.publish(ctx, p.dest, back); err != nil {
		return err
	}
	return m.FS.SyncDir(filepath.Dir(p.dest))
}

// stage fills staging with verified, durable copies.
func (m *relocation) stage(ctx context.Context, parts []*part) error {
	if err := m.write(StageCopy); err != nil {
		return err
	}
	if err := m.removeStaging(); err != nil {
		return err
	}
	var done int64
	tell := func(n int64) {
		done += n
		m.progress(m.sid, StageCopy, done, m.total)
	}
	for _, p := range parts {
		if p.ready {
			continue
		}
		if err := m.copyTree(ctx, p.t, p.source, p.staged, tell); err != nil {
			return err
		}
	}
	if err := m.write(StageVerify); err != nil {
		return err
	}
	for _, p := range parts {
		if err := m.verifyPart(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// verifyPart compares the staged copy, and the source once more, with the
// inventory. A source that changed explains a copy that differs.
func (m *relocation) verifyPart(ctx context.Context, p *part) error {
	again, err := m.inventory(ctx, p.source, p.t)
	if err != nil {
		return err
	}
	if rel, differ := p.t.difference(again); differ {
		return fmt.Errorf("%w: %s", ErrSourceChanged, rel)
	}
	p.t.entries = again.entries // with newer stamps
	if p.ready {
		return nil
	}
	return m.verify(ctx, p.staged, p.t)
}

// publishParts puts the copies in their places and lets the record follow.
func (m *relocation) publishParts(ctx context.Context, parts []*part, recorded bool) error {
	published := []jsonedit.Member{
		{Key: "published", Raw: jsonedit.EncodeString(digest(parts[0].t.entries))},
		{Key: "recovery_published", Raw: jsonedit.EncodeString("")},
	}
	if len(parts) > 1 {
		published[1].Raw = jsonedit.EncodeString(digest(parts[1].t.entries))
	}
	if err := m.write(StageVerify, published...); err != nil {
		return err
	}
	if !recorded {
		if err := m.record(m.source); err != nil {
			return err
		}
	}
	for i, p := range parts {
		if err := m.publishPart(ctx, p); err != nil {
			return err
		}
		if i == 0 {
			if err := m.write(StagePublish); err != nil {
				return err
			}
		}
	}
	if err := m.stillSame(ctx, parts); err != nil {
		return err
	}
	if err := m.record(m.dest); err != nil {
		return err
	}
	m.res.Stage = StageCleanup // also when that cannot be written down
	return m.write(StageCleanup)
}

func (m *relocation) publishPart(ctx context.Context, p *part) error {
	if p.ready {
		// Somebody else's copy may not be on the disk yet.
		if err := m.syncTree(ctx, p.dest); err != nil {
			return err
		}
		return m.FS.SyncDir(filepath.Dir(p.dest))
	}
	return m.publish(ctx, p.staged, p.dest)
}

// syncTree makes a whole directory durable.
func (r *runner) syncTree(ctx context.Context, dir string) error {
	t, err := r.stamps(ctx, dir)
	if err != nil {
		return err
	}
	for _, e := range t.entries {
		if e.link {
			continue
		}
		if err := r.syncFile(filepath.Join(dir, e.rel)); err != nil {
			return err
		}
	}
	return r.syncDirs(dir, t.dirs)
}

// stillSame is the last look at the source before the record moves away from
// it: later writes to it are found only after that, and end up beside it.
func (m *relocation) stillSame(ctx context.Context, parts []*part) error {
	for _, p := range parts {
		now, err := m.stamps(ctx, p.source)
		if err != nil {
			return err
		}
		if !p.t.untouched(now) {
			return fmt.Errorf("%w: after it was copied", ErrSourceChanged)
		}
	}
	return nil
}
