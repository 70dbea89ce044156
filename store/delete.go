package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
	"github.com/sessionfs/sessionfs/store/layout"
)

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return hex.EncodeToString(b)
}

// DeleteSession deletes a session for good: a durable intent first, which
// hides it and burns its id, then the files, the registry's row and the
// recorded location (reference 6.5). A crash in between is finished at the
// next read-write Open. RunActive, NotFound.
func (s *Store) DeleteSession(ctx context.Context, id string) error {
	return s.remove(ctx, "delete session", id, func(t *tx) error {
		if err := t.refuseActiveRun(); err != nil {
			return err
		}
		if err := s.layout.WriteTombstone(id, t.timestamp()); err != nil {
			return t.diskFail("delete intent", err)
		}
		return nil
	})
}

// RemoveEmpty removes a session that holds nothing anybody wrote: no message,
// no file, no commit of content. Its id may be used again. NotEmpty,
// RunActive, NotFound.
func (s *Store) RemoveEmpty(ctx context.Context, id string) error {
	return s.remove(ctx, "remove session", id, func(t *tx) error {
		if err := t.refuseActiveRun(); err != nil {
			return err
		}
		if t.place.Symlink {
			return t.fail(Corrupt, "", errSymlinked)
		}
		what, err := t.content(ctx)
		if err != nil {
			return err
		}
		if what != "" {
			return &Error{Code: NotEmpty, Op: t.op, Session: id, Err: fmt.Errorf("the session holds %s", what),
				Hint: "to delete it for good: sessionfs rm " + id}
		}
		return t.unlist(ctx)
	})
}

// remove checks, under the session's locks, that a session may go, and takes
// it away.
func (s *Store) remove(ctx context.Context, op, id string, check func(t *tx) error) error {
	if s.opt.ReadOnly {
		return &Error{Code: ReadOnly, Op: op, Session: id, Err: errReadOnlyStore}
	}
	if _, err := s.place(op, id); err != nil {
		return err
	}
	se := s.pin(id)
	defer s.unpin(se)
	if err := se.acquire(ctx, s.lockTimeout); err != nil {
		return s.lockError(op, id, err)
	}
	t := &tx{s: s, se: se, op: op}
	err := t.remove(ctx, check)
	se.release()
	s.publish(ctx, t.changes...)
	return err
}

// Requires se.lock.
func (t *tx) remove(ctx context.Context, check func(t *tx) error) (err error) {
	s, id := t.s, t.se.id
	lock, err := filelock.Acquire(ctx, s.layout.LockPath(id), s.lockTimeout)
	if err != nil {
		return s.lockError(t.op, id, err)
	}
	defer lock.Unlock()
	if t.place, err = s.place(t.op, id); err != nil {
		return err
	}
	if t.place.Legacy {
		return t.fail(ReadOnly, "", errors.New("not migrated yet: the working folder's copy is only read"))
	}
	if s.layout.LaterIntent(t.place.Dir) {
		return t.fail(ReadOnly, "", errLaterIntent)
	}
	sn, c := s.refreshLocked(ctx, t.se, t.place, true)
	t.sn = sn
	t.changes = append(t.changes, c)
	if err := check(t); err != nil {
		return err
	}
	if err := s.removeFiles(t.place); err != nil {
		return t.diskFail(id, err)
	}
	s.clean(id)
	if t.se.repo != nil {
		_ = t.se.repo.Close()
		t.se.repo = nil
	}
	s.forget(ctx, t.place)
	t.se.cur.Store(nil)
	s.list.remove(id)
	gone := &Change{ID: id, Old: t.sn, Listing: true, Row: true}
	s.swapped(*gone)
	t.changes = append(t.changes, gone)
	return s.list.flush(ctx)
}

// unlist removes what tells of a session that held nothing, before its files:
// no intent is written for one, and a row or a recorded place that a crash
// leaves would tell of it for ever, while a directory is just found again.
func (t *tx) unlist(ctx context.Context) error {
	t.s.list.remove(t.se.id)
	if err := t.s.list.flush(ctx); err != nil {
		return err
	}
	t.s.forget(ctx, t.place)
	return nil
}

