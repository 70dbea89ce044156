package recovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/sessionfs/sessionfs/store/internal/safefile"
)

// errObstacle: what was found is somebody else's and is not touched.
var errObstacle = errors.New("changed by somebody else")

// Replay ends every restoration that a crash, or an error that wraps
// ErrUnfinished, left unfinished: all files of one become old, or all new. It
// is to be called before the session is shown to anybody. Project is the
// directory of the session's project now.
//
// Committed is asked, with the intent, whether what Apply's Commit was to do
// had happened; then the files become new. Nil means no.
//
// The intents that were not final, or not cleaned up, are returned as they are
// now; another program's are left alone and are marked Foreign. The error wraps
// ErrNoProject when project is needed and empty. Replaying again is harmless.
func (t *Tree) Replay(ctx context.Context, project string, committed func(Intent) (bool, error)) (out []Intent, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids, err := t.intents()
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	for _, id := range ids {
		r, err := t.readIntent(id)
		if err != nil {
			return out, fmt.Errorf("replay: %w", err)
		}
		if r == nil || r.Phase.final() && (r.Clean || r.Writer != writerName) {
			continue
		}
		if r.Writer == writerName {
			if r, err = t.replayOne(ctx, id, project, committed); err != nil {
				return out, fmt.Errorf("replay %s: %w", id, err)
			}
		}
		out = append(out, r.intent())
	}
	return out, nil
}

// Unfinished reports whether there is something for Replay to do: a restoration
// of this program's that a crash, or an error, left unfinished.
func (t *Tree) Unfinished() (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids, err := t.intents()
	if err != nil {
		return false, fmt.Errorf("replay: %w", err)
	}
	for _, id := range ids {
		r, err := t.readIntent(id)
		if err != nil {
			return false, fmt.Errorf("replay: %w", err)
		}
		if r != nil && r.Writer == writerName && !(r.Phase.final() && r.Clean) {
			return true, nil
		}
	}
	return false, nil
}

// replayOne carries on one intent, read again under its lock.
func (t *Tree) replayOne(ctx context.Context, id, project string, committed func(Intent) (bool, error)) (r *record, err error) {
	unlock, err := t.lockFiles(ctx, id)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if r, err = t.readIntent(id); err != nil || r == nil || r.Writer != writerName {
		return r, errors.Join(err, ctx.Err())
	}
	if project == "" && len(r.Files) > 0 {
		return nil, ErrNoProject
	}
	if project != "" {
		if r.Project, err = safefile.Resolve(t.fs, project); err != nil {
			return nil, err
		}
	}
	if there, err := t.reachable(r); err != nil || !there {
		return r, err
	}
	switch r.Phase {
	case PhasePrepared:
		cause := errors.New("interrupted")
		if err := t.giveUp(r, cause); errors.Is(err, ErrUnfinished) {
			return nil, err
		}
		return r, nil
	case PhaseApplying, PhaseRecoveryRequired:
		return r, t.settle(r, committed)
	}
	return r, t.clean(r)
}

// reachable reports whether the project's directory is there. Without it, on a
// disk not mounted perhaps, nothing can be said of its files: they have to be
// looked at again, or by people.
func (t *Tree) reachable(r *record) (bool, error) {
	if len(r.Files) == 0 {
		return true, nil
	}
	dir, err := safefile.Open(r.Project, ".")
	if err == nil {
		return true, dir.Close()
	}
	if !gone(err) {
		return false, err
	}
	if r.Phase.final() || r.Phase == PhaseRecoveryRequired {
		return false, nil
	}
	return false, t.demand(r, err)
}

// settle makes the files of an intent all old, or all new when its Commit had
// happened.
func (t *Tree) settle(r *record, committed func(Intent) (bool, error)) error {
	forward := false
	if committed != nil {
		var err error
		if forward, err = committed(r.intent()); err != nil {
			return err
		}
	}
	if !forward {
		if err := t.rollBack(r); !errors.Is(err, ErrRecoveryRequired) {
			return err
		}
		return nil
	}
	for _, s := range r.Files {
		err := t.finish(r.Project, s)
		if errors.Is(err, errObstacle) {
			return t.demand(r, err)
		}
		if err != nil {
			return err
		}
	}
	r.Phase, r.Error = PhaseCommitted, ""
	if err := t.writeIntent(r); err != nil {
		return err
	}
	return t.clean(r)
}

// demand says in the intent that people are needed.
func (t *Tree) demand(r *record, cause error) error {
	r.Phase, r.Error = PhaseRecoveryRequired, cause.Error()
	return t.writeIntent(r)
}

// finish makes sure that a file is new. Commit came after all files were, so
// there is something to do only where a disk lost what it had promised.
func (t *Tree) finish(project string, s step) error {
	now, err := t.current(project, s.Rel)
	if errors.Is(err, safefile.ErrEscapes) {
		return errors.Join(errObstacle, err)
	}
	if err != nil {
		return err
	}
	switch {
	case now.same(s.Target.state()):
		return nil
	case now.same(s.Expected.state()):
		return t.swap(project, s)
	}
	return fmt.Errorf("%s: %w", s.Rel, errObstacle)
}

