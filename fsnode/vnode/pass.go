package vnode

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Removal is a name that is about to be removed.
type Removal struct {
	Dir  int           // a descriptor of its directory, good during the call
	Name string        // in it
	Size int64         // of a regular file, in bytes; 0 for a link
	Age  time.Duration // since its content last changed
	// Changed is when anything of it last changed (its ctime).
	Changed time.Time
	// Replaced: another file is renamed to the name.
	Replaced bool
}

// PassConfig says which directory a Pass shows and how. Only Open is required.
//
// None of the functions may touch the mount or call back into the Pass, and
// all of them must be quick: Open runs at nearly every request.
type PassConfig struct {
	// Open returns a descriptor of the directory (O_PATH is enough), which
	// the Pass closes. It must follow no symlink that others can plant;
	// OpenBeneath helps. An error that is fs.ErrNotExist (ENOENT) means that
	// the directory is not there yet: it lists as empty.
	Open func(ctx context.Context) (dirfd int, err error)
	// Ensure makes the directory, before the first thing is created in it.
	// nil: creating in a missing directory is ENOENT.
	Ensure func(ctx context.Context) error
	// ReadOnly reports whether changes are refused now. nil: never.
	ReadOnly func() bool
	// Refuse is asked for the errno of such a refusal, and may keep a record
	// of it. nil: EROFS.
	Refuse func() syscall.Errno
	// OnChange is called after each successful change, and when a file that
	// was open for writing is closed changed. It may be called too often.
	OnChange func()
	// OnRemove, when not nil, is called in the place of OnChange after a name
	// was removed.
	OnRemove func()
	// Removing, when not nil, is called before a name is removed or replaced whose content
	// may be wanted again: not of an empty file, and not of one that the same
	// process has made. An error refuses the removal. It may take its time.
	Removing func(ctx context.Context, r Removal) error
	// Errno turns the errors of Open and Ensure into what the caller sees.
	// nil: an errno inside is that errno, fs.ErrNotExist is ENOENT, anything
	// else EIO.
	Errno func(error) syscall.Errno
	// Salt goes into the inode numbers, so that two trees in one mount whose
	// disks number alike do not look like hard links of each other. All
	// members of a PassGroup have the same Salt.
	Salt uint64
	// Group is the set of trees among which rename and link work; nil: this
	// one alone.
	Group *PassGroup
	// Held is what holds the directories that were used last; nil: this tree's
	// own.
	Held *PassHeld
	// Block reports names at the top level that are hidden: they are not
	// listed, are ENOENT, and may not be created (EPERM).
	Block func(name string) bool
	// Links are symlinks at the top level that are not on the disk, by name;
	// the value is their target. They hide what the disk has under the name
	// and cannot be removed or replaced (EPERM).
	Links map[string]string
	// Absent fills the attributes of the directory while it is not there:
	// owner and times. Mode and link count are set already. nil: the daemon's
	// user, 1970.
	Absent func(out *fuse.Attr)
	// Follow, when not nil, reports whether Renew is called, from now on, after
	// each change that others make to the directory itself and to the names in
	// it. Then the kernel may keep the directory's attributes for Keep, and its
	// listing; what is in it is asked for each time all the same.
	Follow func() bool
	Keep   time.Duration
	// Statfs answers for the directory while it is not there. nil: ENOENT.
	Statfs func(ctx context.Context, out *fuse.StatfsOut) syscall.Errno
	// NoPassthrough keeps file data going through the daemon where the kernel
	// could read and write the disk's files itself.
	NoPassthrough bool
	// Handleless tells that the kernel opens files without asking, see
	// Env.Handleless.
	Handleless bool
	// WasRead, when not nil, is called with a file of a Handleless tree of
	// which the kernel is being given pages. Others may write to it without a
	// sign (mmap leaves its time alone), so Changed is to be called soon, from
	// no request: it waits for the pages that are being read.
	WasRead func(*Pass)

	keep *passKeep // made by NewPass where Follow is set
}

// PassGroup is a set of Pass trees on one disk, a session's workdir and
// attachments, say, among which files can be renamed and linked. Between
// groups that is EXDEV. The zero value is not usable; see NewPassGroup.
type PassGroup struct {
	// mu is held for reading while a node's place is looked up and opened,
	// and for writing while a rename changes places. It is taken before
	// go-fuse's own locks, and held across single system calls only.
	mu    sync.RWMutex
	moves map[*gofs.Inode]passMove

	pins atomic.Int64 // descriptors held by Pass.pin
}

// NewPassGroup returns an empty group, to be put into several PassConfigs.
func NewPassGroup() *PassGroup {
	return &PassGroup{moves: make(map[*gofs.Inode]passMove)}
}

