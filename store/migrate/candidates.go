package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
)

// Candidate is a session that does not lie where it belongs.
type Candidate struct {
	SessionID string
	// ProjectID is that of the project the session is bound to.
	ProjectID string
	// Source is where the session is, or was last known to be.
	Source string
	// Destination is where it belongs; for a conversion, Source.
	Destination string
	// Conversion: history/ is the Git repository.
	Conversion bool
	// Err is nil, ErrUnavailable when there is nothing at Source now, or
	// ErrUnidentified when the project's folder is not proven to be the one.
	Err error
}

// Candidates returns the sessions that need a migration, in the order of their
// ids, whether or not one was begun (reference 12.2): sessions bound to a
// project other than the default one that are served from a working folder, or
// from nowhere, and sessions of the first layout under the root.
//
// What is served decides: a session with a copy in the root and another in a
// working folder is served from the root, and is no candidate.
func Candidates(ctx context.Context, cfg Config) ([]Candidate, error) {
	r, err := newRunner(cfg)
	if err != nil {
		return nil, err
	}
	return r.candidates(ctx)
}

func (r *runner) candidates(ctx context.Context) ([]Candidate, error) {
	_, bound, err := r.Layout.Projects()
	if err != nil {
		return nil, err
	}
	identified, err := r.identified()
	if err != nil {
		return nil, err
	}
	var out []Candidate
	for _, sid := range slices.Sorted(maps.Keys(bound)) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c, err := r.candidate(sid, identified)
		if err != nil {
			return nil, err
		}
		if c != nil {
			out = append(out, *c)
		}
	}
	places, err := r.Layout.Discover()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, p := range places {
		if convertible(p) {
			out = append(out, Candidate{SessionID: p.ID, ProjectID: p.Project, Source: p.Dir, Destination: p.Dir, Conversion: true})
		}
	}
	slices.SortStableFunc(out, func(a, b Candidate) int { return strings.Compare(a.SessionID, b.SessionID) })
	return out, nil
}

// convertible reports a session of the first layout that may be written to.
func convertible(p layout.Place) bool {
	return p.Present && p.HistoryRepo && !p.Legacy && !p.Symlink && !p.Deleted
}

// candidate looks at one bound session; nil when it needs no relocation.
func (r *runner) candidate(sid string, identified map[string]bool) (*Candidate, error) {
	project, ok := r.Layout.BoundProject(sid)
	if !ok || project.Default || layout.ValidID(sid) != nil {
		return nil, nil
	}
	dest, ok := r.Layout.NestedDir(project.ID, sid)
	if !ok {
		return nil, nil
	}
	p, err := r.Layout.Resolve(sid)
	if err != nil || p.Deleted {
		return nil, err
	}
	if nested, err := r.present(dest); err != nil || nested {
		return nil, err
	}
	c := &Candidate{SessionID: sid, ProjectID: project.ID, Source: p.Dir, Destination: dest}
	if !p.Present {
		c.Err = ErrUnavailable
		if !p.Recorded && project.Path != "" {
			c.Source = filepath.Join(project.Path, ".openprogram", "sessions", sid)
		}
	}
	if r.inRoot(c.Source) {
		return nil, nil
	}
	if !identified[project.ID] {
		c.Err = ErrUnidentified
	}
	return c, nil
}

// identified returns the projects whose records prove that their folder is the
// one they were made for.
func (r *runner) identified() (map[string]bool, error) {
	out := map[string]bool{}
	if r.Layout.Standalone() {
		return out, nil
	}
	data, err := r.FS.ReadFile(filepath.Join(r.State, "projects", "projects.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("project registry: %w", err)
	}
	records, err := jsonedit.ParseObject(data)
	if err != nil {
		return nil, fmt.Errorf("project registry: %w", err)
	}
	for pid, raw := range records.All() {
		if rec, err := jsonedit.ParseObject(raw); err == nil {
			out[pid] = rec.Truthy("directory_identity") || rec.Truthy("native_bookmark")
		}
	}
	return out, nil
}

// present reports whether a directory looks like a session (reference 1.4). The
// error says that it cannot be known.
func (r *runner) present(dir string) (bool, error) {
	for name, isKind := range map[string]func(fs.FileMode) bool{"history": fs.FileMode.IsDir, "meta.json": fs.FileMode.IsRegular} {
		fi, err := r.FS.Stat(filepath.Join(dir, name))
		if err == nil && isKind(fi.Mode()) {
			return true, nil
		}
		if err != nil && !absent(err) {
			return false, err
		}
	}
	return false, nil
}

// inRoot reports whether a directory lies in the root, or is reached through
// a symlink that leads there: then it is no working folder's.
func (r *runner) inRoot(dir string) bool {
	root := r.Layout.Root()
	return below(root, dir) || below(realPath(root), realPath(dir))
}

func below(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// realPath resolves the symlinks of a path as far as it exists.
func realPath(path string) string {
	for rest := ""; ; {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Join(real, rest)
		}
		parent := filepath.Dir(path)
		if parent == path {
			return filepath.Join(path, rest)
		}
		rest = filepath.Join(filepath.Base(path), rest)
		path = parent
	}
}
