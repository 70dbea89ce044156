package vnode

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Env is what all nodes of one tree share.
type Env struct {
	// Fail turns the reason why op failed at path into an errno, and keeps a
	// record of the refusal. Required.
	Fail func(ctx context.Context, op, path string, err error) syscall.Errno
	// Hush is Fail without the record, for questions that are asked all the
	// time and whose answer may be no. Required.
	Hush func(err error) syscall.Errno
	// Epoch, when not nil, has the kernel ask again for every name at its next
	// use. It waits for nobody and may be called from any request. It is set
	// before anything is served and not changed afterwards.
	Epoch func()
	// Handleless tells that the kernel opens files without asking: a read
	// comes without a handle, and what is read stays with the kernel until it
	// is notified. Only for a tree that nothing is written through.
	Handleless bool
	// Beneath is a directory of the filesystem whose figures statfs gives.
	Beneath string
	// Killed reports whether the process that sent a request is dying by a
	// signal; nil asks the kernel.
	Killed func(pid uint32) bool

	last lastText
}

// Node is a node of one of this package's kinds.
type Node interface {
	fs.InodeEmbedder
	base() *Base
	fileType() uint32
}

// Base is what all kinds have in common. It is filled before the node is
// placed and not changed afterwards. What the node says comes from the object
// that embeds it, see Object: a mount has very many nodes, and each byte here
// is there once for each.
type Base struct {
	fs.Inode
	Policy Policy
}

func (b *Base) base() *Base { return b }

// Place gives a node its inode, with the number of its identity, see Ino; gen
// tells objects of one identity apart that are not the same: a session that
// was removed and one that was created in its place. A node that is handed out
// more than once is placed before anybody else can see it, or with a lock held
// that all its users take: go-fuse does not expect two to do it at once.
func Place(ctx context.Context, parent *fs.Inode, n Node, number, gen uint64) *fs.Inode {
	return parent.NewInode(ctx, n, fs.StableAttr{Mode: n.fileType(), Ino: number, Gen: gen})
}

// PlaceForeign gives a directory of another kind its inode, as Place does.
func PlaceForeign(ctx context.Context, parent *fs.Inode, n fs.InodeEmbedder, identity string, gen uint64) {
	parent.NewInode(ctx, n, fs.StableAttr{Mode: syscall.S_IFDIR, Ino: Ino(identity), Gen: gen})
}

// NewFS makes a filesystem whose root directory is l. No timeout is set for
// all: go-fuse would put it in the place of every 0 that a node answers.
func NewFS(l *FuncList, opt fuse.MountOptions) fuse.RawFileSystem {
	l.List.Policy = l.Spec.Policy
	return fs.NewNodeFS(l, &fs.Options{
		MountOptions:   opt,
		RootStableAttr: &fs.StableAttr{Mode: syscall.S_IFDIR, Ino: fuse.FUSE_ROOT_ID},
	})
}

// env is what the nodes of the tree share: its root has it.
func (b *Base) env() *Env { return b.Root().Operations().(*FuncList).Env }

// placed reports whether the node has its inode.
func (b *Base) placed() bool { return b.number() != 0 }

// InUse reports whether the kernel knows the node or something below it.
func (b *Base) InUse() bool {
	//lint:ignore SA1019 asked for long after a forget, when its answer is not momentary
	return !b.Forgotten()
}

// Changed drops what the kernel keeps of the node's content and attributes. A
// node that was never placed, or that the kernel does not know, is left alone.
func (b *Base) Changed() {
	if b.placed() {
		_ = b.NotifyContent(0, 0)
	}
}

// AttrChanged drops what the kernel keeps of the node's attributes only.
func (b *Base) AttrChanged() {
	if b.placed() {
		_ = b.NotifyContent(-1, 0)
	}
}

// NameChanged drops what the kernel keeps of a name in a directory. It waits
// for every request that holds the directory.
func (b *Base) NameChanged(name string) {
	if b.placed() {
		_ = b.NotifyEntry(name)
	}
}

// number is the node's inode number, 0 until it is placed.
func (b *Base) number() uint64 { return b.StableAttr().Ino }

// path is where the node was last seen, for a record of what failed there.
func (b *Base) path(name string) string {
	p := b.Path(nil)
	switch {
	case name == "":
		return p
	case p == "":
		return name
	}
	return p + "/" + name
}

// fail records a refusal and returns its errno.
func (b *Base) fail(ctx context.Context, op, name string, err error) syscall.Errno {
	return b.env().Fail(ctx, op, b.path(name), err)
}

// describe fills the answer to LOOKUP and to what creates a name.
func describe(ctx context.Context, n Node, out *fuse.EntryOut) error {
	b := n.base()
	st, lookup, err := b.lookupStat(ctx)
	if err != nil {
		return err
	}
	st.fill(&out.Attr, n.fileType(), b.number())
	out.SetEntryTimeout(b.Policy.entry(b.env()))
	out.SetAttrTimeout(lookup.time())
	return nil
}

// entry is how long a name stays in this tree.
func (p Policy) entry(env *Env) time.Duration {
	if p.Moves && env.Epoch == nil {
		return 0
	}
	return p.Entry.time()
}

func (b *Base) getattr(ctx context.Context, fileType uint32, out *fuse.AttrOut) syscall.Errno {
	st, err := b.stat(ctx)
	if err != nil {
		return b.env().Hush(err)
	}
	st.fill(&out.Attr, fileType, b.number())
	out.SetTimeout(b.Policy.Attr.time())
	return 0
}

// setattr refuses every change of mode and owner that would be one, ignores
// times, and asks size about a new size.
func (b *Base) setattr(ctx context.Context, in *fuse.SetAttrIn, fileType uint32, out *fuse.AttrOut, size func(uint64) error) syscall.Errno {
	st, err := b.stat(ctx)
	if errors.Is(err, Stale) {
		return b.env().Hush(err) // a program that saved a message, and sets its mode
	}
	if err != nil {
		return b.fail(ctx, "setattr", "", err)
	}
	if mode, ok := in.GetMode(); ok && fileType != syscall.S_IFLNK && mode&0o7777 != st.Perm&0o7777 {
		return b.fail(ctx, "chmod", "", Immutable)
	}
	if uid, ok := in.GetUID(); ok && uid != st.UID {
		return b.fail(ctx, "chown", "", Immutable)
	}
	if gid, ok := in.GetGID(); ok && gid != st.GID {
		return b.fail(ctx, "chown", "", Immutable)
	}
	if n, ok := in.GetSize(); ok {
		if err := size(n); err != nil {
			return b.fail(ctx, "truncate", "", err)
		}
		if _, err := b.stat(ctx); errors.Is(err, Stale) {
			// It had the size, and is another message now.
			st.Size = int64(n)
			st.fill(&out.Attr, fileType, b.number())
			return 0
		}
	}
	return b.getattr(ctx, fileType, out)
}

func refuseSize(uint64) error { return Immutable }

// Statfs answers with the figures of the filesystem beneath.
func (b *Base) Statfs(ctx context.Context, out *fuse.StatfsOut) syscall.Errno {
	var st unix.Statfs_t
	if err := unix.Statfs(b.env().Beneath, &st); err != nil {
		return b.fail(ctx, "statfs", "", err)
	}
	out.Blocks, out.Bfree, out.Bavail = st.Blocks, st.Bfree, st.Bavail
	out.Files, out.Ffree = st.Files, st.Ffree
	out.Bsize, out.Frsize = uint32(st.Bsize), uint32(st.Frsize)
	out.NameLen = 255
	return 0
}
