package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// leaseContent is what a run lease's file holds while a run of ours is
// active: who runs. It is empty between runs. The lease itself is the lock on
// the file, which the kernel takes back when the process dies.
type leaseContent struct {
	PID     int     `json:"pid"`
	Started float64 `json:"started"` // seconds since the epoch
}

// Begin starts a run: the lease is taken, status becomes "running" in
// meta.json and in the registry. RunActive when one is active already.
func (s *Store) Begin(ctx context.Context, id string) (*Run, error) {
	var run *Run
	err := s.change(ctx, "begin run", id, 0, func(t *tx) error {
		if err := t.refuseActiveRun(); err != nil {
			return err
		}
		if _, err := s.fs.Lstat(s.layout.HoldPath(id)); err == nil {
			return t.fail(Locked, "", errors.New("the session is being migrated"))
		}
		lease, ok, err := filelock.Try(s.layout.RunLockPath(id))
		if err != nil {
			return t.diskFail("run lease", err)
		}
		if !ok {
			return &Error{Code: RunActive, Op: t.op, Session: id, Err: errRunActive,
				Hint: "wait for the run to finish, or stop it, then try again"}
		}
		if err := t.startRun(lease); err != nil {
			_ = clearLease(s.fs, s.layout.RunLockPath(id))
			_ = lease.Unlock()
			return err
		}
		run = &Run{s: s, id: id, lease: lease}
		s.mu.Lock()
		s.runs[id] = run
		s.mu.Unlock()
		return nil
	})
	return run, err
}

// startRun records who runs, then that a run is on.
func (t *tx) startRun(lease *filelock.Lock) error {
	who, err := json.Marshal(leaseContent{PID: os.Getpid(), Started: t.timestamp()})
	if err != nil {
		return err
	}
	if err := writeLease(t.s.fs, t.s.layout.RunLockPath(t.se.id), who); err != nil {
		return t.diskFail("run lease", err)
	}
	return t.setStatus(statusRunning)
}

// setStatus writes the session's status to meta.json and to the registry.
func (t *tx) setStatus(status string) error {
	m := t.editMeta()
	raw := jsonedit.AppendString(nil, status)
	m.Set("status", raw)
	if err := t.writeMeta(m); err != nil {
		return err
	}
	t.s.list.put(t.se.id, KV{"status", raw})
	return nil
}

// End ends the run with a session status: "idle", "done" (which also marks
// the session unread, as the peer does at a background turn's end), "failed"
// or "interrupted", and commits the turn. A second call does nothing. The
// lease is given back even when the status cannot be written: the run is then
// known to be dead.
func (r *Run) End(ctx context.Context, status string) error {
	switch status {
	case statusIdle, statusDone, statusFailed, statusInterrupted:
	default:
		return &Error{Code: Invalid, Op: "end run", Session: r.id, Ref: status, Err: errors.New("not a status that ends a run")}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lease == nil {
		return nil
	}
	err := r.s.change(context.WithoutCancel(ctx), "end run", r.id, 0, func(t *tx) error {
		if err := t.finishStatus(status); err != nil {
			return err
		}
		if err := clearLease(r.s.fs, r.s.layout.RunLockPath(r.id)); err != nil {
			return t.diskFail("run lease", err)
		}
		t.commitTurn(ctx)
		return nil
	})
	_ = r.lease.Unlock()
	r.lease = nil
	r.s.mu.Lock()
	delete(r.s.runs, r.id)
	r.s.mu.Unlock()
	return err
}

// finishStatus writes the status that a run ends with, and with "done" that
// nobody has read it yet.
func (t *tx) finishStatus(status string) error {
	if status != statusDone {
		return t.setStatus(status)
	}
	m := t.editMeta()
	m.Set("status", jsonedit.AppendString(nil, status))
	m.Set("unread", []byte("true"))
	if err := t.writeMeta(m); err != nil {
		return err
	}
	t.s.list.put(t.se.id, KV{"status", jsonedit.AppendString(nil, status)}, KV{"unread", []byte("true")})
	return nil
}

// Session returns the id of the run's session.
func (r *Run) Session() string { return r.id }

// writeLease fills a lease's file in place: it is a lock file, and a rename
// would take the lock's identity away. A torn write reads as taken, which is
// what it is.
func writeLease(f disk.FS, path string, content []byte) error {
	file, err := f.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Sync(), file.Close())
}

// clearLease empties a lease's file.
func clearLease(f disk.FS, path string) error {
	file, err := f.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return file.Close()
}

// leaseTaken reports whether a lease's file names a run of ours.
func leaseTaken(f disk.FS, path string) bool {
	fi, err := f.Lstat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Size() > 0
}

// workerAlive reports whether a node that is still running was begun by a
// worker process that lives (reference 2.6, worker_id "<pid>-<hex>").
func (sn *Snapshot) workerAlive() bool {
	for n := range sn.Index.All() {
		if n.Status != statusRunning {
			continue
		}
		e, ok := sn.Entry(n.ID)
		if !ok {
			continue
		}
		raw, err := sn.Raw(e.File)
		if err != nil {
			continue
		}
		if pid, ok := workerPID(raw); ok && processAlive(pid) {
			return true
		}
	}
	return false
}

// workerPID reads the process id out of a node's metadata.worker_id.
func workerPID(raw []byte) (int, bool) {
	node, err := jsonedit.ParseObject(raw)
	if err != nil {
		return 0, false
	}
	md, ok := node.Get("metadata")
	if !ok {
		return 0, false
	}
	obj, err := jsonedit.ParseObject(md)
	if err != nil {
		return 0, false
	}
	digits, _, _ := strings.Cut(obj.Str("worker_id"), "-")
	pid, err := strconv.Atoi(digits)
	return pid, err == nil && pid > 0
}

// processAlive reports whether a process exists, whoever owns it.
func processAlive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// String names the run for a log line.
func (r *Run) String() string { return fmt.Sprintf("run in %s", r.id) }
