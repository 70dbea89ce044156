package fsnode

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// fsType is how the kernel calls these mounts, after "fuse.".
const fsType = "sessionfs"

// answerTimeout bounds how long a mountpoint may take to answer.
const answerTimeout = 5 * time.Second

// prepare checks that a mount may go on path, takes a dead one away that is
// there, and returns the path as the kernel will list it.
func prepare(path, root string, nonEmpty bool) (string, error) {
	point, err := resolve(path)
	if err != nil {
		return "", err
	}
	err = statSoon(point)
	if errors.Is(err, syscall.ENOTCONN) {
		if err := removeDead(point); err != nil {
			return "", err
		}
		err = statSoon(point)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("%s: no such directory", path)
	case err != nil:
		return "", err
	}
	if mountedType(point) == "fuse."+fsType {
		return "", fmt.Errorf("%s: a session store is mounted here already", point)
	}
	if within(root, point) || within(point, root) {
		return "", fmt.Errorf("%s: store and mountpoint contain one another", point)
	}
	return point, checkEmpty(point, nonEmpty)
}

// resolve makes a path absolute and free of symlinks. The last part of a dead
// mount cannot be looked at, so it stays as it is then.
func resolve(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", err
	}
	return filepath.Join(parent, filepath.Base(abs)), nil
}

// statSoon checks that a directory answers in time.
func statSoon(point string) error {
	done := make(chan error, 1)
	go func() {
		fi, err := os.Stat(point)
		if err == nil && !fi.IsDir() {
			err = fmt.Errorf("%s: not a directory", point)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(answerTimeout):
		return fmt.Errorf("%s: something is mounted here that does not answer", point)
	}
}

func checkEmpty(point string, nonEmpty bool) error {
	if nonEmpty {
		return nil
	}
	d, err := os.Open(point)
	if err != nil {
		return err
	}
	defer d.Close()
	if names, _ := d.Readdirnames(1); len(names) > 0 {
		return fmt.Errorf("%s: the directory is not empty", point)
	}
	return nil
}

// within reports whether path is dir or lies below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// removeDead detaches a mount of ours whose server is gone.
func removeDead(point string) error {
	if got := mountedType(point); got != "fuse."+fsType {
		return fmt.Errorf("%s: a dead mount of another filesystem is here (%s)", point, got)
	}
	if err := unmount(point, true); err != nil {
		return fmt.Errorf("%s: a dead mount is here and cannot be removed: %w", point, err)
	}
	return nil
}

// mountedType is the type of what is mounted on a path, "" when nothing is.
func mountedType(point string) string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	found := ""
	for line := range strings.Lines(string(text)) {
		before, after, ok := strings.Cut(line, " - ")
		fields, tail := strings.Fields(before), strings.Fields(after)
		if ok && len(fields) > 4 && len(tail) > 0 && unescapeMount(fields[4]) == point {
			found = tail[0] // a later line is mounted over an earlier one
		}
	}
	return found
}

// unescapeMount undoes the kernel's \ooo.
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

// unmount takes a mount away: directly, and where that is not allowed through
// fusermount3. Lazy detaches it although it is in use. A mount in use is EBUSY.
func unmount(point string, lazy bool) error {
	flags, args := unix.UMOUNT_NOFOLLOW, []string{"-u", "--", point}
	if lazy {
		flags, args = flags|unix.MNT_DETACH, slices.Insert(args, 1, "-z")
	}
	err := unix.Unmount(point, flags)
	if err == nil || !errors.Is(err, unix.EPERM) {
		return err
	}
	helper, lookErr := fusermount()
	if lookErr != nil {
		return err
	}
	out, err := exec.Command(helper, args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	switch {
	case err == nil:
		return nil
	case strings.Contains(text, "busy"):
		return unix.EBUSY
	}
	return fmt.Errorf("%s: %w", text, err)
}

// fusermount finds the helper that mounts for ordinary users.
func fusermount() (string, error) {
	if p, err := exec.LookPath("fusermount3"); err == nil {
		return p, nil
	}
	return exec.LookPath("fusermount")
}
