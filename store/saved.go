package store

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store/gitrepo"
)

// Saved reports whether the session's repository has the content of a file as
// it is now; path is relative to the session's directory. It takes no lock and
// reads the file's attributes only. False when in doubt.
func (s *Store) Saved(id, path string) bool {
	p, err := s.place("look for a file in Git", id)
	if err != nil || p.Symlink {
		return false
	}
	var st unix.Stat_t
	if unix.Lstat(filepath.Join(p.Dir, path), &st) != nil {
		return false
	}
	r, err := gitrepo.Open(p.Dir, s.git)
	if err != nil {
		return false
	}
	defer func() { _ = r.Close() }()
	return r.Saved(filepath.ToSlash(path), &st)
}
