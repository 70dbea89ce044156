package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/nodefile"
	"github.com/sessionfs/sessionfs/store/recovery"
)

// leaseContent is what a run lease's file holds while a run of ours is
// active: who runs. It is empty between runs. The lease itself is the lock on
// the file, which the kernel takes back when the process dies.
type leaseContent struct {
	PID     int     `json:"pid"`
	Started float64 `json:"started"` // seconds since the epoch
}

// Turn says what kind of run begins.
type Turn struct {
	// Background turns end "done" and unread instead of "idle".
	Background bool
	// Placeholder writes the reply's node at once, empty and "running", chained
	// on the head, which moves to it (reference 10.1, step 5).
	Placeholder bool
	// Model is the reply's model name, Source its origin; both may be "".
	Model, Source string
}

// Begin starts a run without a placeholder: the lease is taken, status becomes
// "running" in meta.json and in the registry. RunActive when one is active
// already, Locked while the session is being migrated.
func (s *Store) Begin(ctx context.Context, id string) (*Run, error) {
	return s.BeginTurn(ctx, id, Turn{})
}

// BeginTurn is Begin for a turn of any kind.
func (s *Store) BeginTurn(ctx context.Context, id string, turn Turn) (*Run, error) {
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
		r := &Run{s: s, id: id, turn: turn, lease: lease}
		before := t.sn.meta.status()
		if err := t.startRun(r); err != nil {
			// If the status cannot be put back, the lease keeps saying whose run
			// it was, so that the run is known to be dead.
			if activeStatus(before) || t.setStatus(before) == nil {
				_ = clearLease(s.fs, s.layout.RunLockPath(id))
			}
			_ = lease.Unlock()
			return err
		}
		run = r
		s.mu.Lock()
		s.runs[id] = run
		s.mu.Unlock()
		return nil
	})
	return run, err
}

// startRun records who runs, then that a run is on, then the reply to come.
func (t *tx) startRun(r *Run) error {
	who, err := json.Marshal(leaseContent{PID: os.Getpid(), Started: t.timestamp()})
	if err != nil {
		return err
	}
	if err := writeLease(t.s.fs, t.s.layout.RunLockPath(t.se.id), who); err != nil {
		return t.diskFail("run lease", err)
	}
	if err := t.setStatus(statusRunning); err != nil {
		return err
	}
	if !r.turn.Placeholder {
		return nil
	}
	return t.addPlaceholder(r)
}

// addPlaceholder writes the node of the reply that the run will give.
func (t *tx) addPlaceholder(r *Run) error {
	pred := t.sn.Head
	if pred == "" {
		pred = dag.RootID
	}
	id := pred + "_reply"
	if pred == dag.RootID || !t.free(id) || !nodefile.ValidID(id) {
		id = t.newNodeID()
	}
	md := jsonedit.NewObject()
	md.Set("source", jsonedit.EncodeString(r.turn.Source))
	md.Set("status", jsonedit.EncodeString(statusRunning))
	md.Set("worker_id", jsonedit.EncodeString(strconv.Itoa(os.Getpid())+"-"+randomHex(3)))
	md.Set("started_at", jsonedit.EncodeFloat(t.timestamp()))
	spec := nodefile.Spec{
		ID: id, CreatedAt: t.timestamp(), Seq: t.sn.maxSeq + 1, Role: "llm", Name: r.turn.Model,
		Output: []byte(`""`), Predecessor: pred, Metadata: md,
	}
	node := spec.Node()
	if err := t.sn.Index.CheckWrite(node); err != nil {
		return t.fail(PredecessorMissing, id, err)
	}
	if err := t.addNode(spec, node); err != nil {
		return err
	}
	m := t.editMeta()
	moveBranchEntry(m, t.sn.Head, id)
	assignHead(m, id)
	now := jsonedit.EncodeFloat(t.timestamp())
	m.Set("updated_at", now)
	if err := t.writeMeta(m); err != nil {
		return err
	}
	r.node = id
	t.s.list.put(t.se.id, KV{"updated_at", now})
	return nil
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

// Node is the id of the placeholder, "" when the run has none.
func (r *Run) Node() string { return r.node }

// SetText replaces the text of the placeholder, as it grows. Invalid without
// a placeholder, Conflict after the run's end.
func (r *Run) SetText(ctx context.Context, text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.node == "" {
		return &Error{Code: Invalid, Op: "write reply", Session: r.id, Err: errors.New("the run has no placeholder")}
	}
	if r.lease == nil {
		return &Error{Code: Conflict, Op: "write reply", Session: r.id, Err: errors.New("the run has ended")}
	}
	return r.s.change(ctx, "write reply", r.id, 0, func(t *tx) error {
		return t.rewriteNode(r.node, jsonedit.EncodeString(text), nil)
	})
}

// NeedsInput says that the turn waits for the user, or goes on.
func (r *Run) NeedsInput(ctx context.Context, waiting bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lease == nil {
		return &Error{Code: Conflict, Op: "wait for input", Session: r.id, Err: errors.New("the run has ended")}
	}
	status := statusRunning
	if waiting {
		status = statusNeedsInput
	}
	return r.s.change(ctx, "wait for input", r.id, 0, func(t *tx) error { return t.setStatus(status) })
}

// Outcome is how a turn ends.
type Outcome struct {
	// Status is the reply's: "completed", "error", "cancelled" or
	// "interrupted".
	Status string
	// Text, when not nil, becomes the reply's text.
	Text *string
	// Error and ErrorType describe a failure.
	Error, ErrorType string
}

// sessionStatus is the session's status after a turn with this outcome
// (reference 10.1, 10.2).
func (o Outcome) sessionStatus(background bool) (string, bool) {
	switch o.Status {
	case "completed", "cancelled":
		if background {
			return statusDone, true
		}
		return statusIdle, true
	case "error":
		return statusFailed, true
	case statusInterrupted:
		return statusInterrupted, true
	}
	return "", false
}

// replyStatus is the reply's status that goes with a session status at End.
func replyStatus(session string) string {
	switch session {
	case statusFailed:
		return "error"
	case statusInterrupted:
		return statusInterrupted
	}
	return "completed"
}

// End ends the run with a session status: "idle", "done" (which also marks
// the session unread, as the peer does at a background turn's end), "failed"
// or "interrupted", and commits the turn. A second call does nothing. The
// lease is given back even when the status cannot be written: the run is then
// known to be dead.
func (r *Run) End(ctx context.Context, status string) error {
	switch status {
	case statusIdle, statusDone, statusFailed, statusInterrupted:
		return r.finish(ctx, status, Outcome{Status: replyStatus(status)})
	}
	return &Error{Code: Invalid, Op: "end run", Session: r.id, Ref: status, Err: errors.New("not a status that ends a run")}
}

// Finish ends a turn: the reply gets its last text and status (the first
// terminal status wins), the session the status that follows from it, and the
// turn is committed. Invalid for another status than Outcome's.
func (r *Run) Finish(ctx context.Context, o Outcome) error {
	status, ok := o.sessionStatus(r.turn.Background)
	if !ok {
		return &Error{Code: Invalid, Op: "end run", Session: r.id, Ref: o.Status, Err: errors.New("not a status that ends a turn")}
	}
	return r.finish(ctx, status, o)
}

func (r *Run) finish(ctx context.Context, status string, o Outcome) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lease == nil {
		return nil
	}
	// Whoever asked may be gone by now; the run must end all the same.
	ctx = context.WithoutCancel(ctx)
	err := r.s.change(ctx, "end run", r.id, 0, func(t *tx) error {
		// Given back before the session's lock is: whoever reads that the run is
		// over finds no lease of it, whatever he begins next.
		defer r.release()
		// The run ends in any case; a reply that could not be kept is told.
		lost := t.endReply(r.node, o)
		if err := t.finishStatus(status); err != nil {
			return err
		}
		if err := clearLease(r.s.fs, r.s.layout.RunLockPath(r.id)); err != nil {
			return t.diskFail("run lease", err)
		}
		t.commitTurn(ctx)
		t.retainUndo()
		return lost
	})
	r.release()
	return err
}

