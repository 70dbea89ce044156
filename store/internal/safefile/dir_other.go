//go:build !linux

package safefile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Dir is a directory that was looked up. Close it.
type Dir struct {
	path string
}

// Path returns the path of a name in the directory; the empty name is the
// directory. Where no descriptor can stand for a path, as here, the directory
// is the one that was found only as long as nobody renames it.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Close releases the directory.
func (d *Dir) Close() error { return nil }

func open(root, rel string) (*Dir, error) {
	path := root
	if fi, err := os.Stat(root); err != nil {
		return nil, err
	} else if !fi.IsDir() {
		return nil, syscall.ENOTDIR
	}
	if rel == "." {
		return &Dir{root}, nil
	}
	for _, name := range strings.Split(rel, string(filepath.Separator)) {
		path = filepath.Join(path, name)
		fi, err := os.Lstat(path)
		switch {
		case err != nil:
			return nil, err
		case fi.Mode()&os.ModeSymlink != 0:
			return nil, syscall.ELOOP
		case !fi.IsDir():
			return nil, syscall.ENOTDIR
		}
	}
	return &Dir{path}, nil
}
