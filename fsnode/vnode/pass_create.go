package vnode

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// change opens this directory in order to change the entry called name.
func (p *Pass) change(ctx context.Context, name string, create bool) (passRef, syscall.Errno) {
	if p.cfg != nil && p.cfg.readOnly() {
		return passRef{}, p.cfg.refusal()
	}
	if name == "." || name == ".." || strings.ContainsRune(name, '/') {
		return passRef{}, syscall.EINVAL // no kernel sends that
	}
	dir, errno := p.resolve(ctx)
	if p.absent(errno) && create && p.cfg.Ensure != nil {
		if p.cfg.hidden(name) {
			return passRef{}, syscall.EPERM
		}
		if err := p.cfg.Ensure(ctx); err != nil {
			return passRef{}, p.cfg.errno(err)
		}
		dir, errno = p.resolve(ctx)
	}
	if errno != 0 {
		return passRef{}, errno
	}
	if dir.cfg.readOnly() {
		errno = dir.cfg.refusal()
	} else if dir.hidden(name) {
		errno = dir.refusal(name, create)
	}
	if errno != 0 {
		dir.close()
	}
	return dir, errno
}

// refusal is the answer to changing an entry that is not the disk's: a hidden
// name is not there to be removed, and none may be made under it.
func (r passRef) refusal(name string, create bool) syscall.Errno {
	if _, shown := r.cfg.Links[name]; shown || create {
		return syscall.EPERM
	}
	return syscall.ENOENT
}

// asOwner runs a system call that creates something as the owner of the root
// directory, when the daemon is root and the owner is not: what is created
// must not lock the owner out. Changing the owner afterwards would leave a
// moment in which another object could be put under the name.
func (r passRef) asOwner(ctx context.Context, fn func() error) error {
	if os.Geteuid() != 0 {
		return fn()
	}
	rootfd, err := r.cfg.Open(ctx)
	if err != nil {
		return r.cfg.errno(err)
	}
	st, err := passStat(rootfd)
	unix.Close(rootfd)
	if err != nil {
		return err
	}
	if st.Uid == 0 && st.Gid == 0 {
		return fn()
	}
	// The two ids belong to the thread, so it must not serve anybody else
	// meanwhile.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer unix.Setfsgid(os.Getegid())
	defer unix.Setfsuid(os.Geteuid())
	if err := unix.Setfsgid(int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Setfsuid(int(st.Uid)); err != nil {
		return err
	}
	return fn()
}

// settle gives a new object the mode that was asked for, which the daemon's
// umask may have narrowed, and returns its attributes. Bits that the disk
// added (a directory's inherited S_ISGID) stay.
func settle(fd int, mode uint32) (*unix.Statx_t, error) {
	st, err := passStat(fd)
	if err != nil || uint32(st.Mode)&syscall.S_IFMT == syscall.S_IFLNK {
		return st, err
	}
	want := mode&07777 | uint32(st.Mode)&syscall.S_ISGID
	if uint32(st.Mode)&07777 == want {
		return st, nil
	}
	if err := chmodFd(fd, uint32(st.Mode)&syscall.S_IFMT, want); err != nil {
		return nil, err
	}
	return passStat(fd)
}

// Create implements fs.NodeCreater.
func (p *Pass) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*gofs.Inode, gofs.FileHandle, uint32, syscall.Errno) {
	dir, errno := p.change(ctx, name, true)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	defer dir.close()
	fd, created, err := dir.createFile(ctx, name, flags, mode)
	if err != nil {
		return nil, nil, 0, passErrno(err)
	}
	p.entryChanged()
	mode |= syscall.S_IFREG
	if created {
		flags &^= unix.O_TRUNC
	} else {
		mode = 0
	}
	inode, h, errno := p.created(ctx, passRef{fd: fd, cfg: dir.cfg}, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	dir.cfg.changed()
	return inode, h, 0, 0
}

// createFile makes and opens a file, or opens the one that another process
// has made since the kernel looked.
func (r passRef) createFile(ctx context.Context, name string, flags, mode uint32) (fd int, created bool, err error) {
	for range 10 {
		err = r.asOwner(ctx, func() error {
			fd, err = openBeneath(r.fd, name, cleanFlags(flags)|unix.O_CREAT|unix.O_EXCL, mode&07777)
			return err
		})
		if err != unix.EEXIST || flags&unix.O_EXCL != 0 {
			return fd, err == nil, err
		}
		fd, err = openBeneath(r.fd, name, cleanFlags(flags), 0)
		if err != unix.ENOENT {
			return fd, false, err
		}
	}
	return -1, false, err
}

// created makes node and handle of a file that has just been opened; mode is 0
// for one that was there. The descriptor is closed on failure.
func (p *Pass) created(ctx context.Context, ref passRef, flags, mode uint32, out *fuse.EntryOut) (*gofs.Inode, *passFile, syscall.Errno) {
	var st *unix.Statx_t
	var err error
	if mode != 0 {
		st, err = settle(ref.fd, mode)
	} else {
		st, err = passStat(ref.fd)
	}
	if err == nil && uint32(st.Mode)&syscall.S_IFMT != syscall.S_IFREG {
		err = syscall.ESTALE
	}
	if err != nil {
		ref.close()
		return nil, nil, passErrno(err)
	}
	node, inode := p.child(ctx, st, &out.Attr)
	if mode != 0 {
		node.maker.Store(callerOf(ctx))
	}
	h, err := node.newFile(ref, flags)
	if err != nil {
		return nil, nil, passErrno(err)
	}
	return inode, h, 0
}

// Tmpfile implements fs.NodeTmpfiler: a file without a name (O_TMPFILE).
func (p *Pass) Tmpfile(ctx context.Context, flags, mode uint32, out *fuse.EntryOut) (*gofs.Inode, gofs.FileHandle, uint32, syscall.Errno) {
	dir, errno := p.change(ctx, "", true)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	defer dir.close()
	fd := -1
	err := dir.asOwner(ctx, func() (err error) {
		f := cleanFlags(flags)&^(unix.O_NOFOLLOW|unix.O_NOCTTY) | unix.O_TMPFILE | int(flags)&unix.O_EXCL
		fd, err = openBeneath(dir.fd, ".", f, mode&07777)
		return err
	})
	if err != nil {
		return nil, nil, 0, passErrno(err)
	}
	inode, h, errno := p.created(ctx, passRef{fd: fd, cfg: dir.cfg}, flags, mode|syscall.S_IFREG, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return inode, h, 0, 0
}

// Mkdir implements fs.NodeMkdirer.
func (p *Pass) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	return p.make(ctx, name, syscall.S_IFDIR|mode&07777, out, func(dirfd int) error {
		return unix.Mkdirat(dirfd, name, mode&07777)
	})
}

// Mknod implements fs.NodeMknoder, for files, FIFOs and sockets. A device is
// EPERM: no session has use for one.
func (p *Pass) Mknod(ctx context.Context, name string, mode, _ uint32, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	switch mode & syscall.S_IFMT {
	case 0:
		mode |= syscall.S_IFREG
	case syscall.S_IFREG, syscall.S_IFIFO, syscall.S_IFSOCK:
	default:
		return nil, syscall.EPERM
	}
	return p.make(ctx, name, mode, out, func(dirfd int) error {
		return unix.Mknodat(dirfd, name, mode, 0)
	})
}

// Symlink implements fs.NodeSymlinker. The text is not looked at.
func (p *Pass) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	return p.make(ctx, name, syscall.S_IFLNK|0o777, out, func(dirfd int) error {
		return unix.Symlinkat(target, dirfd, name)
	})
}

