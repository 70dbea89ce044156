package vnode

import (
	"syscall"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"golang.org/x/sys/unix"
)

// passPinMax bounds the descriptors that pins hold in a group. The kernel
// forgets an object without a name as soon as nobody uses it, so pins are
// many only for moments (rm -r); what is not pinned is ESTALE to a user whom
// it is taken away from in mid-use.
const passPinMax = 512

// pin keeps the object under a name reachable for the node that stands for it,
// before the name is taken away: whoever has looked the name up a moment ago
// and opens or stats it now gets the old object, as on any disk, and so does a
// process whose working directory was removed. The pin ends when the kernel
// forgets the node, or by undo.
func (p *Pass) pin(dir passRef, name string) (undo func()) {
	undo = func() {}
	child := p.GetChild(name)
	if child == nil {
		return undo
	}
	node, ok := child.Operations().(*Pass)
	if !ok || p.group.pins.Load() >= passPinMax {
		return undo
	}
	fd, err := openBeneath(dir.fd, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return undo
	}
	st, err := passStat(fd)
	isDir := err == nil && uint32(st.Mode)&syscall.S_IFMT == syscall.S_IFDIR
	if err != nil || node.stable(st) != node.StableAttr() || st.Nlink > 1 && !isDir {
		unix.Close(fd) // another object, or one that has a second name
		return undo
	}
	h := &passHandle{cfg: dir.cfg, fd: fd, pinned: true}
	p.group.pins.Add(1)
	node.attach(h)
	return func() { node.unpin(h) }
}

// unpin ends a pin. It may be called again.
func (p *Pass) unpin(h *passHandle) {
	if h.release() == nil {
		p.group.pins.Add(-1)
	}
}

var _ gofs.NodeOnForgetter = (*Pass)(nil)

// OnForget implements fs.NodeOnForgetter: nobody can ask for the node again.
func (p *Pass) OnForget() {
	p.mu.Lock()
	var pins []*passHandle
	for _, h := range p.open {
		if h.pinned { // one that is held is let go of in time
			pins = append(pins, h)
		}
	}
	p.mu.Unlock()
	for _, h := range pins {
		p.unpin(h)
	}
}

// reopen opens once more what is open or pinned but cannot be found by name.
func (p *Pass) reopen(flags int) (passRef, syscall.Errno) {
	h := p.grab(false)
	if h == nil {
		return passRef{fd: -1}, syscall.ESTALE
	}
	defer h.use.RUnlock()
	fd, err := unix.Open(fdPath(h.fd), flags&^unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return passRef{fd: fd, cfg: h.cfg, top: p.cfg != nil}, passErrno(err)
}
