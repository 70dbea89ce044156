package vnode

import (
	"hash/fnv"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Stat is what the tree knows of a node's attributes. Everything else is the
// same for all nodes of a type.
type Stat struct {
	Perm  uint32 // permission bits; ignored for links, which are 0777
	Size  int64  // exact size in bytes; ignored for directories
	MTime time.Time
	UID   uint32
	GID   uint32
}

// dirSize is the size of every directory, as most filesystems show it.
const dirSize = 4096

// fill sets every attribute, so that none shows as 0, 1970 or rw-r--r--.
func (s Stat) fill(a *fuse.Attr, fileType uint32, ino uint64) {
	a.Ino = ino
	a.Mode = fileType | s.Perm&0o7777
	a.Nlink = 1
	a.Size = uint64(max(s.Size, 0))
	switch fileType {
	case syscall.S_IFDIR:
		a.Nlink, a.Size = 2, dirSize
	case syscall.S_IFLNK:
		a.Mode = fileType | 0o777
	}
	a.Blksize = 4096
	a.Blocks = (a.Size + 511) / 512
	a.Owner = fuse.Owner{Uid: s.UID, Gid: s.GID}
	t := s.MTime
	if t.Unix() < 1 {
		t = time.Unix(1, 0) // shown as it is, but never as "no time"
	}
	a.SetTimes(&t, &t, &t)
}

// Ino returns the inode number of an identity, a string that names an object
// for as long as it exists ("session/s1/node/0041-l-9f2c"), not the path at
// which it is shown. It is below 1<<63, where go-fuse numbers by itself, and
// neither 0 nor 1.
func Ino(identity string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(identity))
	return max(h.Sum64()&(1<<63-1), 2)
}

// Policy says how long the kernel may keep what it was told of a name and of
// the object behind it.
type Policy struct {
	// Entry is how long the name stays with the object.
	Entry Span
	// Lookup is how long attributes that came with the name are good. It is 0
	// for what changes: a change cannot be told about an object while the
	// kernel is still being given it.
	Lookup Span
	// Attr is how long attributes are good that were asked for.
	Attr Span
	// Moves tells that the name may be taken away, or come to mean another
	// object, in a request that keeps the kernel from being told of the name:
	// Entry is then 0 unless Env.Epoch can have all names asked for again.
	Moves bool
	// Keep lets pages and link targets stay from one open to the next; who
	// sets it notifies the kernel of every change.
	Keep bool
}
