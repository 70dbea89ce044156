package fsnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/fsnode/spool"
	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// errnoOf is the one map from errors to errnos, and to the codes of the
// contract for those that the store did not make. The code comes first: a
// broken session around a missing file is EIO, not ENOENT.
func errnoOf(err error) (syscall.Errno, store.Code) {
	if err == nil {
		return 0, ""
	}
	if code := store.CodeOf(err); code != "" {
		return errnoOfCode(code), code
	}
	var r vnode.Refusal
	if errors.As(err, &r) {
		return errnoOfRefusal(r)
	}
	switch {
	case errors.Is(err, spool.ErrTooLarge):
		return syscall.EFBIG, store.TooLarge
	case errors.Is(err, spool.ErrNoSpace):
		return syscall.ENOSPC, store.NoSpace
	case errors.Is(err, spool.ErrInvalid):
		return syscall.EINVAL, store.Invalid
	case errors.Is(err, spool.ErrClosed): // a scratch file that was renamed over something, or removed
		return syscall.ESTALE, store.Conflict
	case errors.Is(err, context.Canceled):
		return syscall.EINTR, ""
	}
	var errno syscall.Errno
	if errors.As(err, &errno) && passed(errno) {
		return errno, ""
	}
	return syscall.EIO, ""
}

// errnoOfCode is the contract's table.
func errnoOfCode(c store.Code) syscall.Errno {
	switch c {
	case store.RunActive, store.Locked:
		return syscall.EBUSY
	case store.NotFound:
		return syscall.ENOENT
	case store.Ambiguous, store.SummaryHead, store.Invalid, store.Confirm, store.PredecessorMissing:
		return syscall.EINVAL
	case store.Immutable:
		return syscall.EPERM
	case store.Exists, store.BurntID:
		return syscall.EEXIST
	case store.NotEmpty:
		return syscall.ENOTEMPTY
	case store.Conflict:
		return syscall.ESTALE
	case store.TooLarge:
		return syscall.EFBIG
	case store.NoSpace:
		return syscall.ENOSPC
	case store.ReadOnly:
		return syscall.EROFS
	case store.Corrupt:
		return syscall.EIO
	}
	return syscall.EIO
}

func errnoOfRefusal(r vnode.Refusal) (syscall.Errno, store.Code) {
	switch r {
	case vnode.Immutable:
		return syscall.EPERM, store.Immutable
	case vnode.BadOffset, vnode.OneLine, vnode.BadSize, vnode.BadFlags:
		return syscall.EINVAL, store.Invalid
	case vnode.NotText:
		return syscall.EILSEQ, store.Invalid
	case vnode.TooLarge:
		return syscall.EFBIG, store.TooLarge
	case vnode.NotFound:
		return syscall.ENOENT, store.NotFound
	case vnode.Stale:
		return syscall.ESTALE, store.Conflict
	case vnode.Killed:
		return syscall.EINTR, ""
	case vnode.CrossDevice:
		return syscall.EXDEV, ""
	}
	return syscall.EIO, ""
}

// passed lists the errnos of the disk that mean the same to the user. A raw
// ENOENT from the disk is not the user's.
func passed(errno syscall.Errno) bool {
	switch errno {
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EACCES, syscall.EROFS,
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM:
		return true
	}
	return false
}

// fail is what every refusal passes through: it is recorded for
// .sessionfs/errors, and logged where it is a fault rather than a refusal.
func (t *tree) fail(ctx context.Context, op, path string, err error) syscall.Errno {
	errno, code := errnoOf(err)
	err = t.copied(ctx, path, err)
	t.meter.refused.Add(orDash(string(code)), 1)
	t.refused.add(refusal{time: t.now(), op: op, path: path, errno: unix.ErrnoName(errno), code: code, text: clip(reason(err))})
	if errno == syscall.EIO && code == "" {
		t.log.Error("operation failed", "op", op, "path", path, "err", err)
	}
	return errno
}

// hush is fail for questions whose answer may be no at any time.
func (t *tree) hush(err error) syscall.Errno {
	errno, _ := errnoOf(err)
	return errno
}

// reason is an error's text, with what the user can do about it.
func reason(err error) string {
	var e *store.Error
	if errors.As(err, &e) && e.Hint != "" {
		return err.Error() + " (" + e.Hint + ")"
	}
	return err.Error()
}

// panicked answers EIO for a request whose handler panicked; the mount lives.
func (t *tree) panicked(obj any) fuse.Status {
	buf := make([]byte, 64<<10)
	buf = buf[:runtime.Stack(buf, false)]
	t.log.Error("panic in a request", slog.String("panic", fmt.Sprint(obj)), slog.String("stack", string(buf)))
	return fuse.EIO
}

// realErrno is the errno of an error that came up in a real directory: of the
// store, or of the disk.
func (t *tree) realErrno(err error) syscall.Errno {
	var errno syscall.Errno
	switch {
	case store.CodeOf(err) != "":
		return t.hush(err)
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, fs.ErrNotExist):
		return syscall.ENOENT
	}
	return t.hush(err)
}

// refusing answers every try at what r refuses, and keeps a record of it.
func (t *tree) refusing(op string, path func() string, r vnode.Refusal) func() syscall.Errno {
	return func() syscall.Errno { return t.fail(context.Background(), op, path(), r) }
}