// forget drops what is recorded of a session's place.
func (s *Store) forget(ctx context.Context, p layout.Place) {
	s.forgetLocation(ctx, p)
	if _, ok := s.layout.BoundProject(p.ID); ok {
		s.bind(ctx, p.ID, func() error { return s.layout.Unbind(p.ID) })
	}
}

// removeFiles takes a session's directory away: renamed to a hidden name
// first, so that no reader sees half of it, then removed. What stays because
// of a crash is removed at the next Open.
func (s *Store) removeFiles(p layout.Place) error {
	parent := filepath.Dir(p.Dir)
	hidden := filepath.Join(parent, removingPrefix+randomHex(8))
	if err := s.fs.Rename(p.Dir, hidden); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if err := s.fs.SyncDir(parent); err != nil {
		return err
	}
	if err := s.fs.RemoveAll(hidden); err != nil {
		s.log.Warn("remove session files", "session", p.ID, "err", err)
	}
	undo := layout.RecoveryDir(p.Dir, p.ID)
	if err := s.fs.RemoveAll(undo); err != nil {
		s.log.Warn("remove undo files", "session", p.ID, "err", err)
	}
	return nil
}

// forgetLocation drops the session from locations.json.
func (s *Store) forgetLocation(ctx context.Context, p layout.Place) {
	if p.Dir == filepath.Join(s.root, p.ID) {
		return
	}
	lock, err := filelock.Acquire(ctx, s.layout.RegistryLockPath("locations"), s.lockTimeout)
	if err == nil {
		defer lock.Unlock()
		err = s.layout.ForgetLocation(p.ID)
	}
	if err != nil {
		s.log.Warn("forget location", "session", p.ID, "err", err)
	}
}

// finishDeletes completes deletions that a crash cut off: directories of
// sessions whose delete intent is there, and hidden leftovers.
//
// The leftovers right below the root are another pass's business: to look for
// them takes as long as to look for the sessions.
func (s *Store) finishDeletes(ctx context.Context) {
	projects, _ := s.fs.ReadDir(filepath.Join(s.root, "projects"))
	for _, p := range projects {
		if p.IsDir() {
			s.sweepHidden(filepath.Join(s.root, "projects", p.Name()))
		}
	}
	burnt, err := s.layout.Tombstones()
	if err != nil {
		s.log.Warn("read delete intents", "err", err)
	}
	for _, id := range burnt {
		s.finishDelete(ctx, id)
		s.list.removeKnown(id)
	}
}

// finishDelete removes what is left of one deleted session at the places
// where this store puts sessions. A deletion may only take what it was about to
// take: a directory that came after it is somebody's copy, and is set aside.
func (s *Store) finishDelete(ctx context.Context, id string) {
	for _, dir := range s.remains(id) {
		lock, err := filelock.Acquire(ctx, s.layout.LockPath(id), readWait)
		if err != nil {
			s.log.Warn("finish deletion", "session", id, "err", err)
			continue
		}
		p := layout.Place{ID: id, Dir: dir}
		_, gone := s.fs.Lstat(dir) // who held the lock may have been about to remove it
		switch {
		case errors.Is(gone, fs.ErrNotExist):
		case s.restoredAfterDelete(p):
			err = s.setRestoredAside(p)
		default:
			err = s.removeFiles(p)
		}
		if err != nil {
			s.log.Warn("finish deletion", "session", id, "err", err)
		}
		s.forgetLocation(ctx, p)
		_ = lock.Unlock()
	}
}

// remains lists the directories that a deleted session has at the places where
// this store puts sessions.
func (s *Store) remains(id string) []string {
	dirs := []string{filepath.Join(s.root, id)}
	projects, _ := s.fs.ReadDir(filepath.Join(s.root, "projects"))
	for _, p := range projects {
		if p.IsDir() {
			dirs = append(dirs, filepath.Join(s.root, "projects", p.Name(), id))
		}
	}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		fi, err := s.fs.Lstat(dir)
		return err != nil || !fi.IsDir()
	})
}

