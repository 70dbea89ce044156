package migrate

import (
	"io/fs"
	"sync"
	"syscall"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// downDisk fails at its n-th call, reads included, and with forever at all that
// follow: what a process does after that leaves no trace, as if it had been
// killed.
type downDisk struct {
	disk.FS

	mu      sync.Mutex
	n, at   int
	forever bool
	failed  string
	tell    func() // instead of failing, when not nil
}

func newDownDisk(below disk.FS, at int, forever bool) *downDisk {
	return &downDisk{FS: below, at: at, forever: forever}
}

func (d *downDisk) calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

// breakNow makes everything fail from here on.
func (d *downDisk) breakNow() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at, d.forever = d.n+1, true
}

func (d *downDisk) what() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

func (d *downDisk) step(op, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n++
	if d.at == 0 || d.n < d.at || d.n > d.at && !d.forever {
		return nil
	}
	if d.tell != nil {
		d.tell()
		return nil
	}
	if d.failed == "" {
		d.failed = op + " " + name
	}
	return &fs.PathError{Op: op, Path: name, Err: syscall.EIO}
}

func call[T any](d *downDisk, op, name string, fn func() (T, error)) (T, error) {
	if err := d.step(op, name); err != nil {
		var zero T
		return zero, err
	}
	return fn()
}

func (d *downDisk) do(op, name string, fn func() error) error {
	if err := d.step(op, name); err != nil {
		return err
	}
	return fn()
}

func (d *downDisk) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := call(d, "open", name, func() (disk.File, error) { return d.FS.OpenFile(name, flag, perm) })
	if err != nil {
		return nil, err
	}
	return &downFile{f, d}, nil
}

func (d *downDisk) ReadFile(name string) ([]byte, error) {
	return call(d, "read", name, func() ([]byte, error) { return d.FS.ReadFile(name) })
}

func (d *downDisk) ReadDir(name string) ([]fs.DirEntry, error) {
	return call(d, "readdir", name, func() ([]fs.DirEntry, error) { return d.FS.ReadDir(name) })
}

func (d *downDisk) OpenDir(name string) (disk.Dir, error) {
	return call(d, "opendir", name, func() (disk.Dir, error) { return d.FS.OpenDir(name) })
}

func (d *downDisk) Lstat(name string) (fs.FileInfo, error) {
	return call(d, "lstat", name, func() (fs.FileInfo, error) { return d.FS.Lstat(name) })
}

func (d *downDisk) Stat(name string) (fs.FileInfo, error) {
	return call(d, "stat", name, func() (fs.FileInfo, error) { return d.FS.Stat(name) })
}

func (d *downDisk) Readlink(name string) (string, error) {
	return call(d, "readlink", name, func() (string, error) { return d.FS.Readlink(name) })
}

func (d *downDisk) Rename(from, to string) error {
	return d.do("rename", from, func() error { return d.FS.Rename(from, to) })
}

func (d *downDisk) RenameNoReplace(from, to string) error {
	return d.do("rename", from, func() error { return d.FS.RenameNoReplace(from, to) })
}

func (d *downDisk) Remove(name string) error {
	return d.do("remove", name, func() error { return d.FS.Remove(name) })
}

// RemoveAll that fails has removed a part.
func (d *downDisk) RemoveAll(name string) error {
	if err := d.step("removeall", name); err != nil {
		if d.at == d.calls() {
			_ = d.FS.Remove(name + "/meta.json")
			_ = d.FS.RemoveAll(name + "/.git")
		}
		return err
	}
	return d.FS.RemoveAll(name)
}

func (d *downDisk) Mkdir(name string, perm fs.FileMode) error {
	return d.do("mkdir", name, func() error { return d.FS.Mkdir(name, perm) })
}

func (d *downDisk) MkdirAll(name string, perm fs.FileMode) error {
	return d.do("mkdir", name, func() error { return d.FS.MkdirAll(name, perm) })
}

func (d *downDisk) Symlink(target, name string) error {
	return d.do("symlink", name, func() error { return d.FS.Symlink(target, name) })
}

func (d *downDisk) Link(from, to string) error {
	return d.do("link", from, func() error { return d.FS.Link(from, to) })
}

func (d *downDisk) Chmod(name string, perm fs.FileMode) error {
	return d.do("chmod", name, func() error { return d.FS.Chmod(name, perm) })
}

func (d *downDisk) Lchown(name string, uid, gid int) error {
	return d.do("chown", name, func() error { return d.FS.Lchown(name, uid, gid) })
}

func (d *downDisk) SyncDir(name string) error {
	return d.do("syncdir", name, func() error { return d.FS.SyncDir(name) })
}

// downFile fails as its disk does. Closing always works.
type downFile struct {
	disk.File
	d *downDisk
}

func (f *downFile) Read(p []byte) (int, error) {
	return call(f.d, "read", f.Name(), func() (int, error) { return f.File.Read(p) })
}

// Write that fails has written a part.
func (f *downFile) Write(p []byte) (int, error) {
	if err := f.d.step("write", f.Name()); err != nil {
		if f.d.at == f.d.calls() {
			n, _ := f.File.Write(p[:len(p)/2])
			return n, err
		}
		return 0, err
	}
	return f.File.Write(p)
}

// Sync is only counted: these tests do not cut the power.
func (f *downFile) Sync() error {
	return f.d.do("sync", f.Name(), func() error { return nil })
}
