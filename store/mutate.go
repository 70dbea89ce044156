package store

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
)

// tx is one change of one session, made with the session's locks held: the
// in-process lock and the inter-process lock, in that order. sn is the state
// on disk at the time the locks were taken, or after the last write of this
// change.
type tx struct {
	s       *Store
	se      *session
	op      string
	place   layout.Place
	sn      *Snapshot
	changes []*Change
	// ahead is the state with what was written since sn became current, when
	// one change takes several writes: they are shown together.
	ahead *Snapshot
}

// change runs fn with the locks of a session held, and publishes afterwards
// what became of it, also when fn fails half-way: what was written is
// written. The order is that of every change (docs/architecture.md): locks,
// what changed on disk, refusals, writes, the new snapshot, release, publish.
func (s *Store) change(ctx context.Context, op, id string, timeout time.Duration, fn func(t *tx) error) error {
	return s.changeAll(ctx, op, []string{id}, timeout, func(ts []*tx) error { return fn(ts[0]) })
}

// changeAll is change for several sessions at once. Their locks are taken in
// the order of their ids, whatever the order they are named in.
func (s *Store) changeAll(ctx context.Context, op string, ids []string, timeout time.Duration, fn func(ts []*tx) error) error {
	if timeout <= 0 {
		timeout = lockTimeoutOf(ctx, s.lockTimeout)
	}
	ts := make([]*tx, len(ids))
	for i, id := range ids {
		if s.opt.ReadOnly {
			return &Error{Code: ReadOnly, Op: op, Session: id, Err: errReadOnlyStore}
		}
		if _, err := s.place(op, id); err != nil {
			return err
		}
		se := s.pin(id)
		defer s.unpin(se)
		ts[i] = &tx{s: s, se: se, op: op}
	}
	ordered := slices.Clone(ts)
	slices.SortFunc(ordered, func(a, b *tx) int { return strings.Compare(a.se.id, b.se.id) })
	err := lockAll(ctx, ordered, time.Now().Add(timeout), func() error { return fn(ts) })
	for _, t := range ordered {
		s.publish(ctx, t.changes...)
	}
	return err
}

// lockAll runs fn with the locks of the sessions held. Each session's two locks
// are taken together, the in-process one first, in the order of ts.
func lockAll(ctx context.Context, ts []*tx, deadline time.Time, fn func() error) error {
	if len(ts) == 0 {
		return fn()
	}
	t, began := ts[0], time.Now()
	if err := t.se.acquire(ctx, max(time.Until(deadline), time.Millisecond)); err != nil {
		return t.s.lockError(t.op, t.se.id, err)
	}
	defer t.se.release()
	lock, err := filelock.Acquire(ctx, t.s.layout.LockPath(t.se.id), max(time.Until(deadline), time.Millisecond))
	if err != nil {
		return t.s.lockError(t.op, t.se.id, err)
	}
	defer lock.Unlock()
	t.s.timed(LockWait, began)
	if err := t.open(ctx); err != nil {
		return err
	}
	return lockAll(ctx, ts[1:], deadline, fn)
}

var errReadOnlyStore = errors.New("the store is open read-only")

// open reads the placement and the delete intent again, now that nobody can
// change them (reference 3.3), and what else changed on disk.
//
// Requires the session's locks.
func (t *tx) open(ctx context.Context) (err error) {
	if t.place, err = t.s.place(t.op, t.se.id); err != nil {
		return err
	}
	sn, c := t.s.refreshLocked(ctx, t.se, t.place, true)
	t.sn = sn
	t.changes = append(t.changes, c)
	if err := t.writable(); err != nil {
		return err
	}
	t.replayRewind(ctx)
	return t.finishDelete(ctx)
}

var errLaterIntent = errors.New("a newer OpenProgram left an unfinished change here")

// writable refuses a session that must not be written.
func (t *tx) writable() error {
	switch {
	case t.place.Legacy:
		return t.unmigrated("not migrated yet: the working folder's copy is only read")
	case t.place.HistoryRepo:
		return t.unmigrated("not migrated yet: the first layout, with its repository in history/, is only read")
	case t.place.Symlink:
		return t.fail(Corrupt, "", errSymlinked)
	case !t.place.Openable:
		return t.fail(Corrupt, "", errors.New("the repository or its history is missing"))
	case t.s.layout.LaterIntent(t.place.Dir):
		return t.fail(ReadOnly, "", errLaterIntent)
	case t.sn.meta.err != nil:
		return t.fail(Corrupt, metaFile, t.sn.meta.err)
	case t.sn.unread != nil:
		return t.fail(Corrupt, historyDir, t.sn.unread)
	}
	return nil
}

