//go:build !linux

package disk

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

func ctimeOf(*syscall.Stat_t) int64 { return 0 }

func lstatAt(dirfd int, name string) (Stat, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Stat{}, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	return statOf(&st), nil
}

func statOf(st *unix.Stat_t) Stat {
	return Stat{Mode: modeOf(uint32(st.Mode)), Ino: st.Ino, Size: st.Size, MTime: st.Mtim.Nano()}
}
