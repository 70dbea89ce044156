package safefile

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// maxLinks is how many symlinks a path may go through, as in the kernel.
const maxLinks = 40

// Resolve returns an absolute path with all symlinks resolved and every ".."
// taken where the path has come to by then. The end of the path need not
// exist. A component that cannot be looked at is an error, and so is a loop.
func Resolve(f disk.FS, path string) (string, error) {
	if !filepath.IsAbs(path) || strings.IndexByte(path, 0) >= 0 {
		return "", &fs.PathError{Op: "resolve", Path: path, Err: syscall.EINVAL}
	}
	at, rest, links := "/", strings.Split(path, "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		target, err := readlink(f, next)
		if err != nil {
			return "", err
		}
		if target == "" {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "resolve", Path: path, Err: syscall.ELOOP}
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}

// readlink returns a symlink's target, "" for anything else and for nothing.
func readlink(f disk.FS, path string) (string, error) {
	fi, err := f.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return "", nil
	case err != nil:
		return "", err
	case fi.Mode()&fs.ModeSymlink == 0:
		return "", nil
	}
	return f.Readlink(path)
}

// Within reports whether path is root or lies below it, by components. Both
// are absolute and clean.
func Within(root, path string) bool {
	if root == path || root == "/" {
		return true
	}
	return strings.HasPrefix(path, root) && path[len(root)] == '/'
}
