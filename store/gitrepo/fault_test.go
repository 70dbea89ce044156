package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// faultFS fails the n-th call that changes the disk. When dead is set, every
// call after that fails too, as if the process had been killed there: nothing
// is cleaned up, but the kernel closes files and drops flocks.
type faultFS struct {
	disk.FS
	dead bool

	mu    sync.Mutex
	left  int // calls until the failure
	hit   bool
	calls []string
}

var errFault = errors.New("injected fault")

func (f *faultFS) step(op, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, op+" "+name)
	if f.hit && f.dead {
		return errFault
	}
	f.left--
	if f.left == -1 {
		f.hit = true
		return &fs.PathError{Op: op, Path: name, Err: errFault}
	}
	return nil
}

func (f *faultFS) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		if err := f.step("open", name); err != nil {
			return nil, err
		}
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultFile{file, f}, nil
}

func (f *faultFS) Rename(a, b string) error {
	if err := f.step("rename", b); err != nil {
		return err
	}
	return f.FS.Rename(a, b)
}

func (f *faultFS) RenameNoReplace(a, b string) error {
	if err := f.step("rename", b); err != nil {
		return err
	}
	return f.FS.RenameNoReplace(a, b)
}

func (f *faultFS) Remove(name string) error {
	if err := f.step("remove", name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *faultFS) RemoveAll(name string) error {
	if err := f.step("removeall", name); err != nil {
		return err
	}
	return f.FS.RemoveAll(name)
}

func (f *faultFS) Mkdir(name string, perm fs.FileMode) error {
	if err := f.step("mkdir", name); err != nil {
		return err
	}
	return f.FS.Mkdir(name, perm)
}

func (f *faultFS) Symlink(target, name string) error {
	if err := f.step("symlink", name); err != nil {
		return err
	}
	return f.FS.Symlink(target, name)
}

func (f *faultFS) Link(a, b string) error {
	if err := f.step("link", b); err != nil {
		return err
	}
	return f.FS.Link(a, b)
}

func (f *faultFS) SyncDir(name string) error {
	if err := f.step("syncdir", name); err != nil {
		return err
	}
	return f.FS.SyncDir(name)
}

type faultFile struct {
	disk.File
	fs *faultFS
}

func (f *faultFile) Write(b []byte) (int, error) {
	if err := f.fs.step("write", f.Name()); err != nil {
		n, _ := f.File.Write(b[:len(b)/2]) // torn
		return n, err
	}
	return f.File.Write(b)
}

func (f *faultFile) Sync() error {
	if err := f.fs.step("sync", f.Name()); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultFile) Chmod(mode fs.FileMode) error {
	if err := f.fs.step("chmod", f.Name()); err != nil {
		return err
	}
	return f.File.Chmod(mode)
}

// eachFault runs op with a fault at each of its disk calls, until it runs
// without meeting one. op gets a disk; it makes everything else itself.
func eachFault(t *testing.T, op func(t *testing.T, f *faultFS)) {
	points := 0
	for _, dead := range []bool{false, true} {
		for n := 0; ; n++ {
			f := &faultFS{FS: disk.OS, dead: dead, left: n}
			op(t, f)
			if t.Failed() {
				t.Fatalf("dead=%v, fault at call %d: %s", dead, n, f.calls[min(n, len(f.calls)-1)])
			}
			if !f.hit {
				break
			}
			points++
		}
	}
	t.Logf("%d points", points)
	if points < 10 {
		t.Errorf("only %d points: the disk is not in use", points)
	}
}

// checkAfter commits what is left with a healthy disk and lets git judge.
func checkAfter(t *testing.T, dir string, opt Options) {
	t.Helper()
	opt.FS = nil
	r, err := Open(dir, opt)
	must(t, err)
	commitAll(t, r, "after the fault")
	if out := git(t, dir, "status", "--porcelain"); out != "" {
		t.Errorf("git status is not clean:\n%s", out)
	}
	checkFsck(t, dir)
}

var longAgo = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

func TestFaultsOfCommit(t *testing.T) {
	needGit(t)
	opt := testOptions(t)
	opt.Sync = SyncBatch
	r, dir := newSession(t, opt)
	write(t, dir, "history/first", "1")
	commitAll(t, r, "first")
	round := 0
	eachFault(t, func(t *testing.T, f *faultFS) {
		round++
		write(t, dir, "history/next", fmt.Sprint(round))
		write(t, dir, "meta.json", fmt.Sprint(round))
		faulty := opt
		faulty.FS = f
		r, err := Open(dir, faulty)
		must(t, err)
		before := git(t, dir, "rev-parse", "HEAD")
		c, changed, err := r.CommitAll(context.Background(), "x")
		after := git(t, dir, "rev-parse", "HEAD")
		if err == nil && (!changed || c.Hash != after) {
			t.Errorf("acknowledged %s, HEAD is %s", c.Hash, after)
		}
		if after != before && git(t, dir, "rev-parse", "HEAD^") != before {
			t.Errorf("HEAD jumped from %s to %s", before, after)
		}
		// Whatever is visible is complete, before anybody repairs anything.
		if out := git(t, dir, "fsck", "--strict", "--no-dangling"); out != "" {
			t.Errorf("git fsck:\n%s", out)
		}
		checkAfter(t, dir, opt)
	})
}

func TestFaultsOfInit(t *testing.T) {
	needGit(t)
	opt := testOptions(t)
	opt.Sync = SyncBatch
	round := 0
	eachFault(t, func(t *testing.T, f *faultFS) {
		round++
		dir := filepath.Join(t.TempDir(), "s")
		must(t, os.Mkdir(dir, 0o755))
		faulty := opt
		faulty.FS = f
		err := Init(context.Background(), dir, faulty)
		if err == nil {
			git(t, dir, "fsck", "--strict")
		}
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			if got := git(t, dir, "log", "--format=%s"); got != initMessage {
				t.Errorf("a .git that is not whole: %q", got)
			}
		}
		left, err := filepath.Glob(filepath.Join(dir, tempGitPrefix+"*"))
		must(t, err)
		for _, l := range left { // as old as a crash's
			if !f.dead {
				continue
			}
			must(t, os.Chtimes(l, longAgo, longAgo))
		}
		must(t, Init(context.Background(), dir, opt))
		removeAtomicTemps(t, dir)
		if left, _ := filepath.Glob(filepath.Join(dir, tempGitPrefix+"*")); len(left) > 0 && f.dead {
			if _, err := os.Lstat(filepath.Join(dir, ".git")); err != nil {
				t.Errorf("left: %v", left)
			}
			must(t, os.RemoveAll(left[0]))
		}
		if got := git(t, dir, "log", "--format=%s|%T"); got != initMessage+"|"+emptyTree.String() {
			t.Errorf("after Init again: %q", got)
		}
		if round%4 == 0 { // the same repository each time by now
			checkAfter(t, dir, opt)
		}
		must(t, os.RemoveAll(dir))
	})
}

