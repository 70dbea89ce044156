package fsnode

import (
	"context"
	"sync"
	"time"

	"github.com/sessionfs/sessionfs/store"
)

// saveAgain is after how long a removal makes sure once more that Git has what
// is about to go: other programs put files there too, which no request tells.
const saveAgain = 30 * time.Second

// A build makes and removes files all the time, each by another program. One
// that has lived for less than youngFile costs no commit within saveSoon of
// another.
const (
	youngFile = 2 * time.Second
	saveSoon  = 10 * time.Second
)

// unsaved tells whether the real files of a session may hold something that is
// not in a commit. The zero value says so.
type unsaved struct {
	one sync.Mutex // level 0: one commit at a time

	mu    sync.Mutex // leaf: guards what follows
	none  bool       // nothing was added since the last commit
	saved time.Time
}

// added notes that a real file was made or changed.
func (s *session) added() {
	s.unsaved.mu.Lock()
	s.unsaved.none = false
	s.unsaved.mu.Unlock()
	s.t.st.Dirty(s.id)
}

// beforeRemove commits what the session's real files hold before the first of
// them is removed, so that `rm -rf` of a session takes nothing that Git does
// not have. The removals that follow find nothing new.
//
// A commit that is not possible (a full disk, a broken repository) does not
// keep anybody from removing files, except while somebody else is at it.
func (s *session) beforeRemove(ctx context.Context, age time.Duration) error {
	u := &s.unsaved
	u.one.Lock()
	defer u.one.Unlock()
	u.mu.Lock()
	since := s.t.now().Sub(u.saved)
	done := u.none && since < saveAgain || since < saveSoon && age >= 0 && age < youngFile
	u.none = u.none || !done // what is added from here on may miss the commit
	u.mu.Unlock()
	if done {
		return nil
	}
	_, _, err := s.t.st.CommitTurn(holdingAny(ctx), s.id, "sessionfs: before files are removed")
	u.mu.Lock()
	u.none, u.saved = u.none && err == nil, s.t.now()
	u.mu.Unlock()
	switch store.CodeOf(err) {
	case "":
		return nil
	case store.Locked:
		return err
	}
	s.t.log.Warn("files are removed that are in no commit", "session", s.id, "err", err)
	return nil
}