// Pass is a file, directory or symlink of a real directory tree, shown in the
// mount with the semantics of the disk beneath.
//
// A node knows no path and holds no descriptor (a kernel that remembers
// 100,000 of them must not need 100,000 descriptors). At each request the
// names from the root down to it are opened in one openat2(2) that follows no
// symlink and leaves neither the root nor its file system (RESOLVE_BENEATH,
// _NO_SYMLINKS, _NO_MAGICLINKS, _NO_XDEV), and what was found must be the very
// inode that the node stands for: device, number, type and birth time. If it
// is another, because somebody changed the disk behind the mount, the answer
// is ESTALE, at which the kernel asks for the names again; a directory that was
// used a moment ago is found where it is now (see hold). Everything else
// happens relative to that descriptor. What is open is reached through its own
// descriptor, so it outlives its name, and so does what loses its name through
// the mount while the kernel still uses it (see pin).
//
// What is created belongs to the owner of the root directory when the daemon
// runs as root. Attributes and names are never cached (timeout 0), except for
// the root's own where it is followed: other processes write the same files in
// place. There are no extended attributes. A mount point below the root is not entered (EXDEV).
type Pass struct {
	gofs.Inode
	group *PassGroup
	salt  uint64
	cfg   *PassConfig // of the root; nil in all nodes below it

	maker atomic.Uint32 // the thread that created it through this mount

	mu   sync.Mutex
	open []*passHandle // what is open of this node
	told passMark      // what was told of a file last, where handleless
}

// NewPass returns the root node of the tree that cfg describes. It may be any
// directory of a bigger tree; its inode number is the caller's choice.
func NewPass(cfg PassConfig) *Pass {
	if cfg.Group == nil {
		cfg.Group = NewPassGroup()
	}
	if cfg.Held == nil {
		cfg.Held = NewPassHeld()
	}
	if cfg.Follow != nil {
		cfg.keep = &passKeep{}
	}
	return &Pass{group: cfg.Group, salt: cfg.Salt, cfg: &cfg}
}

var (
	_ gofs.NodeLookuper       = (*Pass)(nil)
	_ gofs.NodeGetattrer      = (*Pass)(nil)
	_ gofs.NodeSetattrer      = (*Pass)(nil)
	_ gofs.NodeReadlinker     = (*Pass)(nil)
	_ gofs.NodeStatfser       = (*Pass)(nil)
	_ gofs.NodeOpener         = (*Pass)(nil)
	_ gofs.NodeFsyncer        = (*Pass)(nil)
	_ gofs.NodeCopyFileRanger = (*Pass)(nil)
	_ gofs.NodeOpendirHandler = (*Pass)(nil)
	_ gofs.NodeCreater        = (*Pass)(nil)
	_ gofs.NodeTmpfiler       = (*Pass)(nil)
	_ gofs.NodeMkdirer        = (*Pass)(nil)
	_ gofs.NodeMknoder        = (*Pass)(nil)
	_ gofs.NodeSymlinker      = (*Pass)(nil)
	_ gofs.NodeLinker         = (*Pass)(nil)
	_ gofs.NodeUnlinker       = (*Pass)(nil)
	_ gofs.NodeRmdirer        = (*Pass)(nil)
	_ gofs.NodeRenamer        = (*Pass)(nil)
)

func (c *PassConfig) readOnly() bool { return c.ReadOnly != nil && c.ReadOnly() }

// refusal is the errno of a change that readOnly refuses.
func (c *PassConfig) refusal() syscall.Errno {
	if c.Refuse != nil {
		return c.Refuse()
	}
	return syscall.EROFS
}

func (c *PassConfig) changed() {
	if c.OnChange != nil {
		c.OnChange()
	}
}

// hidden reports whether the disk's entry of this name is not shown in the
// root directory.
func (c *PassConfig) hidden(name string) bool {
	if _, ok := c.Links[name]; ok {
		return true
	}
	return c.Block != nil && c.Block(name)
}

// errno is what the caller sees of an error of Open or Ensure.
func (c *PassConfig) errno(err error) syscall.Errno {
	if c.Errno != nil {
		return c.Errno(err)
	}
	return passErrno(err)
}

// passErrno is the errno in an error. Everything below a Pass comes from the
// disk and has one.
func passErrno(err error) syscall.Errno {
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, fs.ErrNotExist):
		return syscall.ENOENT
	case errors.Is(err, context.Canceled):
		return syscall.EINTR
	}
	return syscall.EIO
}

// passMissing keeps the kernel from remembering that a name is not there:
// another process may create it. With a negative timeout set for the whole
// mount go-fuse would, unless the answer brings a timeout of its own.
func passMissing(out *fuse.EntryOut) { out.SetEntryTimeout(time.Nanosecond) }
