// Package disk is the one small interface through which the store touches the
// disk, so that tests can make it fail or forget, and the one function that
// writes a file for good.
//
// FS holds what the store needs of an operating system, and OS is the real
// one. WriteAtomic is the durable write of reference 2.2: a private temporary
// file beside the target, fsync, rename, fsync of the directory. Unlike the
// peer it reports a failed sync of the directory: what is not known to be
// durable is not acknowledged.
//
// The daemon may run as root on a store that belongs to a user. Therefore a
// replaced file keeps its owner and mode, and a new file or directory takes
// the owner of the directory that it is made in.
//
// Nothing here locks: who writes holds the lock of what is written.
package disk

import (
	"io"
	"io/fs"
)

// File is an open file; *os.File is one.
type File interface {
	io.Reader
	io.Writer
	io.ReaderAt
	Sync() error
	Close() error
	Stat() (fs.FileInfo, error)
	Chmod(mode fs.FileMode) error
	Chown(uid, gid int) error
	Name() string
	Fd() uintptr
}

// FS is the disk. Errors are *fs.PathError or *os.LinkError with the errno
// inside, as package os returns them. Implementations are safe for concurrent
// use.
type FS interface {
	// OpenFile is os.OpenFile.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// ReadFile returns a file's content. It never blocks on a FIFO.
	ReadFile(name string) ([]byte, error)
	// ReadDir returns a directory's entries sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	// OpenDir opens a directory from which many files are read. A symlink in
	// its place is not followed.
	OpenDir(name string) (Dir, error)
	Lstat(name string) (fs.FileInfo, error)
	Stat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
	// Rename replaces newName atomically.
	Rename(oldName, newName string) error
	// RenameNoReplace fails with fs.ErrExist when newName exists.
	RenameNoReplace(oldName, newName string) error
	Remove(name string) error
	RemoveAll(name string) error
	Mkdir(name string, perm fs.FileMode) error
	MkdirAll(name string, perm fs.FileMode) error
	Symlink(target, name string) error
	Link(oldName, newName string) error
	Chmod(name string, perm fs.FileMode) error
	Lchown(name string, uid, gid int) error
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
}

// Dir is an open directory. Reading its files costs a third of ReadFile: no
// path is walked, nothing is stat'ed, the buffer is the caller's. It is not
// safe for concurrent use; open one for each goroutine.
type Dir interface {
	// Names returns the names in the directory in byte order.
	Names() ([]string, error)
	// ReadInto reads a file of this directory into buf[:0], growing it when
	// it is too small, and returns what it read. The result is valid until
	// buf is used again. A symlink is not followed: it fails with ELOOP.
	ReadInto(name string, buf []byte) ([]byte, error)
	// ReadStat is ReadInto of a regular file, with the Stat that it had when the
	// reading began. The name may be a path below this directory. What is no
	// regular file is an error.
	ReadStat(name string, buf []byte) ([]byte, Stat, error)
	// Lstat is lstat of a name in this directory, or of a path below it. It
	// may be called from several goroutines at once.
	Lstat(name string) (Stat, error)
	Close() error
}
