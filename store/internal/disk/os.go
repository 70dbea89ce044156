package disk

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"sort"
	"syscall"

	"golang.org/x/sys/unix"
)

// OS is the real disk. It has no state.
var OS FS = osFS{}

type osFS struct{}

// OpenFile does without os.OpenFile's attempt to have the file polled: five
// system calls, of which nothing comes of a regular file.
func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	for {
		fd, err := unix.Open(name, flag|unix.O_CLOEXEC, uint32(perm.Perm()))
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if err != syscall.EINTR {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// ReadFile reads a small file into the stack first: most of them are, and a
// buffer for each would be most of what a commit leaves for the collector.
func (osFS) ReadFile(name string) ([]byte, error) {
	fd, err := openRetry(unix.AT_FDCWD, name, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var small [4 << 10]byte
	n, err := unix.Read(fd, small[:])
	for err == syscall.EINTR {
		n, err = unix.Read(fd, small[:])
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	if n < len(small) { // of a regular file, a short read is the end
		return bytes.Clone(small[:n]), nil
	}
	buf, err := growFor(fd, small[:])
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return readRest(fd, name, buf)
}

func (osFS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (osFS) Lstat(name string) (fs.FileInfo, error)     { return os.Lstat(name) }
func (osFS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (osFS) Readlink(name string) (string, error)       { return os.Readlink(name) }
func (osFS) Rename(oldName, newName string) error       { return os.Rename(oldName, newName) }
func (osFS) Remove(name string) error                   { return os.Remove(name) }
func (osFS) RemoveAll(name string) error                { return os.RemoveAll(name) }
func (osFS) Mkdir(name string, perm fs.FileMode) error  { return os.Mkdir(name, perm) }
func (osFS) Symlink(target, name string) error          { return os.Symlink(target, name) }
func (osFS) Link(oldName, newName string) error         { return os.Link(oldName, newName) }
func (osFS) Chmod(name string, perm fs.FileMode) error  { return os.Chmod(name, perm) }
func (osFS) Lchown(name string, uid, gid int) error     { return os.Lchown(name, uid, gid) }

func (osFS) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }

func (osFS) RenameNoReplace(oldName, newName string) error {
	return renameNoReplace(oldName, newName)
}

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) OpenDir(name string) (Dir, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return &osDir{f: f, fd: int(f.Fd())}, nil
}

type osDir struct {
	f  *os.File
	fd int
}

func (d *osDir) Names() ([]string, error) {
	if _, err := d.f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	names, err := d.f.Readdirnames(-1)
	sort.Strings(names)
	return names, err
}

func (d *osDir) ReadInto(name string, buf []byte) ([]byte, error) {
	return readAt(d.fd, name, unix.O_NOFOLLOW, buf)
}

func (d *osDir) Lstat(name string) (Stat, error) { return lstatAt(d.fd, name) }

func (d *osDir) Close() error { return d.f.Close() }

// firstRead is the buffer that a first read gets when the caller has none;
// most history files and every usual meta.json fit.
const firstRead = 16 << 10

// readAt reads a whole file with open, read, close: os.ReadFile's stat, poller
// registration and second read cost more than the read itself. O_NONBLOCK
// keeps a FIFO from blocking the open.
func readAt(dirfd int, name string, flags int, buf []byte) ([]byte, error) {
	fd, err := openRetry(dirfd, name, flags)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	if cap(buf) == 0 {
		buf = make([]byte, 0, firstRead)
	}
	return readRest(fd, name, buf[:0])
}

// readRest reads to the end of a file, behind what buf holds.
func readRest(fd int, name string, buf []byte) ([]byte, error) {
	for {
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		buf = buf[:len(buf)+n]
		if len(buf) < cap(buf) { // of a regular file, a short read is the end
			return buf, nil
		}
		if buf, err = growFor(fd, buf); err != nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}
	}
}

// growFor makes room for the rest of a file. What is not a regular file has no
// rest that could be waited for: a link to a device would never end.
func growFor(fd int, buf []byte) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errNotRegular
	}
	size := max(int(st.Size)+1, 2*cap(buf)) // +1: the end shows as a short read
	grown := make([]byte, len(buf), size)
	copy(grown, buf)
	return grown, nil
}

var errNotRegular = errors.New("not a regular file")

func openRetry(dirfd int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dirfd, name, flags|unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}
