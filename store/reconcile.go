package store

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
)

// recentChange is how young a change must be for ReconcileAuto to take it for
// a sign that somebody is at work in the session.
const recentChange = 10 * time.Minute

// reconcile makes every session that is still "running" "interrupted", in
// meta.json and in the registry (reference 8.3; the requirement texts over the
// peer's "idle"), and "cancelling" "cancelled". The replies are another pass's
// business (attend), except for those of a run of ours that is known to be dead.
// Rows are those of all sessions.
func (s *Store) reconcile(ctx context.Context, rows []listed) {
	taken := s.takenLeases()
	for _, r := range rows {
		// A lease that names a run may be all that a crash left of it.
		if ended(r.row.Str("status")) == "" && !taken(r.place.ID) {
			continue
		}
		if err := s.reconcileOne(ctx, r.place.ID); err != nil {
			s.log.Warn("reconcile run", "session", r.place.ID, "err", err)
		}
	}
}

// takenLeases tells of each session whether its lease names a run of ours. The
// directory of the locks is read once: most sessions have no lease there.
func (s *Store) takenLeases() func(id string) bool {
	entries, err := s.fs.ReadDir(filepath.Dir(s.layout.RunLockPath("x")))
	if errors.Is(err, fs.ErrNotExist) {
		return func(string) bool { return false }
	}
	if err != nil {
		return func(id string) bool { return leaseTaken(s.fs, s.layout.RunLockPath(id)) }
	}
	there := make(map[string]bool, len(entries))
	for _, e := range entries {
		if e.Type().IsRegular() {
			there[e.Name()] = true
		}
	}
	return func(id string) bool {
		path := s.layout.RunLockPath(id)
		return there[filepath.Base(path)] && leaseTaken(s.fs, path)
	}
}

// ended is the status that a run's status becomes when its process is gone,
// "" for a status that is none of a run.
func ended(status string) string {
	switch status {
	case statusRunning:
		return statusInterrupted
	case statusCancelling:
		return statusCancelled
	}
	return ""
}

// reconcileOne ends one session's dead run. A session that cannot be written
// has its row corrected all the same: it is only a row.
func (s *Store) reconcileOne(ctx context.Context, id string) error {
	place, err := s.place("reconcile run", id)
	if err != nil {
		return ignoreUnknown(err)
	}
	if !place.Openable {
		s.list.mu.Lock()
		row, ok := s.list.reg.Row(id)
		s.list.mu.Unlock()
		if ok && ended(row.Str("status")) != "" {
			s.list.put(id, KV{"status", []byte(`"` + ended(row.Str("status")) + `"`)})
		}
		return nil
	}
	return s.change(ctx, "reconcile run", id, 0, func(t *tx) error {
		if s.opt.Reconcile == ReconcileAuto && t.mayBeAlive() {
			return nil
		}
		status := t.sn.meta.status()
		if _, ok := t.sn.meta.obj.Get("status"); !ok {
			// Only the row speaks of a run: meta.json never did.
			s.list.mu.Lock()
			if row, ok := s.list.reg.Row(id); ok {
				status = row.Str("status")
			}
			s.list.mu.Unlock()
			own := t.sn.meta.obj.Str("id")
			if to := ended(status); to != "" && (t.sn.meta.missing || own != "" && own != id) {
				// Another session's meta.json is not written, and one of a status
				// alone would hide that the session's own is lost.
				s.list.put(id, KV{"status", jsonedit.EncodeString(to)})
				status = ""
			}
		}
		return t.endDead(status)
	})
}

// endDead ends what a run that is no more has left: its status, and its name in
// the lease. A lease that names a run and that nobody holds is the kernel's own
// word: then the run's replies end in the same pass, before the lease forgets
// it. A run that waits for the user has only its lease to say that it is dead;
// without one it waits on (reference 8.3 ends what was running).
func (t *tx) endDead(status string) error {
	to, path := ended(status), t.s.layout.RunLockPath(t.se.id)
	held, err := filelock.Held(path)
	dead := err == nil && !held && leaseTaken(t.s.fs, path)
	if to == "" && !dead {
		return nil // not known to be dead
	}
	if status == statusNeedsInput {
		to = statusInterrupted
	}
	if dead {
		n, err := t.sweepNodes()
		if err != nil {
			return err
		}
		if n > 0 {
			t.s.noteEnded(t.se.id)
		}
	}
	if to != "" {
		if err := t.setStatus(to); err != nil {
			return err
		}
		t.s.noteEnded(t.se.id)
	}
	return clearLease(t.s.fs, path)
}

