package vnode

import (
	"context"
	"slices"
	"sync"
	"syscall"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// passLinkOffset is the offset in the listing before the first entry of
// PassConfig.Links, which come last. Disks use offsets up to 1<<63-1, but ext4
// has no entry with these upper bits, and nobody else comes so far.
const passLinkOffset = 0x7fffffff_00000001

// passDir is an open directory. Its offsets are the disk's own, which stay
// valid when the directory is closed and opened again: where the mount refuses
// OPENDIR, each page is read through a new passDir that seeks first.
type passDir struct {
	passHandle        // fd is -1 for a root that is not there
	dev        uint64 // of the directory
	links      []string

	mu   sync.Mutex
	buf  []byte
	todo []byte // what getdents(2) returned and was not handed out
	eof  bool   // the disk has no more; links[next:] remain
	next int
}

var (
	_ gofs.FileReaddirenter = (*passDir)(nil)
	_ gofs.FileSeekdirer    = (*passDir)(nil)
	_ gofs.FileFsyncdirer   = (*passDir)(nil)
	_ gofs.FileReleasedirer = (*passDir)(nil)
	_ gofs.FileLookuper     = (*passDir)(nil)
)

// OpendirHandle implements fs.NodeOpendirHandler.
func (p *Pass) OpendirHandle(ctx context.Context, _ uint32) (gofs.FileHandle, uint32, syscall.Errno) {
	d := &passDir{}
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW
	ref, errno := p.openObject(ctx, flags)
	if p.absent(errno) {
		d.passHandle = passHandle{node: p, cfg: p.cfg, fd: -1}
		d.links = linkNames(p.cfg)
		return d, 0, 0
	}
	if errno != 0 {
		return nil, 0, errno
	}
	st, err := passStat(ref.fd)
	if err != nil {
		ref.close()
		return nil, 0, passErrno(err)
	}
	d.passHandle = passHandle{cfg: ref.cfg, fd: ref.fd}
	d.dev = unix.Mkdev(st.Dev_major, st.Dev_minor)
	if ref.top {
		d.links = linkNames(ref.cfg)
	}
	p.attach(&d.passHandle)
	return d, 0, 0
}

func linkNames(cfg *PassConfig) []string {
	names := make([]string, 0, len(cfg.Links))
	for name := range cfg.Links {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ref is the directory for passRef's users.
func (d *passDir) ref() passRef {
	return passRef{fd: d.fd, cfg: d.cfg, top: d.node.cfg != nil}
}

// Readdirent implements fs.FileReaddirenter.
func (d *passDir) Readdirent(ctx context.Context) (*fuse.DirEntry, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.eof {
		de, errno := d.diskLocked()
		if errno != 0 {
			return nil, errno
		}
		if de != nil && !d.ref().hidden(de.Name) {
			return de, 0
		}
	}
	if d.next >= len(d.links) {
		return nil, 0
	}
	name := d.links[d.next]
	d.next++
	return &fuse.DirEntry{
		Name: name,
		Mode: syscall.S_IFLNK,
		Ino:  d.node.linkIno(name),
		Off:  passLinkOffset + uint64(d.next),
	}, 0
}

// diskLocked returns the next entry of the disk, or sets d.eof. Requires d.mu.
func (d *passDir) diskLocked() (*fuse.DirEntry, syscall.Errno) {
	if d.fd < 0 {
		d.eof = true
		return nil, 0
	}
	if len(d.todo) == 0 {
		if d.buf == nil {
			d.buf = make([]byte, 32<<10)
		}
		n, err := unix.Getdents(d.fd, d.buf)
		for err == unix.EINTR {
			n, err = unix.Getdents(d.fd, d.buf)
		}
		if err == unix.ENOENT { // the directory was removed while it is open
			n, err = 0, nil
		}
		if err != nil {
			return nil, passErrno(err)
		}
		d.todo = d.buf[:n]
		d.eof = n == 0
	}
	if d.eof {
		return nil, 0
	}
	var de fuse.DirEntry
	d.todo = d.todo[de.Parse(d.todo):]
	de.Ino = d.number(de.Name, de.Ino)
	return &de, 0
}

// number is the inode number that a Lookup of the entry answers with.
func (d *passDir) number(name string, ino uint64) uint64 {
	switch name {
	case ".":
		return d.node.StableAttr().Ino
	case "..":
		if _, parent := d.node.Parent(); parent != nil {
			return parent.StableAttr().Ino
		}
		return d.node.StableAttr().Ino
	}
	return passIno(d.dev, ino, d.node.salt)
}

// Seekdir implements fs.FileSeekdirer.
func (d *passDir) Seekdir(_ context.Context, off uint64) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.todo, d.eof, d.next = nil, false, 0
	if off > passLinkOffset && off <= passLinkOffset+uint64(len(d.links)) {
		d.eof, d.next = true, int(off-passLinkOffset)
		return 0
	}
	if d.fd < 0 {
		return 0
	}
	_, err := unix.Seek(d.fd, int64(off), unix.SEEK_SET)
	if err == unix.EINVAL {
		// ext4 takes the size of a directory that was removed for 0, and knows of
		// no place beyond it: there is nothing more to list.
		d.eof, err = true, nil
	}
	return passErrno(err)
}

// Lookup implements fs.FileLookuper: READDIRPLUS looks its entries up in the
// directory that it lists.
func (d *passDir) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	return d.node.lookupIn(ctx, d.ref(), name, out, false)
}

// Fsyncdir implements fs.FileFsyncdirer.
func (d *passDir) Fsyncdir(_ context.Context, flags uint32) syscall.Errno {
	if d.fd < 0 {
		return 0
	}
	return syncFd(d.fd, flags)
}

// Releasedir implements fs.FileReleasedirer.
func (d *passDir) Releasedir(context.Context, uint32) {
	if d.fd >= 0 {
		d.release()
	}
}
