package recovery

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sessionfs/sessionfs/store/internal/safefile"
)

// Reason is why a plan cannot be carried out.
type Reason string

// The reasons of conflicts.
const (
	// Changed: the file is not as the newest turn left it.
	Changed Reason = "changed"
	// UnknownOutcome: a change was begun and it is not known how it ended.
	UnknownOutcome Reason = "unknown_outcome"
	// NotRecorded: what was before, or after, could not be recorded.
	NotRecorded Reason = "not_recorded"
	// MissingBlob: the recorded content is gone or damaged.
	MissingBlob Reason = "missing_blob"
	// OutsideProject: the file is not below the project's directory, or a
	// symlink is on the way to it.
	OutsideProject Reason = "outside_project"
)

// Conflict is something that keeps a plan from being carried out.
type Conflict struct {
	Path   string // absolute
	Turn   string // "" when it concerns no single turn
	Reason Reason
}

// Change is what a plan does to one file.
type Change struct {
	// Rel is the file's path below the project's directory.
	Rel string
	// Current is what is there, Expected what the newest turn left there (the
	// same, in a plan without conflicts) and Target what the oldest found.
	// Undo data of the first version does not tell what a turn left: then
	// Expected is what was there when the plan was made.
	Current, Expected, Target State
	// Gap: between the turns somebody else changed the file; that change goes
	// too.
	Gap  bool
	blob string // where the target's content is, absolute
	// bare: the target is of the first version, which records no digest.
	bare bool
}

// Plan is what undoing some turns would do to files. It is a value: nothing is
// held by it.
type Plan struct {
	// Project is the directory below which files are changed, without
	// symlinks.
	Project string
	// Turns are the turns' ids, newest first.
	Turns []string
	// Changes are sorted by Rel; files that are as they should be are left
	// out.
	Changes []Change
	// Conflicts block the plan.
	Conflicts []Conflict
	// Hash stands for all of the above. Who confirms a plan confirms it.
	Hash string
	// Key names this attempt: applying a plan twice changes files once.
	Key string
}

// Ready reports whether the plan can be applied.
func (p *Plan) Ready() bool { return len(p.Conflicts) == 0 }

// Plan says what bringing the files back to before some turns would do. Turns
// are newest first. Project is the directory of the project that the session is
// bound to. Nothing is changed. Turns without undo data have changed no files.
// The error wraps ErrManifest, ErrBadTurn, ErrNoProject when there are files to
// restore and no project, or ErrUnfinished.
func (t *Tree) Plan(turns []string, project string) (*Plan, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.nothingPending(); err != nil {
		return nil, err
	}
	return t.plan(turns, project)
}

func (t *Tree) plan(turns []string, project string) (*Plan, error) {
	p := &Plan{Turns: slices.Clone(turns), Key: safefile.RandomHex()}
	var err error
	if project != "" {
		if p.Project, err = safefile.Resolve(t.fs, project); err != nil {
			return nil, fmt.Errorf("project: %w", err)
		}
	}
	f := folder{plan: p, changes: map[string]*Change{}, blocked: map[string]bool{}}
	for i, turn := range turns {
		if slices.Contains(turns[:i], turn) {
			return nil, fmt.Errorf("%q is named twice: %w", turn, ErrBadTurn)
		}
		m, err := t.load(turn)
		if err != nil {
			return nil, err
		}
		f.fold(turn, m)
	}
	if p.Project == "" && f.files > 0 {
		return nil, ErrNoProject
	}
	for rel := range f.blocked {
		delete(f.changes, rel)
	}
	if err := t.preflight(p, f.changes); err != nil {
		return nil, err
	}
	p.Hash = p.digest()
	return p, nil
}

// folder makes one change per file of many turns' entries.
type folder struct {
	plan    *Plan
	changes map[string]*Change // by Rel
	// blocked are the files with a conflict, which need no comparison.
	blocked map[string]bool
	files   int
}

// fold adds a turn that is older than those before.
func (f *folder) fold(turn string, m *manifest) {
	for _, e := range m.entries {
		if e.Status == Aborted {
			continue
		}
		f.files++
		rel, ok := f.plan.rel(e)
		switch {
		case !ok:
			f.conflict(e.Path, turn, OutsideProject)
		case e.Status != Committed || e.Pending:
			f.conflict(e.Path, turn, UnknownOutcome)
			f.blocked[rel] = true
		case e.Recoverability == "unavailable" || e.Before == nil || !e.Before.restorable(),
			m.version == 2 && (e.After == nil || !e.After.restorable()):
			f.conflict(e.Path, turn, NotRecorded)
			f.blocked[rel] = true
		default:
			f.add(rel, e, m)
		}
	}
}

