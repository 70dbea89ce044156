package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sessionfs/sessionfs/store/gitrepo"
)

// FileChange is a file that differs between two commits. Old and New are its
// contents, nil on the side where it is not.
type FileChange struct {
	Path     string // slash-separated, below the session's directory
	Old, New []byte
}

// minHash is how many digits a shortened commit name needs at least.
const minHash = 4

// FindCommit finds a commit of a session by its name: a full or shortened hash
// (4 or more digits), or HEAD, each with ~N for the N-th before it. NotFound,
// Ambiguous, Invalid.
func (s *Store) FindCommit(ctx context.Context, id, name string) (Commit, error) {
	log, err := s.SessionCommits(ctx, id, 0)
	if err != nil {
		return Commit{}, err
	}
	return findCommit(log, id, name)
}

func findCommit(log []Commit, id, name string) (Commit, error) {
	fail := func(code Code, text string) error {
		return &Error{Code: code, Op: "find commit", Session: id, Ref: name, Err: errors.New(text)}
	}
	base, back, err := splitTilde(name)
	if err != nil {
		return Commit{}, fail(Invalid, err.Error())
	}
	at := -1
	for i, c := range log {
		if base == "HEAD" || base == "@" || c.Hash == base {
			at = i
			break
		}
		if len(base) < minHash || !strings.HasPrefix(c.Hash, strings.ToLower(base)) {
			continue
		}
		if at >= 0 {
			return Commit{}, fail(Ambiguous, fmt.Sprintf("several commits match: %s, %s", log[at].Hash[:12], c.Hash[:12]))
		}
		at = i
	}
	if at < 0 || at+back >= len(log) {
		return Commit{}, fail(NotFound, "no such commit")
	}
	return log[at+back], nil
}

// splitTilde takes ~N off a name; ~ alone is ~1.
func splitTilde(name string) (base string, back int, err error) {
	base, digits, ok := strings.Cut(name, "~")
	if !ok {
		return name, 0, nil
	}
	if digits == "" {
		return base, 1, nil
	}
	for _, c := range digits {
		if c < '0' || c > '9' || back > 1<<20 {
			return "", 0, errors.New("~ must be followed by a number")
		}
		back = back*10 + int(c-'0')
	}
	return base, back, nil
}

// DiffCommits returns the files that differ between two commits of a session,
// by path. NotFound, Ambiguous, Corrupt.
func (s *Store) DiffCommits(ctx context.Context, id, from, to string) ([]FileChange, error) {
	sn, err := s.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	log, err := s.SessionCommits(ctx, id, 0)
	if err != nil {
		return nil, err
	}
	a, err := findCommit(log, id, from)
	if err != nil {
		return nil, err
	}
	b, err := findCommit(log, id, to)
	if err != nil {
		return nil, err
	}
	r, err := gitrepo.Open(sn.Dir, s.git)
	if err != nil {
		return nil, &Error{Code: Corrupt, Op: "diff", Session: id, Err: err}
	}
	defer r.Close()
	d := treeDiff{ctx: ctx, r: r}
	if err := d.dirs("", a.Hash, b.Hash); err != nil {
		return nil, &Error{Code: Corrupt, Op: "diff", Session: id, Err: err}
	}
	slices.SortFunc(d.out, func(x, y FileChange) int { return strings.Compare(x.Path, y.Path) })
	return d.out, nil
}

// treeDiff walks the trees of two commits at once and leaves out what has the
// same hash.
type treeDiff struct {
	ctx context.Context
	r   *gitrepo.Repo
	out []FileChange
}

// dirs compares a directory of two commits; "" stands for a commit in which it
// is not.
func (d *treeDiff) dirs(dir, a, b string) error {
	old, err := d.list(a, dir)
	if err != nil {
		return err
	}
	now, err := d.list(b, dir)
	if err != nil {
		return err
	}
	for name, x := range old {
		y, ok := now[name]
		if ok && x.Hash == y.Hash && x.Mode == y.Mode {
			continue
		}
		if err := d.entries(path.Join(dir, name), a, b, x, y); err != nil {
			return err
		}
	}
	for name, y := range now {
		if _, ok := old[name]; ok {
			continue
		}
		if err := d.entries(path.Join(dir, name), a, b, gitrepo.Entry{}, y); err != nil {
			return err
		}
	}
	return nil
}

func (d *treeDiff) list(commit, dir string) (map[string]gitrepo.Entry, error) {
	out := map[string]gitrepo.Entry{}
	if commit == "" {
		return out, nil
	}
	entries, err := d.r.List(d.ctx, commit, dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		out[e.Name] = e
	}
	return out, nil
}

// entries compares two entries of one name that differ; a zero entry is none.
func (d *treeDiff) entries(name, a, b string, x, y gitrepo.Entry) error {
	if x.IsDir() || y.IsDir() {
		if !x.IsDir() {
			a = ""
		}
		if !y.IsDir() {
			b = ""
		}
		if err := d.dirs(name, a, b); err != nil {
			return err
		}
	}
	c := FileChange{Path: name}
	var err error
	if c.Old, err = d.content(x); err != nil {
		return err
	}
	if c.New, err = d.content(y); err != nil {
		return err
	}
	if (c.Old != nil || c.New != nil) && (c.Old == nil || c.New == nil || !bytes.Equal(c.Old, c.New)) {
		d.out = append(d.out, c)
	}
	return nil
}

// content is a file's content, nil for what is no file.
func (d *treeDiff) content(e gitrepo.Entry) ([]byte, error) {
	if e.Hash == "" || e.IsDir() || e.Mode == 0o160000 {
		return nil, nil
	}
	content, err := d.r.Blob(d.ctx, e.Hash)
	if content == nil && err == nil {
		content = []byte{}
	}
	return content, err
}
