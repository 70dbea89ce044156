package gitrepo

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// A Git lock file says nothing about who made it, so one that a killed process
// left blocks the repository until somebody removes it by hand. Ours are
// therefore recorded before they exist: a private file is made, its inode
// written to .git/sessionfs.lock, and only then given the lock's name. The
// flock on sessionfs.lock dies with its holder, so the next one knows that
// whatever is recorded there is nobody's, and removes exactly those inodes: a
// lock of the same name that git made meanwhile is another inode and stays.

const (
	recordName   = "sessionfs.lock"
	recordHeader = "sessionfs-lock 1\n"
	tempLock     = "sessionfs.tmp-"     // begins a lock's private name
	tempObject   = "tmp_obj_sessionfs-" // begins an object's; git prune knows tmp_obj_
	lockSuffix   = ".lock"
	pollFirst    = time.Millisecond
	pollMax      = 25 * time.Millisecond
)

// gitLocks are the locks that one operation holds.
type gitLocks struct {
	r        *Repo
	record   disk.File // sessionfs.lock, flocked and opened to append
	deadline time.Time
	taken    []*lockFile
}

// lockFile is one X.lock that we hold.
type lockFile struct {
	file   disk.File // nil when it is never renamed to X
	path   string    // X.lock
	target string    // X
	from   string    // the name that it has before
	id     string    // its identity, once it is recorded
	temp   string    // its private name, "" once that is gone
	done   bool      // not there: not yet linked, renamed, or removed
}

