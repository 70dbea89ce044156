package gitrepo

import (
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// statOf is the part of an lstat that the index remembers, cut to 32 bits each
// as Git cuts it.
func statOf(st *unix.Stat_t) statData {
	return statData{
		ctimeSec: uint32(st.Ctim.Sec), ctimeNsec: uint32(st.Ctim.Nsec),
		mtimeSec: uint32(st.Mtim.Sec), mtimeNsec: uint32(st.Mtim.Nsec),
		dev: uint32(st.Dev), ino: uint32(st.Ino),
		uid: st.Uid, gid: st.Gid, size: uint32(st.Size),
	}
}

// fileKind is the type part of st.Mode.
func fileKind(st *unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }

// ownerOf returns the owner of a file; false for a disk that knows none.
func ownerOf(fi fs.FileInfo) (uid, gid int, ok bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(st.Uid), int(st.Gid), true
}

// identity names a file for good: inode numbers are used again, but not with the
// same time of birth.
func identity(path string) (string, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME, &st)
	if err != nil {
		return "", &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	return fmt.Sprintf("%x:%x:%d:%d.%09d", st.Dev_major, st.Dev_minor, st.Ino, st.Btime.Sec, st.Btime.Nsec), nil
}
