package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

const (
	firstPoll = time.Millisecond
	lastPoll  = 50 * time.Millisecond // the peer's interval (reference 3.1)

	// probeGrace bounds how long Try waits for a lock that is only being
	// probed: Held takes a shared lock for some microseconds.
	probeGrace = 15 * time.Millisecond

	// O_NONBLOCK keeps a FIFO at the path from blocking the open; a symlink is
	// not followed, because who put it there may have fewer rights than this
	// process.
	openFlags = os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOFOLLOW
)

// ErrTimeout is wrapped by the error of a lock that stayed held elsewhere for
// longer than the caller would wait.
var ErrTimeout = errors.New("lock busy")

// errReplaced: the locked file is no longer the one at its path.
var errReplaced = errors.New("lock file replaced")

// Lock is a held lock. It is released by Unlock or by the death of the
// process, and by nothing else.
type Lock struct {
	path string
	// file is nil when there was no file to lock (AcquireShared).
	file *flock.Flock
}

// Acquire takes the lock at path exclusively and waits for it at most timeout;
// a timeout of zero or less tries once. The file and its directory are made
// when they do not exist. A second Acquire of a path waits for the first one's
// Unlock, in the same process as in another.
//
// The error wraps ErrTimeout when the time ran out, ctx's error when ctx ended
// first, and an errno when the file cannot be made or opened.
func Acquire(ctx context.Context, path string, timeout time.Duration) (*Lock, error) {
	return wait(ctx, path, timeout, func() (*Lock, error) { return tryExclusive(path) })
}

// AcquireShared takes the lock at path shared: it waits for an exclusive
// holder and makes later ones wait. It writes nothing, and a file that does
// not exist is success, since nobody can hold it; then nothing is held, and an
// exclusive holder may come while the Lock lives. Timeout and errors are
// Acquire's.
func AcquireShared(ctx context.Context, path string, timeout time.Duration) (*Lock, error) {
	return wait(ctx, path, timeout, func() (*Lock, error) {
		l, err := try(path, (*flock.Flock).TryRLock)
		if errors.Is(err, fs.ErrNotExist) {
			return &Lock{path: path}, nil
		}
		return l, err
	})
}

// Try takes the lock at path exclusively if nobody holds it; ok is false when
// somebody does. It is not misled by a Held at the same moment. The file and
// its directory are made when they do not exist.
func Try(path string) (l *Lock, ok bool, err error) {
	l, err = Acquire(context.Background(), path, probeGrace)
	if errors.Is(err, ErrTimeout) {
		return nil, false, nil
	}
	return l, err == nil, err
}

// Held reports whether somebody, this process included, holds the lock at path
// exclusively. It creates nothing: a file that does not exist is not held.
func Held(path string) (bool, error) {
	l, err := try(path, (*flock.Flock).TryRLock)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errReplaced):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("probe lock: %w", err)
	case l == nil:
		return true, nil
	}
	return false, l.Unlock()
}

// Path returns the path that was locked.
func (l *Lock) Path() string { return l.path }

// Unlock releases the lock. A second call, and a call on a nil Lock, do
// nothing.
func (l *Lock) Unlock() error {
	if l == nil || l.file == nil {
		return nil
	}
	if err := l.file.Unlock(); err != nil {
		return fmt.Errorf("unlock %s: %w", l.path, err)
	}
	return nil
}

// SafeName turns a session id into the stem of its lock file's name
// (reference 3.1): "/" and "\" become "_", then ".." becomes "_".
func SafeName(id string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(id, "/", "_"), `\`, "_"), "..", "_")
}

// wait calls attempt until it has the lock, fails, or the time is over. An
// attempt that returns neither lock nor error found it held.
func wait(ctx context.Context, path string, timeout time.Duration, attempt func() (*Lock, error)) (*Lock, error) {
	deadline := time.Now().Add(timeout)
	poll := firstPoll
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		l, err := attempt()
		if l != nil {
			return l, nil
		}
		if err != nil && !errors.Is(err, errReplaced) {
			return nil, fmt.Errorf("lock: %w", err)
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nil, fmt.Errorf("lock %s: %w after %v", path, ErrTimeout, timeout)
		}
		if err := sleep(ctx, min(jitter(poll), left)); err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		poll = min(poll*3/2, lastPoll)
	}
}

// jitter keeps waiters from polling in step with each other and the holder.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// tryExclusive makes the file where it is missing and tries once.
func tryExclusive(path string) (*Lock, error) {
	l, err := try(path, (*flock.Flock).TryLock)
	if !errors.Is(err, fs.ErrNotExist) {
		return l, err
	}
	if err := create(path); err != nil {
		return nil, err
	}
	l, err = try(path, (*flock.Flock).TryLock)
	if errors.Is(err, fs.ErrNotExist) && !lexists(path) {
		return nil, errReplaced // removed already; a dangling link stays an error
	}
	return l, err
}

func lexists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// try locks an existing file once, with a descriptor of its own. It returns
// neither lock nor error when the lock is held by somebody else.
func try(path string, lock func(*flock.Flock) (bool, error)) (*Lock, error) {
	if err := realDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f := flock.New(path, flock.SetFlag(openFlags))
	ok, err := lock(f)
	if errors.Is(err, syscall.EINTR) {
		return nil, nil
	}
	if err != nil || !ok {
		return nil, err
	}
	if err := verify(f); err != nil {
		return nil, errors.Join(err, f.Unlock())
	}
	return &Lock{path: path, file: f}, nil
}

// verify makes sure that what was locked is the file that the others will
// lock.
func verify(f *flock.Flock) error {
	locked, err := f.Stat()
	if err != nil {
		return err
	}
	if !locked.Mode().IsRegular() {
		return &fs.PathError{Op: "lock", Path: f.Path(), Err: errors.New("not a regular file")}
	}
	named, err := os.Lstat(f.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return errReplaced
	}
	if err != nil {
		return err
	}
	if !os.SameFile(locked, named) {
		return errReplaced
	}
	return nil
}

// realDir refuses a directory of locks that is a symlink: it could lead anywhere.
func realDir(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		return &fs.PathError{Op: "lock", Path: dir, Err: syscall.ELOOP}
	}
	return nil
}

// create makes the lock file, and its directory, with the owner of the
// directory above: a daemon run by root must not lock the owner out. It is
// made under another name and linked into place, so that nobody ever finds a
// file that he may not open.
func create(path string) error {
	dir := filepath.Dir(path)
	if err := disk.MkdirOwned(disk.OS, dir, 0o700); err != nil {
		return err
	}
	if err := realDir(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*.tmp") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(giveAway(f, dir), f.Close()); err != nil {
		return err
	}
	err = os.Link(f.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		return nil // somebody else's, just as good
	}
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) {
		return createPlain(path, dir) // a file system without links
	}
	return err
}

// createPlain makes the lock file in place.
func createPlain(path, dir string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(giveAway(f, dir), f.Close())
}

// giveAway gives f the owner of dir, where this process may.
func giveAway(f *os.File, dir string) error {
	want, err := os.Stat(dir)
	if err != nil {
		return err
	}
	have, err := f.Stat()
	if err != nil {
		return err
	}
	w, ok := want.Sys().(*syscall.Stat_t)
	h, ok2 := have.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || (w.Uid == h.Uid && w.Gid == h.Gid) {
		return nil
	}
	if err := f.Chown(int(w.Uid), int(w.Gid)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