// noteEnded remembers that this store has ended a session's run: that it
// changed just now is no sign of life.
func (s *Store) noteEnded(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endedRuns[id] = true
}

func (s *Store) hasEnded(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endedRuns[id]
}

// mayBeAlive reports whether somebody may be at work in a session whose
// status says so: a lease is held, a worker lives, or it changed just now.
func (t *tx) mayBeAlive() bool {
	path := t.s.layout.RunLockPath(t.se.id)
	if held, err := filelock.Held(path); err != nil || held {
		return true
	}
	if leaseTaken(t.s.fs, path) {
		return t.sn.workerAlive() // one of ours, and its process is gone
	}
	return t.sn.workerAlive() || !t.s.hasEnded(t.se.id) && t.s.now().Sub(t.sn.fp.mtime()) < recentChange
}

// The texts that the peer leaves in a node whose worker died (reference 8.4).
const (
	sweptError  = "Worker restarted before this turn finished"
	sweptOutput = "[interrupted] worker restarted mid-turn"
)

// SweepNodes turns the nodes of a session that a dead worker left "running"
// into "interrupted", and "cancelling" ones into "cancelled" (reference 8.4):
// no head moves, no time changes, nothing is committed. It is for the process
// that owns the runs. With ReconcileAuto a session at which somebody may be at
// work is left alone. It returns how many nodes it changed.
func (s *Store) SweepNodes(ctx context.Context, id string) (int, error) {
	s.session(id).looked.Store(true)
	sn, err := s.Load(ctx, id)
	if err != nil || sn.unread == nil && !sn.hasUnended() {
		return 0, err
	}
	fixed := 0
	err = s.change(ctx, "sweep nodes", id, 0, func(t *tx) error {
		if s.opt.Reconcile == ReconcileAuto && t.mayBeAlive() {
			return nil
		}
		fixed, err = t.sweepNodes()
		return err
	})
	return fixed, err
}

// sweepNodes ends all nodes that are in the middle of their turn, each by
// itself, and returns how many.
func (t *tx) sweepNodes() (fixed int, err error) {
	for n := range t.sn.Index.All() {
		// Of two files with one id only the last can be changed (reference 2.5).
		if last, _ := t.sn.Index.Get(n.ID); ended(n.Status) == "" || last != n {
			continue
		}
		if err := t.sweepNode(n); err != nil {
			return fixed, err
		}
		fixed++
	}
	return fixed, nil
}

// toLookAt reports whether a session waits for attend's first look.
func (s *Store) toLookAt(se *session) bool { return !s.opt.ReadOnly && !se.looked.Load() }

// attend does what a dead process left undone in a session, when it is loaded:
// a deletion that was cut off is finished, and at a store's first look also a
// rewind's restoration of files and, if the store reconciles, the replies that
// a dead worker left (reference 8.4). Open does none of it: it reads no history.
// What cannot be done now, because somebody is at work, is left; the snapshot
// that is returned is right in any case.
func (s *Store) attend(ctx context.Context, se *session, sn *Snapshot) *Snapshot {
	if s.opt.ReadOnly || !sn.Openable || sn.Legacy {
		return sn
	}
	first := se.looked.CompareAndSwap(false, true)
	if sn.pending != nil && sn.pending.err == nil || first && s.rewindUnfinished(sn) {
		// The change does it before anything of its own (tx.open).
		s.tolerate("finish what a crash cut off", sn.ID, s.finishDeleteNodes(ctx, sn.ID, readWait))
	}
	if first && s.opt.Reconcile != ReconcileNever && sn.hasUnended() {
		s.tolerate("sweep nodes", sn.ID, s.change(ctx, "sweep nodes", sn.ID, readWait, func(t *tx) error {
			if t.runActive() || t.sn.workerAlive() || s.opt.Reconcile == ReconcileAuto && t.mayBeAlive() {
				return nil
			}
			_, err := t.sweepNodes()
			return err
		}))
	}
	if now := se.cur.Load(); now != nil {
		return now
	}
	return sn
}

// rewindUnfinished reports whether a crash cut off a rewind's restoration of
// files.
func (s *Store) rewindUnfinished(sn *Snapshot) bool {
	if _, err := s.fs.Lstat(filepath.Join(layout.RecoveryDir(sn.Dir, sn.ID), "intents")); err != nil {
		return false
	}
	t := &tx{s: s, se: &session{id: sn.ID}, sn: sn}
	unfinished, err := t.recovery().Unfinished()
	return err != nil || unfinished
}

