package storetest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// Fault says which call fails, and how.
type Fault struct {
	// At is the call, counted from 1 since Arm; 0 fails none.
	At int
	// Err is what the call reports, EIO when 0.
	Err syscall.Errno
	// Down fails all counted calls after it too.
	Down bool
	// Late performs the call and then reports the failure.
	Late bool
	// Torn lets a failing write leave its first half.
	Torn bool
	// Reads counts, and fails, the calls that change nothing, instead of those
	// that change something.
	Reads bool
	// Only counts nothing but the calls of which it says so; nil counts all. It is
	// asked while the call waits and must not use the disk.
	Only func(op, name string) bool
}

// Disk is the operating system's disk with faults and a memory. It never
// syncs in earnest: what a sync would do is what it remembers. It is safe for
// concurrent use; calls that change something happen one after the other.
type Disk struct {
	below disk.FS

	mu    sync.Mutex
	fault Fault
	calls int
	hit   string
	rec   *recorder             // nil unless remembering
	trace func(op, name string) // nil unless tracing
}

var _ disk.FS = (*Disk)(nil)

// NewDisk returns a disk that neither fails nor remembers yet.
func NewDisk() *Disk { return &Disk{below: disk.OS} }

// Arm sets the fault and begins to count calls anew.
func (d *Disk) Arm(f Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.Err == 0 {
		f.Err = syscall.EIO
	}
	d.fault, d.calls, d.hit = f, 0, ""
}

// Calls returns how many calls were counted since Arm.
func (d *Disk) Calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// Hit describes the first call that failed since Arm, "" when none did.
func (d *Disk) Hit() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hit
}

// Trace has f called after every call that changed something, with what it did
// and to which path, of a renaming the new one; nil ends it. The call is not
// over yet: f may look at the disk, but not through d.
func (d *Disk) Trace(f func(op, name string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trace = f
}

// count notes a call; fails is set when it has to fail.
//
// Requires d.mu.
func (d *Disk) count(op, name string, read bool) (fails bool) {
	f := d.fault
	if read != f.Reads || f.Only != nil && !(f.Down && d.hit != "") && !f.Only(op, name) {
		return false
	}
	d.calls++
	if f.At == 0 || d.calls < f.At || d.calls > f.At && !f.Down {
		return false
	}
	if d.hit == "" {
		d.hit = fmt.Sprintf("%s %s (call %d)", op, name, d.calls)
	}
	return true
}

// change runs a call that changes something: do performs it, note remembers
// it.
func (d *Disk) change(op, name string, do func() error, note func(r *recorder)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	fails := d.count(op, name, false)
	if fails && !d.fault.Late {
		return &fs.PathError{Op: op, Path: name, Err: d.fault.Err}
	}
	if d.rec != nil {
		d.rec.know(name)
	}
	if err := do(); err != nil {
		return err
	}
	if d.rec != nil && note != nil {
		note(d.rec)
	}
	if d.trace != nil {
		d.trace(op, name)
	}
	if fails {
		return &fs.PathError{Op: op, Path: name, Err: d.fault.Err}
	}
	return nil
}

// look counts a call that reads.
func (d *Disk) look(op, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count(op, name, true) {
		return &fs.PathError{Op: op, Path: name, Err: d.fault.Err}
	}
	return nil
}

// OpenFile counts as a change when it may make or empty a file, else as a
// read.
func (d *Disk) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	if flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE|os.O_TRUNC) == 0 {
		if err := d.look("open", name); err != nil {
			return nil, err
		}
		return d.below.OpenFile(name, flag, perm)
	}
	f := &file{d: d, append: flag&os.O_APPEND != 0}
	err := d.change("open", name, func() (err error) {
		f.File, err = d.below.OpenFile(name, flag, perm)
		return err
	}, func(r *recorder) {
		f.ino = r.open(name, f.File, flag&os.O_TRUNC != 0)
	})
	if err != nil {
		if f.File != nil {
			_ = f.Close()
		}
		return nil, err
	}
	return f, nil
}

// ReadFile and the methods down to Readlink read.
func (d *Disk) ReadFile(name string) ([]byte, error) {
	if err := d.look("read", name); err != nil {
		return nil, err
	}
	return d.below.ReadFile(name)
}

// ReadDir reads.
func (d *Disk) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := d.look("readdir", name); err != nil {
		return nil, err
	}
	return d.below.ReadDir(name)
}

// OpenDir reads; each file that is read from the directory counts too.
func (d *Disk) OpenDir(name string) (disk.Dir, error) {
	if err := d.look("opendir", name); err != nil {
		return nil, err
	}
	dir, err := d.below.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &openDir{Dir: dir, d: d, name: name}, nil
}

// Lstat reads.
func (d *Disk) Lstat(name string) (fs.FileInfo, error) {
	if err := d.look("lstat", name); err != nil {
		return nil, err
	}
	return d.below.Lstat(name)
}

// Stat reads.
func (d *Disk) Stat(name string) (fs.FileInfo, error) {
	if err := d.look("stat", name); err != nil {
		return nil, err
	}
	return d.below.Stat(name)
}

// Readlink reads.
func (d *Disk) Readlink(name string) (string, error) {
	if err := d.look("readlink", name); err != nil {
		return "", err
	}
	return d.below.Readlink(name)
}

// Rename is one change.
func (d *Disk) Rename(oldName, newName string) error {
	return d.change("rename", newName,
		func() error { d.knowLocked(oldName); return d.below.Rename(oldName, newName) },
		func(r *recorder) { r.rename(oldName, newName) })
}

// RenameNoReplace is one change.
func (d *Disk) RenameNoReplace(oldName, newName string) error {
	return d.change("rename", newName,
		func() error { d.knowLocked(oldName); return d.below.RenameNoReplace(oldName, newName) },
		func(r *recorder) { r.rename(oldName, newName) })
}

