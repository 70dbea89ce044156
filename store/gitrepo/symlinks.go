package gitrepo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// writtenParts are the parts of a Git directory that a commit may write to, but
// for the 256 object directories: who writes there looks at the one.
func writtenParts() []string {
	return []string{
		recordName, "logs", "logs/HEAD", "logs/refs", "logs/refs/heads", "logs/refs/heads/main", "refs", "refs/heads",
		"objects", "objects/pack", "objects/info", "info",
	}
}

// SymlinkedPart names the first part of a Git directory that is written to and
// is a symlink, "" when none is: a repository that has one is only read.
func SymlinkedPart(f disk.FS, dir string) string {
	if name := symlinked(f, dir); name != "" {
		return name
	}
	entries, err := f.ReadDir(filepath.Join(dir, "objects"))
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			return "objects/" + e.Name()
		}
	}
	return ""
}

// symlinked is SymlinkedPart without a look at the object directories.
func symlinked(f disk.FS, dir string) string {
	for _, name := range writtenParts() {
		if isLink(f, filepath.Join(dir, filepath.FromSlash(name))) {
			return name
		}
	}
	return ""
}

func isLink(f disk.FS, path string) bool {
	fi, err := f.Lstat(path)
	return err == nil && fi.Mode()&fs.ModeSymlink != 0
}

func linkError(name string) error {
	return fmt.Errorf("%s is a symbolic link: %w", name, ErrUnsupported)
}

// refuseObjectLinks is refuseLinks with the object directories, for who removes
// objects.
func (r *Repo) refuseObjectLinks() error {
	if err := r.refuseLinks(); err != nil {
		return err
	}
	if name := SymlinkedPart(r.fs, r.common); name != "" {
		return linkError(name)
	}
	return nil
}

// ThroughLink reports whether a directory on the way from the repository to a
// path is a symlink.
func (r *Repo) ThroughLink(path string) (bool, error) {
	for dir := filepath.Dir(path); dir != r.git && dir != r.common && len(dir) > 1; dir = filepath.Dir(dir) {
		fi, err := r.fs.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || fi.Mode()&fs.ModeSymlink != 0 {
			return true, err
		}
	}
	return false, nil
}

// openLog opens a log that is there to append to it: a regular file of the
// repository, and nothing that a link leads to or that waits for a reader.
func (r *Repo) openLog(path string) (disk.File, error) {
	if through, err := r.ThroughLink(path); through || err != nil {
		return nil, errors.Join(err, linkError("a directory of the log"))
	}
	return openFile(r.fs, path, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW)
}
