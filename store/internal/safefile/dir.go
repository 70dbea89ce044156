package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// ErrEscapes is wrapped by the error of a path that leads, or could lead, out
// of its root: it has a "..", is absolute, or meets a symlink.
var ErrEscapes = errors.New("path leaves its directory")

// Open returns the directory rel beneath root, which is an absolute path whose
// own symlinks the caller has resolved. A rel of "." is root itself. The error
// wraps ErrEscapes when a component is a symlink, and fs.ErrNotExist or
// ENOTDIR when there is no such directory.
func Open(root, rel string) (*Dir, error) {
	if !filepath.IsAbs(root) || !filepath.IsLocal(rel) {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(root, rel), Err: ErrEscapes}
	}
	d, err := open(filepath.Clean(root), filepath.Clean(rel))
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EXDEV) {
		err = fmt.Errorf("%w: %w", ErrEscapes, err)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(root, rel), Err: err}
	}
	return d, nil
}

// OpenParent returns the directory that holds rel, and rel's last component.
func OpenParent(root, rel string) (*Dir, string, error) {
	dir, name := filepath.Split(rel)
	if name == "" || name == "." || name == ".." {
		return nil, "", &fs.PathError{Op: "open", Path: filepath.Join(root, rel), Err: ErrEscapes}
	}
	d, err := Open(root, filepath.Clean(dir))
	return d, name, err
}

// Mkdir makes the directory rel beneath root and the missing ones between
// them, durably, each with the owner of its parent, and opens it. Made are the
// ones that were missing, outermost first, also when it fails.
func Mkdir(f disk.FS, root, rel string, perm fs.FileMode) (d *Dir, made []string, err error) {
	missing, err := Missing(root, rel)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range missing {
		if err := mkdirOne(f, root, m, perm); err != nil {
			return nil, made, err
		}
		made = append(made, m)
	}
	d, err = Open(root, rel)
	return d, made, err
}

// Missing returns the directories that lack to rel beneath root, outermost
// first.
func Missing(root, rel string) ([]string, error) {
	d, err := Open(root, rel)
	if err == nil {
		return nil, d.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) || filepath.Clean(rel) == "." {
		return nil, err
	}
	above, err := Missing(root, filepath.Dir(filepath.Clean(rel)))
	if err != nil {
		return nil, err
	}
	return append(above, filepath.Clean(rel)), nil
}

func mkdirOne(f disk.FS, root, rel string, perm fs.FileMode) (err error) {
	parent, name, err := OpenParent(root, rel)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parent.Close()) }()
	return disk.MkdirOwned(f, parent.Path(name), perm)
}
