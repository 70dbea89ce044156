package store

import "context"

// FollowNow compares a session with the disk now, as the watches would in their
// own time, and returns when the observers have been told what another process
// did to it before: made, changed or removed it. It does nothing where no changes
// are followed: then every use asks.
func (s *Store) FollowNow(ctx context.Context, id string) {
	if s.watch == nil || !s.watch.enter() {
		return
	}
	defer s.watch.done.Done()
	s.reloadRegistry()
	s.look(ctx, id, nil)
	s.publish(ctx, &Change{ID: id, Commit: true, Foreign: true})
	s.publish(ctx, &Change{ID: id, Files: true, Foreign: true})
}

// enter begins work that close waits for, by done; false when it is too late.
func (w *watcher) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.done.Add(1)
	return true
}