// unmigrated refuses a session that lies where an old version left it.
func (t *tx) unmigrated(text string) error {
	return &Error{Code: ReadOnly, Op: t.op, Session: t.se.id, Err: errors.New(text),
		Hint: "move it to where it belongs: sessionfs migrate " + t.se.id}
}

func (t *tx) fail(code Code, ref string, err error) error {
	return &Error{Code: code, Op: t.op, Session: t.se.id, Ref: ref, Err: err}
}

// diskFail wraps a failure of the disk.
func (t *tx) diskFail(ref string, err error) error {
	return t.fail(diskCode(err), ref, err)
}

// diskCode is the code of an error that the disk gave.
func diskCode(err error) Code {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return NoSpace
	case errors.Is(err, syscall.EFBIG):
		return TooLarge
	case errors.Is(err, syscall.EROFS):
		return ReadOnly
	case errors.Is(err, fs.ErrPermission):
		return Immutable
	case errors.Is(err, filelock.ErrTimeout), errors.Is(err, gitrepo.ErrLocked):
		return Locked
	}
	return Corrupt
}

// timestamp is now as meta.json holds it.
func (t *tx) timestamp() float64 { return epoch(t.s.now()) }

// editMeta starts an edit of meta.json: a copy that writeMeta writes.
func (t *tx) editMeta() *jsonedit.Object { return t.sn.meta.obj.Clone() }

// writeMeta writes meta.json durably and makes the state with it current. A
// text that is what the disk holds already is not written.
func (t *tx) writeMeta(obj *jsonedit.Object) error {
	raw := obj.Bytes()
	if t.ahead == nil && string(raw) == string(t.sn.meta.raw) {
		return nil
	}
	path := filepath.Join(t.place.Dir, metaFile)
	err := disk.WriteAtomic(t.s.fs, path, raw, disk.WriteOptions{})
	if err != nil {
		// A write that failed late may have taken place all the same.
		t.reread()
		return t.diskFail(metaFile, err)
	}
	next := t.ahead
	if next == nil {
		next = t.sn.next()
	}
	next.meta = meta{raw: raw, obj: obj}
	t.become(next)
	return nil
}

// next is a copy of the snapshot to be changed and made current: what is
// derived from meta.json or computed on demand is left out.
func (sn *Snapshot) next() *Snapshot {
	return &Snapshot{
		ID: sn.ID, Dir: sn.Dir, Index: sn.Index, Openable: sn.Openable, Legacy: sn.Legacy,
		UID: sn.UID, GID: sn.GID,
		s: sn.s, meta: sn.meta, entries: sn.entries, bad: sn.bad,
		fileProblems: sn.fileProblems, unread: sn.unread, restored: sn.restored, unreachable: sn.unreachable, maxSeq: sn.maxSeq,
	}
}

// become makes next the current snapshot after a write of ours: it takes the
// fingerprint that the disk has now, re-reads the branch, and notes the change
// to publish. The session's inter-process lock keeps the peer's writers of
// this state out meanwhile.
func (t *tx) become(next *Snapshot) {
	old := t.sn
	next.fp = takeFingerprint(t.s.fs, t.place.Dir, t.place.Openable)
	next.describe(t.place)
	next.diagnose()
	t.s.swapLocked(t.se, next)
	t.sn, t.ahead = next, nil
	c := &Change{ID: t.se.id, Old: old, New: next, Row: true, Listing: old.Archived != next.Archived}
	t.s.tell(*c)
	t.changes = append(t.changes, c)
}

// reread makes the current snapshot what the disk holds, after a write that
// failed at a point where it is not known what became of it.
func (t *tx) reread() {
	sn, c := t.s.rereadLocked(context.Background(), t.se, t.place, true)
	t.sn, t.ahead = sn, nil
	if c != nil {
		c.Foreign = false
		t.changes = append(t.changes, c)
	}
}

// repo opens the session's repository, or returns the open one.
func (t *tx) repo() (*gitrepo.Repo, error) {
	if t.se.repo != nil && t.se.repoDir == t.place.Dir {
		return t.se.repo, nil
	}
	if t.se.repo != nil {
		_ = t.se.repo.Close()
		t.se.repo = nil
	}
	r, err := gitrepo.Open(t.place.Dir, t.s.git)
	if err != nil {
		return nil, t.fail(Corrupt, ".git", err)
	}
	t.se.repo, t.se.repoDir = r, t.place.Dir
	return r, nil
}
