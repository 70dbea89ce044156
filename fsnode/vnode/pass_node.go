package vnode

import (
	"context"
	"os"
	"syscall"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Lookup implements fs.NodeLookuper.
func (p *Pass) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	dir, errno := p.resolve(ctx)
	if errno == 0 {
		defer dir.close()
		return p.lookupIn(ctx, dir, name, out, true)
	}
	if !p.absent(errno) {
		return nil, errno
	}
	return p.lookupIn(ctx, passRef{fd: -1, cfg: p.cfg, top: true}, name, out, true)
}

// lookupIn finds a name in this directory, which is open as dir; a descriptor
// of -1 is a root that is not there. Hold: what is found is about to be used.
func (p *Pass) lookupIn(ctx context.Context, dir passRef, name string, out *fuse.EntryOut, hold bool) (*gofs.Inode, syscall.Errno) {
	if target, ok := dir.cfg.Links[name]; ok && dir.top {
		return p.link(ctx, name, target, out)
	}
	if dir.fd < 0 || dir.hidden(name) {
		passMissing(out)
		return nil, syscall.ENOENT
	}
	fd, err := openBeneath(dir.fd, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		passMissing(out)
		return nil, passErrno(err)
	}
	st, err := passStat(fd)
	if err != nil {
		unix.Close(fd)
		return nil, passErrno(err)
	}
	node, inode := p.child(ctx, st, &out.Attr)
	if hold && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		p.hold(dir.cfg, fd, name, node)
	} else {
		unix.Close(fd)
	}
	return inode, 0
}

// Getattr implements fs.NodeGetattrer. What is open is asked through its own
// descriptor: it may have lost its name.
func (p *Pass) Getattr(ctx context.Context, _ gofs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	keep := p.followed()
	errno := p.stat(ctx, keep, func(ref passRef) error {
		st, err := passStat(ref.fd)
		if err == nil {
			passAttr(st, &out.Attr)
			p.voidPages(ref, st)
		}
		return err
	})
	if p.absent(errno) {
		p.absentAttr(&out.Attr)
		errno = 0
	}
	if keep && errno == 0 {
		out.SetTimeout(p.cfg.Keep)
	}
	return errno
}

// voidPages has the kernel drop the pages of a file that was written to and
// has its size and its time back. It sees for itself when one of them differs,
// and otherwise an open makes it ask again.
func (p *Pass) voidPages(ref passRef, st *unix.Statx_t) {
	if !ref.cfg.Handleless || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	p.mu.Lock()
	old, cur := p.told, markOf(st)
	p.told = cur
	p.mu.Unlock()
	if old.ctime != cur.ctime && old.size == cur.size && old.mtime == cur.mtime {
		_ = p.NotifyContent(0, 0)
	}
}

// Changed has the kernel drop a file's pages.
func (p *Pass) Changed() { _ = p.NotifyContent(0, 0) }

// absentAttr fills the attributes of a root directory that is not there.
func (p *Pass) absentAttr(out *fuse.Attr) {
	out.Mode, out.Nlink = syscall.S_IFDIR|0o700, 2
	out.Uid, out.Gid = uint32(os.Geteuid()), uint32(os.Getegid())
	if p.cfg.Absent != nil {
		p.cfg.Absent(out)
	}
}

// withObject calls fn with a descriptor of the node's object: one that is open
// already, or else a new one (O_PATH).
func (p *Pass) withObject(ctx context.Context, fn func(passRef) error) syscall.Errno {
	h := p.grab(false)
	if h == nil {
		ref, errno := p.resolve(ctx)
		if errno == 0 {
			defer ref.close()
			return passErrno(fn(ref))
		}
		// It may have been pinned while it was looked for.
		if h = p.grab(false); h == nil {
			return errno
		}
	}
	defer h.use.RUnlock()
	return passErrno(fn(passRef{fd: h.fd, cfg: h.cfg, top: p.cfg != nil}))
}

// Setattr implements fs.NodeSetattrer: chmod, chown, truncate and utimens, in
// an order in which none undoes another.
func (p *Pass) Setattr(ctx context.Context, f gofs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	errno := p.withObject(ctx, func(ref passRef) error {
		if ref.cfg.readOnly() {
			return ref.cfg.refusal()
		}
		if err := p.setAttr(ctx, ref, f, in); err != nil {
			return err
		}
		ref.cfg.changed()
		st, err := passStat(ref.fd)
		if err == nil {
			passAttr(st, &out.Attr)
		}
		return err
	})
	if p.absent(errno) {
		return syscall.EPERM // there is nothing yet whose attributes could be set
	}
	return errno
}

