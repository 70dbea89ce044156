package store

import (
	"context"
	"hash/maphash"
)

// shown is what the observers were last told of each session's row, so that a
// rescan tells them what differs. It must never say that they know what they do
// not: who would then bring a row back to that would not be heard of. So whoever
// shows them anything else on another way (a snapshot, a list, a row) marks the
// session, and a marked one differs from whatever is found.
//
// What a reading found may be old by the time that it is compared: an entry that
// was made after the reading began is not replaced by it, but marked.
type shown struct {
	rows map[string]shownRow
	turn uint64 // of the last entry
	seed maphash.Seed
}

// begin makes an empty note for about n sessions.
func (n *shown) begin(sessions int) {
	n.rows, n.seed = make(map[string]shownRow, sessions), maphash.MakeSeed()
}

// shownRow is a session as it was last told to the observers.
type shownRow struct {
	archived bool
	sum      uint64 // of the row's JSON: rows of many sessions would be much to hold
	at       uint64 // the turn that made it
	// marked: they were told something else meanwhile.
	marked bool
}

// same reports whether an entry says that a row was told.
func (n *shown) same(o shownRow, r listed) bool {
	return !o.marked && o.sum == maphash.Bytes(n.seed, r.row.Bytes()) && o.archived == r.row.Truthy("archived")
}

// set notes a row as told.
func (n *shown) set(r listed) {
	n.turn++
	n.rows[r.place.ID] = shownRow{archived: r.row.Truthy("archived"), sum: maphash.Bytes(n.seed, r.row.Bytes()), at: n.turn}
}

// mark notes that a session's observers know more, or less, than what is noted.
func (n *shown) mark(id string) {
	if n.rows == nil {
		return // nobody was told of anything
	}
	n.turn++
	n.rows[id] = shownRow{at: n.turn, marked: true}
}

// take compares a row with what was told, and notes it: the reading of it began
// at a turn. The change is nil when nothing differs.
func (n *shown) take(r listed, began uint64) *Change {
	id := r.place.ID
	old, ok := n.rows[id]
	if ok && n.same(old, r) {
		return nil
	}
	if ok && old.at > began {
		n.mark(id)
	} else {
		n.set(r)
	}
	return &Change{ID: id, Foreign: true, Row: true, Listing: !ok || old.marked || old.archived != r.row.Truthy("archived")}
}

// gone is take for a session that was not found.
func (n *shown) gone(id string, began uint64) *Change {
	if n.rows[id].at > began {
		n.mark(id)
	} else {
		n.turn++
		delete(n.rows, id)
	}
	return &Change{ID: id, Foreign: true, Row: true, Listing: true}
}

// rescan compares the list with what the observers were told last, and tells
// them what another process changed. It is called by the watcher.
func (s *Store) rescan(ctx context.Context) {
	if s.watch != nil {
		s.watch.followParents()
	}
	began := s.list.turn()
	rows, err := s.list.scan(ctx)
	if err != nil {
		s.log.Warn("list sessions", "err", err)
		return
	}
	for _, c := range s.list.diff(rows, began) {
		s.swapped(c)
		s.publish(ctx, &c)
	}
	if s.watch != nil {
		s.watch.follow(ctx, rows)
	}
}

// turn is the present turn, for a reading that begins.
func (l *listing) turn() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shown.turn
}

// diff notes rows as told, and returns what differs from before.
func (l *listing) diff(rows []listed, began uint64) []Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown.rows == nil { // nothing was told yet that could differ
		l.shown.begin(len(rows))
		for _, r := range rows {
			l.shown.set(r)
		}
		return nil
	}
	var out []Change
	found := make(map[string]bool, len(rows))
	for _, r := range rows {
		found[r.place.ID] = true
		if c := l.shown.take(r, began); c != nil {
			out = append(out, *c)
		}
	}
	for id := range l.shown.rows {
		if !found[id] {
			out = append(out, *l.shown.gone(id, began))
		}
	}
	return out
}

// rescanOne compares one session's row with what the observers were told.
func (s *Store) rescanOne(ctx context.Context, id string) {
	began := s.list.turn()
	place, err := s.place("list session", id)
	if err != nil {
		s.rescan(ctx)
		return
	}
	m := s.list.meta(place)
	s.list.mu.Lock()
	s.list.metas[place.Dir] = m
	row, ok := s.list.reg.Row(id)
	if !ok {
		s.list.mu.Unlock()
		s.rescan(ctx)
		return
	}
	overlay(row, m, place)
	c := s.list.shown.take(listed{place: place, row: row}, began)
	s.list.mu.Unlock()
	if c == nil {
		return
	}
	s.swapped(*c)
	s.publish(ctx, c)
}

// tell is swapped for a new snapshot, of whose row nothing is noted. A session
// that is gone by now, so that its going may have been told before, is looked
// for once more.
func (s *Store) tell(c Change) {
	if s.watch != nil {
		s.list.mu.Lock()
		s.list.shown.mark(c.ID)
		s.list.mu.Unlock()
	}
	s.swapped(c)
	if s.watch == nil {
		return
	}
	if _, err := s.fs.Lstat(c.New.Dir); err != nil {
		s.watch.root()
	}
}

// showedList notes that somebody read the whole list, and may keep it. What
// differs from what the observers were told is marked, and looked for again:
// that it was changed back may be past already.
func (s *Store) showedList(rows []listed) {
	if s.watch != nil && s.list.markOthers(rows) {
		s.watch.root()
	}
}

// markOthers marks the sessions of which the observers were told something else
// than rows, and reports whether there are any.
func (l *listing) markOthers(rows []listed) (any bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := make(map[string]bool, len(rows))
	var others []string
	for _, r := range rows {
		id := r.place.ID
		found[id] = true
		if old, ok := l.shown.rows[id]; !ok || !old.marked && !l.shown.same(old, r) {
			others = append(others, id)
		}
	}
	for id, old := range l.shown.rows {
		if !found[id] && !old.marked {
			others = append(others, id)
		}
	}
	for _, id := range others {
		l.shown.mark(id)
	}
	return len(others) > 0
}

// showing marks a session for a reading of its row that begins, as who reads it
// may keep it. The returned function is called with what was read, nil when
// there is no such session; where the observers were told just that, all is as
// before.
func (s *Store) showing(id string) (read func(r *listed)) {
	l := s.list
	if s.watch == nil {
		return func(*listed) {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before, told := l.shown.rows[id]
	l.shown.mark(id)
	mine := l.shown.turn
	return func(r *listed) {
		l.mu.Lock()
		defer l.mu.Unlock()
		now := l.shown.rows[id]
		if !now.marked || now.at != mine {
			return // told meanwhile
		}
		switch {
		case told && r != nil && l.shown.same(before, *r):
			before.at = mine
			l.shown.rows[id] = before
		case !told && r == nil:
			delete(l.shown.rows, id)
		}
	}
}
