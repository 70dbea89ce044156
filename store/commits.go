package store

import (
	"context"
	"errors"
	"io/fs"

	"github.com/sessionfs/sessionfs/store/gitrepo"
)

// CommitEntry is one name in a directory of a commit. Nothing is checked out
// for it.
type CommitEntry struct {
	Name string
	// Mode is the type (directory, symlink or regular) with the permissions
	// that a checkout would give. A nested repository is an empty directory.
	Mode fs.FileMode
	// Object is the hash of the directory's tree or the file's blob, "" for a
	// nested repository.
	Object string
	// Size is in bytes, 0 for directories.
	Size int64
}

// Commits reads a session's Git history as it is at each call. It takes no
// lock of the session: commits never change, and the branch moves in one step.
// It is safe for concurrent use and needs no closing.
type Commits struct {
	id string
	r  *gitrepo.Repo
}

// OpenCommits opens the Git history of the session that a snapshot shows.
// Corrupt when it has no repository.
func (sn *Snapshot) OpenCommits() (*Commits, error) {
	r, err := gitrepo.Open(sn.Dir, sn.s.git)
	if err != nil {
		return nil, &Error{Code: Corrupt, Op: "read commits", Session: sn.ID, Err: err}
	}
	return &Commits{id: sn.ID, r: r}, nil
}

// Forget drops what is kept of the objects that were read, for who keeps many
// open.
func (c *Commits) Forget() { c.r.Forget() }

func (c *Commits) fail(ref string, err error) error {
	if cause := contextCause(err); cause != nil {
		return cause
	}
	code := Corrupt
	if errors.Is(err, gitrepo.ErrNotFound) {
		code = NotFound
	}
	return &Error{Code: code, Op: "read commits", Session: c.id, Ref: ref, Err: err}
}

// Tip returns the newest commit's hash, "" when there is none. It reads one
// or two small files.
func (c *Commits) Tip() (string, error) {
	tip, err := c.r.Tip()
	if err != nil {
		return "", c.fail("", err)
	}
	return tip, nil
}

// Log lists the commits, newest first.
func (c *Commits) Log(ctx context.Context) ([]Commit, error) {
	log, err := c.r.Log(ctx, 0)
	if err != nil {
		return nil, c.fail("", err)
	}
	out := make([]Commit, len(log))
	for i, g := range log {
		out[i] = Commit{Hash: g.Hash, Short: g.Short, Message: g.Message, Time: g.Time}
	}
	return out, nil
}

// Message returns a commit's whole message.
func (c *Commits) Message(hash string) (string, error) {
	m, err := c.r.Message(hash)
	if err != nil {
		return "", c.fail(hash, err)
	}
	return m, nil
}

// Changed lists the paths that a commit changed, sorted.
func (c *Commits) Changed(ctx context.Context, hash string) ([]string, error) {
	paths, err := c.r.ChangedPaths(ctx, hash)
	if err != nil {
		return nil, c.fail(hash, err)
	}
	return paths, nil
}

// Top returns the tree of a commit's top directory.
func (c *Commits) Top(ctx context.Context, hash string) (tree string, err error) {
	e, err := c.r.Stat(ctx, hash, "")
	if err != nil {
		return "", c.fail(hash, err)
	}
	return e.Hash, nil
}

// List returns the names in a tree, without the files' sizes.
func (c *Commits) List(ctx context.Context, tree string) ([]CommitEntry, error) {
	if tree == "" {
		return nil, nil
	}
	entries, err := c.r.Tree(ctx, tree)
	if err != nil {
		return nil, c.fail(tree, err)
	}
	out := make([]CommitEntry, len(entries))
	for i, e := range entries {
		out[i] = CommitEntry{Name: e.Name, Mode: e.FileMode()}
		if e.IsDir() || !e.FileMode().IsDir() {
			out[i].Object = e.Hash
		}
	}
	return out, nil
}

// Find returns a name in a tree. NotFound.
func (c *Commits) Find(ctx context.Context, tree, name string) (CommitEntry, error) {
	list, err := c.List(ctx, tree)
	if err != nil {
		return CommitEntry{}, err
	}
	for _, e := range list {
		if e.Name != name {
			continue
		}
		if !e.Mode.IsDir() {
			if e.Size, err = c.r.BlobSize(ctx, e.Object); err != nil {
				return CommitEntry{}, c.fail(e.Object, err)
			}
		}
		return e, nil
	}
	return CommitEntry{}, c.fail(name, gitrepo.ErrNotFound)
}

// Blob returns the content of a file, or a symlink's target.
func (c *Commits) Blob(ctx context.Context, object string) ([]byte, error) {
	b, err := c.r.Blob(ctx, object)
	if err != nil {
		return nil, c.fail(object, err)
	}
	return b, nil
}
