package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// answerTimeout is how long a mountpoint may take to answer.
const answerTimeout = 5 * time.Second

// errNoAnswer says that a filesystem did not answer in time.
var errNoAnswer = errors.New("it does not answer")

// probe is os.Stat that asks the filesystem's server and gives up: the kernel
// may know the attributes although the server is dead, so statfs(2), which is
// always asked, comes after; and a server that hangs would hang us as well.
func probe(path string, limit time.Duration) (fs.FileInfo, error) {
	type answer struct {
		info fs.FileInfo
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		info, err := os.Stat(path)
		if err == nil {
			var st unix.Statfs_t
			if err = unix.Statfs(path, &st); err != nil {
				err = &fs.PathError{Op: "statfs", Path: path, Err: err}
			}
		}
		done <- answer{info, err}
	}()
	select {
	case a := <-done:
		return a.info, a.err
	case <-time.After(limit):
		return nil, errNoAnswer
	}
}

// prepareMountpoint checks that something can be mounted on path and takes
// away what a dead server left there. It returns the path as the kernel will
// list it.
func prepareMountpoint(path, root string, opt mountOptions) (string, error) {
	point, err := resolveMountpoint(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", noMountpoint(path)
	}
	if err != nil {
		return "", failf(exitMount, "", "mount: %w", err)
	}
	info, err := probe(point, answerTimeout)
	if errors.Is(err, syscall.ENOTCONN) || errors.Is(err, syscall.ECONNABORTED) { // the latter while it is dying
		if err := removeDead(point); err != nil {
			return "", err
		}
		info, err = probe(point, answerTimeout)
	}
	switch {
	case errors.Is(err, errNoAnswer):
		return "", failf(exitBusy, "'sessionfs umount --lazy' detaches it", "mount: %s: something is mounted here that does not answer", point)
	case errors.Is(err, fs.ErrNotExist):
		return "", noMountpoint(path)
	case err != nil:
		return "", failf(exitMount, "", "mount: %w", err)
	case !info.IsDir():
		return "", failf(exitMount, "mount on a directory", "mount: %s: not a directory", point)
	}
	if err := checkApart(root, point); err != nil {
		return "", err
	}
	return point, checkFree(point, opt)
}

func noMountpoint(path string) error {
	return failf(exitMount, "create it with 'mkdir -p'", "mount: %s: no such directory", path)
}

// checkFree refuses a mountpoint that is in use.
func checkFree(point string, opt mountOptions) error {
	if entry, ok, err := mountedAt(point); err == nil && ok && entry.fsType == fsType {
		return failf(exitBusy, "'sessionfs umount' takes it away", "mount: %s: %s is mounted here already", point, entry.source)
	}
	if opt.nonEmpty {
		return nil
	}
	dir, err := os.Open(point)
	if err != nil {
		return failf(exitMount, "", "mount: %w", err)
	}
	defer dir.Close()
	if names, _ := dir.Readdirnames(1); len(names) > 0 {
		return failf(exitMount, "choose an empty directory, or give -o nonempty to hide what is in it",
			"mount: %s: the directory is not empty", point)
	}
	return nil
}

// removeDead detaches a mount whose server is gone ("transport endpoint is
// not connected"). Only one of ours is touched.
func removeDead(point string) error {
	entry, ok, err := mountedAt(point)
	if err != nil {
		return failf(exitMount, "", "mount: %w", err)
	}
	if !ok || entry.fsType != fsType {
		return failf(exitMount, "unmount it first", "mount: %s: a dead mount of another filesystem is here", point)
	}
	if err := detach(point, true); err != nil {
		return failf(exitMount, "", "mount: %s: a dead mount is here and cannot be removed: %w", point, err)
	}
	return nil
}

// detach unmounts a path: directly as root, else through fusermount3. A busy
// mount is EBUSY in the error's chain.
func detach(point string, lazy bool) error {
	flags := unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	err := unix.Unmount(point, flags)
	if err == nil || os.Geteuid() == 0 || !errors.Is(err, unix.EPERM) {
		return err
	}
	helper, err := fusermount()
	if err != nil {
		return err
	}
	args := []string{"-u", "--", point}
	if lazy {
		args = []string{"-u", "-z", "--", point}
	}
	out, err := exec.Command(helper, args...).CombinedOutput()
	if err == nil {
		return nil
	}
	text := strings.TrimSpace(string(out))
	if strings.Contains(text, "busy") {
		return unix.EBUSY
	}
	return errors.New(text)
}

// fusermount finds the helper that mounts for ordinary users.
func fusermount() (string, error) {
	for _, name := range []string{"fusermount3", "fusermount"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", failf(exitMount, "install the package fuse3", "mount: fusermount3 is not installed, and only root can mount without it")
}

// checkPrerequisites says in one line what a mount lacks on this machine. The
// helper comes first: without it, no right on /dev/fuse is of use to an
// ordinary user; and it opens the device with that user's rights.
func checkPrerequisites() error {
	if os.Geteuid() != 0 {
		if _, err := fusermount(); err != nil {
			return err
		}
	}
	file, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	switch {
	case err == nil:
		return file.Close()
	case errors.Is(err, fs.ErrPermission):
		return failf(exitMount, "the device must be readable and writable for who mounts (mode 0666 on most systems)", "mount: %w", err)
	}
	return failf(exitMount, "load the fuse module, or start the container with --device /dev/fuse --cap-add SYS_ADMIN",
		"mount: FUSE is not available: %w", err)
}

// checkApart refuses a mountpoint that would hide the store from its own
// server, or that would look like a session of it.
func checkApart(root, point string) error {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		real = root
	}
	if within(real, point) || within(point, real) {
		return failf(exitMount, "mount on a directory outside the store", "mount: %s: store and mountpoint contain one another", point)
	}
	return nil
}

// within reports whether path is dir or lies below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