func (f *folder) add(rel string, e Entry, m *manifest) {
	c, known := f.changes[rel]
	if !known {
		c = &Change{Rel: rel}
		if e.After != nil {
			c.Expected = *e.After
		}
		f.changes[rel] = c
	} else if e.After != nil && !c.Target.same(*e.After) {
		c.Gap = true
	}
	c.Target, c.blob, c.bare = *e.Before, "", m.version == 1
	if e.Before.Kind == Regular {
		c.blob = filepath.Join(m.dir, e.Before.Blob)
	}
}

func (f *folder) conflict(path, turn string, reason Reason) {
	f.plan.Conflicts = append(f.plan.Conflicts, Conflict{Path: path, Turn: turn, Reason: reason})
}

// rel is where an entry's file is below the project's directory. Of a project
// that has moved, the locator tells.
func (p *Plan) rel(e Entry) (string, bool) {
	if p.Project == "" {
		return "", false
	}
	if safefile.Within(p.Project, e.Path) && p.Project != e.Path {
		rel, err := filepath.Rel(p.Project, e.Path)
		return rel, err == nil
	}
	if l := e.Locator; l != nil && filepath.IsLocal(l.Path) && filepath.Join(l.Root, l.Path) == e.Path {
		return filepath.Clean(l.Path), filepath.Clean(l.Path) != "."
	}
	return "", false
}

// preflight compares the files with what is expected of them.
func (t *Tree) preflight(p *Plan, changes map[string]*Change) error {
	for rel, c := range changes {
		path := filepath.Join(p.Project, rel)
		if err := t.target(c); err != nil {
			return err
		}
		if c.Target.Kind == Unavailable {
			p.Conflicts = append(p.Conflicts, Conflict{Path: path, Reason: MissingBlob})
			continue
		}
		var err error
		c.Current, err = t.current(p.Project, rel)
		if errors.Is(err, safefile.ErrEscapes) {
			p.Conflicts = append(p.Conflicts, Conflict{Path: path, Reason: OutsideProject})
			continue
		}
		if err != nil {
			return err
		}
		if c.Expected.Kind == "" && c.Current.restorable() {
			c.Expected = c.Current
		}
		switch {
		case !c.Current.same(c.Expected), c.Current.links > 1, c.Target.Kind == Regular && !canHold(p.Project, rel):
			p.Conflicts = append(p.Conflicts, Conflict{Path: path, Reason: Changed})
		case c.Target.same(c.Current) && c.Target.Mode == c.Current.Mode:
		default:
			p.Changes = append(p.Changes, *c)
		}
	}
	slices.SortFunc(p.Changes, func(a, b Change) int { return strings.Compare(a.Rel, b.Rel) })
	slices.SortFunc(p.Conflicts, func(a, b Conflict) int {
		return strings.Compare(a.Path+"\x00"+a.Turn+"\x00"+string(a.Reason), b.Path+"\x00"+b.Turn+"\x00"+string(b.Reason))
	})
	return nil
}

// canHold reports whether there can be a file of a path: what is above it is a
// directory, or is not there yet.
func canHold(project, rel string) bool {
	_, err := safefile.Missing(project, filepath.Dir(rel))
	return err == nil
}

// target makes sure that the content to be put back is there; when it is not,
// the target becomes unavailable. What the first version did not record is
// taken from the copy itself.
func (t *Tree) target(c *Change) error {
	if c.Target.Kind != Regular {
		return nil
	}
	s, err := look(t.fs, c.blob)
	if err != nil {
		return err
	}
	if c.bare && s.Kind == Regular {
		c.Target.Digest, c.Target.Mode, c.Target.Size = s.Digest, s.Mode, s.Size
	}
	if !s.same(c.Target) || c.Target.Blob == "" {
		c.Target = State{Kind: Unavailable}
	}
	return nil
}

// current is what is at a path below the project, reached through no symlink.
func (t *Tree) current(project, rel string) (s State, err error) {
	dir, name, err := safefile.OpenParent(project, rel)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return State{Kind: Absent}, nil
	}
	if err != nil {
		return State{}, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return look(t.fs, dir.Path(name))
}

// digest stands for everything that a user is shown of a plan.
func (p *Plan) digest() string {
	h := sha256.New()
	fmt.Fprintf(h, "plan 1\n%q\n%q\n", p.Project, p.Turns)
	for _, c := range p.Changes {
		fmt.Fprintf(h, "change %q gap %v\n", c.Rel, c.Gap)
		for _, s := range []State{c.Current, c.Expected, c.Target} {
			digestState(h, s)
		}
	}
	for _, c := range p.Conflicts {
		fmt.Fprintf(h, "conflict %q %q %q\n", c.Path, c.Turn, c.Reason)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func digestState(h hash.Hash, s State) {
	fmt.Fprintf(h, "%q %q %04o %d\n", s.Kind, s.Digest, s.Mode, s.Size)
}
