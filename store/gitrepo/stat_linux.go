package gitrepo

import (
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
