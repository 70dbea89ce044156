package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// Entry is one name in a directory of a commit.
type Entry struct {
	Name string
	// Mode is Git's: 0100644, 0100755, 0120000 (symlink), 0040000 (directory)
	// or 0160000 (a commit of another repository).
	Mode uint32
	Hash string // of the tree, blob or commit
}

// IsDir reports whether the entry is a directory of this repository.
func (e Entry) IsDir() bool { return e.Mode&modeType == modeDir }

// FileMode is the entry's mode as package io/fs has it, permissions as git
// would check it out. A nested repository is an empty directory.
func (e Entry) FileMode() fs.FileMode {
	switch e.Mode & modeType {
	case modeDir, modeGitlink:
		return fs.ModeDir | 0o755
	case modeSymlink:
		return fs.ModeSymlink | 0o777
	}
	if e.Mode&0o100 != 0 {
		return 0o755
	}
	return 0o644
}

// HeadTreeEmpty reports whether HEAD's tree holds nothing, which it also does
// when there is no commit.
func (r *Repo) HeadTreeEmpty(ctx context.Context) (bool, error) {
	tree, err := r.headTree()
	return tree == emptyTree, err
}

// HeadHasPath reports whether HEAD's tree has a file or directory of that path.
func (r *Repo) HeadHasPath(ctx context.Context, path string) (bool, error) {
	tree, err := r.headTree()
	if err != nil {
		return false, err
	}
	_, err = r.resolve(tree, path)
	if errors.Is(err, errNoPath) {
		return false, nil
	}
	return err == nil, err
}

// headTree is the tree of HEAD's commit, the empty one when there is none.
func (r *Repo) headTree() (plumbing.Hash, error) {
	tip, err := r.readTip()
	return tip.tree(), err
}

// errNoPath is ErrNotFound for a path that a tree does not have, told apart
// from an object that is missing.
var errNoPath = fmt.Errorf("path %w", ErrNotFound)

// cleanPath takes a slash-separated path apart; "" and "." are the top.
func cleanPath(path string) []string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	return slices.DeleteFunc(parts, func(p string) bool { return p == "" || p == "." })
}

// resolve finds a path in a tree.
func (r *Repo) resolve(tree plumbing.Hash, path string) (treeEntry, error) {
	at := treeEntry{mode: modeDir, hash: tree}
	for _, part := range cleanPath(path) {
		if !at.isDir() {
			return treeEntry{}, errNoPath
		}
		entries, err := r.objects.rawTree(at.hash)
		if err != nil {
			return treeEntry{}, err
		}
		i := slices.IndexFunc(entries, func(e treeEntry) bool { return e.name == part })
		if i < 0 {
			return treeEntry{}, errNoPath
		}
		at = entries[i]
	}
	return at, nil
}

