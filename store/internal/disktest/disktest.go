// Package disktest is a disk that fails on purpose, for tests of what the
// store's rooms do then. Nothing but tests imports it.
package disktest

import (
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// Failing passes every call on to the disk below, except that the n-th call
// that changes something fails with EIO and does nothing. Reads never fail. It
// is safe for concurrent use.
type Failing struct {
	disk.FS

	mu    sync.Mutex
	calls int
	at    int
	// down: all changes fail from the n-th on, as after a crash.
	down bool
}

// New returns a disk that does not fail yet.
func New(below disk.FS) *Failing { return &Failing{FS: below} }

// FailAt makes the n-th changing call from now fail, counted from 1, and with
// down all that follow it; 0 makes none fail.
func (d *Failing) FailAt(n int, down bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls, d.at, d.down = 0, n, down
}

// Calls returns the number of changing calls since FailAt.
func (d *Failing) Calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

func (d *Failing) step(op, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	if d.at > 0 && (d.calls == d.at || d.down && d.calls > d.at) {
		return &fs.PathError{Op: op, Path: name, Err: syscall.EIO}
	}
	return nil
}

// OpenFile counts as a change when it may write.
func (d *Failing) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	if flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE) == 0 {
		return d.FS.OpenFile(name, flag, perm)
	}
	if err := d.step("open", name); err != nil {
		return nil, err
	}
	f, err := d.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &file{File: f, d: d}, nil
}

// Rename and the methods below count as one change each.
func (d *Failing) Rename(oldName, newName string) error {
	if err := d.step("rename", oldName); err != nil {
		return err
	}
	return d.FS.Rename(oldName, newName)
}

// RenameNoReplace is a change.
func (d *Failing) RenameNoReplace(oldName, newName string) error {
	if err := d.step("rename", oldName); err != nil {
		return err
	}
	return d.FS.RenameNoReplace(oldName, newName)
}

// Remove is a change.
func (d *Failing) Remove(name string) error {
	if err := d.step("remove", name); err != nil {
		return err
	}
	return d.FS.Remove(name)
}

// RemoveAll is a change.
func (d *Failing) RemoveAll(name string) error {
	if err := d.step("remove", name); err != nil {
		return err
	}
	return d.FS.RemoveAll(name)
}

// Mkdir is a change.
func (d *Failing) Mkdir(name string, perm fs.FileMode) error {
	if err := d.step("mkdir", name); err != nil {
		return err
	}
	return d.FS.Mkdir(name, perm)
}

// MkdirAll is a change.
func (d *Failing) MkdirAll(name string, perm fs.FileMode) error {
	if err := d.step("mkdir", name); err != nil {
		return err
	}
	return d.FS.MkdirAll(name, perm)
}

// Symlink is a change.
func (d *Failing) Symlink(target, name string) error {
	if err := d.step("symlink", name); err != nil {
		return err
	}
	return d.FS.Symlink(target, name)
}

// Link is a change.
func (d *Failing) Link(oldName, newName string) error {
	if err := d.step("link", newName); err != nil {
		return err
	}
	return d.FS.Link(oldName, newName)
}

// SyncDir is a change.
func (d *Failing) SyncDir(name string) error {
	if err := d.step("sync", name); err != nil {
		return err
	}
	return d.FS.SyncDir(name)
}

// file is a file open for writing.
type file struct {
	disk.File
	d *Failing
}

func (f *file) Write(p []byte) (int, error) {
	if err := f.d.step("write", f.Name()); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *file) Sync() error {
	if err := f.d.step("sync", f.Name()); err != nil {
		return err
	}
	return f.File.Sync()
}

var _ disk.FS = (*Failing)(nil)
