package store

import (
	"context"
	"errors"
	"slices"

	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
)

// Reindexed counts what a rebuild of the registry did.
type Reindexed struct {
	Sessions int `json:"sessions"` // rows afterwards
	Changed  int `json:"changed"`  // rows that said something else
	Removed  int `json:"removed"`  // rows of sessions that are not there
}

// Reindex rebuilds the registry from what is on disk: every session gets a row
// made of its meta.json and its newest user message, rows without a session
// go. What only a row knows is kept, as is the order of the rows. Where Open has
// ended a dead run, that is committed. Progress, if
// not nil, is told how many of how many sessions are done.
func (s *Store) Reindex(ctx context.Context, progress func(done, total int)) (Reindexed, error) {
	var out Reindexed
	if s.opt.ReadOnly {
		return out, &Error{Code: ReadOnly, Op: "reindex", Err: errReadOnlyStore}
	}
	s.list.forget()
	rows, err := s.list.scan(ctx)
	if err != nil {
		return out, err
	}
	there := make(map[string]bool, len(rows))
	for i, r := range rows {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		there[r.place.ID] = true
		if s.list.renew(r) {
			out.Changed++
		}
		if progress != nil {
			progress(i+1, len(rows))
		}
	}
	out.Sessions = len(rows)
	out.Removed = s.list.dropOthers(there)
	s.commitEnded(ctx)
	return out, s.list.flush(ctx)
}

// renew makes a session's row anew and reports whether it became another one.
func (l *listing) renew(r listed) bool {
	row := r.row.Clone()
	for key, raw := range l.newRow(r.place, l.meta(r.place)).All() {
		row.Set(key, raw)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old, ok := l.reg.Row(r.place.ID)
	if !ok {
		old = jsonedit.NewObject()
	}
	// Only what differs: another process may be writing the row, too.
	stale := differing(old, row)
	if len(stale) == 0 {
		return false
	}
	l.reg.Put(r.place.ID, stale)
	l.flushSoonLocked()
	return true
}

// dropOthers removes the rows of sessions that are not among ids, unless they
// have come since.
func (l *listing) dropOthers(ids map[string]bool) int {
	l.mu.Lock()
	var gone []string
	for id := range l.reg.Rows() {
		if !ids[id] {
			gone = append(gone, id)
		}
	}
	l.mu.Unlock()
	gone = slices.DeleteFunc(gone, l.s.isThere)
	for _, id := range gone {
		l.remove(id)
	}
	return len(gone)
}

// isThere reports whether a session is at its place, or may be: a place that
// cannot be looked at is no reason to forget it.
func (s *Store) isThere(id string) bool {
	p, err := s.layout.Resolve(id)
	switch {
	case errors.Is(err, layout.ErrInvalidID), p.Deleted:
		return false
	}
	return err != nil || p.Present || p.Symlink || p.Unreachable
}

// Compact packs the loose objects of a session's repository, and returns how
// many there were. It takes none of the session's locks: a repository may be
// packed while it is used. NotFound, Corrupt, ReadOnly.
func (s *Store) Compact(ctx context.Context, id string) (int, error) {
	if s.opt.ReadOnly {
		return 0, &Error{Code: ReadOnly, Op: "compact", Session: id, Err: errReadOnlyStore}
	}
	place, err := s.place("compact", id)
	if err != nil {
		return 0, err
	}
	if s.layout.LaterIntent(place.Dir) {
		return 0, &Error{Code: ReadOnly, Op: "compact", Session: id, Err: errLaterIntent}
	}
	r, err := gitrepo.Open(place.Dir, s.git)
	if err != nil {
		return 0, &Error{Code: Corrupt, Op: "compact", Session: id, Err: err}
	}
	defer r.Close()
	n, err := r.Compact(ctx)
	if err != nil {
		return n, &Error{Code: diskCode(err), Op: "compact", Session: id, Err: err}
	}
	return n, nil
}

// CheckRoot is Check for the root alone: the registry, the recorded places,
// leftovers, half deletes and migrations. It does not look into sessions.
func (s *Store) CheckRoot(ctx context.Context, report func(Finding)) error {
	c := &checker{s: s, report: report}
	places, err := c.places(nil)
	if err != nil {
		return &Error{Code: Corrupt, Op: "check", Err: err}
	}
	c.rootTwice(places)
	return ctx.Err()
}
