package recovery

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
)

// Before records a file, or that there is none, before a turn changes it. The
// change may begin when Before has returned nil, and must not otherwise. The
// first record in a turn is the one that counts; after an Abort there may be
// another. The error wraps ErrNotRecordable, ErrManifest or ErrBadTurn, or is
// the disk's. The caller holds the session's lock.
func (t *Tree) Before(ctx context.Context, turn, path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, path, err := t.open(turn, path)
	if err != nil {
		return fmt.Errorf("record %s: %w", path, err)
	}
	key := FileKey(path)
	old, known := m.entry(key)
	if known && old.Path != path {
		return fmt.Errorf("record %s: the key is that of %s: %w", path, old.Path, ErrManifest)
	}
	if known && old.Status != Aborted {
		err = t.again(ctx, m, old)
	} else {
		err = t.first(ctx, m, path, old)
	}
	if err != nil {
		return fmt.Errorf("record %s: %w", path, err)
	}
	return nil
}

// open reads the manifest that a change of a file is recorded in.
func (t *Tree) open(turn, path string) (*manifest, string, error) {
	real, err := t.canonical(path)
	if err != nil {
		return nil, path, err
	}
	m, err := t.load(turn)
	if err != nil {
		return nil, path, err
	}
	if m.version != 2 || m.legacy {
		return nil, path, fmt.Errorf("the turn has undo data of the first version: %w", ErrManifest)
	}
	return m, real, nil
}

// first records a file of which nothing that counts is recorded.
func (t *Tree) first(ctx context.Context, m *manifest, path string, aborted Entry) error {
	if err := disk.MkdirOwned(t.fs, m.dir, 0o700); err != nil {
		return err
	}
	key := FileKey(path)
	before, err := keep(t.fs, path, m.dir, key)
	if err != nil {
		return err
	}
	if !before.restorable() {
		return fmt.Errorf("it is a %s: %w", before.Kind, ErrNotRecordable)
	}
	if before.links > 1 {
		return fmt.Errorf("it has other hard links: %w", ErrNotRecordable)
	}
	// When this fails the manifest may name the blob all the same, after a
	// sync that failed: the blob stays.
	if err := t.prepare(ctx, m, path, before); err != nil {
		return err
	}
	if aborted.Before != nil {
		t.dropBlob(m.dir, aborted.Before.Blob)
	}
	return nil
}

// prepare writes the entry of a change that may begin.
func (t *Tree) prepare(ctx context.Context, m *manifest, path string, before State) error {
	seq, err := t.nextSequence(ctx)
	if err != nil {
		return err
	}
	null := []byte("null")
	members := []jsonedit.Member{
		{Key: "path", Raw: jsonedit.EncodeString(path)},
		{Key: "pre_existing", Raw: jsonedit.EncodeBool(before.Kind != Absent)},
		{Key: "status", Raw: jsonedit.EncodeString(string(Prepared))},
		{Key: "operation", Raw: null},
		{Key: "before", Raw: before.encode()},
		{Key: "after", Raw: null},
		{Key: "stats", Raw: diff{}.encode()},
		{Key: "diff_state", Raw: jsonedit.EncodeString("pending")},
		{Key: "recoverability", Raw: jsonedit.EncodeString("exact")},
		{Key: "unavailable_reason", Raw: null},
		{Key: "prepared_at", Raw: jsonedit.EncodeFloat(t.now())},
		{Key: "committed_at", Raw: null},
		{Key: "mutation_sequence", Raw: jsonedit.EncodeInt(seq)},
		{Key: "pending", Raw: jsonedit.EncodeBool(false)},
		{Key: "error", Raw: null},
	}
	if l := t.locate(path); l != nil {
		members = append(members, jsonedit.Member{Key: "project_locator", Raw: l.encode()})
	}
	m.set(FileKey(path), members, t.now())
	return t.save(m)
}

// locate tells where in the bound project a file is.
func (t *Tree) locate(path string) *Locator {
	if t.opt.Project == nil {
		return nil
	}
	l := *t.opt.Project
	root, err := safefile.Resolve(t.fs, l.Root)
	if err != nil || !safefile.Within(root, path) {
		return nil
	}
	if l.Path, err = filepath.Rel(root, path); err != nil {
		return nil
	}
	return &l
}