// rollBack makes all files old again. Its error wraps ErrRecoveryRequired when
// that is impossible, which the intent then says too, and ErrUnfinished when it
// may be possible later.
func (t *Tree) rollBack(r *record) error {
	var blocked error
	for _, s := range slices.Backward(r.Files) {
		err := t.undo(r.Project, s)
		if errors.Is(err, errObstacle) {
			blocked = errors.Join(blocked, err)
		} else if err != nil {
			return errors.Join(ErrUnfinished, err)
		}
	}
	if blocked != nil {
		if err := t.demand(r, blocked); err != nil {
			return errors.Join(ErrUnfinished, err)
		}
		return errors.Join(ErrRecoveryRequired, blocked)
	}
	if err := t.removeStaged(r); err != nil {
		return errors.Join(ErrUnfinished, err)
	}
	r.Phase, r.Clean = PhaseRolledBack, true
	if err := t.writeIntent(r); err != nil {
		return errors.Join(ErrUnfinished, err)
	}
	return nil
}

// undo brings one file back, durably.
func (t *Tree) undo(project string, s step) (err error) {
	dir, name, err := safefile.OpenParent(project, s.Rel)
	if gone(err) {
		if s.Expected.Kind == Absent {
			return nil
		}
		return errors.Join(errObstacle, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	_, err = t.fs.Lstat(dir.Path(s.Guard))
	guarded := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !guarded && s.Expected.Kind == Regular {
		return nil // not yet moved aside, or moved back already
	}
	if err := t.unlinkNew(dir, name, s, guarded); err != nil {
		return err
	}
	if guarded {
		if err := t.fs.RenameNoReplace(dir.Path(s.Guard), dir.Path(name)); err != nil {
			return err
		}
	}
	return t.fs.SyncDir(dir.Path(""))
}

// unlinkNew removes the new file if it is there, and nothing else. Another file
// stands in the way of the old one, if there is one.
func (t *Tree) unlinkNew(dir *safefile.Dir, name string, s step, guarded bool) error {
	fi, err := t.fs.Lstat(dir.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// The staged file is removed after all new ones: what has its name now is
	// ours only while both are one file.
	staged, err := t.fs.Lstat(dir.Path(s.Staged))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || !os.SameFile(fi, staged) {
		if guarded {
			return fmt.Errorf("%s: %w", s.Rel, errObstacle)
		}
		return nil
	}
	now, err := look(t.fs, dir.Path(name))
	if err != nil {
		return err
	}
	if !now.same(s.Target.state()) {
		return fmt.Errorf("%s: %w", s.Rel, errObstacle)
	}
	return t.fs.Remove(dir.Path(name))
}

// gone reports that a directory cannot be reached any more as it was.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, safefile.ErrEscapes)
}

// removeStaged removes new content that is not in use, and the directories made
// for it.
func (t *Tree) removeStaged(r *record) error {
	for _, s := range r.Files {
		if s.Target.Kind != Regular {
			continue
		}
		if err := t.removeBeside(r.Project, s, s.Staged); err != nil {
			return err
		}
	}
	for _, d := range slices.Backward(r.Dirs) {
		if err := t.removeDir(r.Project, d); err != nil {
			return err
		}
	}
	return nil
}

// clean removes what a finished restoration left beside the files.
func (t *Tree) clean(r *record) error {
	for _, s := range r.Files {
		var names []string
		if s.Expected.Kind == Regular {
			names = append(names, s.Guard)
		}
		if s.Target.Kind == Regular {
			names = append(names, s.Staged)
		}
		if err := t.removeBeside(r.Project, s, names...); err != nil {
			return err
		}
	}
	r.Clean = true
	return t.writeIntent(r)
}

// removeBeside removes names of ours in a file's directory.
func (t *Tree) removeBeside(project string, s step, names ...string) (err error) {
	dir, _, err := safefile.OpenParent(project, s.Rel)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	for _, name := range names {
		if err := t.fs.Remove(dir.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return t.fs.SyncDir(dir.Path(""))
}

// removeDir removes a directory of ours, unless somebody else uses it by now.
func (t *Tree) removeDir(project, rel string) (err error) {
	dir, name, err := safefile.OpenParent(project, filepath.Clean(rel))
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	fi, err := t.fs.Lstat(dir.Path(name))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !fi.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	err = t.fs.Remove(dir.Path(name))
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return t.fs.SyncDir(dir.Path(""))
}

// Dismiss ends a restoration that says "recovery_required", after people have
// seen to the files: they stay as they are, and so does what was moved aside,
// under names that begin with ".sessionfs-".
func (t *Tree) Dismiss(ctx context.Context, key string) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := intentID(key)
	unlock, err := t.lockFiles(ctx, id)
	if err != nil {
		return fmt.Errorf("dismiss: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	r, err := t.readIntent(id)
	if err != nil {
		return fmt.Errorf("dismiss: %w", err)
	}
	if r == nil || r.Writer != writerName || r.Phase != PhaseRecoveryRequired {
		return fmt.Errorf("dismiss: no restoration of key %q waits for it", key)
	}
	r.Phase, r.Clean = PhaseAborted, true
	return t.writeIntent(r)
}
