package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/recovery"
)

// RewindPlan is what a rewind would do, or has done.
type RewindPlan struct {
	// Target is the user message that the session goes back to before, Text
	// its text, to be typed again.
	Target, Text string
	// Head is the active head afterwards, "" when there is none.
	Head string
	// Turns are the replies that are undone, newest first.
	Turns []string
	// Files are the files of the project's directory that are restored.
	Files []RewindFile
	// Conflicts say why the files cannot be restored; any blocks the rewind.
	Conflicts []string
	// Hash stands for all of this: who confirms a plan confirms it.
	Hash string
}

// RewindFile is one file that a rewind changes.
type RewindFile struct {
	Path   string // below the project's directory
	Action string // "restore" or "remove"
	// Gap is set when somebody else changed the file between two of the
	// turns: that change goes too.
	Gap bool
}

// PlanRewind tells what Rewind would do. It changes nothing. Invalid for a
// node that is not a user message on the active branch with something before
// it, NotFound.
func (s *Store) PlanRewind(ctx context.Context, id string, ref Ref) (*RewindPlan, error) {
	sn, err := s.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	t := &tx{s: s, se: &session{id: id}, op: "rewind", sn: sn}
	plan, _, err := t.planRewind(ref)
	return plan, err
}

// Rewind goes back to before a user message (reference 7.3): the files that
// the undone turns changed get back what they held, all or nothing and only
// below the directory of the session's project, and the head moves to the
// message's predecessor. The old line stays as a branch. Where there are files
// to restore, confirm must be the Hash of PlanRewind's plan, else Confirm;
// Conflict when the plan has become another one or cannot be carried out.
func (s *Store) Rewind(ctx context.Context, id string, ref Ref, confirm string) (*RewindPlan, error) {
	var plan *RewindPlan
	err := s.change(ctx, "rewind", id, 0, func(t *tx) error {
		if err := t.refuseActiveRun(); err != nil {
			return err
		}
		var files *recovery.Plan
		var err error
		if plan, files, err = t.planRewind(ref); err != nil {
			return err
		}
		if err := t.confirmed(plan, files, confirm); err != nil {
			return err
		}
		if err := t.rewind(ctx, plan, files, confirm); err != nil {
			return err
		}
		if _, _, err := t.commit(ctx, "rewind"); err != nil {
			t.s.log.Warn("commit rewind", "session", id, "err", err)
		}
		return nil
	})
	return plan, err
}

// confirmed refuses a plan that needs confirmation and has none, or cannot be
// carried out.
func (t *tx) confirmed(plan *RewindPlan, files *recovery.Plan, confirm string) error {
	switch {
	case len(plan.Conflicts) > 0:
		return t.fail(Conflict, plan.Target, fmt.Errorf("the files cannot be restored: %s", strings.Join(plan.Conflicts, "; ")))
	case len(plan.Files) > 0 && confirm == "":
		return &Error{Code: Confirm, Op: t.op, Session: t.se.id, Ref: plan.Target,
			Err:  fmt.Errorf("%d files of the project would be restored", len(plan.Files)),
			Hint: fmt.Sprintf("look at the plan first: sessionfs rewind %s %s", t.se.id, plan.Target)}
	case confirm != "" && confirm != files.Hash:
		return t.fail(Conflict, plan.Target, errors.New("the plan is no longer what was confirmed"))
	}
	return nil
}

// planRewind makes the plan from the current state.
func (t *tx) planRewind(ref Ref) (*RewindPlan, *recovery.Plan, error) {
	target, err := t.sn.Resolve(ref)
	if err != nil {
		return nil, nil, t.asOp(err)
	}
	var turns []string
	var at dag.Node
	found := false
	for _, n := range t.sn.Index.Chain(t.sn.Head) {
		if n.ID == target {
			at, found = n, true
			break
		}
		if n.Role == "llm" {
			turns = append(turns, n.ID)
		}
	}
	switch {
	case !found:
		return nil, nil, t.fail(Invalid, ref, errors.New("not a message of the active branch"))
	case !isUserMessage(at):
		return nil, nil, t.fail(Invalid, ref, errors.New("only a user's message can be gone back to"))
	case at.Predecessor == "":
		return nil, nil, t.fail(Invalid, ref, errors.New("there is nothing before this message"))
	}
	if _, ok := t.sn.Index.Get(at.Predecessor); !ok && at.Predecessor != dag.RootID {
		return nil, nil, t.fail(Corrupt, at.Predecessor, errors.New("the message before it is missing"))
	}
	text, err := t.sn.Text(target)
	if err != nil {
		return nil, nil, t.asOp(err)
	}
	plan := &RewindPlan{Target: target, Text: strings.TrimSuffix(string(text), "\n"), Turns: turns}
	if plan.Head = at.Predecessor; plan.Head == dag.RootID {
		plan.Head = ""
	}
	files, err := t.recovery().Plan(turns, t.projectDir())
	if err != nil {
		return nil, nil, t.recoveryFail(target, err)
	}
	describeFiles(plan, files)
	return plan, files, nil
}

