package fsnode

import (
	"slices"
)

// maxOpen is how many sessions stay loaded because somebody once looked into
// them. Above it the kernel is told to forget the names of those that were not
// looked into for the longest time; it keeps what is in use, and asks again
// when it needs a name.
const maxOpen = 4096

// noteOpen counts a session that was opened.
func (t *tree) noteOpen() {
	if t.opened.Add(1)-t.told.Load() > int64(t.maxOpen) {
		t.trim()
	}
}

// noteClosed counts a session that was released.
func (t *tree) noteClosed(s *session) {
	t.opened.Add(-1)
	if s.told.Swap(false) {
		t.told.Add(-1)
	}
}

// noteUsed notes that the kernel asked for a session's name: it forgot it, if
// it had been told to. Requires t.mu.
func (t *tree) noteUsed(s *session) {
	s.used.Store(t.now().UnixNano())
	if s.told.Swap(false) {
		t.told.Add(-1)
	}
}

// trim has the kernel told, after the reply to the request that is being
// answered, to forget some of the sessions.
func (t *tree) trim() {
	t.mu.Lock()
	var open []*session
	for _, s := range t.sessions {
		if s.files.Load() != nil && !s.told.Load() {
			open = append(open, s)
		}
	}
	n := len(open) - t.maxOpen + t.maxOpen/16
	if len(open) <= t.maxOpen {
		n = 0
	}
	slices.SortFunc(open, func(a, b *session) int { return int(a.used.Load()>>10 - b.used.Load()>>10) })
	var names []goneName
	for _, s := range open[:n] {
		if !s.told.Swap(true) {
			t.told.Add(1)
		}
		r := t.rows[s.id]
		names = append(names, goneName{t.listOf(r.archived), r.name})
	}
	t.mu.Unlock()
	t.later.add(names, nil)
}
