package fsnode

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// fsType is how these mounts are called, and FSType how the kernel lists them.
const (
	fsType = "sessionfs"
	FSType = "fuse." + fsType
)

// answerTimeout bounds how long a mountpoint may take to answer.
const answerTimeout = 5 * time.Second

// Why a path is no place for a mount; PointError has one of them, or what the
// system said, in its chain.
var (
	ErrPointMissing  = errors.New("no such directory")
	ErrPointNotDir   = errors.New("not a directory")
	ErrPointNotEmpty = errors.New("the directory is not empty")
	ErrPointTaken    = errors.New("a session store is mounted here already")
	ErrPointForeign  = errors.New("a dead mount of another filesystem is here")
	ErrPointSilent   = errors.New("something is mounted here that does not answer")
	ErrPointInside   = errors.New("store and mountpoint contain one another")
)

// ErrNoHelper says that an ordinary user can neither mount nor unmount here.
var ErrNoHelper = errors.New("fusermount3 is not installed, and only root can mount without it")

// PointError is a mountpoint that cannot be used.
type PointError struct {
	Point string // as it was given, or as the kernel would list it
	Err   error
}

// Error returns the path and the reason.
func (e *PointError) Error() string { return e.Point + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *PointError) Unwrap() error { return e.Err }

// Prepare checks that a mount of the store at root may go on path, takes a dead
// one of ours away that is there, and returns the path as the kernel will list
// it. NonEmpty allows a directory with entries. Every error is a PointError.
func Prepare(path, root string, nonEmpty bool) (string, error) {
	point, err := ResolvePoint(path)
	if err == nil {
		err = Probe(point)
	}
	if errors.Is(err, syscall.ENOTCONN) || errors.Is(err, syscall.ECONNABORTED) || // the latter while it is dying
		errors.Is(err, ErrPointSilent) && unserved(point) {
		if err = removeDead(point); err == nil {
			err = Probe(point)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", &PointError{path, ErrPointMissing}
	case err != nil:
		return "", asPointError(point, err)
	}
	if at, ok, err := MountedAt(point); err == nil && ok && at.Type == FSType {
		return "", &PointError{point, ErrPointTaken}
	}
	if !apart(root, point) {
		return "", &PointError{point, ErrPointInside}
	}
	if nonEmpty {
		return point, nil
	}
	return point, checkEmpty(point)
}

// asPointError gives an error its path, unless it has it already.
func asPointError(point string, err error) error {
	var pe *PointError
	if errors.As(err, &pe) {
		return err
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return &PointError{path.Path, path.Err}
	}
	return &PointError{point, err}
}

// ResolvePoint makes a path absolute and free of symlinks, as the kernel lists
// a mount there. What is mounted on it is not asked: it may be dead, or hang.
func ResolvePoint(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for range maxLinks {
		parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
		if err != nil {
			return "", err
		}
		point := filepath.Join(parent, filepath.Base(abs))
		if _, mounted, err := MountedAt(point); err != nil || mounted {
			return point, err
		}
		target, err := os.Readlink(point)
		if err != nil {
			return point, nil // no symlink, or nothing
		}
		if abs = target; !filepath.IsAbs(target) {
			abs = filepath.Join(parent, target)
		}
	}
	return "", &PointError{path, syscall.ELOOP}
}

// maxLinks is how many symlinks the kernel follows in one path.
const maxLinks = 40

// Probe checks that a directory answers within five seconds. The kernel may
// know its attributes although the server is dead, so statfs(2), which asks the
// server each time, comes after stat(2). ErrPointSilent, ErrPointNotDir.
func Probe(point string) error {
	done := make(chan error, 1)
	go func() { done <- probe(point) }() // a server that hangs would hang us as well
	select {
	case err := <-done:
		return err
	case <-time.After(answerTimeout):
		return &PointError{point, ErrPointSilent}
	}
}

func probe(point string) error {
	info, err := os.Stat(point)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &PointError{point, ErrPointNotDir}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(point, &st); err != nil {
		return &fs.PathError{Op: "statfs", Path: point, Err: err}
	}
	return nil
}

func checkEmpty(point string) error {
	d, err := os.Open(point)
	if err != nil {
		return asPointError(point, err)
	}
	defer d.Close()
	if names, _ := d.Readdirnames(1); len(names) > 0 {
		return &PointError{point, ErrPointNotEmpty}
	}
	return nil
}

// apart reports whether a mount at point would neither hide the store from its
// own server nor look like a session of it.
func apart(root, point string) bool {
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	return !within(root, point) && !within(point, root)
}

// within reports whether path is dir or lies below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// removeDead detaches a mount of ours whose server is gone.
func removeDead(point string) error {
	at, ok, err := MountedAt(point)
	if err != nil {
		return err
	}
	if !ok || at.Type != FSType {
		return &PointError{point, ErrPointForeign}
	}
	return Unmount(point, true)
}

// MountEntry is a line of the kernel's table of mounts.
type MountEntry struct {
	Point  string // absolute path
	Type   string // FSType for a mount of ours
	Source string

	options string // of the filesystem, each followed by a comma
}

// MountedAt returns what is mounted on a path, the topmost mount; ok is false
// when the path is no mountpoint.
func MountedAt(point string) (found MountEntry, ok bool, err error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return found, false, err
	}
	for _, e := range parseMountinfo(string(text)) {
		if e.Point == point {
			found, ok = e, true // a later line is mounted over an earlier one
		}
	}
	return found, ok, nil
}

// mountedType is the type of what is mounted on a path, "" when nothing is.
func mountedType(point string) string {
	at, _, _ := MountedAt(point)
	return at.Type
}

// parseMountinfo reads the format of proc_pid_mountinfo(5): the mountpoint is
// the fifth field; type and source follow the field "-".
func parseMountinfo(text string) []MountEntry {
	var entries []MountEntry
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		fields, tail := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(tail) < 2 {
			continue
		}
		entries = append(entries, MountEntry{Point: unescapeMount(fields[4]), Type: tail[0], Source: unescapeMount(tail[1]), options: strings.Join(tail[2:], ",") + ","})
	}
	return entries
}

// unescapeMount undoes the kernel's \ooo for blanks and backslashes.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Unmount takes a mount away: directly, and where that is not allowed through
// fusermount3. Lazy detaches it although it is in use. A mount in
// use is EBUSY; ErrNoHelper. Of a mount that is not served any more nobody keeps
// anything: those who wait for it are released, and it is never busy.
func Unmount(point string, lazy bool) error {
	if releaseUnserved(point) {
		if mountedType(point) != FSType {
			return nil
		}
		lazy = true
	}
	flags, args := unix.UMOUNT_NOFOLLOW, []string{"-u", "--", point}
	if lazy {
		flags, args = flags|unix.MNT_DETACH, []string{"-u", "-z", "--", point}
	}
	err := unix.Unmount(point, flags)
	if err == nil || !errors.Is(err, unix.EPERM) {
		return err
	}
	helper, lookErr := Fusermount()
	if lookErr != nil {
		return lookErr
	}
	out, err := exec.Command(helper, args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	switch {
	case err == nil:
		return nil
	case strings.Contains(text, "busy"):
		return unix.EBUSY
	case text == "":
		return err
	}
	return errors.New(text)
}

// Fusermount finds the program that mounts for ordinary users. Mount(8) starts
// its helpers without PATH when a user mounts what the fstab lists.
func Fusermount() (string, error) {
	for _, name := range []string{"fusermount3", "fusermount"} {
		for _, dir := range []string{"", "/usr/bin", "/bin", "/usr/local/bin"} {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, nil
			}
		}
	}
	return "", ErrNoHelper
}
