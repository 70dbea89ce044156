package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// Restore writes back the files at or below path that HEAD has and the work
// tree lacks, each durably, and returns how many. What is there is left as it
// is. Files get mode 0600, or 0700 if executable, and their directory's owner
// (reference 2.2). A nested repository is not restored.
func (r *Repo) Restore(ctx context.Context, path string) (int, error) {
	tree, err := r.headTree()
	if err != nil {
		return 0, fmt.Errorf("restore %s: %w", path, err)
	}
	e, err := r.resolve(tree, path)
	if errors.Is(err, errNoPath) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("restore %s: %w", path, err)
	}
	count := 0
	restore := func(p string, e treeEntry) error {
		if err := checkContext(ctx); err != nil {
			return err
		}
		done, err := r.restoreFile(p, e)
		if done {
			count++
		}
		if err != nil {
			return fmt.Errorf("restore %s: %w", p, err)
		}
		return nil
	}
	prefix := strings.Join(cleanPath(path), "/")
	if !e.isDir() {
		err = restore(prefix, e)
		return count, err
	}
	if prefix != "" {
		prefix += "/"
	}
	err = r.walkTree(e.hash, prefix, 0, restore)
	return count, err
}

// restoreFile writes one file, unless something is in its place.
func (r *Repo) restoreFile(path string, e treeEntry) (bool, error) {
	if e.mode&modeType == modeGitlink {
		return false, nil
	}
	if !filepath.IsLocal(path) {
		return false, fmt.Errorf("path %q: %w", path, ErrCorrupt)
	}
	full := filepath.Join(r.work, path)
	if _, err := r.fs.Lstat(full); err == nil || isNotDir(err) {
		return false, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if ok, err := r.restoreDir(path); !ok {
		return false, err
	}
	content, err := r.objects.bytes(e.hash, plumbing.BlobObject)
	if err != nil {
		return false, err
	}
	if e.mode == modeSymlink {
		err = r.fs.Symlink(string(content), full)
	} else {
		mode := fs.FileMode(0o600)
		if e.mode&0o100 != 0 {
			mode = 0o700
		}
		err = disk.WriteAtomic(r.fs, full, content, disk.WriteOptions{Mode: mode, NoReplace: true})
	}
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// restoreDir makes the directories above a path. It is false when one of them
// is a symlink or a file: nothing is restored through it.
func (r *Repo) restoreDir(path string) (bool, error) {
	dir := r.work
	parts := strings.Split(path, "/")
	for _, part := range parts[:len(parts)-1] {
		if asciiLower(part) == ".git" {
			return false, fmt.Errorf("path %q: %w", path, ErrCorrupt)
		}
		dir = filepath.Join(dir, part)
		fi, err := r.fs.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			err = disk.MkdirOwned(r.fs, dir, 0o755)
		} else if err == nil && !fi.IsDir() {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}