// release gives the lease back; a second call does nothing.
//
// Requires r.mu.
func (r *Run) release() {
	if r.lease == nil {
		return
	}
	_ = r.lease.Unlock()
	r.lease = nil
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.s.runs[r.id] == r {
		delete(r.s.runs, r.id)
	}
}

// retainUndo drops the oldest turns' undo data (reference 11).
func (t *tx) retainUndo() {
	if _, err := t.s.fs.Lstat(layout.RecoveryDir(t.sn.Dir, t.se.id)); err != nil {
		return
	}
	if _, err := t.recovery().Retain(recovery.Keep); err != nil {
		t.s.log.Warn("drop old undo data", "session", t.se.id, "err", err)
	}
}

// endReply gives the placeholder its last text and status, unless it has a
// terminal one already.
func (t *tx) endReply(node string, o Outcome) error {
	n, ok := t.sn.Index.Get(node)
	switch {
	case node != "" && !ok:
		return t.fail(Conflict, node, errors.New("the reply's message is gone, and with it what the run said"))
	case !ok, n.Status != statusRunning:
		return nil
	}
	now := jsonedit.EncodeFloat(t.timestamp())
	md := map[string][]byte{"status": jsonedit.EncodeString(o.Status), "finished_at": now}
	switch o.Status {
	case "completed":
		md["completed_at"] = now
	case statusInterrupted:
		md["interrupted_at"] = now
	}
	if o.Error != "" {
		md["error"] = jsonedit.EncodeString(o.Error)
	}
	if o.ErrorType != "" {
		md["error_type"] = jsonedit.EncodeString(o.ErrorType)
	}
	var output []byte
	if o.Text != nil {
		output = jsonedit.EncodeString(*o.Text)
	}
	return t.rewriteNode(node, output, md)
}

// finishStatus writes the status that a run ends with, and with "done" that
// nobody has read it yet.
func (t *tx) finishStatus(status string) error {
	if status != statusDone {
		return t.setStatus(status)
	}
	m := t.editMeta()
	m.Set("status", jsonedit.EncodeString(status))
	m.Set("unread", []byte("true"))
	if err := t.writeMeta(m); err != nil {
		return err
	}
	t.s.list.put(t.se.id, KV{"status", jsonedit.EncodeString(status)}, KV{"unread", []byte("true")})
	return nil
}

// Session returns the id of the run's session.
func (r *Run) Session() string { return r.id }

// writeLease fills a lease's file in place: it is a lock file, and a rename
// would take the lock's identity away. A torn write reads as taken, which is
// what it is. The name is made durable too: after a power cut the lease is what
// tells that the run is dead.
func writeLease(f disk.FS, path string, content []byte) error {
	file, err := f.OpenFile(path, os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return f.SyncDir(filepath.Dir(path))
}

// clearLease empties a lease's file.
func clearLease(f disk.FS, path string) error {
	file, err := f.OpenFile(path, os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0)
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