// lock takes .git/sessionfs.lock and clears what a dead holder left.
func (r *Repo) lock(ctx context.Context) (*gitLocks, error) {
	if err := r.refuseLinks(); err != nil {
		return nil, err
	}
	path := filepath.Join(r.git, recordName)
	f, err := r.fs.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o666&r.perm)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	l := &gitLocks{r: r, record: f, deadline: time.Now().Add(r.opt.LockTimeout)}
	err = l.wait(ctx, path, func() (bool, error) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == unix.EWOULDBLOCK || err == unix.EINTR {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := errors.Join(checkRegular(f, path), r.own(f)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := l.recover(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

// refuseLinks refuses a repository of which a part that is written to is a
// symlink: this process may have rights that the repository's owner has not.
// (A linked work tree's .git is a file and leads elsewhere by Git's own rule.)
func (r *Repo) refuseLinks() error {
	dirs := []string{r.git, r.common}
	if r.git == r.common {
		dirs = dirs[:1]
	}
	for _, dir := range dirs {
		if name := symlinked(r.fs, dir); name != "" {
			return linkError(name)
		}
	}
	return nil
}

// wait polls try until it succeeds, fails, the deadline passes (ErrLocked) or
// ctx ends.
func (l *gitLocks) wait(ctx context.Context, path string, try func() (bool, error)) error {
	for pause := pollFirst; ; pause = min(2*pause, pollMax) {
		ok, err := try()
		if err != nil {
			return fmt.Errorf("lock %s: %w", path, err)
		}
		if ok {
			return nil
		}
		if !time.Now().Before(l.deadline) {
			return fmt.Errorf("lock %s: %w", path, ErrLocked)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// recover removes the Git locks that the record names, and begins a new record.
func (l *gitLocks) recover() error {
	old, err := io.ReadAll(l.record)
	if err != nil {
		return fmt.Errorf("read lock record: %w", err)
	}
	if len(old) > 0 {
		if err := l.clear(string(old)); err != nil {
			return err
		}
		if err := l.forget(); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(l.record, "%spid %d start %s\n", recordHeader, os.Getpid(), l.r.started())
	if err != nil {
		return fmt.Errorf("write lock record: %w", err)
	}
	return nil
}

// forget empties the record: none of the locks in it exists any more.
func (l *gitLocks) forget() error {
	if err := unix.Ftruncate(int(l.record.Fd()), 0); err != nil {
		return fmt.Errorf("empty lock record: %w", err)
	}
	return nil
}

// clear removes the locks in a dead holder's record, and the private files that
// only a holder makes.
func (l *gitLocks) clear(record string) error {
	for line := range strings.SplitSeq(record, "\n") {
		if err := l.removeRecorded(line); err != nil {
			return err
		}
	}
	for dir, prefix := range map[string]string{l.r.git: tempLock, filepath.Join(l.r.common, "objects"): tempObject} {
		entries, err := l.r.fs.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("clear after a dead process: %w", err)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), prefix) {
				continue
			}
			if err := l.discard(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("clear after a dead process: %w", err)
			}
		}
	}
	return nil
}

// removeRecorded handles one line "lock <identity> <path from .git>" of a dead
// process. A line that was cut short names no file and is skipped.
func (l *gitLocks) removeRecorded(line string) error {
	rest, ok := strings.CutPrefix(line, "lock ")
	if !ok {
		return nil
	}
	id, name, ok := strings.Cut(rest, " ")
	if !ok {
		return nil
	}
	path := filepath.Join(l.r.git, name)
	if !strings.HasPrefix(path, l.r.git+"/") && !strings.HasPrefix(path, l.r.common+"/") {
		return nil
	}
	if linked, err := l.r.ThroughLink(path); err != nil || linked {
		return err
	}
	now, err := identity(path)
	if errors.Is(err, fs.ErrNotExist) || isNotDir(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stale lock: %w", err)
	}
	if now != id {
		return nil
	}
	l.r.opt.Log.Warn("removing a git lock that a dead process left", "path", path)
	if err := l.r.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stale lock: %w", err)
	}
	return nil
}

// take makes target.lock, waiting while somebody else holds it.
func (l *gitLocks) take(ctx context.Context, target string) (*lockFile, error) {
	lf := &lockFile{path: target + lockSuffix, target: target, done: true}
	lf.temp = filepath.Join(l.r.git, tempLock+randomName())
	var err error
	if lf.file, err = l.r.create(lf.temp, 0o666); err != nil {
		return nil, fmt.Errorf("lock %s: %w", target, err)
	}
	lf.from = lf.temp
	return lf, l.obtain(ctx, lf)
}

// hold makes target.lock only to keep others away: it is another name of the
// record, which costs no file.
func (l *gitLocks) hold(ctx context.Context, target string) error {
	lf := &lockFile{path: target + lockSuffix, target: target, done: true}
	lf.from = filepath.Join(l.r.git, recordName)
	return l.obtain(ctx, lf)
}

// obtain gives a lock its name, which it records before.
func (l *gitLocks) obtain(ctx context.Context, lf *lockFile) error {
	l.taken = append(l.taken, lf) // from here on release clears up
	if err := l.recordLock(lf); err != nil {
		return err
	}
	if err := l.wait(ctx, lf.path, func() (bool, error) { return l.link(lf) }); err != nil {
		return err
	}
	lf.done = false
	return l.discardTemp(lf)
}

func (l *gitLocks) discardTemp(lf *lockFile) error {
	if lf.temp == "" {
		return nil
	}
	if err := l.discard(lf.temp); err != nil {
		return err
	}
	lf.temp = ""
	return nil
}

// recordLock appends the lock, and the private file, to the record.
func (l *gitLocks) recordLock(lf *lockFile) error {
	id, err := identity(lf.from)
	if err != nil {
		return fmt.Errorf("lock %s: %w", lf.target, err)
	}
	lf.id = id
	var b bytes.Buffer
	for _, p := range []string{lf.path, lf.temp} {
		if p == "" {
			continue
		}
		rel, err := filepath.Rel(l.r.git, p)
		if err != nil {
			return fmt.Errorf("lock %s: %w", lf.target, err)
		}
		fmt.Fprintf(&b, "lock %s %s\n", id, rel)
	}
	if _, err := l.record.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write lock record: %w", err)
	}
	return nil
}

// link gives the private file, or the record, the lock's name too, unless there
// is one.
func (l *gitLocks) link(lf *lockFile) (bool, error) {
	err := l.name(lf)
	if errors.Is(err, fs.ErrNotExist) { // the directory of a ref
		if err := l.r.mkdir(filepath.Dir(lf.path)); err != nil {
			return false, err
		}
		err = l.name(lf)
	}
	switch {
	case err == nil, l.linked(lf):
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // git removed the directory again: it was empty
	case errors.Is(err, fs.ErrExist):
		return false, l.removePreBoot(lf.path)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOSYS):
		return l.createExclusive(lf)
	}
	return false, err
}

// name is link's one step that either happens or does not. A private file needs
// its own name no longer.
func (l *gitLocks) name(lf *lockFile) error {
	if lf.temp == "" {
		return l.r.fs.Link(lf.from, lf.path)
	}
	err := l.r.fs.RenameNoReplace(lf.temp, lf.path)
	if err == nil {
		lf.temp = ""
	}
	return err
}

// linked reports whether the lock's name leads to the file that was to get it:
// on a network file system that may happen and be reported as failed.
func (l *gitLocks) linked(lf *lockFile) bool {
	now, err := identity(lf.path)
	return err == nil && now == lf.id
}

// createExclusive is link for file systems without hard links.
func (l *gitLocks) createExclusive(lf *lockFile) (bool, error) {
	f, err := l.r.create(lf.path, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return false, l.removePreBoot(lf.path)
	}
	if err != nil {
		return false, err
	}
	old := lf.file
	lf.file, lf.from, lf.done = f, lf.path, false
	if old != nil {
		err = old.Close()
	}
	return true, errors.Join(err, l.recordLock(lf))
}

// removePreBoot removes a lock that is older than the machine's last start:
// whoever made it, ours or git, is dead. The record cannot tell after a power
// cut, for it is not synced. A lock that is another name of the record has the
// record's time, but only its holder makes one, and that is us.
func (l *gitLocks) removePreBoot(path string) error {
	record, err := identity(filepath.Join(l.r.git, recordName))
	if now, nerr := identity(path); err == nil && nerr == nil && now == record {
		l.r.opt.Log.Warn("removing a git lock that a dead process left", "path", path)
		return l.discard(path)
	}
	fi, err := l.r.fs.Lstat(path)
	if err != nil {
		return nil // gone: try again
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil
	}
	const margin = 5 * time.Second
	boot := time.Now().Add(-time.Duration(info.Uptime) * time.Second)
	if !fi.ModTime().Before(boot.Add(-margin)) {
		return nil
	}
	l.r.opt.Log.Warn("removing a git lock from before the last boot", "path", path)
	return l.discard(path)
}

func (l *gitLocks) discard(path string) error {
	if err := l.r.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// commit puts the lock's content in the target's place.
func (l *gitLocks) commit(lf *lockFile) error {
	if err := l.r.fs.Rename(lf.path, lf.target); err != nil {
		return fmt.Errorf("replace %s: %w", lf.target, err)
	}
	lf.done = true
	return nil
}

// release gives up everything that is still held. What cannot be removed stays
// in the record for the next holder.
func (l *gitLocks) release() error {
	var errs []error
	for _, lf := range l.taken {
		if !lf.done {
			errs = append(errs, l.discard(lf.path))
		}
		errs = append(errs, l.discardTemp(lf))
		if lf.file != nil {
			errs = append(errs, lf.file.Close())
		}
	}
	if errors.Join(errs...) == nil {
		errs = append(errs, l.forget())
	}
	return errors.Join(append(errs, l.record.Close())...)
}

// processStart is this process's start in clock ticks since boot; with the pid
// it names a process for good.
func processStart() string {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return "0"
	}
	// The fields follow the command in parentheses; start time is the 22nd.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return "0"
	}
	if _, err := strconv.ParseUint(string(fields[19]), 10, 64); err != nil {
		return "0"
	}
	return string(fields[19])
}

func randomName() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// isNotDir reports whether a path runs through something that is no directory.
func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