func describeFiles(plan *RewindPlan, files *recovery.Plan) {
	plan.Hash = files.Hash
	for _, c := range files.Changes {
		f := RewindFile{Path: c.Rel, Action: "restore", Gap: c.Gap}
		if c.Target.Kind == recovery.Absent {
			f.Action = "remove"
		}
		plan.Files = append(plan.Files, f)
	}
	for _, c := range files.Conflicts {
		plan.Conflicts = append(plan.Conflicts, fmt.Sprintf("%s: %s", c.Path, strings.ReplaceAll(string(c.Reason), "_", " ")))
	}
}

// rewind restores the files and moves the head: the move is the last step, and
// when it fails the files become again what they were.
func (t *tx) rewind(ctx context.Context, plan *RewindPlan, files *recovery.Plan, confirm string) error {
	n, _ := t.sn.Index.Get(plan.Target)
	if len(files.Changes) == 0 {
		return t.rewindHead(n.Predecessor)
	}
	version, _ := t.sn.meta.obj.Int("head_version")
	payload := jsonedit.NewObject()
	payload.Set("head_version", jsonedit.EncodeInt(version))
	_, err := t.recovery().Apply(ctx, files, confirm, recovery.ApplyOptions{
		Payload: payload.Bytes(),
		Commit:  func(context.Context) error { return t.rewindHeadOnce(n.Predecessor, version) },
	})
	// What it could not finish, or clear away, is done at the next look, as
	// after a crash.
	t.se.replayed = false
	t.se.looked.Store(false)
	if err != nil {
		return t.recoveryFail(plan.Target, err)
	}
	return nil
}

// rewindHeadOnce is rewindHead for a session whose head_version was version:
// when it fails after the head has moved, or may have, the files must not go
// back.
func (t *tx) rewindHeadOnce(to string, version int64) error {
	err := t.rewindHead(to)
	now, _ := t.sn.meta.obj.Int("head_version")
	if err != nil && (now > version || t.sn.unread != nil || t.sn.meta.err != nil) {
		return errors.Join(err, recovery.ErrUnfinished)
	}
	return err
}

// rewindHead is the head's move of a rewind: a compare-and-set that also
// records the two lines as branch references, as the peer's does (reference
// 6.10, 7.3).
func (t *tx) rewindHead(to string) error {
	from := t.sn.Head
	version, _ := t.sn.meta.obj.Int("head_version") // of the line that is left
	return t.moveHeadWith(to, &from, func(m *jsonedit.Object) { branchRefs(m, t.se.id, version, from, to) })
}

// branchRefs notes the line that is left, at a version of the head, and the one
// that is gone back to, at the next.
func branchRefs(m *jsonedit.Object, id string, version int64, from, to string) {
	refs := jsonedit.NewObject()
	if raw, ok := m.Get("branch_refs"); ok {
		if o, err := jsonedit.ParseObject(raw); err == nil {
			refs = o
		}
	}
	source := sourceBranch(m, refs, id, from)
	target := "branch_restore_" + randomHex(8)
	epoch, _ := m.Int("writer_epoch")
	entry := func(key string) *jsonedit.Object {
		if raw, ok := refs.Get(key); ok {
			if o, err := jsonedit.ParseObject(raw); err == nil {
				return o
			}
		}
		return jsonedit.NewObject()
	}
	old := entry(source)
	for _, f := range []KV{
		{"branch_id", jsonedit.EncodeString(source)},
		{"head_id", headJSON(from)},
		{"head_version", jsonedit.EncodeInt(version)},
		{"writer_epoch", jsonedit.EncodeInt(epoch)},
	} {
		if !old.Has(f.Key) { // filled only where keys are missing
			old.Set(f.Key, f.Raw)
		}
	}
	refs.Set(source, old.Bytes())
	now := jsonedit.NewObject()
	for _, f := range []KV{
		{"branch_id", jsonedit.EncodeString(target)},
		{"head_id", headJSON(to)},
		{"parent_branch_id", jsonedit.EncodeString(source)},
		{"head_version", jsonedit.EncodeInt(version + 1)},
		{"writer_epoch", jsonedit.EncodeInt(epoch + 1)},
		{"status", jsonedit.EncodeString("active")},
	} {
		now.Set(f.Key, f.Raw)
	}
	refs.Set(target, now.Bytes())
	m.Set("branch_refs", refs.Bytes())
	m.Set("active_branch_id", jsonedit.EncodeString(target))
	m.Set("writer_epoch", jsonedit.EncodeInt(epoch+1))
}

