package disk

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

func ctimeOf(st *syscall.Stat_t) int64 { return st.Ctim.Nano() }

// lstatAt is lstat of a name in an open directory: no path is walked, and
// nothing is allocated but the name's copy.
func lstatAt(dirfd int, name string) (Stat, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return Stat{}, &fs.PathError{Op: "lstat", Path: name, Err: err}
		}
		return statOf(&st), nil
	}
}

func statOf(st *unix.Stat_t) Stat {
	return Stat{Mode: modeOf(st.Mode), Ino: st.Ino, Size: st.Size, MTime: st.Mtim.Nano(), CTime: st.Ctim.Nano()}
}
