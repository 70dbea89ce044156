package vnode

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// passResolve is how every path is walked: see Pass.
const passResolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// passPathMax is the longest path given to one openat2(2), in bytes. The
// kernel's limit is 4096 with the final NUL.
const passPathMax = 4000

// passMoveKept is how long a passMove may be needed: go-fuse moves its own
// entry right after the handler of the rename returned.
const passMoveKept = 10 * time.Second

// passMove says where a node is that go-fuse still has at its old place: it
// moves the entry after the rename's handler returned, and a request that
// comes in between would look in vain.
type passMove struct {
	oldParent, newParent *gofs.Inode
	oldName, newName     string
	at                   time.Time
}

// OpenBeneath opens the directory rel below the directory base, as O_PATH. No
// component of rel may be a symlink or a mount point, or lead upward (ELOOP,
// EXDEV). Neither may base be a symlink, nor what leads to it from the directory
// root, if it is below that: who was told that it is a directory may find
// something else by now. Root itself is trusted.
func OpenBeneath(root, base, rel string) (dirfd int, err error) {
	fd, err := openBase(root, base)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return openBeneath(fd, rel, unix.O_PATH|unix.O_DIRECTORY, 0)
}

func openBase(root, base string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	below, err := filepath.Rel(root, base)
	if err != nil || !filepath.IsLocal(below) || below == "." {
		fd, err := unix.Open(base, flags|unix.O_NOFOLLOW, 0)
		if err == unix.ENOTDIR && isLink(base) {
			err = unix.ELOOP
		}
		return fd, err
	}
	top, err := unix.Open(root, flags, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(top)
	how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(top, below, &how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

func isLink(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.Mode()&os.ModeSymlink != 0
}

// openBeneath opens a path below dirfd and never follows a symlink; with
// O_PATH|O_NOFOLLOW a final symlink itself is opened.
func openBeneath(dirfd int, path string, flags int, mode uint32) (int, error) {
	if len(path) > passPathMax {
		return openLong(dirfd, path, flags, mode)
	}
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(mode), Resolve: passResolve}
	for {
		fd, err := unix.Openat2(dirfd, path, &how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
		if err == unix.EAGAIN && flags&unix.O_NONBLOCK != 0 {
			return fd, err // a lease is held on the file, not a race
		}
	}
}

// openLong opens a path that is too long for one system call.
func openLong(dirfd int, path string, flags int, mode uint32) (int, error) {
	cut := strings.LastIndexByte(path[:passPathMax], '/')
	if cut <= 0 {
		return -1, unix.ENAMETOOLONG
	}
	fd, err := openBeneath(dirfd, path[:cut], unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return openBeneath(fd, path[cut+1:], flags, mode)
}

// passRef is a node's open object together with the root it was found below.
type passRef struct {
	fd  int
	cfg *PassConfig
	top bool // the node is that root itself
}

func (r passRef) close() { unix.Close(r.fd) }

// hidden reports whether the object's entry of this name is not shown.
func (r passRef) hidden(name string) bool { return r.top && r.cfg.hidden(name) }

// resolve opens the node's object as O_PATH, a symlink itself included.
func (p *Pass) resolve(ctx context.Context) (passRef, syscall.Errno) {
	return p.openObject(ctx, unix.O_PATH|unix.O_NOFOLLOW)
}

// openObject opens the node's object and sees that it is the one meant.
func (p *Pass) openObject(ctx context.Context, flags int) (passRef, syscall.Errno) {
	ref, errno := p.openPlace(ctx, flags)
	switch errno {
	case 0:
		p.use()
	case syscall.ESTALE:
		again, e := p.regain(ctx, flags)
		if e == 0 || e == syscall.ENOENT {
			return again, e
		}
	}
	return ref, errno
}

// openPlace is openObject for what is at its place.
func (p *Pass) openPlace(ctx context.Context, flags int) (passRef, syscall.Errno) {
	ref, moved, err := p.openAt(ctx, flags, true)
	if err != nil && moved {
		// The move may be over and undone since, behind the mount.
		ref, _, err = p.openAt(ctx, flags, false)
	}
	if err == nil {
		return ref, 0
	}
	if ref.cfg == nil {
		return ref, syscall.ESTALE
	}
	if p.cfg != nil {
		return ref, ref.cfg.errno(err)
	}
	switch errno := passErrno(err); errno {
	case syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP:
		// A name on the way is gone, or something else now.
		return ref, syscall.ESTALE
	default:
		return ref, errno
	}
}

// openAt opens what lies at the node's place. moved says whether a passMove
// was needed to know it.
func (p *Pass) openAt(ctx context.Context, flags int, useMoves bool) (ref passRef, moved bool, err error) {
	p.group.mu.RLock()
	defer p.group.mu.RUnlock()
	root, path, moved := p.place(useMoves)
	if root == nil {
		return passRef{fd: -1}, moved, syscall.ESTALE
	}
	ref = passRef{fd: -1, cfg: root.cfg, top: root == p}
	dirfd, err := root.cfg.Open(ctx)
	if err != nil {
		return ref, moved, err
	}
	ref.fd, err = openBeneath(dirfd, path, flags, 0)
	unix.Close(dirfd)
	if err != nil || ref.top {
		return ref, moved, err
	}
	if err = p.same(ref.fd); err != nil {
		unix.Close(ref.fd)
		ref.fd = -1
	}
	return ref, moved, err
}

// place walks up to the root and returns it with the path from there; the
// root is nil for a node without a name. Requires p.group.mu.
func (p *Pass) place(useMoves bool) (root *Pass, path string, moved bool) {
	var names []string
	for n := p; n.cfg == nil; {
		name, parent := n.Parent()
		if m, ok := p.group.moves[n.EmbeddedInode()]; ok && useMoves && m.oldParent == parent && m.oldName == name {
			name, parent, moved = m.newName, m.newParent, true
		}
		if parent == nil {
			return nil, "", moved
		}
		up, ok := parent.Operations().(*Pass)
		if !ok {
			return nil, "", moved
		}
		names = append(names, name)
		root, n = up, up
	}
	if root == nil {
		return p, ".", moved
	}
	slices.Reverse(names)
	return root, strings.Join(names, "/"), moved
}

// recordMove remembers until go-fuse has done its part that child is at a new
// place. Requires g.mu for writing.
func (g *PassGroup) recordMove(child, oldParent *gofs.Inode, oldName string, newParent *gofs.Inode, newName string) {
	now := time.Now()
	for n, m := range g.moves {
		name, parent := n.Parent()
		if parent != m.oldParent || name != m.oldName || now.Sub(m.at) > passMoveKept {
			delete(g.moves, n)
		}
	}
	if child != nil {
		g.moves[child] = passMove{oldParent, newParent, oldName, newName, now}
	}
}

// passStat is statx(2) of an open descriptor.
func passStat(fd int) (*unix.Statx_t, error) {
	var st unix.Statx_t
	for {
		err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
		if err != unix.EINTR {
			return &st, err
		}
	}
}

// same sees that the open object is the one that the node stands for.
func (p *Pass) same(fd int) error {
	st, err := passStat(fd)
	if err != nil {
		return err
	}
	if p.stable(st) != p.StableAttr() {
		return unix.ESTALE
	}
	return nil
}

// stable is the identity of an object of the disk: its type, a number made of
// device and inode number, and its birth as the generation, so that a reused
// inode number is another object.
func (p *Pass) stable(st *unix.Statx_t) gofs.StableAttr {
	gen := uint64(1)
	if st.Mask&unix.STATX_BTIME != 0 {
		gen = max(1, uint64(st.Btime.Sec)*1e9+uint64(st.Btime.Nsec))
	}
	return gofs.StableAttr{
		Mode: uint32(st.Mode) & syscall.S_IFMT,
		Ino:  passIno(unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, p.salt),
		Gen:  gen,
	}
}

// passIno mixes a number from the disk's: the same for the same file at any
// time, below 1<<63 (go-fuse numbers on its own from there), never 0 or 1.
func passIno(dev, ino, salt uint64) uint64 {
	x := mix64(ino + mix64(dev+mix64(salt+0x9e3779b97f4a7c15)))
	if x &= 1<<63 - 1; x < 2 {
		x += 2
	}
	return x
}

// mix64 is the finaliser of splitmix64, a bijection that spreads every bit.
func mix64(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// passAttr fills the attributes from the disk's, except for the number, which
// go-fuse takes from the node.
func passAttr(st *unix.Statx_t, out *fuse.Attr) {
	out.Size, out.Blocks, out.Blksize = st.Size, st.Blocks, st.Blksize
	out.Atime, out.Atimensec = uint64(st.Atime.Sec), st.Atime.Nsec
	out.Mtime, out.Mtimensec = uint64(st.Mtime.Sec), st.Mtime.Nsec
	out.Ctime, out.Ctimensec = uint64(st.Ctime.Sec), st.Ctime.Nsec
	out.Mode, out.Nlink = uint32(st.Mode), st.Nlink
	out.Uid, out.Gid = st.Uid, st.Gid
	out.Rdev = uint32(unix.Mkdev(st.Rdev_major, st.Rdev_minor))
}

// child makes the node for an open object of this directory, and fills its
// attributes. go-fuse replaces it by the node that it knows for the same
// identity already.
func (p *Pass) child(ctx context.Context, st *unix.Statx_t, out *fuse.Attr) (*Pass, *gofs.Inode) {
	passAttr(st, out)
	node := &Pass{group: p.group, salt: p.salt}
	return node, p.NewInode(ctx, node, p.stable(st))
}

// absent reports whether an error of the root means that it is not there yet.
func (p *Pass) absent(errno syscall.Errno) bool { return p.cfg != nil && errno == syscall.ENOENT }