// sourceBranch is the id of the line that is left: the active branch's where
// its head is the one that is left, else one made of the session and the head.
func sourceBranch(m, refs *jsonedit.Object, id, from string) string {
	if active := m.Str("active_branch_id"); active != "" {
		if raw, ok := refs.Get(active); ok {
			if o, err := jsonedit.ParseObject(raw); err == nil && o.Str("head_id") == from {
				return active
			}
		}
	}
	if from == "" {
		from = dag.RootID
	}
	sum := sha256.Sum256([]byte(id + "\x00" + from))
	return "branch_" + hex.EncodeToString(sum[:8])
}

// recovery is the session's undo data.
func (t *tx) recovery() *recovery.Tree {
	opt := recovery.Options{
		FS:     t.s.fs,
		Dir:    layout.RecoveryDir(t.sn.Dir, t.se.id),
		Legacy: filepath.Join(t.sn.Dir, "file_backups"),
		State:  t.s.opt.State,
		Now:    t.s.now,
	}
	if p, ok := t.s.layout.BoundProject(t.se.id); ok && !p.Default && p.Path != "" {
		opt.Project = &recovery.Locator{ProjectID: p.ID, Root: p.Path}
	}
	return recovery.Open(opt)
}

// projectDir is the directory of the session's project, below which alone
// files are restored; "" when it is bound to none.
func (t *tx) projectDir() string {
	if p, ok := t.s.layout.BoundProject(t.se.id); ok && !p.Default {
		return p.Path
	}
	return ""
}

// recoveryFail gives an error of the undo data its code.
func (t *tx) recoveryFail(ref string, err error) error {
	var e *Error
	var conflict *recovery.ConflictError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &conflict), errors.Is(err, recovery.ErrStale), errors.Is(err, recovery.ErrUnfinished):
		return t.fail(Conflict, ref, err)
	case errors.Is(err, recovery.ErrNoProject), errors.Is(err, recovery.ErrNotRecordable),
		errors.Is(err, recovery.ErrBadTurn), errors.Is(err, recovery.ErrNotPrepared):
		return t.fail(Invalid, ref, err)
	case errors.Is(err, recovery.ErrManifest), errors.Is(err, recovery.ErrRecoveryRequired):
		return t.fail(Corrupt, ref, err)
	}
	return t.diskFail(ref, err)
}

// replayRewind ends a restoration of files that a crash cut off, before
// anything else happens to the session. Requires the session's locks.
func (t *tx) replayRewind(ctx context.Context) {
	if t.se.replayed {
		return
	}
	t.se.replayed = true
	dir := filepath.Join(layout.RecoveryDir(t.sn.Dir, t.se.id), "intents")
	if _, err := t.s.fs.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return
	}
	_, err := t.recovery().Replay(ctx, t.projectDir(), func(in recovery.Intent) (bool, error) {
		payload, err := jsonedit.ParseObject(in.Payload)
		if err != nil {
			return false, nil
		}
		before, _ := payload.Int("head_version")
		now, _ := t.sn.meta.obj.Int("head_version")
		return now > before, nil
	})
	if err != nil {
		t.s.log.Warn("finish the restoration of files", "session", t.se.id, "err", err)
	}
}

// BeforeWrite records a file, or that there is none, before a turn changes it;
// AfterWrite as the turn left it; AbortWrite that nothing came of it. Rewind
// restores from these records. The turn is the id of its reply. Invalid for a
// file that cannot be recorded: the turn must not change it then.
func (s *Store) BeforeWrite(ctx context.Context, id, turn, path string) error {
	return s.record(ctx, id, path, func(t *tx) error { return t.recovery().Before(ctx, turn, path) })
}

// AfterWrite records a file as a turn has left it, see BeforeWrite.
func (s *Store) AfterWrite(ctx context.Context, id, turn, path string) error {
	return s.record(ctx, id, path, func(t *tx) error { return t.recovery().After(ctx, turn, path) })
}

// AbortWrite records that a change did not take place, see BeforeWrite.
func (s *Store) AbortWrite(ctx context.Context, id, turn, path, reason string) error {
	return s.record(ctx, id, path, func(t *tx) error { return t.recovery().Abort(ctx, turn, path, reason) })
}

func (s *Store) record(ctx context.Context, id, path string, fn func(t *tx) error) error {
	return s.change(ctx, "record file", id, 0, func(t *tx) error {
		if err := fn(t); err != nil {
			return t.recoveryFail(path, err)
		}
		return nil
	})
}
