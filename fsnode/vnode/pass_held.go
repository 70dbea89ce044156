package vnode

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A directory that another process moves or replaces behind the mount is ESTALE
// for who has just looked it up, and for whose it is the working directory: its
// place is known by names alone, and the kernel does not tell who has it open.
// So a descriptor is held of those that were used last. It says where the
// directory is now, or that it was removed.
const (
	passHeldMax  = 256         // directories at a time
	passHeldRest = time.Second // how long one is held that nobody uses
)

// PassHeld holds the directories that were used last, of all trees of a mount.
type PassHeld struct {
	mu    sync.Mutex
	dirs  []*passHandle
	timer *time.Timer
}

// NewPassHeld returns one that holds nothing, to be put into PassConfigs.
func NewPassHeld() *PassHeld { return &PassHeld{} }

// hold has the directory called name, which was found in p, held. Fd, of which it
// is the descriptor, is taken over; made is the node that was made for it, in case
// the tree does not know the directory yet.
func (p *Pass) hold(cfg *PassConfig, fd int, name string, made *Pass) {
	node := made
	if child := p.GetChild(name); child != nil {
		if known, ok := child.Operations().(*Pass); ok && known.StableAttr() == made.StableAttr() {
			node = known
		}
	}
	if node.use() {
		unix.Close(fd)
		return
	}
	h := &passHandle{cfg: cfg, fd: fd, held: &atomic.Int64{}}
	h.held.Store(time.Now().UnixNano())
	node.attach(h)
	cfg.Held.add(h)
}

// use notes that a directory is in use, and reports whether it is held.
func (p *Pass) use() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.open {
		if h.held != nil {
			h.held.Store(time.Now().UnixNano())
			return true
		}
	}
	return false
}

// add takes a directory in, in the place of the one that was not used for the
// longest time.
func (c *PassHeld) add(h *passHandle) {
	c.mu.Lock()
	var out *passHandle
	if len(c.dirs) < passHeldMax {
		c.dirs = append(c.dirs, h)
	} else {
		oldest := 0
		for i, o := range c.dirs {
			if o.held.Load() < c.dirs[oldest].held.Load() {
				oldest = i
			}
		}
		out, c.dirs[oldest] = c.dirs[oldest], h
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(passHeldRest, c.sweep)
	}
	c.mu.Unlock()
	if out != nil {
		_ = out.release()
	}
}

// sweep lets go of those that nobody uses.
func (c *PassHeld) sweep() {
	before := time.Now().Add(-passHeldRest).UnixNano()
	var out, rest []*passHandle
	c.mu.Lock()
	for _, h := range c.dirs {
		if h.held.Load() > before {
			rest = append(rest, h)
		} else {
			out = append(out, h)
		}
	}
	c.dirs, c.timer = rest, nil
	if len(rest) > 0 {
		c.timer = time.AfterFunc(passHeldRest/2, c.sweep)
	}
	c.mu.Unlock()
	for _, h := range out {
		_ = h.release()
	}
}

// regain opens an object that is not at its place by the nearest directory above
// it, or itself, that is held: where that is now, if it is below the root that it
// was found under, or by the descriptor when it was removed. ENOENT: it is in its
// directory no more. Otherwise it is out of reach (ESTALE).
func (p *Pass) regain(ctx context.Context, flags int) (passRef, syscall.Errno) {
	none := passRef{fd: -1}
	var names []string
	n := p
	for n.cfg == nil {
		if h := n.grabAny(func(h *passHandle) bool { return h.held != nil || h.pinned }); h != nil {
			defer h.use.RUnlock()
			slices.Reverse(names)
			return p.regainBelow(ctx, n, h, names, flags)
		}
		name, parent := n.Parent()
		if parent == nil {
			return none, syscall.ESTALE
		}
		up, ok := parent.Operations().(*Pass)
		if !ok {
			return none, syscall.ESTALE
		}
		names, n = append(names, name), up
	}
	if len(names) != 1 {
		return none, syscall.ESTALE
	}
	top, err := n.cfg.Open(ctx)
	if err != nil {
		return none, syscall.ESTALE
	}
	defer unix.Close(top)
	return p.regainAt(top, n.cfg, names, flags)
}

// regainBelow is regain by a handle of dir, from which the names lead on.
func (p *Pass) regainBelow(ctx context.Context, dir *Pass, h *passHandle, names []string, flags int) (passRef, syscall.Errno) {
	if len(names) == 0 {
		fd, err := dir.reach(ctx, h, flags)
		if err != nil {
			return passRef{fd: -1}, syscall.ESTALE
		}
		return passRef{fd: fd, cfg: h.cfg}, 0
	}
	fd, err := dir.reach(ctx, h, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return passRef{fd: -1}, syscall.ESTALE
	}
	defer unix.Close(fd)
	return p.regainAt(fd, h.cfg, names, flags)
}

// regainAt opens what the names lead to from an open directory.
func (p *Pass) regainAt(dirfd int, cfg *PassConfig, names []string, flags int) (passRef, syscall.Errno) {
	ref := passRef{cfg: cfg}
	var err error
	if ref.fd, err = openBeneath(dirfd, strings.Join(names, "/"), flags, 0); err == nil {
		if err = p.same(ref.fd); err == nil {
			return ref, 0
		}
		unix.Close(ref.fd)
	}
	ref.fd = -1
	if err == unix.ENOENT && len(names) == 1 {
		return ref, syscall.ENOENT
	}
	return ref, syscall.ESTALE
}

// reach opens the directory that a handle is of.
func (p *Pass) reach(ctx context.Context, h *passHandle, flags int) (fd int, err error) {
	for range 8 { // it may be moved again, and removed
		if fd, err = p.follow(ctx, h, flags); err == nil {
			return fd, nil
		}
		if st, serr := passStat(h.fd); serr == nil && st.Nlink == 0 {
			return unix.Open(fdPath(h.fd), flags&^unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		}
	}
	return -1, err
}

// follow opens the directory that a handle is of where it is now. That is what
// the kernel says of the descriptor, a text only: the way there is walked like
// any other, and must lead to the directory.
func (p *Pass) follow(ctx context.Context, h *passHandle, flags int) (fd int, err error) {
	top, err := h.cfg.Open(ctx)
	if err != nil {
		return -1, err
	}
	defer unix.Close(top)
	root, err := os.Readlink(fdPath(top))
	if err != nil {
		return -1, err
	}
	now, err := os.Readlink(fdPath(h.fd))
	if err != nil {
		return -1, err
	}
	rel, below := strings.CutPrefix(now, root+"/")
	if !below {
		return -1, unix.ESTALE
	}
	if fd, err = openBeneath(top, rel, flags, 0); err != nil {
		return -1, err
	}
	if err = p.same(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
