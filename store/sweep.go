package store

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
)

// shellAge is how old an empty shell must be to be swept (reference 8.5).
const shellAge = time.Hour

// sweepShells removes sessions that never came to be: no history/, nothing in
// Git's newest tree, nothing in workdir/, older than an hour, not archived, at
// the default place. The peer removes more; a session with anything in it is
// never removed here. It reports whether it may have removed one.
func (s *Store) sweepShells(ctx context.Context, places []layout.Place) (changed bool) {
	for _, p := range places {
		if p.Symlink || p.Legacy || p.Deleted || p.Openable || p.Dir != filepath.Join(s.root, p.ID) {
			continue
		}
		if !s.isShell(ctx, p) {
			continue
		}
		changed = true
		if err := s.sweep(ctx, p); err != nil {
			s.log.Warn("sweep empty session", "session", p.ID, "err", err)
		}
	}
	return changed
}

// isShell reports whether nothing was ever put into a session.
func (s *Store) isShell(ctx context.Context, p layout.Place) bool {
	if _, err := s.fs.Lstat(filepath.Join(p.Dir, historyDir)); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	m := s.readMeta(p)
	if m.err != nil || m.obj.Truthy("archived") {
		return false
	}
	s.list.mu.Lock()
	row, known := s.list.reg.Row(p.ID)
	s.list.mu.Unlock()
	if known && row.Truthy("archived") {
		return false
	}
	created, _ := m.obj.Float("created_at")
	if created == 0 && known {
		created, _ = row.Float("created_at")
	}
	if epoch(s.now())-created <= shellAge.Seconds() {
		return false
	}
	if s.filesBelow(filepath.Join(p.Dir, workDir), ".gitkeep") != "" {
		return false
	}
	return s.headTreeEmpty(ctx, p.Dir)
}

// headTreeEmpty reports whether a repository is there and its newest commit
// holds no file. A session without a repository is not known to be empty.
func (s *Store) headTreeEmpty(ctx context.Context, dir string) bool {
	r, err := gitrepo.Open(dir, s.git)
	if err != nil {
		return false
	}
	defer r.Close()
	empty, err := r.HeadTreeEmpty(ctx)
	return err == nil && empty
}

// sweep removes a shell, under its lock and after another look.
func (s *Store) sweep(ctx context.Context, p layout.Place) error {
	lock, err := filelock.Acquire(ctx, s.layout.LockPath(p.ID), readWait)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if !s.isShell(ctx, p) {
		return nil
	}
	// The row first: a directory that a crash leaves is found again.
	s.list.removeKnown(p.ID)
	if err := s.list.flush(ctx); err != nil {
		return err
	}
	if err := s.removeFiles(p); err != nil {
		return err
	}
	s.list.remove(p.ID) // again: who saw the directory until now may have added it
	return nil
}

// dropGhosts removes the rows of sessions that are nowhere, which a crash of an
// older version may have left (reference 8.5: in the default place and older
// than an hour, not archived, not recorded elsewhere and not on the move).
func (s *Store) dropGhosts(ctx context.Context) {
	var ghosts []string
	s.list.mu.Lock()
	rows := s.list.reg.View()
	for id := range rows.IDs() {
		if _, there := s.list.shown.rows[id]; !there {
			ghosts = append(ghosts, id)
		}
	}
	s.list.mu.Unlock()
	for _, id := range ghosts {
		row, ok := rows.Row(id)
		if !ok {
			continue
		}
		created, _ := row.Float("created_at")
		if row.Truthy("archived") || epoch(s.now())-created <= shellAge.Seconds() || s.moving(id) {
			continue
		}
		p, err := s.layout.Resolve(id)
		if err != nil || p.Deleted || p.Present || p.Symlink || p.Unreachable || p.Recorded || p.Project != "" || ctx.Err() != nil {
			continue
		}
		s.log.Info("the registry listed a session that is nowhere", "session", id)
		s.list.remove(id)
	}
}

// moving reports whether a migration of a session has begun and is not done.
func (s *Store) moving(id string) bool {
	raw, err := s.fs.ReadFile(s.layout.JournalPath())
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	journal, err := jsonedit.ParseObject(raw)
	if err != nil {
		return true
	}
	rows, _ := journal.Get("sessions")
	all, err := jsonedit.ParseObject(rows)
	if err != nil {
		return true
	}
	raw, ok := all.Get(id)
	if !ok {
		return false
	}
	row, err := jsonedit.ParseObject(raw)
	return err != nil || row.Str("stage") != "done" && row.Str("stage") != "deleted"
}
