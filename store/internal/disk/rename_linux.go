package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// renameNoReplace asks the kernel; a file system that does not know the flag
// (some network ones) gets a link and an unlink instead.
func renameNoReplace(oldName, newName string) error {
	err := unix.Renameat2(unix.AT_FDCWD, oldName, unix.AT_FDCWD, newName, unix.RENAME_NOREPLACE)
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return linkNoReplace(oldName, newName)
	}
	return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
}