// restoredAfterDelete reports whether a deleted session's directory is none that
// the deletion left: it came after the intent, as one from a backup does. An
// intent that cannot be looked at decides nothing away.
func (s *Store) restoredAfterDelete(p layout.Place) bool {
	intent, err := s.fs.Lstat(s.layout.TombstonePath(p.ID))
	return err != nil || cameAfter(p.Dir, intent.ModTime())
}

// setRestoredAside moves a directory that came after its session was deleted to
// where Repair keeps things, whole.
func (s *Store) setRestoredAside(p layout.Place) error {
	rel, err := filepath.Rel(s.root, p.Dir)
	if err != nil {
		return err
	}
	aside := s.opt.aside
	if aside == "" {
		aside = asideName(s.now())
	}
	d, _, err := safefile.Mkdir(s.fs, s.root, filepath.Join(aside, filepath.Dir(rel)), 0o700)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := s.fs.RenameNoReplace(p.Dir, d.Path(p.ID)); err != nil {
		return err
	}
	s.keptRestored = true
	s.log.Warn("a deleted session was put back under its old id, which stays taken: set aside",
		"session", p.ID, "aside", filepath.Join(s.root, aside, rel))
	return errors.Join(s.fs.SyncDir(d.Path("")), s.fs.SyncDir(filepath.Dir(p.Dir)))
}

// content says what a session holds that somebody wrote, "" for nothing.
func (t *tx) content(ctx context.Context) (string, error) {
	for n := range t.sn.Index.All() {
		if n.Flags&dag.DisplayRoot == 0 {
			return "messages", nil
		}
	}
	if len(t.sn.bad) > 0 {
		return "history files that cannot be read", nil
	}
	if what, err := t.s.strayContent(t.place.Dir); what != "" || err != nil {
		return what, err
	}
	if _, err := t.s.fs.Lstat(filepath.Join(t.place.Dir, ".git")); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return t.committedContent(ctx)
}

// strayContent looks for anything in a session's directory beside what an
// empty session has.
func (s *Store) strayContent(dir string) (string, error) {
	entries, err := s.fs.ReadDir(dir)
	if err != nil {
		return "", &Error{Code: Corrupt, Op: "remove session", Err: err}
	}
	for _, e := range entries {
		switch e.Name() {
		case ".git", metaFile, historyDir:
		case workDir:
			if what := s.filesBelow(filepath.Join(dir, workDir), ".gitkeep"); what != "" {
				return "files in workdir/ (" + what + ")", nil
			}
		case contextDir:
			if what := s.filesBelow(filepath.Join(dir, contextDir), ""); what != "" {
				return "context files", nil
			}
		default:
			return "the file " + e.Name(), nil
		}
	}
	return "", nil
}

// filesBelow names the first thing below dir that is not a directory and not
// called except, "" when there is none.
func (s *Store) filesBelow(dir, except string) string {
	entries, err := s.fs.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if e.IsDir() {
			if what := s.filesBelow(filepath.Join(dir, e.Name()), ""); what != "" {
				return e.Name() + "/" + what
			}
			continue
		}
		if e.Name() != except || except == "" {
			return e.Name()
		}
	}
	return ""
}

// committedContent looks for content in the repository's commits, all of them:
// a file that is not part of an empty session.
func (t *tx) committedContent(ctx context.Context) (string, error) {
	r, err := t.repo()
	if err != nil {
		return "", err
	}
	commits, err := r.Log(ctx, 0)
	if err != nil {
		return "", t.fail(Corrupt, ".git", err)
	}
	for _, c := range commits {
		paths, err := r.ChangedPaths(ctx, c.Hash)
		if err != nil {
			return "", t.fail(Corrupt, ".git", err)
		}
		for _, p := range paths {
			if !emptySessionPath(p) {
				return "committed content", nil
			}
		}
	}
	return "", nil
}

// emptySessionPath reports whether a committed path is one that a session has
// before anybody put something into it.
func emptySessionPath(p string) bool {
	return p == metaFile || p == workDir+"/.gitkeep" ||
		strings.HasPrefix(p, historyDir+"/") && strings.HasSuffix(p, "-"+dag.RootID+".json")
}