// make creates an entry by fn and returns its node.
func (p *Pass) make(ctx context.Context, name string, mode uint32, out *fuse.EntryOut, fn func(dirfd int) error) (*gofs.Inode, syscall.Errno) {
	dir, errno := p.change(ctx, name, true)
	if errno != 0 {
		return nil, errno
	}
	defer dir.close()
	err := dir.asOwner(ctx, func() error { return fn(dir.fd) })
	if err != nil {
		return nil, passErrno(err)
	}
	p.entryChanged()
	dir.cfg.changed()
	fd, err := openBeneath(dir.fd, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, passErrno(err)
	}
	defer unix.Close(fd)
	st, err := passStat(fd)
	if err == nil && uint32(st.Mode)&syscall.S_IFMT != mode&syscall.S_IFMT {
		err = syscall.ESTALE // somebody has put something else there
	}
	if err == nil {
		// As the owner: should the name stand for something else by now, no
		// more can be done to it than the owner can.
		err = dir.asOwner(ctx, func() (err error) { st, err = settle(fd, mode); return err })
	}
	if err != nil {
		return nil, passErrno(err)
	}
	_, inode := p.child(ctx, st, &out.Attr)
	return inode, 0
}

// Link implements fs.NodeLinker.
func (p *Pass) Link(ctx context.Context, target gofs.InodeEmbedder, name string, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	from, ok := target.(*Pass)
	if !ok || from.group != p.group {
		return nil, syscall.EXDEV
	}
	dir, errno := p.change(ctx, name, true)
	if errno != 0 {
		return nil, errno
	}
	defer dir.close()
	var st *unix.Statx_t
	errno = from.withObject(ctx, func(ref passRef) (err error) {
		// The descriptor's name in /proc stands for the very object, also
		// for a symlink and for a file that has no name (O_TMPFILE).
		err = unix.Linkat(unix.AT_FDCWD, fdPath(ref.fd), dir.fd, name, unix.AT_SYMLINK_FOLLOW)
		if err != nil {
			return err
		}
		st, err = passStat(ref.fd)
		return err
	})
	if errno != 0 {
		return nil, errno
	}
	p.entryChanged()
	dir.cfg.changed()
	_, inode := p.child(ctx, st, &out.Attr)
	return inode, 0
}