// again notes that a file is changed once more in a turn: what it was before
// the first change stays what counts.
func (t *Tree) again(ctx context.Context, m *manifest, old Entry) error {
	if old.Status == Prepared || old.Pending {
		return nil
	}
	s, err := look(t.fs, old.Path)
	if err != nil {
		return err
	}
	if !s.restorable() || s.links > 1 {
		return fmt.Errorf("it is a %s with %d names: %w", s.Kind, s.links, ErrNotRecordable)
	}
	seq, err := t.nextSequence(ctx)
	if err != nil {
		return err
	}
	m.set(old.Key, []jsonedit.Member{
		{Key: "pending", Raw: jsonedit.EncodeBool(true)},
		{Key: "mutation_sequence", Raw: jsonedit.EncodeInt(seq)},
	}, t.now())
	return t.save(m)
}

// After records a file as a turn has left it. Before must have been called. The
// caller holds the session's lock.
func (t *Tree) After(ctx context.Context, turn, path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, old, err := t.prepared(ctx, turn, path)
	if err != nil {
		return fmt.Errorf("record %s: %w", path, err)
	}
	after, err := keep(t.fs, old.Path, m.dir, old.Key+".after")
	if err != nil {
		return fmt.Errorf("record %s: %w", path, err)
	}
	if err := t.commit(m, old, after); err != nil {
		return fmt.Errorf("record %s: %w", path, err)
	}
	if old.After != nil {
		t.dropBlob(m.dir, old.After.Blob)
	}
	return nil
}

// prepared finds the entry of a change that was begun.
func (t *Tree) prepared(ctx context.Context, turn, path string) (*manifest, Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, Entry{}, err
	}
	m, real, err := t.open(turn, path)
	if err != nil {
		return nil, Entry{}, err
	}
	e, ok := m.entry(FileKey(real))
	if !ok || e.Path != real || e.Status != Prepared && !e.Pending {
		return nil, Entry{}, ErrNotPrepared
	}
	return m, e, nil
}

func (t *Tree) commit(m *manifest, old Entry, after State) error {
	before := State{Kind: Unavailable}
	if old.Before != nil {
		before = *old.Before
	}
	recoverability, reason := "exact", []byte("null")
	switch {
	case !before.restorable():
		recoverability, reason = "unavailable", jsonedit.EncodeString("missing_preimage")
	case !after.restorable():
		recoverability, reason = "unavailable", jsonedit.EncodeString("unsupported_"+string(after.Kind))
	case after.links > 1:
		recoverability, reason = "unavailable", jsonedit.EncodeString("hard_linked")
	}
	d, err := t.count(m.dir, before, after)
	if err != nil {
		return err
	}
	m.set(old.Key, []jsonedit.Member{
		{Key: "status", Raw: jsonedit.EncodeString(string(Committed))},
		{Key: "operation", Raw: operation(before, after)},
		{Key: "after", Raw: after.encode()},
		{Key: "stats", Raw: d.encode()},
		{Key: "diff_state", Raw: jsonedit.EncodeString(d.state)},
		{Key: "recoverability", Raw: jsonedit.EncodeString(recoverability)},
		{Key: "unavailable_reason", Raw: reason},
		{Key: "committed_at", Raw: jsonedit.EncodeFloat(t.now())},
		{Key: "pending", Raw: jsonedit.EncodeBool(false)},
		{Key: "error", Raw: []byte("null")},
	}, t.now())
	return t.save(m)
}

func operation(before, after State) []byte {
	switch {
	case before.Kind == Absent && after.Kind == Absent:
		return []byte("null")
	case before.Kind == Absent:
		return jsonedit.EncodeString("create")
	case after.Kind == Absent:
		return jsonedit.EncodeString("delete")
	}
	return jsonedit.EncodeString("modify")
}

// Abort records that a change which Before announced did not take place.
// Reason is kept for people. The caller holds the session's lock.
func (t *Tree) Abort(ctx context.Context, turn, path, reason string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, old, err := t.prepared(ctx, turn, path)
	if err != nil {
		return fmt.Errorf("abort %s: %w", path, err)
	}
	members := []jsonedit.Member{
		{Key: "pending", Raw: jsonedit.EncodeBool(false)},
		{Key: "error", Raw: jsonedit.EncodeString(reason)},
	}
	if !old.Pending {
		members = append(members, jsonedit.Member{Key: "status", Raw: jsonedit.EncodeString(string(Aborted))})
	}
	m.set(old.Key, members, t.now())
	if err := t.save(m); err != nil {
		return fmt.Errorf("abort %s: %w", path, err)
	}
	return nil
}

// dropBlob removes a blob that no manifest names any more. One that stays goes
// with its turn.
func (t *Tree) dropBlob(dir, name string) {
	if name != "" {
		_ = t.fs.Remove(filepath.Join(dir, name))
	}
}
