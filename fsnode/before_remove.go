package fsnode

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

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
	began time.Time // when the last commit looked for changes, by the disk's clock
	told  time.Time // when the log was last told of files that are lost
	files weak.Pointer[store.SavedFiles]
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
// not have. The removals that follow find nothing new. What Git does not have
// even then (it is ignored, or in a repository of its own) is kept in failed/,
// and so is, without a commit, a large file, so that nobody waits for it.
//
// A commit that is not possible (a full disk, a broken repository) does not
// keep anybody from removing files, except while somebody else is at it.
func (s *session) beforeRemove(ctx context.Context, r vnode.Removal) error {
	rel, ok := s.realPath(r)
	if r.Replaced && (!ok || !s.savable(rel, r)) {
		return nil
	}
	if ok && r.Size > maxSaved && (s.hasSaved(rel, r) || s.keepFile(rel, r) == nil) {
		return nil
	}
	young, err := s.saveBefore(ctx, r)
	if err != nil || young || !ok || r.Size == 0 || r.Replaced || s.hasSaved(rel, r) {
		return err
	}
	if err := s.keepFile(rel, r); err != nil {
		s.lost(rel, err)
	}
	return nil
}

// saveBefore makes the commit, unless it would find nothing. It reports whether
// the file is a build's that needs none.
func (s *session) saveBefore(ctx context.Context, r vnode.Removal) (young bool, err error) {
	u := &s.unsaved
	u.one.Lock()
	defer u.one.Unlock()
	u.mu.Lock()
	since := s.t.now().Sub(u.saved)
	young = since < saveSoon && r.Age >= 0 && r.Age < youngFile && r.Changed.After(u.began)
	done := u.none && since < saveAgain || young
	u.none = u.none || !done // what is added from here on may miss the commit
	u.mu.Unlock()
	if done {
		return young, nil
	}
	began := time.Now()
	_, _, err = s.t.st.CommitTurn(holdingAny(ctx), s.id, "sessionfs: before files are removed")
	u.mu.Lock()
	u.none, u.saved, u.began = u.none && err == nil, s.t.now(), began
	u.mu.Unlock()
	switch store.CodeOf(err) {
	case "":
		return false, nil
	case store.Locked:
		return false, err
	}
	s.t.log.Warn("files are removed that are in no commit", "session", s.id, "err", err)
	return false, nil
}

// realPath is where the file is, slash-separated from the session's directory.
func (s *session) realPath(r vnode.Removal) (rel string, ok bool) {
	dir, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(r.Dir))
	base, errBase := filepath.EvalSymlinks(s.repository())
	if err != nil || errBase != nil {
		return "", false
	}
	return strings.CutPrefix(filepath.Join(dir, r.Name), base+"/")
}

// savable reports whether a commit may save a file that is replaced: Git does
// not have it, and the last commit has not passed it over. A repository's own
// files are replaced all the time, and are no texts.
func (s *session) savable(rel string, r vnode.Removal) bool {
	if strings.Contains(rel, "/.git/") || s.hasSaved(rel, r) {
		return false
	}
	s.unsaved.mu.Lock()
	defer s.unsaved.mu.Unlock()
	return r.Changed.After(s.unsaved.began.Add(-time.Second)) // a disk's clock is coarse
}

// hasSaved reports whether Git has the file's content. What Git has is
// remembered from one removal to the next, until memory is wanted.
func (s *session) hasSaved(rel string, r vnode.Removal) bool {
	u := &s.unsaved
	u.mu.Lock()
	files := u.files.Value()
	u.mu.Unlock()
	if files == nil || !files.Current() {
		var err error
		if files, err = s.t.st.SavedFiles(s.id); err != nil {
			return false
		}
		u.mu.Lock()
		u.files = weak.Make(files)
		u.mu.Unlock()
	}
	return files.Has(rel, r.Dir, r.Name)
}

// keepFile keeps a file that is about to be removed in failed/, where there is
// room for it.
func (s *session) keepFile(rel string, r vnode.Removal) error {
	kept, err := s.t.sp.KeepFile(s.id+"-"+strings.TrimPrefix(rel, "workdir/"), r.Dir, r.Name)
	if err != nil {
		return err
	}
	s.t.log.Info("a file was removed that is in no commit, and is kept", "session", s.id, "file", kept)
	return nil
}

// lost tells, once for many files, that one was removed which is in no commit
// and could not be kept.
func (s *session) lost(rel string, err error) {
	u := &s.unsaved
	u.mu.Lock()
	now := s.t.now()
	quiet := now.Sub(u.told) < saveAgain
	if !quiet {
		u.told = now
	}
	u.mu.Unlock()
	if !quiet {
		s.t.log.Warn("files are removed that are in no commit and cannot be kept", "session", s.id, "file", rel, "err", err)
	}
}
