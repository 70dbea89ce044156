package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/sessionfs/sessionfs/fsnode"
)

// prepareMountpoint checks that something can be mounted on path and takes
// away what a dead server left there. It returns the path as the kernel will
// list it.
func prepareMountpoint(path, root string, opt mountOptions) (string, error) {
	point, err := fsnode.Prepare(path, root, opt.nonEmpty)
	if err == nil {
		return point, nil
	}
	status, hint := exitMount, ""
	switch {
	case errors.Is(err, fsnode.ErrPointMissing):
		hint = "create it with 'mkdir -p'"
	case errors.Is(err, fsnode.ErrPointNotDir):
		hint = "mount on a directory"
	case errors.Is(err, fsnode.ErrPointNotEmpty):
		hint = "choose an empty directory, or give -o nonempty to hide what is in it"
	case errors.Is(err, fsnode.ErrPointInside):
		hint = "mount on a directory outside the store"
	case errors.Is(err, fsnode.ErrPointForeign):
		hint = "unmount it first"
	case errors.Is(err, fsnode.ErrPointTaken):
		status, hint = exitBusy, "'sessionfs umount' takes it away"
	case errors.Is(err, fsnode.ErrPointSilent):
		status, hint = exitBusy, "'sessionfs umount --lazy' detaches it"
	case errors.Is(err, fsnode.ErrNoHelper):
		hint = helperHint
	}
	return "", failf(status, hint, "mount: %w", err)
}

// helperHint is the next step where only root could mount.
const helperHint = "install the package fuse3"

// checkPrerequisites says in one line what a mount lacks on this machine. The
// helper comes first: without it, no right on /dev/fuse is of use to an
// ordinary user; and it opens the device with that user's rights.
func checkPrerequisites() error {
	if os.Geteuid() != 0 {
		if _, err := fsnode.Fusermount(); err != nil {
			return failf(exitMount, helperHint, "mount: %w", err)
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
