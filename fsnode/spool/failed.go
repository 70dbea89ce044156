package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	// hintMax bounds the part of a file name that comes from a hint, in bytes.
	hintMax = 120
	// racy is how old a directory's mtime must be before an equal mtime
	// proves that nothing changed: file systems stamp in ticks.
	racy = 100 * time.Millisecond
)

// failedDir is the directory of what could not be applied. Several processes
// and their users put files there and remove them.
type failedDir struct {
	path string

	mu    sync.Mutex
	mtime time.Time // of the directory when bytes was summed up
	bytes int64
	valid bool
}

// used returns the bytes of all files in the directory. The sum is kept until
// the directory's mtime moves: files in it do not change once they are there.
func (d *failedDir) used() (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fi, err := os.Stat(d.path)
	if errors.Is(err, os.ErrNotExist) {
		d.valid = false
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if d.valid && fi.ModTime().Equal(d.mtime) {
		return d.bytes, nil
	}
	sum, err := sumFiles(d.path)
	if err != nil {
		return 0, err
	}
	d.bytes, d.mtime = sum, fi.ModTime()
	d.valid = time.Since(d.mtime) > racy
	return sum, nil
}

func sumFiles(dir string) (int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, e := range entries {
		fi, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if fi.Mode().IsRegular() {
			sum += fi.Size()
		}
	}
	return sum, nil
}

// take moves the synced file at path into the directory, durably, and returns
// its new path; a path together with an error means that it was moved and that
// the disk did not confirm it. No file that is there is ever replaced.
func (d *failedDir) take(path, hint string, now time.Time) (string, error) {
	if err := privateDir(d.path); err != nil { // a user may have removed it
		return "", err
	}
	d.mu.Lock()
	d.valid = false
	d.mu.Unlock()
	for range 100 {
		to := filepath.Join(d.path, failedName(hint, now))
		err := moveNew(path, to)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		return to, errors.Join(syncDir(d.path), syncDir(filepath.Dir(path)))
	}
	return "", fmt.Errorf("no free name in %s for %q", d.path, hint)
}

// failedName makes a name that sorts by time, says what the file was, and is
// not used twice: 20260131T094502.123456Z-sessions.s1.meta.json-1a2b3c4d.
func failedName(hint string, now time.Time) string {
	return now.UTC().Format("20060102T150405.000000Z") + "-" + sanitise(hint) + "-" + token()
}

// liveName is the name of a live Buf's file: the order of creation, then what
// it is. hintOf is its inverse as far as there is one.
func liveName(seq uint64, hint string) string {
	return fmt.Sprintf("%d-%s", seq, sanitise(hint))
}

func hintOf(name string) string {
	_, hint, ok := strings.Cut(name, "-")
	if !ok || hint == "" {
		return name
	}
	return hint
}

// sanitise makes a text fit to be part of a file name on any disk and in any
// shell: letters, digits and a few signs stay, a slash becomes a dot, the rest
// an underscore; neither dots nor dashes begin it, and it is at most hintMax
// bytes long. It is idempotent.
func sanitise(hint string) string {
	var b strings.Builder
	for _, r := range hint {
		switch {
		case r == '/':
			r = '.'
		case r == utf8.RuneError, !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-+=@,~", r):
			r = '_'
		}
		if b.Len()+utf8.RuneLen(r) > hintMax {
			break
		}
		b.WriteRune(r)
	}
	s := strings.TrimLeft(b.String(), ".-")
	if s == "" {
		return "untitled"
	}
	return s
}

// moveNew renames a file without replacing another, and copies it where the
// two directories lie on different file systems.
func moveNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	switch {
	case errors.Is(err, unix.EXDEV):
		return copyNew(from, to)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		// This file system has no RENAME_NOREPLACE; a hard link does not
		// replace either.
		if err = os.Link(from, to); err == nil {
			return os.Remove(from)
		}
		return err
	case err != nil:
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// copyNew copies a file durably to a name that is not there, through a
// temporary name, and removes the source.
func copyNew(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	tmp := to + ".tmp"
	dst, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	err = errors.Join(err, dst.Sync(), dst.Close())
	if err == nil {
		err = os.Link(tmp, to)
	}
	os.Remove(tmp)
	if err != nil {
		return err
	}
	return os.Remove(from)
}

// writeNew writes a new private file and syncs it.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		os.Remove(path)
	}
	return err
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// privateDir makes a directory with its parents, or sees that one that is
// there belongs to this user and lets nobody else in.
func privateDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return &os.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d: %w", path, st.Uid, os.ErrPermission)
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return os.Chmod(path, 0o700)
	}
	return nil
}
