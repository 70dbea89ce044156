package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
)

// asidePrefix begins the name that a source gets beside itself when it is no
// longer one. Discovery skips names with a dot.
const asidePrefix = ".migrated-"

// finish cleans up behind a recorded destination. It is entered again after
// every interruption, and by then the destination may have gone on.
func (m *relocation) finish(ctx context.Context) (Result, error) {
	if !m.row.CleaningUp {
		if err := m.enterCleanup(); err != nil {
			return m.fail(ctx, err)
		}
	}
	for len(m.row.cleanup) > 0 {
		if err := m.retire(ctx, m.row.cleanup[0]); err != nil {
			return m.fail(ctx, fmt.Errorf("clean up: %w", err))
		}
	}
	return m.res, m.markAvailable()
}

// markAvailable lets new work on the project begin, unless another session of
// it is not done.
func (m *relocation) markAvailable() error {
	if m.MarkProject == nil {
		return nil
	}
	rows, err := m.rows(false)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.ProjectID == m.pid && row.Stage != StageDone && row.Stage != StageDeleted {
			return nil
		}
	}
	m.mark(m.pid, "available", "")
	return nil
}

// enterCleanup writes down that the session is done, and what is left to
// remove.
func (m *relocation) enterCleanup() error {
	var more []jsonedit.Member
	if m.row.Stage == StagePublish || m.row.Stage == StageCleanup {
		// The peer's row: by then it had found both trees as inventoried.
		more = append(more, jsonedit.Member{Key: "published", Raw: jsonedit.EncodeString(digest(m.row.inventory))})
		if m.row.Stage == StageCleanup {
			more = append(more, jsonedit.Member{Key: "recovery_published", Raw: jsonedit.EncodeString(digest(m.row.recovery))})
		}
	}
	m.res.Stage = StageCleanup
	if m.row.Stage != StageDone {
		if err := m.write(StageCleanup, more...); err != nil {
			return err
		}
	}
	if err := m.removeStaging(); err != nil {
		return err
	}
	items, err := m.leftovers()
	if err != nil {
		return err
	}
	return m.writeItems(items)
}

// writeItems marks the row done but for these. With none left, the inventories
// have served their purpose; the journal would grow without end.
func (m *relocation) writeItems(items []leftover, more ...jsonedit.Member) error {
	more = append(more, jsonedit.Member{Key: "cleanup", Raw: encodeLeftovers(items)})
	if empty := []byte("[]"); len(items) == 0 {
		more = append(more, jsonedit.Member{Key: "inventory", Raw: empty}, jsonedit.Member{Key: "recovery_inventory", Raw: empty})
	}
	return m.write(StageDone, more...)
}

// leftovers lists the old data that is still there.
func (m *relocation) leftovers() ([]leftover, error) {
	if m.source == "" {
		return nil, nil
	}
	var items []leftover
	for _, it := range []leftover{
		{of: "session", path: m.source},
		{of: "recovery", path: layout.RecoveryDir(m.source, m.sid)},
	} {
		gone, err := m.gone(it.path)
		if err != nil {
			return nil, err
		}
		if gone || !m.retirable(it) {
			continue
		}
		if it.aside, err = m.freeAside(it.path); err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	return items, nil
}

// retirable guards against removing the destination through another name of
// it.
func (m *relocation) retirable(it leftover) bool {
	real := realPath(it.path)
	dest := m.destOf(it)
	return filepath.Base(it.path) == m.sid && !m.inRoot(it.path) &&
		!below(real, realPath(dest)) && !below(realPath(dest), real) && !below(real, realPath(m.Layout.Root()))
}

func (m *relocation) destOf(it leftover) string {
	if it.of == "recovery" {
		return layout.RecoveryDir(m.dest, m.sid)
	}
	return m.dest
}

// freeAside returns a name that is free for path to be set aside under.
func (m *relocation) freeAside(path string) (string, error) {
	base := filepath.Join(filepath.Dir(path), asidePrefix+filepath.Base(path))
	for n := 1; ; n++ {
		name := base
		if n > 1 {
			name += "." + strconv.Itoa(n)
		}
		gone, err := m.gone(name)
		if err != nil || gone {
			return name, err
		}
	}
}

// retire sets one piece of old data aside, compares it with the destination
// and removes it, or keeps it.
func (m *relocation) retire(ctx context.Context, it leftover) error {
	if ok, err := m.present(m.dest); err != nil || !ok {
		return errors.Join(fmt.Errorf("%w: %s", ErrUnavailable, m.dest), err)
	}
	moved, err := m.setAside(it)
	if denied(err) {
		m.Log.Warn("old session data cannot be moved", "session", m.sid, "path", it.path, "err", err)
		return m.keep(it, it.path)
	}
	if err != nil {
		return err
	}
	if !it.verified || moved {
		missing, err := m.lost(ctx, it)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			m.Log.Warn("old session data has more than the session and is kept",
				"session", m.sid, "path", it.aside, "files", len(missing))
			return m.keep(it, it.aside)
		}
		if err := m.writeCleanup(func(l *leftover) { l.verified = true }); err != nil {
			return err
		}
	}
	err = m.FS.RemoveAll(it.aside)
	if denied(err) {
		m.Log.Warn("old session data cannot be removed", "session", m.sid, "path", it.aside, "err", err)
		return m.keep(it, it.aside)
	}
	if err != nil {
		return err
	}
	if err := m.FS.SyncDir(filepath.Dir(it.aside)); err != nil && !absent(err) {
		return err
	}
	return m.writeCleanup(nil)
}

// setAside renames the old data, unless that was done before.
func (m *relocation) setAside(it leftover) (moved bool, err error) {
	gone, err := m.gone(it.path)
	if err != nil || gone {
		return false, err
	}
	if gone, err = m.gone(it.aside); err != nil || !gone {
		return false, err // what is at the old path is new, and not ours
	}
	if err := m.FS.RenameNoReplace(it.path, it.aside); err != nil {
		return false, err
	}
	return true, m.FS.SyncDir(filepath.Dir(it.aside))
}

// denied reports an error that trying again does not cure.
func denied(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

// lost returns the files of old data that are not in the destination.
func (m *relocation) lost(ctx context.Context, it leftover) ([]string, error) {
	t, err := m.inventory(ctx, it.aside, nil)
	if err != nil {
		return nil, err
	}
	entries, published := m.row.inventory, m.row.published
	if it.of == "recovery" {
		entries, published = m.row.recovery, m.row.publishedR
	}
	var delivered *tree
	if len(entries) > 0 && digest(entries) == published {
		delivered = newTree()
		for _, e := range entries {
			delivered.add(e)
		}
	}
	return m.missing(ctx, t, it.aside, m.destOf(it), delivered)
}

// keep ends the work on old data that stays.
func (m *relocation) keep(it leftover, path string) error {
	var kept [][]byte
	for _, k := range append(m.row.Kept, path) {
		kept = append(kept, jsonedit.EncodeString(k))
	}
	return m.writeItems(m.row.cleanup[1:], jsonedit.Member{Key: "kept", Raw: jsonedit.EncodeArray(kept)})
}

// writeCleanup changes the first item of the row's cleanup, or drops it.
func (m *relocation) writeCleanup(edit func(*leftover)) error {
	items := append([]leftover(nil), m.row.cleanup...)
	if edit != nil {
		edit(&items[0])
	} else {
		items = items[1:]
	}
	return m.writeItems(items)
}
