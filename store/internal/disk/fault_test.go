package disk

import (
	"fmt"
	"io/fs"
)

// faultFS fails the failAt-th call, and every call named in failOps. A failed
// write has written half of its data.
type faultFS struct {
	FS
	failAt  int
	failOps map[string]bool
	hook    func(op string)
	calls   int
	failed  string // the call that failAt made fail
}

var errInjected = fmt.Errorf("injected")

func (f *faultFS) call(op string) error {
	f.calls++
	if f.hook != nil {
		f.hook(op)
	}
	if f.calls == f.failAt {
		f.failed = op
	}
	if f.calls == f.failAt || f.failOps[op] {
		return fmt.Errorf("%s: %w", op, errInjected)
	}
	return nil
}

func (f *faultFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if err := f.call("open"); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultFile{file, f}, nil
}

func (f *faultFS) Lstat(name string) (fs.FileInfo, error) {
	if err := f.call("lstat"); err != nil {
		return nil, err
	}
	return f.FS.Lstat(name)
}

func (f *faultFS) Stat(name string) (fs.FileInfo, error) {
	if err := f.call("stat"); err != nil {
		return nil, err
	}
	return f.FS.Stat(name)
}

func (f *faultFS) Rename(a, b string) error {
	if err := f.call("rename"); err != nil {
		return err
	}
	return f.FS.Rename(a, b)
}

func (f *faultFS) RenameNoReplace(a, b string) error {
	if err := f.call("rename"); err != nil {
		return err
	}
	return f.FS.RenameNoReplace(a, b)
}

func (f *faultFS) Remove(name string) error {
	if err := f.call("remove"); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *faultFS) Mkdir(name string, perm fs.FileMode) error {
	if err := f.call("mkdir"); err != nil {
		return err
	}
	return f.FS.Mkdir(name, perm)
}

func (f *faultFS) SyncDir(name string) error {
	if err := f.call("syncdir"); err != nil {
		return err
	}
	return f.FS.SyncDir(name)
}

type faultFile struct {
	File
	fs *faultFS
}

func (f *faultFile) Write(b []byte) (int, error) {
	if err := f.fs.call("write"); err != nil {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	return f.File.Write(b)
}

func (f *faultFile) Stat() (fs.FileInfo, error) {
	if err := f.fs.call("fstat"); err != nil {
		return nil, err
	}
	return f.File.Stat()
}

func (f *faultFile) Chmod(mode fs.FileMode) error {
	if err := f.fs.call("chmod"); err != nil {
		return err
	}
	return f.File.Chmod(mode)
}

func (f *faultFile) Chown(uid, gid int) error {
	if err := f.fs.call("chown"); err != nil {
		return err
	}
	return f.File.Chown(uid, gid)
}

func (f *faultFile) Sync() error {
	if err := f.fs.call("fsync"); err != nil {
		return err
	}
	return f.File.Sync()
}

// Close closes even when it fails, as the kernel does.
func (f *faultFile) Close() error {
	err := f.fs.call("close")
	if cerr := f.File.Close(); err == nil {
		err = cerr
	}
	return err
}