func (p *Pass) setAttr(ctx context.Context, ref passRef, f gofs.FileHandle, in *fuse.SetAttrIn) error {
	if mode, ok := in.GetMode(); ok {
		if err := chmodFd(ref.fd, p.StableAttr().Mode, mode); err != nil {
			return err
		}
	}
	uid, uok := in.GetUID()
	gid, gok := in.GetGID()
	if uok || gok {
		if err := unix.Fchownat(ref.fd, "", idOr(uid, uok), idOr(gid, gok), unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	if size, ok := in.GetSize(); ok {
		if err := p.truncate(ctx, f, int64(size)); err != nil {
			return err
		}
	}
	return setTimes(ref.fd, in)
}

func idOr(id uint32, ok bool) int {
	if !ok {
		return -1
	}
	return int(id)
}

// chmodFd sets the mode of an open object, O_PATH or not.
func chmodFd(fd int, kind, mode uint32) error {
	if kind == syscall.S_IFLNK {
		return syscall.EOPNOTSUPP
	}
	err := unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if err == unix.EOPNOTSUPP || err == unix.EINVAL {
		// Before Linux 6.6 the only way to an O_PATH descriptor's mode. The
		// name in /proc stands for the open object, which is no symlink.
		return unix.Chmod(fdPath(fd), mode)
	}
	return err
}

// setTimes sets the times of an open object. "Now" is left to the disk, which
// asks for less permission then.
func setTimes(fd int, in *fuse.SetAttrIn) error {
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	if in.Valid&fuse.FATTR_ATIME != 0 {
		ts[0] = unix.Timespec{Sec: int64(in.Atime), Nsec: int64(in.Atimensec)}
	}
	if in.Valid&fuse.FATTR_MTIME != 0 {
		ts[1] = unix.Timespec{Sec: int64(in.Mtime), Nsec: int64(in.Mtimensec)}
	}
	if in.Valid&fuse.FATTR_ATIME_NOW != 0 {
		ts[0].Nsec = unix.UTIME_NOW
	}
	if in.Valid&fuse.FATTR_MTIME_NOW != 0 {
		ts[1].Nsec = unix.UTIME_NOW
	}
	if ts[0].Nsec == unix.UTIME_OMIT && ts[1].Nsec == unix.UTIME_OMIT {
		return nil
	}
	return unix.UtimesNanoAt(fd, "", ts, unix.AT_EMPTY_PATH)
}

// truncate sets the size through the caller's own descriptor, another one that
// is open for writing, or a new one.
func (p *Pass) truncate(ctx context.Context, f gofs.FileHandle, size int64) error {
	if h, ok := f.(*passFile); ok && h.write {
		return ignoringEINTR(func() error { return unix.Ftruncate(h.fd, size) })
	}
	if h := p.grab(true); h != nil {
		defer h.use.RUnlock()
		return ignoringEINTR(func() error { return unix.Ftruncate(h.fd, size) })
	}
	ref, errno := p.openData(ctx, unix.O_WRONLY)
	if errno != 0 {
		return errno
	}
	defer ref.close()
	return ignoringEINTR(func() error { return unix.Ftruncate(ref.fd, size) })
}

func ignoringEINTR(fn func() error) error {
	for {
		if err := fn(); err != unix.EINTR {
			return err
		}
	}
}

// Readlink implements fs.NodeReadlinker: the text as it stands.
func (p *Pass) Readlink(ctx context.Context) (text []byte, errno syscall.Errno) {
	errno = p.withObject(ctx, func(ref passRef) error {
		for size := 256; ; size *= 2 {
			buf := make([]byte, size)
			n, err := unix.Readlinkat(ref.fd, "", buf)
			if err != nil {
				return err
			}
			if n < size {
				text = buf[:n]
				return nil
			}
		}
	})
	return text, errno
}

// Statfs implements fs.NodeStatfser with the figures of the disk.
func (p *Pass) Statfs(ctx context.Context, out *fuse.StatfsOut) syscall.Errno {
	errno := p.withObject(ctx, func(ref passRef) error {
		var st syscall.Statfs_t
		err := ignoringEINTR(func() error { return syscall.Fstatfs(ref.fd, &st) })
		if err == nil {
			out.FromStatfsT(&st)
		}
		return err
	})
	if p.absent(errno) && p.cfg.Statfs != nil {
		return p.cfg.Statfs(ctx, out)
	}
	return errno
}

// passLink is an entry of PassConfig.Links.
type passLink struct {
	gofs.Inode
	dir    *Pass
	target string
}

var (
	_ gofs.NodeGetattrer  = (*passLink)(nil)
	_ gofs.NodeReadlinker = (*passLink)(nil)
)

// link makes the node of an entry of PassConfig.Links.
func (p *Pass) link(ctx context.Context, name, target string, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	node := &passLink{dir: p, target: target}
	var attr fuse.AttrOut
	if errno := node.Getattr(ctx, nil, &attr); errno != 0 {
		return nil, errno
	}
	out.Attr = attr.Attr
	return p.NewInode(ctx, node, gofs.StableAttr{Mode: syscall.S_IFLNK, Ino: p.linkIno(name), Gen: 1}), 0
}

// linkIno is the inode number of an entry of PassConfig.Links.
func (p *Pass) linkIno(name string) uint64 {
	x := p.StableAttr().Ino
	for _, c := range []byte(name) {
		x = mix64(x + uint64(c) + 1)
	}
	return passIno(^uint64(0), x, p.salt)
}

// Getattr implements fs.NodeGetattrer: owner and times are the directory's.
func (l *passLink) Getattr(ctx context.Context, _ gofs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if errno := l.dir.Getattr(ctx, nil, out); errno != 0 {
		return errno
	}
	out.SetTimeout(0) // nobody tells of the link when the directory changes
	out.Mode, out.Nlink = syscall.S_IFLNK|0o777, 1
	out.Size, out.Blocks = uint64(len(l.target)), 0
	return 0
}

// Readlink implements fs.NodeReadlinker.
func (l *passLink) Readlink(context.Context) ([]byte, syscall.Errno) {
	return []byte(l.target), 0
}
