package vnode

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// passHandle is an open descriptor of a node's object.
type passHandle struct {
	node  *Pass
	cfg   *PassConfig // of the root below which it was opened
	fd    int
	file  *os.File // owns fd, so that an aborted mount leaves none behind
	write bool

	pinned bool          // see Pass.pin; then fd is O_PATH
	held   *atomic.Int64 // see Pass.hold: when it was used last, Unix ns; then fd is O_PATH

	// use is held for reading by whoever borrows fd for a request that did
	// not bring the handle along, and for writing by the one who closes it.
	use sync.RWMutex
}

// attach makes a descriptor a handle of the node.
func (p *Pass) attach(h *passHandle) {
	h.node = p
	h.file = os.NewFile(uintptr(h.fd), "")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, h)
}

// grab returns something open of this node, held for reading, or nil.
func (p *Pass) grab(write bool) *passHandle {
	return p.grabAny(func(h *passHandle) bool { return h.held == nil && (h.write || !write) })
}

// grabAny is grab with a choice.
func (p *Pass) grabAny(fits func(*passHandle) bool) *passHandle {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.open {
		if fits(h) && h.use.TryRLock() {
			return h
		}
	}
	return nil
}

// release closes the handle after the last borrower is done.
func (h *passHandle) release() error {
	h.node.mu.Lock()
	open := h.node.open
	for i := range open {
		if open[i] == h {
			open[i] = open[len(open)-1]
			open[len(open)-1] = nil
			h.node.open = open[:len(open)-1]
			break
		}
	}
	h.node.mu.Unlock()
	h.use.Lock()
	defer h.use.Unlock()
	return h.file.Close()
}

// passFile is an open file.
type passFile struct {
	passHandle
	mu   sync.Mutex
	seen passMark // what the file was like when somebody was last told
}

// passMark changes whenever a file's content does.
type passMark struct {
	size         uint64
	mtime, ctime unix.StatxTimestamp
}

func markOf(st *unix.Statx_t) passMark { return passMark{st.Size, st.Mtime, st.Ctime} }

var (
	_ gofs.FileReader          = (*passFile)(nil)
	_ gofs.FileWriter          = (*passFile)(nil)
	_ gofs.FileWritever        = (*passFile)(nil)
	_ gofs.FileFlusher         = (*passFile)(nil)
	_ gofs.FileReleaser        = (*passFile)(nil)
	_ gofs.FileAllocater       = (*passFile)(nil)
	_ gofs.FileLseeker         = (*passFile)(nil)
	_ gofs.FilePassthroughFder = (*passFile)(nil)
)

// passOpenFlags are the flags of open(2) that mean something to the disk's
// descriptor. O_APPEND stays: the kernel computes where the end is, and
// another process may have moved it. O_DIRECT goes: the daemon's buffers are
// not aligned; data that the kernel passes through keeps it.
const passOpenFlags = unix.O_ACCMODE | unix.O_APPEND | unix.O_SYNC | unix.O_DSYNC

// cleanFlags are the flags for opening a file of data. O_NONBLOCK is there for
// the case that the name has just become a FIFO or a device.
func cleanFlags(flags uint32) int {
	f := int(flags) & passOpenFlags
	if f&unix.O_ACCMODE == unix.O_ACCMODE {
		f = f&^unix.O_ACCMODE | unix.O_RDWR
	}
	return f | unix.O_NOFOLLOW | unix.O_NOCTTY | unix.O_NONBLOCK
}

// writes reports whether an open with these flags may change the file.
func writes(flags uint32) bool {
	return flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_TRUNC != 0
}

// openData opens the node's file of data, and nothing else.
func (p *Pass) openData(ctx context.Context, flags uint32) (passRef, syscall.Errno) {
	if p.StableAttr().Mode != syscall.S_IFREG {
		return passRef{}, syscall.EINVAL
	}
	ref, errno := p.openObject(ctx, cleanFlags(flags))
	if errno == syscall.ENXIO {
		errno = syscall.ESTALE // a FIFO without a reader is there now
	}
	if errno != syscall.ESTALE && errno != syscall.ENOENT {
		return ref, errno
	}
	if again, e := p.reopen(cleanFlags(flags)); e != syscall.ESTALE {
		return again, e
	}
	if ref.cfg != nil && ref.cfg.Handleless {
		errno = syscall.ESTALE // who reads has it open
	}
	return ref, errno
}

