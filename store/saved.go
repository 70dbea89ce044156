package store

import (
	"errors"

	"github.com/sessionfs/sessionfs/store/gitrepo"
)

// SavedFiles tells which files a session's repository has, see
// [gitrepo.SavedFiles].
type SavedFiles = gitrepo.SavedFiles

var errLinkedSession = errors.New("the session is a symlink")

// SavedFiles reads which files a session's repository has now. It takes no
// lock.
func (s *Store) SavedFiles(id string) (*SavedFiles, error) {
	p, err := s.place("look for files in Git", id)
	if err != nil {
		return nil, err
	}
	if p.Symlink {
		return nil, errLinkedSession
	}
	r, err := gitrepo.Open(p.Dir, s.git)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return r.SavedFiles()
}
