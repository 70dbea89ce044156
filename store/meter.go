package store

import "time"

// Timing names what a Meter is told the duration of.
type Timing string

// The timings.
const (
	// LockWait is the wait for a session's two locks, of a change.
	LockWait Timing = "lock_wait"
	// CommitTime is one commit of a session's repository.
	CommitTime Timing = "commit"
)

// Meter is an Observer that also wants to know how long things take. Timed is
// called with locks held: it may only count.
type Meter interface {
	Timed(what Timing, d time.Duration)
}

// timed tells the meters among the observers how long something took.
func (s *Store) timed(what Timing, since time.Time) {
	d := time.Since(since)
	for _, sub := range s.subscribers() {
		if m, ok := sub.o.(Meter); ok {
			m.Timed(what, d)
		}
	}
}