// Open implements fs.NodeOpener.
func (p *Pass) Open(ctx context.Context, flags uint32) (gofs.FileHandle, uint32, syscall.Errno) {
	ref, errno := p.openData(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	if writes(flags) && ref.cfg.readOnly() {
		ref.close()
		return nil, 0, ref.cfg.refusal()
	}
	h, err := p.newFile(ref, flags)
	if err != nil {
		return nil, 0, passErrno(err)
	}
	return h, 0, 0
}

// fdPath is a name for an open object; only the kernel interprets it.
func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// newFile makes an open descriptor a file handle of the node, and closes it
// when that fails.
func (p *Pass) newFile(ref passRef, flags uint32) (*passFile, error) {
	h := &passFile{passHandle: passHandle{cfg: ref.cfg, fd: ref.fd, write: flags&unix.O_ACCMODE != unix.O_RDONLY}}
	err := unix.SetNonblock(ref.fd, false)
	if err == nil && flags&unix.O_TRUNC != 0 {
		err = ignoringEINTR(func() error { return unix.Ftruncate(ref.fd, 0) })
	}
	st, serr := passStat(ref.fd)
	if err == nil {
		err = serr
	}
	if err != nil {
		ref.close()
		return nil, err
	}
	h.seen = markOf(st)
	p.attach(&h.passHandle)
	return h, nil
}

// PassthroughFd implements fs.FilePassthroughFder: the kernel reads and writes
// the disk's file itself where it can.
func (h *passFile) PassthroughFd() (int, bool) { return h.fd, !h.cfg.NoPassthrough }

// Read implements fs.FileReader.
func (h *passFile) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if h.cfg.Handleless && h.cfg.WasRead != nil {
		h.cfg.WasRead(h.node)
	}
	return fuse.ReadResultFd(uintptr(h.fd), off, len(dest)), 0
}

// Write implements fs.FileWriter.
func (h *passFile) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	return h.Writev(ctx, [][]byte{data}, off)
}

// Writev implements fs.FileWritever.
func (h *passFile) Writev(_ context.Context, data [][]byte, off int64) (written uint32, errno syscall.Errno) {
	if h.cfg.readOnly() {
		return 0, h.cfg.refusal()
	}
	err := ignoringEINTR(func() error {
		n, err := unix.Pwritev(h.fd, data, off)
		written = uint32(max(n, 0))
		return err
	})
	if written > 0 {
		h.cfg.changed()
	}
	return written, passErrno(err)
}

// Flush implements fs.FileFlusher. Closing a duplicate brings up the errors
// that some disks report at close only.
func (h *passFile) Flush(context.Context) syscall.Errno {
	h.report()
	fd, err := unix.FcntlInt(uintptr(h.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return passErrno(err)
	}
	if err := unix.Close(fd); err != nil && err != unix.EINTR {
		return passErrno(err)
	}
	return 0
}

// report tells of changes that did not come through the daemon: data that the
// kernel passed through.
func (h *passFile) report() {
	if !h.write {
		return
	}
	st, err := passStat(h.fd)
	if err != nil {
		return
	}
	h.mu.Lock()
	changed := h.seen != markOf(st)
	h.seen = markOf(st)
	h.mu.Unlock()
	if changed {
		h.cfg.changed()
	}
}

// Release implements fs.FileReleaser.
func (h *passFile) Release(context.Context) syscall.Errno {
	h.report()
	return passErrno(h.release())
}

// Allocate implements fs.FileAllocater.
func (h *passFile) Allocate(_ context.Context, off, size uint64, mode uint32) syscall.Errno {
	if h.cfg.readOnly() {
		return h.cfg.refusal()
	}
	err := ignoringEINTR(func() error { return unix.Fallocate(h.fd, mode, int64(off), int64(size)) })
	if err == nil {
		h.cfg.changed()
	}
	return passErrno(err)
}

// Lseek implements fs.FileLseeker, for SEEK_DATA and SEEK_HOLE.
func (h *passFile) Lseek(_ context.Context, off uint64, whence uint32) (uint64, syscall.Errno) {
	n, err := unix.Seek(h.fd, int64(off), int(whence))
	return uint64(max(n, 0)), passErrno(err)
}

// Fsync implements fs.NodeFsyncer, for files and for directories, which need
// not be open (the mount may refuse OPENDIR).
func (p *Pass) Fsync(ctx context.Context, f gofs.FileHandle, flags uint32) syscall.Errno {
	switch h := f.(type) {
	case *passFile:
		return syncFd(h.fd, flags)
	case *passDir:
		return h.Fsyncdir(ctx, flags)
	}
	ref, errno := p.openObject(ctx, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if p.absent(errno) {
		return 0
	}
	if errno != 0 {
		return errno
	}
	defer ref.close()
	return syncFd(ref.fd, flags)
}

// syncFd is fsync(2), or fdatasync(2) when bit 0 of the flags is set.
func syncFd(fd int, flags uint32) syscall.Errno {
	return passErrno(ignoringEINTR(func() error {
		if flags&1 != 0 {
			return unix.Fdatasync(fd)
		}
		return unix.Fsync(fd)
	}))
}

// CopyFileRange implements fs.NodeCopyFileRanger. Between two kinds of files it
// is EXDEV, at which the kernel copies by reading and writing.
func (p *Pass) CopyFileRange(_ context.Context, fhIn gofs.FileHandle, offIn uint64, _ *gofs.Inode, fhOut gofs.FileHandle, offOut uint64, size, flags uint64) (uint32, syscall.Errno) {
	in, iok := fhIn.(*passFile)
	out, ook := fhOut.(*passFile)
	if !iok || !ook {
		return 0, syscall.EXDEV
	}
	if out.cfg.readOnly() {
		return 0, out.cfg.refusal()
	}
	from, to := int64(offIn), int64(offOut)
	n, err := unix.CopyFileRange(in.fd, &from, out.fd, &to, int(min(size, 1<<30)), int(flags))
	if n > 0 {
		out.cfg.changed()
	}
	return uint32(max(n, 0)), passErrno(err)
}
