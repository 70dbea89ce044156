package store

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/layout"
)

// lookWait is how long a check waits, at most, for who is changing a session in
// which it found something.
const lookWait = 5 * time.Second

// lasting reports whether a finding in a session is of a kind that no writer
// makes in the middle of a change: it counts while somebody holds the lock.
func lasting(f Finding) bool {
	switch f.Kind {
	case "symlink", "symlinked_session", "unreachable", "stray_file", "temp_file", "git_lock", "old_layout",
		"unmigrated", "meta_other_id", "name_mismatch", "cycle", "stale_hold", "lease_unreadable":
		return true
	}
	return false
}

// twice reports what look finds, but for what a second look no longer finds:
// that was a change of somebody's, seen in the middle.
func (c *checker) twice(look func(c *checker, again bool)) {
	type key struct{ kind, session, path string }
	var found []Finding
	gather := &checker{s: c.s, report: func(f Finding) { found = append(found, f) }}
	look(gather, false)
	if len(found) == 0 {
		return
	}
	first := make(map[key]bool, len(found))
	for _, f := range found {
		first[key{f.Kind, f.Session, f.Path}] = true
	}
	found = nil
	look(gather, true)
	for _, f := range found {
		if first[key{f.Kind, f.Session, f.Path}] {
			c.report(f)
		}
	}
}

// places finds all sessions, those too that are known by a row, a recorded place
// or by name (sessions) and cannot be looked at where they should be.
func (c *checker) places(sessions []string) ([]layout.Place, error) {
	places, err := c.s.layout.Discover()
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(places))
	for _, p := range places {
		known[p.ID] = true
	}
	add := func(id string) {
		if known[id] {
			return
		}
		known[id] = true
		if p, err := c.s.layout.Resolve(id); err == nil && p.Unreachable && !p.Deleted {
			places = append(places, p)
		}
	}
	for _, id := range c.s.layout.Recorded() {
		add(id)
	}
	for _, id := range slices.Sorted(c.s.list.reg.View().IDs()) {
		add(id)
	}
	for _, id := range sessions {
		add(id)
	}
	return places, nil
}

// rootTwice checks the root; places are those of all sessions.
func (c *checker) rootTwice(places []layout.Place) {
	c.twice(func(c *checker, again bool) {
		if again {
			if now, err := c.places(nil); err == nil {
				places = now
			}
		}
		c.root(places)
	})
}

// sessionTwice checks a session that was at p. Where something is found, the
// second look keeps writers out: what is found then, none of them is in the
// middle of.
func (c *checker) sessionTwice(ctx context.Context, p layout.Place) {
	c.twice(func(c *checker, again bool) {
		if !again {
			c.session(ctx, p)
			return
		}
		c.still(ctx, p.ID, func(c *checker) {
			if c.stillAt(&p) {
				c.session(ctx, p)
			}
		})
	})
}

// still calls look while no writer changes a session. It holds the lock shared,
// which writes nothing; where there is no lock file nothing can be held, and who
// makes one meanwhile is waited for. While a writer keeps the lock, only what is
// lasting is reported.
func (c *checker) still(ctx context.Context, id string, look func(*checker)) {
	path := c.s.layout.LockPath(id)
	for range 3 {
		lock, err := filelock.AcquireShared(ctx, path, min(lookWait, c.s.lockTimeout))
		if errors.Is(err, filelock.ErrTimeout) {
			break
		}
		_, before := c.s.fs.Lstat(path)
		var found []Finding
		look(&checker{s: c.s, report: func(f Finding) { found = append(found, f) }})
		_, after := c.s.fs.Lstat(path)
		if err == nil {
			_ = lock.Unlock() // held shared: nothing depends on it
		}
		if before == nil || after != nil {
			for _, f := range found {
				c.report(f)
			}
			return
		}
	}
	look(&checker{s: c.s, report: func(f Finding) {
		if lasting(f) {
			c.report(f)
		}
	}})
}

// stillAt reports whether a session is still there, and brings its place up to
// date when it was moved or has changed.
func (c *checker) stillAt(p *layout.Place) bool {
	now, err := c.s.layout.Resolve(p.ID)
	if err != nil {
		return true
	}
	if now.Deleted {
		return false
	}
	_, err = c.s.fs.Lstat(p.Dir)
	gone := errors.Is(err, fs.ErrNotExist)
	if now.Dir == p.Dir || gone {
		*p = now
	}
	return !gone || p.Present || p.Symlink || p.Unreachable
}
