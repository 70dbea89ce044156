package fsnode

import (
	"sync"
	"time"
)

// reapAfter is how long a session's state is kept after the kernel has let go
// of it. By then no lookup that was under way can still hand it out.
const reapAfter = 6 * time.Second

// reaper releases the sessions that the kernel has forgotten.
type reaper struct {
	t *tree

	mu     sync.Mutex // leaf
	due    map[*session]time.Time
	timer  *time.Timer
	closed bool
	wg     sync.WaitGroup
}

func newReaper(t *tree) *reaper {
	return &reaper{t: t, due: map[*session]time.Time{}}
}

// add notes that the kernel seems to have let go of a session.
func (r *reaper) add(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.due[s] = time.Now().Add(reapAfter)
	if r.timer == nil {
		r.wg.Add(1)
		r.timer = time.AfterFunc(reapAfter+time.Second, r.run)
	}
}

func (r *reaper) run() {
	defer r.wg.Done()
	now := time.Now()
	var ripe []*session
	r.mu.Lock()
	for s, at := range r.due {
		if !at.After(now) {
			ripe = append(ripe, s)
			delete(r.due, s)
		}
	}
	r.timer = nil
	if len(r.due) == 0 {
		r.due = map[*session]time.Time{} // a map keeps the room that it once had
	}
	if len(r.due) > 0 && !r.closed {
		r.wg.Add(1)
		r.timer = time.AfterFunc(reapAfter, r.run)
	}
	r.mu.Unlock()
	released := map[uint64]bool{}
	for _, s := range ripe {
		// A session in use is told of again when the kernel lets go of it; one
		// that is not listed any more may have been told of already.
		switch {
		case s.release(false):
			released[s.gen] = true
		case s.gone.Load() || !s.dir.InUse():
			r.add(s)
		}
	}
	r.t.texts.forget(released)
	r.t.meter.tidier.released(len(ripe))
}

// close releases everything.
func (r *reaper) close() {
	r.mu.Lock()
	r.closed = true
	if r.timer != nil && r.timer.Stop() {
		r.wg.Done()
	}
	rest := r.due
	r.due = nil
	r.mu.Unlock()
	r.wg.Wait()
	r.t.mu.Lock()
	for _, s := range r.t.sessions {
		rest[s] = time.Time{}
	}
	r.t.sessions = map[string]*session{}
	r.t.mu.Unlock()
	for s := range rest {
		s.release(true)
	}
}
