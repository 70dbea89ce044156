package vnode

import (
	"context"
	"sync/atomic"
	"syscall"
)

// passKeep tells whether the kernel may keep attributes of a root. Whoever
// changes the directory takes a number from told before it notifies the kernel
// and writes it to sent afterwards: a number that was told since is not lost,
// and two who notify at a time do not rely on each other.
type passKeep struct {
	told atomic.Uint64 // counts the answers that may be kept, before they are made
	sent atomic.Uint64 // the last of them that the kernel was notified of
}

// followed reports whether an answer about the directory may be kept. That is
// counted, and its changes are followed, before the disk is looked at.
func (p *Pass) followed() bool {
	if p.cfg == nil || p.cfg.keep == nil {
		return false
	}
	p.cfg.keep.told.Add(1)
	return p.cfg.Follow()
}

// stat calls fn with what getattr asks about. An answer that may be kept is
// about what the path leads to now, which an open handle need not be.
func (p *Pass) stat(ctx context.Context, keep bool, fn func(passRef) error) syscall.Errno {
	if !keep {
		return p.withObject(ctx, fn)
	}
	ref, errno := p.resolve(ctx)
	if errno != 0 {
		return errno
	}
	defer ref.close()
	return passErrno(fn(ref))
}

// Told reports whether the kernel may keep something of a root directory of
// which it was not notified, and how much it was told, for Renew.
func (p *Pass) Told() (n uint64, kept bool) {
	if p.cfg == nil || p.cfg.keep == nil {
		return 0, false
	}
	n = p.cfg.keep.told.Load()
	return n, n != p.cfg.keep.sent.Load()
}

// Renew has the kernel ask again about a root directory that somebody else has
// changed. It waits for every request that holds the directory, so that it is
// called from none: who lists it around a change could leave the old names. N is
// what Told said before the caller waited for everybody who is being given the
// directory's own name.
func (p *Pass) Renew(n uint64) {
	_ = p.NotifyEntry("\x01") // a name that no directory has
	_ = p.NotifyContent(0, 0)
	p.cfg.keep.sent.Store(n)
}

// entryChanged has the kernel ask again about a directory in which the request
// that is being answered has changed a name. The kernel does so by itself, but
// not for who asked before the change and is answered after it. It waits for
// nobody; and the kernel knows the directory, so that the notification misses
// nothing that is on its way.
func (p *Pass) entryChanged() {
	if n, kept := p.Told(); kept {
		_ = p.NotifyContent(0, 0)
		p.cfg.keep.sent.Store(n)
	}
}