// knowLocked lets the memory learn of a name before it goes.
//
// Requires d.mu.
func (d *Disk) knowLocked(name string) {
	if d.rec != nil {
		d.rec.know(name)
	}
}

// Remove is one change.
func (d *Disk) Remove(name string) error {
	return d.change("remove", name, func() error { return d.below.Remove(name) }, func(r *recorder) { r.remove(name) })
}

// RemoveAll is as many changes as it removes names, so that it can stop
// anywhere between.
func (d *Disk) RemoveAll(name string) error {
	fi, err := d.below.Lstat(name)
	if err != nil {
		return nil //nolint:nilerr // as os.RemoveAll: what is not there is removed
	}
	if fi.IsDir() {
		entries, err := d.below.ReadDir(name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := d.RemoveAll(filepath.Join(name, e.Name())); err != nil {
				return err
			}
		}
	}
	return d.Remove(name)
}

// Mkdir is one change.
func (d *Disk) Mkdir(name string, perm fs.FileMode) error {
	return d.change("mkdir", name, func() error { return d.below.Mkdir(name, perm) }, func(r *recorder) { r.mkdir(name, perm) })
}

// MkdirAll is a change for each directory that it makes.
func (d *Disk) MkdirAll(name string, perm fs.FileMode) error {
	if fi, err := d.below.Stat(name); err == nil {
		if fi.IsDir() {
			return nil
		}
		return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
	}
	if parent := filepath.Dir(name); parent != name {
		if err := d.MkdirAll(parent, perm); err != nil {
			return err
		}
	}
	return d.Mkdir(name, perm)
}

// Symlink is one change.
func (d *Disk) Symlink(target, name string) error {
	return d.change("symlink", name, func() error { return d.below.Symlink(target, name) }, func(r *recorder) { r.symlink(target, name) })
}

// Link is one change.
func (d *Disk) Link(oldName, newName string) error {
	return d.change("link", newName,
		func() error { d.knowLocked(oldName); return d.below.Link(oldName, newName) },
		func(r *recorder) { r.link(oldName, newName) })
}

// Chmod is one change; it is remembered as durable at once.
func (d *Disk) Chmod(name string, perm fs.FileMode) error {
	return d.change("chmod", name, func() error { return d.below.Chmod(name, perm) }, nil)
}

// Lchown is one change.
func (d *Disk) Lchown(name string, uid, gid int) error {
	return d.change("chown", name, func() error { return d.below.Lchown(name, uid, gid) }, nil)
}

// SyncDir is one change: from then on the directory's names are remembered.
func (d *Disk) SyncDir(name string) error {
	return d.change("syncdir", name, func() error {
		_, err := d.below.Stat(name)
		return err
	}, func(r *recorder) { r.syncDir(name) })
}

// openDir counts the reading of a directory's files.
type openDir struct {
	disk.Dir
	d    *Disk
	name string
}

func (o *openDir) Names() ([]string, error) {
	if err := o.d.look("readdir", o.name); err != nil {
		return nil, err
	}
	return o.Dir.Names()
}

func (o *openDir) ReadInto(name string, buf []byte) ([]byte, error) {
	if err := o.d.look("read", filepath.Join(o.name, name)); err != nil {
		return nil, err
	}
	return o.Dir.ReadInto(name, buf)
}

func (o *openDir) ReadStat(name string, buf []byte) ([]byte, disk.Stat, error) {
	if err := o.d.look("read", filepath.Join(o.name, name)); err != nil {
		return nil, disk.Stat{}, err
	}
	return o.Dir.ReadStat(name, buf)
}

func (o *openDir) Lstat(name string) (disk.Stat, error) {
	if err := o.d.look("lstat", filepath.Join(o.name, name)); err != nil {
		return disk.Stat{}, err
	}
	return o.Dir.Lstat(name)
}

// file is a file open for writing.
type file struct {
	disk.File
	d      *Disk
	append bool
	pos    int // guarded by d.mu: where the next write goes
	ino    int // the memory's number of it
}

// Read moves the place where the next write goes.
func (f *file) Read(p []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	n, err := f.File.Read(p)
	f.pos += n
	return n, err
}

func (f *file) Write(p []byte) (n int, err error) {
	d := f.d
	d.mu.Lock()
	defer d.mu.Unlock()
	fails := d.count("write", f.Name(), false)
	full := p
	switch {
	case fails && d.fault.Torn:
		p = p[:len(p)/2]
	case fails && !d.fault.Late:
		return 0, &fs.PathError{Op: "write", Path: f.Name(), Err: d.fault.Err}
	}
	if len(p) > 0 || len(full) == 0 {
		if n, err = f.File.Write(p); err != nil {
			return n, err
		}
	}
	if d.rec != nil {
		f.pos = d.rec.write(f.ino, f.pos, p, f.append)
	}
	if d.trace != nil {
		d.trace("write", f.Name())
	}
	if fails {
		return n, &fs.PathError{Op: "write", Path: f.Name(), Err: d.fault.Err}
	}
	return n, nil
}

// Sync makes the memory keep the file's data.
func (f *file) Sync() error {
	return f.d.change("sync", f.Name(), func() error { return nil }, func(r *recorder) { r.sync(f.ino) })
}

func (f *file) Chmod(mode fs.FileMode) error {
	return f.d.change("fchmod", f.Name(), func() error { return f.File.Chmod(mode) }, func(r *recorder) { r.chmod(f.ino, mode) })
}

func (f *file) Chown(uid, gid int) error {
	return f.d.change("fchown", f.Name(), func() error { return f.File.Chown(uid, gid) }, nil)
}
