package store

import (
	"context"
	"slices"
)

// Subscribe registers an observer; cancel removes it.
func (s *Store) Subscribe(o Observer) (cancel func()) {
	s.obsMu.Lock()
	defer s.obsMu.Unlock()
	sub := &subscription{o}
	s.observers = append(slices.Clip(s.observers), sub)
	return func() {
		s.obsMu.Lock()
		defer s.obsMu.Unlock()
		s.observers = slices.DeleteFunc(slices.Clone(s.observers), func(x *subscription) bool { return x == sub })
	}
}

// subscription gives an observer an identity of its own, so that one observer
// may subscribe twice.
type subscription struct{ o Observer }

func (s *Store) subscribers() []*subscription {
	s.obsMu.Lock()
	defer s.obsMu.Unlock()
	return s.observers
}

// swapped tells the observers that a snapshot took another's place, while the
// session's lock is still held.
func (s *Store) swapped(c Change) {
	for _, sub := range s.subscribers() {
		sub.o.Swapped(c)
	}
}

// publish tells the observers of a change, with no lock held. A nil change is
// none.
func (s *Store) publish(ctx context.Context, changes ...*Change) {
	for _, c := range changes {
		if c == nil {
			continue
		}
		for _, sub := range s.subscribers() {
			sub.o.Published(ctx, *c)
		}
	}
}
