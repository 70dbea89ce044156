package vnode

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Table is the fixed content of a directory, in the order in which it is
// listed. Its Entries and Find are those of a List.
type Table []Row

// Row is one name of a Table.
type Row struct {
	Name  string
	Found Found
	// Show, when not nil, tells whether the name is there at the moment.
	Show func() bool
}

// Entries lists the names that are there.
func (t Table) Entries(context.Context) ([]fuse.DirEntry, error) {
	out := make([]fuse.DirEntry, 0, len(t))
	for _, r := range t {
		if r.Show == nil || r.Show() {
			out = append(out, r.Found.Entry(r.Name))
		}
	}
	return out, nil
}

// Find returns the node of a name that is there. A name that is not in the
// table never will be: where the directory has nothing else, the kernel need
// not ask for it again.
func (t Table) Find(_ context.Context, name string) (Found, error) {
	for _, r := range t {
		switch {
		case r.Name != name:
		case r.Show == nil || r.Show():
			return r.Found, nil
		default:
			return Found{}, NotFound
		}
	}
	return Found{Absent: time.Hour}, NotFound
}

// Has reports whether the table has a name, there at the moment or not.
func (t Table) Has(name string) bool {
	for _, r := range t {
		if r.Name == name {
			return true
		}
	}
	return false
}

// Entry is the directory entry of a found node.
func (f Found) Entry(name string) fuse.DirEntry {
	if f.Foreign != nil {
		return fuse.DirEntry{Name: name, Mode: syscall.S_IFDIR, Ino: Ino(f.Identity)}
	}
	return fuse.DirEntry{Name: name, Mode: f.Node.fileType(), Ino: f.Node.base().number()}
}

// FileEntry is the directory entry of a file with an identity.
func FileEntry(name, identity string) fuse.DirEntry {
	return fuse.DirEntry{Name: name, Mode: syscall.S_IFREG, Ino: Ino(identity)}
}

// LinkEntry is the directory entry of a link with an identity.
func LinkEntry(name, identity string) fuse.DirEntry {
	return fuse.DirEntry{Name: name, Mode: syscall.S_IFLNK, Ino: Ino(identity)}
}

// DirEntry is the directory entry of a directory with an identity.
func DirEntry(name, identity string) fuse.DirEntry {
	return fuse.DirEntry{Name: name, Mode: syscall.S_IFDIR, Ino: Ino(identity)}
}