// walkTree calls fn for everything in a tree that is not a directory, in the
// index's order.
func (r *Repo) walkTree(tree plumbing.Hash, prefix string, depth int, fn func(path string, e treeEntry) error) error {
	if depth > maxDepth {
		return fmt.Errorf("tree %s: %w: too deep", tree, ErrCorrupt)
	}
	entries, err := r.objects.rawTree(tree)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.isDir() {
			err = r.walkTree(e.hash, prefix+e.name+"/", depth+1, fn)
		} else {
			err = fn(prefix+e.name, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// commitTree is the tree of a commit given by its full hash.
func (r *Repo) commitTree(hash string) (plumbing.Hash, []plumbing.Hash, error) {
	h, ok := parseHash(hash)
	if !ok || len(hash) != 40 {
		return h, nil, fmt.Errorf("commit %q: %w", hash, ErrNotFound)
	}
	c, err := r.objects.commit(h)
	if err != nil {
		return h, nil, err
	}
	return c.TreeHash, c.ParentHashes, nil
}

// Stat returns what a path is at a commit (full hash); "" is the top
// directory. ErrNotFound.
func (r *Repo) Stat(ctx context.Context, commit, path string) (Entry, error) {
	tree, _, err := r.commitTree(commit)
	if err != nil {
		return Entry{}, err
	}
	e, err := r.resolve(tree, path)
	return Entry{e.name, e.mode, e.hash.String()}, err
}

// List returns a directory at a commit, in Git's order. ErrNotFound, also for a
// path that is no directory.
func (r *Repo) List(ctx context.Context, commit, path string) ([]Entry, error) {
	e, err := r.Stat(ctx, commit, path)
	if err != nil {
		return nil, err
	}
	if !e.IsDir() {
		return nil, fmt.Errorf("%s is no directory: %w", path, ErrNotFound)
	}
	return r.Tree(ctx, e.Hash)
}

// Tree returns the entries of a tree object.
func (r *Repo) Tree(ctx context.Context, hash string) ([]Entry, error) {
	h, ok := parseHash(hash)
	if !ok {
		return nil, fmt.Errorf("tree %q: %w", hash, ErrNotFound)
	}
	raw, err := r.objects.rawTree(h)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(raw))
	for i, e := range raw {
		entries[i] = Entry{e.name, e.mode, e.hash.String()}
	}
	return entries, nil
}

// Blob returns the content of a blob object: a file, or a symlink's target.
func (r *Repo) Blob(ctx context.Context, hash string) ([]byte, error) {
	h, ok := parseHash(hash)
	if !ok {
		return nil, fmt.Errorf("blob %q: %w", hash, ErrNotFound)
	}
	return r.objects.bytes(h, plumbing.BlobObject)
}

// BlobSize returns the size of a blob in bytes.
func (r *Repo) BlobSize(ctx context.Context, hash string) (int64, error) {
	h, ok := parseHash(hash)
	if !ok {
		return 0, fmt.Errorf("blob %q: %w", hash, ErrNotFound)
	}
	return r.objects.size(h)
}

// ChangedPaths returns the paths of files that differ between a commit (full
// hash) and its first parent, sorted; without a parent, all of its files.
func (r *Repo) ChangedPaths(ctx context.Context, hash string) ([]string, error) {
	tree, parents, err := r.commitTree(hash)
	if err != nil {
		return nil, err
	}
	base := emptyTree
	if len(parents) > 0 && !r.shallow()[plumbing.NewHash(hash)] {
		if base, _, err = r.commitTree(parents[0].String()); err != nil {
			return nil, err
		}
	}
	set := map[string]bool{}
	if err := r.diffTrees(ctx, base, tree, "", set); err != nil {
		return nil, err
	}
	paths := make([]string, 0, len(set))
	for p := range set {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return paths, nil
}

// diffTrees adds the paths that differ between two trees.
func (r *Repo) diffTrees(ctx context.Context, a, b plumbing.Hash, prefix string, set map[string]bool) error {
	if a == b {
		return nil
	}
	if err := checkContext(ctx); err != nil {
		return err
	}
	was, err := r.entriesByKey(a)
	if err != nil {
		return err
	}
	now, err := r.entriesByKey(b)
	if err != nil {
		return err
	}
	for key, e := range now {
		old, ok := was[key]
		delete(was, key)
		switch {
		case e.isDir():
			if !ok {
				old.hash = emptyTree
			}
			err = r.diffTrees(ctx, old.hash, e.hash, prefix+key, set)
		case !ok || old.hash != e.hash || old.mode != e.mode:
			set[prefix+e.name] = true
		}
		if err != nil {
			return err
		}
	}
	for key, e := range was {
		if !e.isDir() {
			set[prefix+e.name] = true
		} else if err := r.diffTrees(ctx, e.hash, emptyTree, prefix+key, set); err != nil {
			return err
		}
	}
	return nil
}

func (r *Repo) entriesByKey(tree plumbing.Hash) (map[string]treeEntry, error) {
	entries, err := r.objects.rawTree(tree)
	m := make(map[string]treeEntry, len(entries))
	for _, e := range entries {
		m[e.sortKey()] = e
	}
	return m, err
}
