package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionfs/sessionfs/store/internal/safefile"
)

// ConflictError refuses a plan; no file was touched.
type ConflictError struct{ Conflicts []Conflict }

// Error names the first file.
func (e *ConflictError) Error() string {
	c := e.Conflicts[0]
	return fmt.Sprintf("files cannot be restored: %s (%s) and %d more", c.Path, c.Reason, len(e.Conflicts)-1)
}

// ApplyOptions are what goes with a restoration.
type ApplyOptions struct {
	// Payload is raw JSON kept in the intent, by which the caller knows after
	// a crash what Commit was to do; nil is null.
	Payload []byte
	// Commit is called when all files are new and before that is final. When
	// it fails, all files become old again, except when its error wraps
	// ErrUnfinished: its own change is there, or may be, and Replay asks. Nil
	// does nothing.
	Commit func(context.Context) error
}

// Result is what Apply did.
type Result struct {
	// Files are the changed files' paths below the project's directory.
	Files []string
	// Repeated: the plan had been applied before, and nothing was done.
	Repeated bool
}

// Apply carries out a plan whose Hash was confirmed: all of it, or nothing. The
// plan is made again and must be the same.
//
// When it returns nil, the files are new, and durable. Otherwise they are old,
// except that an error which wraps ErrUnfinished leaves that to Replay, as a
// crash does. Other errors wrap ErrStale or ErrRecoveryRequired, are a
// *ConflictError, Commit's, or the disk's. The caller holds the session's lock.
func (t *Tree) Apply(ctx context.Context, p *Plan, confirmed string, opt ApplyOptions) (res Result, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := intentID(p.Key)
	unlock, err := t.lockFiles(ctx, id)
	if err != nil {
		return Result{}, fmt.Errorf("restore files: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	done, err := t.readIntent(id)
	if err != nil {
		return Result{}, fmt.Errorf("restore files: %w", err)
	}
	if done != nil && done.Phase == PhaseCommitted {
		if done.PlanHash != confirmed {
			return Result{}, ErrStale
		}
		return Result{Files: done.paths(), Repeated: true}, nil
	}
	fresh, err := t.confirm(p, confirmed)
	if err != nil {
		return Result{}, err
	}
	r, err := t.newRecord(fresh, p.Key, opt.Payload)
	if err != nil {
		return Result{}, fmt.Errorf("restore files: %w", err)
	}
	if err := t.run(ctx, r, fresh, opt.Commit); err != nil {
		return Result{}, fmt.Errorf("restore files: %w", err)
	}
	return Result{Files: r.paths()}, nil
}

// confirm makes the plan again.
func (t *Tree) confirm(p *Plan, confirmed string) (*Plan, error) {
	if err := t.nothingPending(); err != nil {
		return nil, err
	}
	fresh, err := t.plan(p.Turns, p.Project)
	switch {
	case err != nil:
		return nil, err
	case len(fresh.Conflicts) > 0:
		return nil, &ConflictError{fresh.Conflicts}
	case fresh.Hash != confirmed || p.Hash != confirmed:
		return nil, ErrStale
	}
	return fresh, nil
}

func (t *Tree) newRecord(p *Plan, key string, payload []byte) (*record, error) {
	r := &record{
		Version: intentFormV, Writer: writerName, Kind: "rewind", Key: key, Phase: PhasePrepared, PlanHash: p.Hash,
		Project: p.Project, Turns: p.Turns, Payload: json.RawMessage(payload), Created: t.now(), Files: []step{}, Dirs: []string{},
	}
	if len(payload) == 0 {
		r.Payload = json.RawMessage("null")
	}
	if !json.Valid(r.Payload) {
		return nil, errors.New("the payload is no JSON")
	}
	for _, c := range p.Changes {
		r.Files = append(r.Files, step{
			Rel: c.Rel, Expected: newStepState(c.Expected), Target: newStepState(c.Target),
			Guard: ".sessionfs-" + safefile.RandomHex() + ".old", Staged: ".sessionfs-" + safefile.RandomHex() + ".new",
		})
		if c.Target.Kind != Regular {
			continue
		}
		missing, err := safefile.Missing(p.Project, filepath.Dir(c.Rel))
		if err != nil {
			return nil, err
		}
		for _, d := range missing {
			if !slices.Contains(r.Dirs, d) {
				r.Dirs = append(r.Dirs, d)
			}
		}
	}
	slices.SortFunc(r.Dirs, strings.Compare) // a parent sorts before what it holds
	return r, nil
}

func (r *record) paths() []string {
	var out []string
	for _, s := range r.Files {
		out = append(out, s.Rel)
	}
	return out
}

// run goes through the phases. Requires t.mu and the locks.
func (t *Tree) run(ctx context.Context, r *record, p *Plan, commit func(context.Context) error) error {
	if err := t.writeIntent(r); err != nil {
		return t.giveUp(r, err)
	}
	if err := t.stageAll(ctx, r, p); err != nil {
		return t.giveUp(r, err)
	}
	r.Phase = PhaseApplying
	if err := t.writeIntent(r); err != nil {
		return t.giveUp(r, err)
	}
	if err := t.swapAll(ctx, r, commit); errors.Is(err, ErrUnfinished) {
		return err
	} else if err != nil {
		return errors.Join(err, t.rollBack(r))
	}
	r.Phase = PhaseCommitted
	if err := t.writeIntent(r); err != nil {
		return errors.Join(ErrUnfinished, err)
	}
	// The files are new, whatever is left beside them; Replay comes back to it.
	_ = t.clean(r)
	return nil
}

// giveUp ends a restoration that has touched no file.
func (t *Tree) giveUp(r *record, cause error) error {
	if err := t.removeStaged(r); err != nil {
		return errors.Join(cause, ErrUnfinished, err)
	}
	r.Phase, r.Error, r.Clean = PhaseAborted, cause.Error(), true
	if err := t.writeIntent(r); err != nil {
		return errors.Join(cause, ErrUnfinished, err)
	}
	return cause
}

// stageAll puts the new content beside the files.
func (t *Tree) stageAll(ctx context.Context, r *record, p *Plan) error {
	for _, d := range r.Dirs {
		dir, _, err := safefile.Mkdir(t.fs, r.Project, d, 0o755)
		if err != nil {
			return err
		}
		if err := dir.Close(); err != nil {
			return err
		}
	}
	for i, s := range r.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.Target.Kind != Regular {
			continue
		}
		if err := t.stage(r.Project, s, p.Changes[i].blob); err != nil {
			return err
		}
	}
	return nil
}

// stage copies a blob beside the file that it replaces, whose owner it takes.
func (t *Tree) stage(project string, s step, blob string) (err error) {
	dir, name, err := safefile.OpenParent(project, s.Rel)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	attr := safefile.Attr{Mode: s.Target.state().Mode}
	if s.Expected.Kind == Regular {
		if attr.Like, err = t.fs.Lstat(dir.Path(name)); err != nil {
			return err
		}
	}
	file, _, err := safefile.OpenRegular(t.fs, blob)
	if err != nil {
		return err
	}
	w, err := safefile.Create(t.fs, dir.Path(s.Staged), file, attr)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if "sha256:"+w.SHA256 != s.Target.Digest {
		return fmt.Errorf("%s: %w", s.Rel, ErrStale)
	}
	return t.fs.SyncDir(dir.Path(""))
}

// swapAll gives all files their new content, then calls commit.
func (t *Tree) swapAll(ctx context.Context, r *record, commit func(context.Context) error) error {
	for _, s := range r.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.swap(r.Project, s); err != nil {
			return err
		}
	}
	// A writer that had a file open may have gone on writing to it.
	for _, s := range r.Files {
		if err := t.checkGuard(r.Project, s); err != nil {
			return err
		}
	}
	if commit == nil {
		return nil
	}
	return commit(ctx)
}

