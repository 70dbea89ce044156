package fsnode

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
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

// maxSaved is up to which size, in bytes, a file is put into a commit because
// it is about to be removed: the session's lock is held meanwhile.
const maxSaved = 16 << 20

// beforeRemove commits what the session's real files hold before the first of
// them is removed, so that `rm -rf` of a session takes nothing that Git does
// not have. The removals that follow find nothing new. A large file that Git
// does not have is moved to failed/ instead, so that nobody waits for it.
//
// A commit that is not possible (a full disk, a broken repository) does not
// keep anybody from removing files, except while somebody else is at it.
func (s *session) beforeRemove(ctx context.Context, r vnode.Removal) error {
	if r.Size > maxSaved && s.keepLarge(r) {
		return nil
	}
	u := &s.unsaved
	u.one.Lock()
	defer u.one.Unlock()
	u.mu.Lock()
	since := s.t.now().Sub(u.saved)
	done := u.none && since < saveAgain || since < saveSoon && r.Age >= 0 && r.Age < youngFile
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

// keepLarge sees that a large file which is about to be removed is not lost: Git
// has it, or failed/ has room for it.
func (s *session) keepLarge(r vnode.Removal) bool {
	dir, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(r.Dir))
	base, errBase := filepath.EvalSymlinks(s.v.Load().sn.Dir)
	rel, ok := strings.CutPrefix(filepath.Join(dir, r.Name), base+"/")
	if err != nil || errBase != nil || !ok {
		return false
	}
	if s.t.st.Saved(s.id, rel) {
		return true
	}
	kept, err := s.t.sp.KeepFile(s.id+"-"+strings.TrimPrefix(rel, "workdir/"), r.Dir, r.Name)
	if err != nil {
		s.t.log.Info("a large file goes into a commit before it is removed", "session", s.id, "file", rel, "err", err)
		return false
	}
	s.t.log.Info("a large file was removed that is in no commit, and is kept", "session", s.id, "file", kept)
	return true
}
