package store

import (
	"context"
	"path/filepath"
	"time"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
)

// A session that a program copies into the root is found, and gets a row, before
// all of it is there: without its meta.json perhaps, or without its messages. No
// event tells when a copy is complete. So a store that stays open looks again at
// what it has given a row to, until nothing of it has changed for a while.

const (
	// adoptedEvery is how often what was adopted is looked at, and adoptedMany how
	// many sessions that may be: of more each is looked at once a second.
	adoptedEvery = 100 * time.Millisecond
	adoptedMany  = 50
	// adoptedRest is how long nothing may have changed until a session with a
	// meta.json is taken to be complete, and adoptedLong the same for one without.
	adoptedRest = 10 * time.Second
	adoptedLong = 10 * time.Minute
)

// adoption is a row that this store made for a session that had none.
type adoption struct {
	row           *jsonedit.Object // as it was made
	meta, history stamp            // what it was made from
	at            time.Time        // when that was last seen to change
}

// watchAdopted notes a row that was made for a session just found, unless the
// session has been there for long. Requires l.mu.
func (l *listing) watchAdopted(p layout.Place, row *jsonedit.Object, now time.Time) {
	if l.s.watch == nil || l.s.opt.ReadOnly || l.done {
		return
	}
	if fi, err := l.s.fs.Lstat(p.Dir); err != nil || now.UnixNano()-disk.StatOf(fi).CTime > int64(adoptedRest) {
		return
	}
	if l.adopted == nil {
		l.adopted = map[string]*adoption{}
	}
	l.adopted[p.ID] = &adoption{row: row, at: now}
	l.adoptedSoonLocked()
}

// Requires l.mu.
func (l *listing) adoptedSoonLocked() {
	if l.adoptTimer == nil && len(l.adopted) > 0 && !l.done {
		every := adoptedEvery
		if len(l.adopted) > adoptedMany {
			every = time.Second
		}
		l.adoptTimer = time.AfterFunc(every, l.lookAdopted)
	}
}

// lookAdopted looks at all that was adopted, once, and tells of what changed.
func (l *listing) lookAdopted() {
	w := l.s.watch
	if !w.enter() {
		return
	}
	defer w.done.Done()
	for _, id := range l.renewAdopted() {
		l.s.rescanOne(context.Background(), id)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.adoptTimer = nil
	l.adoptedSoonLocked()
}

// renewAdopted makes the rows anew of what has changed since it was adopted, and
// returns the sessions.
func (l *listing) renewAdopted() (renewed []string) {
	l.mu.Lock()
	all := make(map[string]adoption, len(l.adopted))
	for id, a := range l.adopted {
		all[id] = *a
	}
	l.mu.Unlock()
	for id, a := range all {
		next, row := l.renewOne(id, a)
		l.mu.Lock()
		switch {
		case next == nil:
			delete(l.adopted, id)
		default:
			l.adopted[id] = next
		}
		if row != nil {
			l.reg.Put(id, row)
			l.flushSoonLocked()
			renewed = append(renewed, id)
		}
		l.mu.Unlock()
	}
	return renewed
}

// renewOne looks at one adopted session: what is to be known of it, nil for
// nothing any more, and the fields of its row that are to change.
func (l *listing) renewOne(id string, a adoption) (next *adoption, fields map[string][]byte) {
	place, err := l.s.place("list session", id)
	if err != nil {
		return nil, nil
	}
	l.mu.Lock()
	cur, ok := l.reg.Row(id)
	l.mu.Unlock()
	if !ok || len(differing(cur, a.row)) > 0 {
		return nil, nil // another's row by now
	}
	now := time.Now()
	m := l.meta(place)
	var history stamp
	if fi, err := l.s.fs.Lstat(filepath.Join(place.Dir, historyDir)); err == nil {
		history = stampOf(fi)
	}
	if m.stamp == a.meta && history == a.history {
		if rest := now.Sub(a.at); m.trusted && rest >= adoptedRest || rest >= adoptedLong {
			return nil, nil
		}
		return &a, nil
	}
	row := l.newRow(place, m)
	fields = differing(cur, row)
	if len(fields) == 0 {
		fields = nil
	}
	return &adoption{row: row, meta: m.stamp, history: history, at: now}, fields
}
