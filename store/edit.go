package store

import (
	"context"
	"errors"
	"time"
)

// EditOnBranch is Edit for a message that must still be on the active branch,
// as it was when its text was read; Conflict when it is not.
func (s *Store) EditOnBranch(ctx context.Context, id, node, text string) (made string, err error) {
	err = s.change(ctx, "edit", id, 0, func(t *tx) error {
		if !t.onBranch(node) {
			return t.fail(Conflict, node, errors.New("the message is not on the active branch any more"))
		}
		if err := t.refuseActiveRun(); err != nil {
			return err
		}
		made, err = t.fork(node, text)
		return err
	})
	if err == nil {
		s.Dirty(id)
	}
	return made, err
}

// onBranch reports whether a node is on the active branch.
func (t *tx) onBranch(node string) bool {
	branch, err := t.sn.Branch()
	if err != nil {
		return false
	}
	for _, n := range branch {
		if n.ID == node {
			return true
		}
	}
	return false
}

// Editable reports whether a node of a snapshot is a user's message, which
// Edit takes.
func (sn *Snapshot) Editable(node string) bool {
	n, ok := sn.Index.Get(node)
	return ok && isUserMessage(n)
}

type lockTimeoutKey struct{}

// WithLockTimeout bounds, for operations that get this context, the wait for a
// session's lock, as HeadMove.LockTimeout does for one move.
func WithLockTimeout(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, lockTimeoutKey{}, d)
}

// lockTimeoutOf is the bound that a context sets, or the given one.
func lockTimeoutOf(ctx context.Context, d time.Duration) time.Duration {
	if own, ok := ctx.Value(lockTimeoutKey{}).(time.Duration); ok && own > 0 {
		return own
	}
	return d
}
