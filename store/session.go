package store

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/layout"
)

// session is what this process keeps of one session beside the store: its
// lock, its current snapshot and its repository handle. It holds no
// persistent field, so it can be dropped whenever nobody uses it.
type session struct {
	id string
	// lock is lock level 1, the session's in-process lock: a channel of one
	// token, so that waiting for it can end.
	lock chan struct{}
	cur  atomic.Pointer[Snapshot] // written with lock held
	// version counts snapshots; guarded by lock.
	version uint64
	repo    *gitrepo.Repo // guarded by lock
	repoDir string        // guarded by lock
	// replayed: what a crash left of a rewind has been ended. Guarded by lock.
	replayed bool
	// looked: the replies of dead workers have been looked for.
	looked atomic.Bool

	pins  int         // guarded by Store.mu
	dirty bool        // guarded by Store.mu: something waits for a commit
	timer *time.Timer // guarded by Store.mu: the quiet time
}

func newSession(id string) *session {
	return &session{id: id, lock: make(chan struct{}, 1)}
}

// acquire takes the session's in-process lock.
func (se *session) acquire(ctx context.Context, timeout time.Duration) error {
	select {
	case se.lock <- struct{}{}:
		return nil
	default:
	}
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case se.lock <- struct{}{}:
		return nil
	case <-t.C:
		return filelock.ErrTimeout
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (se *session) release() { <-se.lock }

// session returns the session object of id, making it when there is none.
// It says nothing about whether the session exists on disk.
func (s *Store) session(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if se, ok := s.pinned[id]; ok {
		return se
	}
	if se, ok := s.cache.Get(id); ok {
		return se
	}
	se := newSession(id)
	s.cache.Add(id, se)
	return se
}

// place finds a session on disk. NotFound for ids that are no legal name,
// were deleted, or have nothing on disk.
func (s *Store) place(op, id string) (layout.Place, error) {
	if layout.ValidID(id) != nil {
		return layout.Place{}, &Error{Code: NotFound, Op: op, Session: id, Err: errUnknownSession}
	}
	p, err := s.layout.Resolve(id)
	switch {
	case err != nil:
		return p, &Error{Code: Corrupt, Op: op, Session: id, Err: err}
	case p.Deleted, !p.Present && !p.Symlink && !p.Unreachable:
		return p, &Error{Code: NotFound, Op: op, Session: id, Err: errUnknownSession}
	}
	return p, nil
}

// Dir is where a session is now, which its snapshot need not say yet: another
// program may just have moved it. It takes no lock. NotFound, also for a session
// that is not whole there, or one that is only read (Snapshot.Legacy).
func (s *Store) Dir(id string) (string, error) {
	place, err := s.place("find session", id)
	if err != nil {
		return "", err
	}
	if !place.Openable || place.Legacy {
		return "", &Error{Code: NotFound, Op: "find session", Session: id, Err: errUnknownSession}
	}
	return place.Dir, nil
}

var errUnknownSession = errors.New("no such session")

// Load returns the session's current snapshot, read anew if the disk changed
// since (reference 13, "Check"). NotFound.
func (s *Store) Load(ctx context.Context, id string) (*Snapshot, error) {
	place, err := s.place("open session", id)
	if err != nil {
		return nil, err
	}
	se := s.session(id)
	if sn := se.cur.Load(); sn != nil && s.fresh(sn, place) && !s.toLookAt(se) {
		return sn, nil
	}
	se = s.pin(id) // evicted from the cache meanwhile, it would not be the one
	defer s.unpin(se)
	if err := se.acquire(ctx, s.lockTimeout); err != nil {
		return nil, s.lockError("open session", id, err)
	}
	sn, change := s.refreshLocked(ctx, se, place, false)
	se.release()
	s.publish(ctx, change)
	return s.attend(ctx, se, sn), nil
}

// fresh reports whether a snapshot still shows what is on disk.
func (s *Store) fresh(sn *Snapshot, place layout.Place) bool {
	return sn.unread == nil && sn.Dir == place.Dir && sn.Legacy == place.Legacy &&
		sn.fp == takeFingerprint(s.fs, place.Dir, place.Openable)
}

// readWait bounds how long a reading waits for a writer's lock, so that it
// does not show the middle of a change of several files. A lock held longer
// is somebody's long work, and every single file is whole at any time.
const readWait = 50 * time.Millisecond

// refreshLocked makes the current snapshot follow the disk and returns it,
// with the change to publish when it is another one than before. With force,
// it reads again although the fingerprint is the same. flocked tells that the
// session's inter-process lock is held by the caller.
//
// Requires se.lock.
func (s *Store) refreshLocked(ctx context.Context, se *session, place layout.Place, flocked bool) (*Snapshot, *Change) {
	old := se.cur.Load()
	if old != nil && s.fresh(old, place) {
		return old, nil
	}
	return s.rereadLocked(ctx, se, place, flocked)
}

// rereadLocked is refreshLocked without asking whether the disk changed.
//
// Requires se.lock.
func (s *Store) rereadLocked(ctx context.Context, se *session, place layout.Place, flocked bool) (*Snapshot, *Change) {
	old := se.cur.Load()
	if !flocked {
		l, err := filelock.AcquireShared(ctx, s.layout.LockPath(se.id), readWait)
		if err == nil && l != nil {
			defer l.Unlock()
		}
	}
	base := old
	if s.movedTo(old, place) {
		base = nil
	}
	sn := s.readSnapshot(se.id, place, base)
	if old == nil {
		s.swapLocked(se, sn)
		return sn, nil
	}
	s.swapLocked(se, sn)
	c := &Change{ID: se.id, Old: old, New: sn, Foreign: true, Row: true, Listing: old.Archived != sn.Archived}
	s.tell(*c)
	return sn, c
}

// movedTo reports whether a session is at another place than its snapshot has it,
// nil for none. Then its watches are set anew before it is read there.
func (s *Store) movedTo(sn *Snapshot, place layout.Place) bool {
	if sn == nil || sn.Dir == place.Dir {
		return false
	}
	if s.watch != nil {
		s.watch.move(sn.ID, sn.Dir, place)
	}
	return true
}

// swapLocked makes sn the current snapshot.
//
// Requires se.lock.
func (s *Store) swapLocked(se *session, sn *Snapshot) {
	se.version++
	sn.Version = se.version
	if old := se.cur.Load(); old != nil && !sn.MTime.After(old.MTime) {
		sn.MTime = old.MTime.Add(1)
	}
	se.cur.Store(sn)
}

// lockError turns a failed wait for a lock into the store's error.
func (s *Store) lockError(op, id string, err error) error {
	if errors.Is(err, filelock.ErrTimeout) {
		return &Error{Code: Locked, Op: op, Session: id, Err: errLockBusy,
			Hint: "another process is writing to the session; try again"}
	}
	if ctxErr := contextCause(err); ctxErr != nil {
		return ctxErr
	}
	code := diskCode(err)
	return &Error{Code: code, Op: op, Session: id, Err: err, Hint: lockHint(code)}
}

// lockHint says what to do about a lock file that cannot be made or opened.
func lockHint(code Code) string {
	switch code {
	case Immutable:
		return "look at the owner and the permissions of the store and of .locks in it"
	case ReadOnly:
		return "the store is on a read-only file system, where nothing can be changed"
	case NoSpace:
		return "make room on the disk that the store is on"
	}
	return "'sessionfs check' says what is in the way of .locks, the directory of the lock files"
}

var errLockBusy = errors.New("the session is locked by another writer")

// contextCause returns err when it only says that the caller gave up.
func contextCause(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// Pin keeps a session loaded and watched until release is called. Watched is
// false when the system has no watch left for it, or the store was opened
// without watching: then ask Load at each use.
func (s *Store) Pin(ctx context.Context, id string) (sn *Snapshot, watched bool, release func(), err error) {
	se := s.pin(id)
	release = func() {
		if watched {
			s.watch.dropSession(id)
		}
		s.unpin(se)
	}
	place, err := s.place("open session", id)
	if err != nil {
		release()
		return nil, false, nil, err
	}
	// The watch comes before the reading: what changes in between is seen.
	watched = s.watch != nil && s.watch.addSession(id, place.Dir)
	if sn, err = s.Load(ctx, id); err != nil {
		release()
		return nil, false, nil, err
	}
	return sn, watched, release, nil
}

func (s *Store) pin(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	se, ok := s.pinned[id]
	if !ok {
		if se, ok = s.cache.Get(id); ok {
			s.cache.Remove(id)
		} else {
			se = newSession(id)
		}
		s.pinned[id] = se
	}
	se.pins++
	return se
}

func (s *Store) unpin(se *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	se.pins--
	if se.pins == 0 {
		delete(s.pinned, se.id)
		s.cache.Add(se.id, se)
	}
}

// restSessions is how many sessions that nobody pins stay loaded at rest.
const restSessions = 8

// Rest drops most of what is kept of sessions that nobody pins, as a cache that
// is full does: they were looked into, and nobody asks. What is in use stays.
func (s *Store) Rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := s.cache.Keys() // the oldest first
	for _, id := range ids[:max(0, len(ids)-restSessions)] {
		se, ok := s.cache.Peek(id)
		if !ok || se.dirty || se.timer != nil {
			continue
		}
		select {
		case se.lock <- struct{}{}:
			if se.repo != nil {
				_ = se.repo.Close()
				se.repo = nil
			}
			se.release()
			s.cache.Remove(id)
		default: // something is being done with it
		}
	}
}

// Reload drops what is cached of a session ("" = of all loaded ones) and
// reads it again. NotFound.
func (s *Store) Reload(ctx context.Context, id string) error {
	if id == "" {
		s.list.forget()
		for _, id := range s.loadedIDs() {
			if err := s.Reload(ctx, id); err != nil && CodeOf(err) != NotFound {
				return err
			}
		}
		s.rescan(ctx)
		return nil
	}
	place, err := s.place("reload", id)
	if err != nil {
		return err
	}
	se := s.pin(id)
	defer s.unpin(se)
	if err := se.acquire(ctx, s.lockTimeout); err != nil {
		return s.lockError("reload", id, err)
	}
	old := se.cur.Load()
	s.movedTo(old, place)
	sn := s.readSnapshot(id, place, nil)
	s.swapLocked(se, sn)
	var c *Change
	if old != nil {
		c = &Change{ID: id, Old: old, New: sn, Row: true, Listing: old.Archived != sn.Archived}
		s.tell(*c)
	}
	se.release()
	s.publish(ctx, c)
	return nil
}

// loadedIDs lists the sessions that have a snapshot in memory.
func (s *Store) loadedIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := s.cache.Keys()
	for id := range s.pinned {
		ids = append(ids, id)
	}
	return ids
}
