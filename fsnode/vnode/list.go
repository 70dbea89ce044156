package vnode

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// List is a directory. What it lists it also finds, and nothing else. A verb
// that is missing is refused: go-fuse would answer success to an unlink or rmdir
// that nobody implements, and take the name out of its own tree.
// What embeds it is a Listing.
type List struct {
	Base
	// Up is the directory above, nil for the root. It tells which requests
	// hold an ancestor of this one.
	Up *List
}

// ListOf returns the directory of this package's kind that an inode is, nil
// when it is none.
func ListOf(in *fs.Inode) *List {
	if l, ok := in.Operations().(asList); ok {
		return l.list()
	}
	return nil
}

// Found is a node that a directory found: one of this package's kinds, or a
// foreign one with what must be known of it.
type Found struct {
	Node Node
	// Foreign is a node of another kind, a directory, with its identity and the
	// policy of its name, placed by PlaceForeign. It fills its own attributes and
	// says how long they may be kept.
	Foreign  fs.InodeEmbedder
	Identity string
	Policy   Policy
	// Absent comes with NotFound, and is how long the kernel may keep that
	// the name is not there. Whoever sets it tells the kernel of the name when
	// it comes.
	Absent time.Duration
}

func (l *List) fileType() uint32 { return syscall.S_IFDIR }

// answer fills the answer that hands out a found node.
func (l *List) answer(ctx context.Context, f Found, out *fuse.EntryOut) (*fs.Inode, error) {
	if f.Foreign == nil {
		if err := describe(ctx, f.Node, out); err != nil {
			return nil, err
		}
		return f.Node.base().EmbeddedInode(), nil
	}
	in := f.Foreign.EmbeddedInode()
	var a fuse.AttrOut
	if g, ok := f.Foreign.(fs.NodeGetattrer); ok {
		if errno := g.Getattr(ctx, nil, &a); errno != 0 {
			return nil, errno
		}
		out.Attr = a.Attr
	}
	out.SetEntryTimeout(f.Policy.entry(l.env()))
	out.SetAttrTimeout(a.Timeout())
	return in, nil
}

// Lookup finds a name. The timeout of an answer that there is none is in out.
func (l *List) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if len(name) > maxName {
		return nil, syscall.ENAMETOOLONG
	}
	f, err := l.Look(ctx, name)
	if err != nil {
		out.SetEntryTimeout(f.Absent)
		return nil, l.env().Hush(err)
	}
	in, err := l.answer(ctx, f, out)
	var errno syscall.Errno
	switch {
	case err == nil:
		return in, 0
	case f.Foreign != nil && errors.As(err, &errno): // what it says of itself afterwards
		return nil, errno
	}
	return nil, l.env().Hush(err)
}

// OnForget is called by go-fuse.
func (l *List) OnForget() {
	if o, ok := l.Operations().(Forgetful); ok {
		o.Forgot()
	}
}

// Getattr answers with the directory's attributes.
func (l *List) Getattr(ctx context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	return l.getattr(ctx, syscall.S_IFDIR, out)
}

// Setattr accepts times and refuses the rest.
func (l *List) Setattr(ctx context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return l.setattr(ctx, in, syscall.S_IFDIR, out, refuseSize)
}

// Fsync has nothing to do: what was answered is durable.
func (l *List) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return 0 }

// OpendirHandle begins a reading of the directory.
func (l *List) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return &listing{l: l}, 0, 0
}

// listing is one reading of a directory. The kernel reads without a handle
// (OPENDIR is refused), so a listing begins at any offset: offsets are
// positions and stay good from one reading to the next.
type listing struct {
	l       *List
	entries []fuse.DirEntry
	pos     uint64
	taken   bool
}

func (d *listing) Readdirent(ctx context.Context) (*fuse.DirEntry, syscall.Errno) {
	if !d.taken {
		list, err := d.l.entries(ctx)
		if err != nil {
			return nil, d.l.fail(ctx, "readdir", "", err)
		}
		d.entries, d.taken = list, true
	}
	e, ok := d.entry(d.pos)
	if !ok {
		return nil, 0
	}
	d.pos++
	e.Off = d.pos
	return &e, 0
}

// entry returns the entry at a position: ".", "..", then the listing.
func (d *listing) entry(pos uint64) (fuse.DirEntry, bool) {
	switch {
	case pos == 0:
		return fuse.DirEntry{Name: ".", Mode: syscall.S_IFDIR, Ino: d.l.number()}, true
	case pos == 1:
		ino := uint64(fuse.FUSE_ROOT_ID)
		if _, parent := d.l.Parent(); parent != nil && !parent.IsRoot() {
			ino = parent.StableAttr().Ino
		}
		return fuse.DirEntry{Name: "..", Mode: syscall.S_IFDIR, Ino: ino}, true
	case pos-2 < uint64(len(d.entries)):
		return d.entries[pos-2], true
	}
	return fuse.DirEntry{}, false
}

func (d *listing) Seekdir(_ context.Context, off uint64) syscall.Errno {
	d.pos = off
	return 0
}

var (
	_ Node                  = (*List)(nil)
	_ fs.NodeLookuper       = (*List)(nil)
	_ fs.NodeGetattrer      = (*List)(nil)
	_ fs.NodeSetattrer      = (*List)(nil)
	_ fs.NodeFsyncer        = (*List)(nil)
	_ fs.NodeStatfser       = (*List)(nil)
	_ fs.NodeOpendirHandler = (*List)(nil)
	_ fs.NodeOnForgetter    = (*List)(nil)
	_ fs.FileReaddirenter   = (*listing)(nil)
	_ fs.FileSeekdirer      = (*listing)(nil)
)