// Unlink implements fs.NodeUnlinker.
func (p *Pass) Unlink(ctx context.Context, name string) syscall.Errno {
	return p.remove(ctx, name, 0)
}

// Rmdir implements fs.NodeRmdirer.
func (p *Pass) Rmdir(ctx context.Context, name string) syscall.Errno {
	return p.remove(ctx, name, unix.AT_REMOVEDIR)
}

func (p *Pass) remove(ctx context.Context, name string, flags int) syscall.Errno {
	dir, errno := p.change(ctx, name, false)
	if errno != 0 {
		return errno
	}
	defer dir.close()
	if flags == 0 {
		if errno := p.removing(ctx, dir, name, false); errno != 0 {
			return errno
		}
	}
	undo := p.pin(dir, name)
	if err := unix.Unlinkat(dir.fd, name, flags); err != nil {
		undo()
		return passErrno(err)
	}
	p.entryChanged()
	if dir.cfg.OnRemove != nil {
		dir.cfg.OnRemove()
	} else {
		dir.cfg.changed()
	}
	return 0
}

// removing announces that a name's content goes, where it may be wanted again.
func (p *Pass) removing(ctx context.Context, dir passRef, name string, replaced bool) syscall.Errno {
	if dir.cfg.Removing == nil {
		return 0
	}
	r, ok := p.wanted(ctx, dir, name)
	if !ok {
		return 0
	}
	r.Replaced = replaced
	if err := dir.cfg.Removing(ctx, r); err != nil {
		return dir.cfg.errno(err)
	}
	return 0
}

// wanted reports whether what a name means may be wanted again when the name
// is gone: a file with content or a link, unless it is a file that the process
// which removes it has made itself.
func (p *Pass) wanted(ctx context.Context, dir passRef, name string) (r Removal, ok bool) {
	var st unix.Stat_t
	if unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return r, false
	}
	r = Removal{Dir: dir.fd, Name: name, Age: time.Since(time.Unix(st.Mtim.Unix())), Changed: time.Unix(st.Ctim.Unix())}
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFREG && st.Size > 0:
		r.Size = st.Size
	case kind != unix.S_IFLNK:
		return r, false
	}
	child := p.GetChild(name)
	if child == nil {
		return r, true
	}
	node, known := child.Operations().(*Pass)
	return r, !known || !sameProcess(callerOf(ctx), node.maker.Load())
}

// callerOf is the thread that sent a request, 0 when there is none.
func callerOf(ctx context.Context) uint32 {
	if c, ok := fuse.FromContext(ctx); ok {
		return c.Pid
	}
	return 0
}

// sameProcess reports whether two threads belong to one process that lives.
func sameProcess(a, b uint32) bool {
	if a == 0 || b == 0 {
		return false
	}
	if a == b {
		return true
	}
	_, err := os.Lstat("/proc/" + strconv.FormatUint(uint64(a), 10) + "/task/" + strconv.FormatUint(uint64(b), 10))
	return err == nil
}

// Rename implements fs.NodeRenamer, with RENAME_NOREPLACE and RENAME_EXCHANGE.
func (p *Pass) Rename(ctx context.Context, name string, newParent gofs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 {
		return syscall.EINVAL
	}
	to, ok := newParent.(*Pass)
	if !ok || to.group != p.group {
		return syscall.EXDEV
	}
	from, errno := p.change(ctx, name, false)
	if errno != 0 {
		return errno
	}
	defer from.close()
	dest, errno := to.change(ctx, newName, true)
	if errno != 0 {
		return errno
	}
	defer dest.close()
	undo := func() {}
	if flags == 0 {
		if errno := to.removing(ctx, dest, newName, true); errno != 0 {
			return errno
		}
		undo = to.pin(dest, newName)
	}
	if err := p.moveEntry(from.fd, name, to, dest.fd, newName, flags); err != nil {
		undo()
		return passErrno(err)
	}
	p.entryChanged()
	to.entryChanged()
	from.cfg.changed()
	if dest.cfg != from.cfg {
		dest.cfg.changed()
	}
	return 0
}

// moveEntry renames on the disk and notes where the nodes are until go-fuse
// has moved them too.
func (p *Pass) moveEntry(fromfd int, name string, to *Pass, tofd int, newName string, flags uint32) error {
	g := p.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := unix.Renameat2(fromfd, name, tofd, newName, uint(flags)); err != nil {
		return err
	}
	g.recordMove(p.GetChild(name), p.EmbeddedInode(), name, to.EmbeddedInode(), newName)
	if flags&unix.RENAME_EXCHANGE != 0 {
		g.recordMove(to.GetChild(newName), to.EmbeddedInode(), newName, p.EmbeddedInode(), name)
	}
	return nil
}
