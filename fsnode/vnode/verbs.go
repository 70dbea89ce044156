package vnode

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// maxName is the longest name, as statfs says. The kernel lets longer ones
// through.
const maxName = 255

// Verbs are what the tree does to the names in a directory. A nil one is
// refused as Immutable.
type Verbs struct {
	Mkdir   func(ctx context.Context, name string) (Found, error)
	Rmdir   func(ctx context.Context, name string) error
	Unlink  func(ctx context.Context, name string) error
	Symlink func(ctx context.Context, target, name string) (Found, error)
	// Create makes a file, or returns the one that is there unless flags have
	// O_EXCL. The file is opened with these flags then.
	Create func(ctx context.Context, name string, flags, mode uint32) (Found, error)
	// Rename moves name to newName in another directory of this tree, which
	// may be the same one.
	Rename func(ctx context.Context, name string, to *List, newName string, noReplace bool) error
	// Exchange lets two names of this tree change places; nil is BadFlags.
	Exchange func(ctx context.Context, name string, to *List, newName string) error
}

// make runs a verb that makes a name and answers with what it made.
func (l *List) make(ctx context.Context, op, name string, out *fuse.EntryOut, verb func(context.Context) (Found, error)) (*fs.Inode, syscall.Errno) {
	if len(name) > maxName {
		return nil, syscall.ENAMETOOLONG
	}
	ctx, stop := patient(ctx)
	defer stop()
	f, err := verb(ctx)
	if err != nil {
		return nil, l.fail(ctx, op, name, err)
	}
	in, err := l.answer(ctx, f, out)
	if err != nil {
		return nil, l.fail(ctx, op, name, err)
	}
	return in, 0
}

// Mkdir makes a directory.
func (l *List) Mkdir(ctx context.Context, name string, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return l.make(ctx, "mkdir", name, out, func(ctx context.Context) (Found, error) {
		if l.verbs().Mkdir == nil {
			return Found{}, Immutable
		}
		return l.verbs().Mkdir(ctx, name)
	})
}

// Symlink makes a symbolic link; what it makes is answered as a link even
// where its meaning is another.
func (l *List) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return l.make(ctx, "symlink", name, out, func(ctx context.Context) (Found, error) {
		if l.verbs().Symlink == nil {
			return Found{}, Immutable
		}
		return l.verbs().Symlink(ctx, target, name)
	})
}

// Create makes a file and opens it.
func (l *List) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	var f Found
	in, errno := l.make(ctx, "create", name, out, func(ctx context.Context) (Found, error) {
		if l.verbs().Create == nil {
			return Found{}, Immutable
		}
		var err error
		f, err = l.verbs().Create(ctx, name, flags, mode)
		return f, err
	})
	if errno != 0 {
		return nil, nil, 0, errno
	}
	o, ok := f.Node.(fs.NodeOpener)
	if !ok {
		return nil, nil, 0, l.fail(ctx, "create", name, Immutable)
	}
	fh, open, errno := o.Open(ctx, flags)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return in, fh, open, 0
}

// Mknod refuses.
func (l *List) Mknod(ctx context.Context, name string, _, _ uint32, _ *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, l.fail(ctx, "mknod", name, Immutable)
}

// Link refuses: no object here has two names.
func (l *List) Link(ctx context.Context, _ fs.InodeEmbedder, name string, _ *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, l.fail(ctx, "link", name, Immutable)
}

// Unlink removes a name that is not a directory.
func (l *List) Unlink(ctx context.Context, name string) syscall.Errno {
	return l.remove(ctx, "unlink", name, l.verbs().Unlink)
}

// Rmdir removes a directory.
func (l *List) Rmdir(ctx context.Context, name string) syscall.Errno {
	return l.remove(ctx, "rmdir", name, l.verbs().Rmdir)
}

func (l *List) remove(ctx context.Context, op, name string, verb func(context.Context, string) error) syscall.Errno {
	if verb == nil {
		return l.fail(ctx, op, name, Immutable)
	}
	ctx, stop := patient(ctx)
	defer stop()
	if err := verb(ctx, name); err != nil {
		return l.fail(ctx, op, name, err)
	}
	return 0
}

// asList is implemented by every directory of this package's kind, also where
// a type of the tree embeds it.
type asList interface{ list() *List }

func (l *List) list() *List { return l }

// Rename moves a name.
func (l *List) Rename(ctx context.Context, name string, parent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if len(newName) > maxName {
		return syscall.ENAMETOOLONG
	}
	ctx, stop := patient(ctx)
	defer stop()
	if err := l.rename(ctx, name, parent, newName, flags); err != nil {
		return l.fail(ctx, "rename", name, err)
	}
	// The kernel moves the name when it has the answer, whatever the rename
	// meant, and keeps it for as long as it was good in its old place.
	if l.env().Epoch != nil {
		l.env().Epoch()
	}
	return 0
}

func (l *List) rename(ctx context.Context, name string, parent fs.InodeEmbedder, newName string, flags uint32) error {
	to, ok := parent.(asList)
	switch {
	case !ok:
		return CrossDevice
	case flags == unix.RENAME_EXCHANGE && l.verbs().Exchange != nil:
		return l.verbs().Exchange(ctx, name, to.list(), newName)
	case flags&^unix.RENAME_NOREPLACE != 0:
		return BadFlags
	case l.verbs().Rename == nil:
		return Immutable
	}
	return l.verbs().Rename(ctx, name, to.list(), newName, flags&unix.RENAME_NOREPLACE != 0)
}

var (
	_ fs.NodeMkdirer   = (*List)(nil)
	_ fs.NodeSymlinker = (*List)(nil)
	_ fs.NodeCreater   = (*List)(nil)
	_ fs.NodeMknoder   = (*List)(nil)
	_ fs.NodeLinker    = (*List)(nil)
	_ fs.NodeUnlinker  = (*List)(nil)
	_ fs.NodeRmdirer   = (*List)(nil)
	_ fs.NodeRenamer   = (*List)(nil)
)