// removeAtomicTemps removes what a killed disk.WriteAtomic leaves; the store
// knows these names.
func removeAtomicTemps(t *testing.T, dir string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && disk.IsTemp(d.Name()) {
			return os.Remove(path)
		}
		return err
	}))
}

func TestFaultsOfCompact(t *testing.T) {
	needGit(t)
	opt := testOptions(t)
	opt.Sync = SyncBatch
	r, dir := newSession(t, opt)
	round := 0
	eachFault(t, func(t *testing.T, f *faultFS) {
		round++
		for i := range 2 {
			write(t, dir, "meta.json", fmt.Sprint(round, i))
			commitAll(t, r, "x")
		}
		faulty := opt
		faulty.FS = f
		fr, err := Open(dir, faulty)
		must(t, err)
		_, err = fr.Compact(context.Background())
		if err == nil && f.hit && !f.dead {
			t.Error("a fault was not reported")
		}
		if out := git(t, dir, "fsck", "--strict", "--no-dangling"); out != "" {
			t.Errorf("git fsck:\n%s", out)
		}
		if round%8 == 0 {
			git(t, dir, "gc", "-q", "--prune=now")
		}
	})
}

func TestFaultsOfRestore(t *testing.T) {
	needGit(t)
	opt := testOptions(t)
	opt.Sync = SyncBatch
	r, dir := newSession(t, opt)
	write(t, dir, "history/sub/a", "a")
	write(t, dir, "history/b", "b")
	must(t, os.Symlink("b", filepath.Join(dir, "history/l")), os.Chmod(filepath.Join(dir, "history/b"), 0o700))
	commitAll(t, r, "x")
	eachFault(t, func(t *testing.T, f *faultFS) {
		must(t, os.RemoveAll(filepath.Join(dir, "history")))
		faulty := opt
		faulty.FS = f
		fr, err := Open(dir, faulty)
		must(t, err)
		if n, err := fr.Restore(context.Background(), "history"); err == nil && n != 3 {
			t.Errorf("restored %d", n)
		}
		removeAtomicTemps(t, dir)
		if _, err := r.Restore(context.Background(), "history"); err != nil {
			t.Error(err)
		}
		if out := git(t, dir, "status", "--porcelain"); out != "" {
			t.Errorf("not what it was:\n%s", out)
		}
	})
	if got := strings.TrimSpace(git(t, dir, "status", "--porcelain")); got != "" {
		t.Error(got)
	}
}