// tolerate logs why something that can wait was not done.
func (s *Store) tolerate(what, id string, err error) {
	switch CodeOf(err) {
	case "", Locked, RunActive:
		return
	}
	s.log.Warn(what, "session", id, "err", err)
}

// hasUnended reports whether a node is still in the middle of its turn.
func (sn *Snapshot) hasUnended() bool {
	for n := range sn.Index.All() {
		if ended(n.Status) != "" {
			return true
		}
	}
	return false
}

// sweepNode ends one node.
func (t *tx) sweepNode(n dag.Node) error {
	old, err := t.metadata(n.ID)
	if err != nil {
		return err
	}
	now := jsonedit.EncodeFloat(t.timestamp())
	md := map[string][]byte{"status": jsonedit.EncodeString(ended(n.Status))}
	if n.Status == statusCancelling {
		if !old.Truthy("finished_at") {
			md["finished_at"] = now
		}
		return t.rewriteNode(n.ID, nil, md)
	}
	if !old.Truthy("error") {
		md["error"] = jsonedit.EncodeString(sweptError)
	}
	md["interrupted_at"] = now
	var output []byte
	text, err := t.sn.Text(n.ID)
	if failedRead(err) {
		return t.asOp(err)
	}
	if err == nil && len(bytes.TrimSuffix(text, []byte("\n"))) == 0 {
		output = jsonedit.EncodeString(sweptOutput)
	}
	return t.rewriteNode(n.ID, output, md)
}

// restoreHistories brings back the history of sessions that lost it and have
// it in Git: files are written back, none is overwritten, and the session's
// problems say so. It reports whether it may have changed any.
func (s *Store) restoreHistories(ctx context.Context, places []layout.Place) (changed bool) {
	for _, p := range places {
		if p.Symlink || p.Legacy || p.Deleted || p.Unreachable || p.Openable {
			continue
		}
		if _, err := s.fs.Lstat(filepath.Join(p.Dir, historyDir)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		changed = true
		if err := s.restoreHistory(ctx, p); err != nil {
			s.log.Warn("restore history from Git", "session", p.ID, "err", err)
		}
	}
	return changed
}

func (s *Store) restoreHistory(ctx context.Context, p layout.Place) error {
	r, err := gitrepo.Open(p.Dir, s.git)
	if err != nil {
		return nil // no repository, nothing to restore from
	}
	defer r.Close()
	has, err := r.HeadHasPath(ctx, historyDir)
	if err != nil || !has {
		return err
	}
	lock, err := filelock.Acquire(ctx, s.layout.LockPath(p.ID), readWait)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	n, err := s.restoreFiles(ctx, r, p.Dir)
	if n > 0 {
		s.log.Warn("history restored from Git", "session", p.ID, "files", n)
		s.mu.Lock()
		s.restoredFiles[p.ID] = n
		s.mu.Unlock()
	}
	return err
}

// restoreFiles writes the history that Git has under a hidden name first, then
// renames it into place: half a history would pass for a whole one.
func (s *Store) restoreFiles(ctx context.Context, r *gitrepo.Repo, dir string) (n int, err error) {
	s.sweepHidden(dir)
	log, err := r.Log(ctx, 1)
	if err != nil || len(log) == 0 {
		return 0, err
	}
	files, err := r.List(ctx, log[0].Hash, historyDir)
	if err != nil {
		return 0, err
	}
	hidden := filepath.Join(dir, removingPrefix+randomHex(8))
	defer func() {
		if err != nil {
			_ = s.fs.RemoveAll(hidden)
		}
	}()
	if err := disk.MkdirOwned(s.fs, hidden, 0o755); err != nil {
		return 0, err
	}
	for _, f := range files {
		if f.IsDir() || !f.FileMode().IsRegular() {
			continue
		}
		content, err := r.Blob(ctx, f.Hash)
		if err != nil {
			return 0, err
		}
		if err := disk.WriteAtomic(s.fs, filepath.Join(hidden, f.Name), content, disk.WriteOptions{NoReplace: true}); err != nil {
			return 0, err
		}
		n++
	}
	if err := s.fs.RenameNoReplace(hidden, filepath.Join(dir, historyDir)); err != nil {
		return 0, err
	}
	if err := s.fs.SyncDir(dir); err != nil {
		return n, err
	}
	more, err := r.Restore(ctx, historyDir) // what is no plain file of it
	return n + more, err
}
