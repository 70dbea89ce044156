package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// copier copies a tree to where nothing is.
type copier struct {
	r    *runner
	ctx  context.Context
	tell func(int64) // bytes copied
	buf  []byte
}

// copyTree fills dst, which it makes, with the files of a tree that was listed
// at src; every file and directory is durable when it returns. Modes, owners
// (as far as this process may give files away) and the times of files are
// kept. What dst held before is removed.
func (r *runner) copyTree(ctx context.Context, t *tree, src, dst string, tell func(int64)) error {
	c := &copier{r: r, ctx: ctx, tell: tell, buf: make([]byte, 256<<10)}
	if err := c.copy(t, src, dst); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return nil
}

func (c *copier) copy(t *tree, src, dst string) error {
	if err := c.r.FS.RemoveAll(dst); err != nil {
		return err
	}
	if err := disk.MkdirOwned(c.r.FS, filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	for _, dir := range append([]string{""}, t.dirs...) {
		if err := c.dir(filepath.Join(src, dir), filepath.Join(dst, dir)); err != nil {
			return err
		}
	}
	for _, e := range t.entries {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		from, to := filepath.Join(src, e.rel), filepath.Join(dst, e.rel)
		err := c.entry(e, from, to)
		if absent(err) {
			return fmt.Errorf("%w: %w", ErrSourceChanged, err)
		}
		if err != nil {
			return err
		}
	}
	return c.r.syncDirs(dst, t.dirs)
}

// syncDirs makes the names in directories durable, the deepest first.
func (r *runner) syncDirs(root string, dirs []string) error {
	for _, dir := range slices.Backward(append([]string{""}, dirs...)) {
		if err := r.FS.SyncDir(filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) syncFile(name string) error {
	f, err := r.FS.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// dir makes one directory. It is always writable to its owner, so that staging
// can be removed again.
func (c *copier) dir(from, to string) error {
	perm := fs.FileMode(0o755)
	fi, err := c.r.FS.Lstat(from)
	if err == nil {
		perm = fi.Mode().Perm() | 0o700
	} else if !absent(err) {
		return err
	}
	if err := c.r.FS.Mkdir(to, 0o700); err != nil {
		return err
	}
	if fi != nil {
		if err := c.own(to, fi); err != nil {
			return err
		}
	}
	return c.r.FS.Chmod(to, perm)
}

func (c *copier) own(to string, fi fs.FileInfo) error {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == os.Geteuid() && int(st.Gid) == os.Getegid() {
		return nil
	}
	err := c.r.FS.Lchown(to, int(st.Uid), int(st.Gid))
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

func (c *copier) entry(e entry, from, to string) error {
	if !e.link {
		return c.file(from, to)
	}
	if err := c.r.FS.Symlink(e.target, to); err != nil {
		return err
	}
	fi, err := c.r.FS.Lstat(from)
	if err != nil {
		return err
	}
	return c.own(to, fi)
}

func (c *copier) file(from, to string) (err error) {
	in, err := c.r.FS.OpenFile(from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	fi, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := c.r.FS.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := copyBytes(c.ctx, out, in, c.buf, c.tell); err != nil {
		return err
	}
	if err := dress(out, fi); err != nil {
		return err
	}
	return out.Sync()
}

// dress gives a file the owner, mode and time of another.
func dress(f disk.File, fi fs.FileInfo) error {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if ok && (int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid()) {
		err := f.Chown(int(st.Uid), int(st.Gid))
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	if err := f.Chmod(fi.Mode().Perm()); err != nil {
		return err
	}
	setTime(f, fi.ModTime())
	return nil
}

// setTime sets a file's times, where that is possible: the times of a copy are
// a convenience, not content.
func setTime(f disk.File, t time.Time) {
	ts, err := unix.TimeToTimespec(t)
	if err != nil {
		return
	}
	name := "/proc/self/fd/" + strconv.FormatUint(uint64(f.Fd()), 10)
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{ts, ts}, 0)
}

// verify compares a copy with the inventory of what was copied.
func (r *runner) verify(ctx context.Context, dir string, want *tree) error {
	got, err := r.inventory(ctx, dir, nil)
	if err != nil {
		return err
	}
	if rel, differ := want.difference(got); differ {
		return fmt.Errorf("%w: %s", ErrVerify, rel)
	}
	return nil
}

// publish renames a durable staged directory to its place, durably. It never
// replaces anything but an empty directory: ErrConflict. Staging on another
// file system is copied to beside the place first.
func (r *runner) publish(ctx context.Context, staged, dest string) error {
	parent := filepath.Dir(dest)
	if err := disk.MkdirOwned(r.FS, parent, 0o755); err != nil {
		return err
	}
	err := r.FS.RenameNoReplace(staged, dest)
	if errors.Is(err, syscall.EXDEV) {
		err = r.publishAcross(ctx, staged, dest)
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return r.FS.SyncDir(parent)
}

func (r *runner) publishAcross(ctx context.Context, staged, dest string) error {
	near := filepath.Join(filepath.Dir(dest), "."+filepath.Base(dest)+".migrating")
	t, err := r.inventory(ctx, staged, nil)
	if err != nil {
		return err
	}
	if err := r.copyTree(ctx, t, staged, near, nil); err != nil {
		return err
	}
	if err := r.verify(ctx, near, t); err != nil {
		return err
	}
	return r.FS.RenameNoReplace(near, dest)
}