// swap moves the old file aside and links the new one in. What is found to be
// another file than expected is moved back by the roll back.
func (t *Tree) swap(project string, s step) (err error) {
	dir, name, err := safefile.OpenParent(project, s.Rel)
	if errors.Is(err, fs.ErrNotExist) && s.Target.Kind == Absent && s.Expected.Kind == Absent {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if s.Expected.Kind == Regular {
		if err := t.fs.RenameNoReplace(dir.Path(name), dir.Path(s.Guard)); err != nil {
			return err
		}
		if err := t.matches(dir.Path(s.Guard), s); err != nil {
			return err
		}
	}
	if s.Target.Kind == Regular {
		if err := t.fs.Link(dir.Path(s.Staged), dir.Path(name)); err != nil {
			return err
		}
	}
	return t.fs.SyncDir(dir.Path(""))
}

func (t *Tree) checkGuard(project string, s step) (err error) {
	if s.Expected.Kind != Regular {
		return nil
	}
	dir, _, err := safefile.OpenParent(project, s.Rel)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return t.matches(dir.Path(s.Guard), s)
}

// matches fails when the file that was moved aside is not the expected one.
func (t *Tree) matches(guard string, s step) error {
	got, err := look(t.fs, guard)
	if err == nil && (!got.same(s.Expected.state()) || got.links > 1) {
		err = fmt.Errorf("%s was changed meanwhile: %w", s.Rel, ErrStale)
	}
	return err
}
