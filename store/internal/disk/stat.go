package disk

import (
	"io/fs"
	"syscall"
	"time"
)

// Stat is what lstat tells of a file, as far as one version of it is told from
// the next by it. Two are compared with ==.
//
// CTime cannot be set by anybody, so that a file that was changed and given its
// old size and time back differs all the same. It is 0 where the system has
// none.
type Stat struct {
	Mode         fs.FileMode // type and permissions
	Ino          uint64
	Size         int64
	MTime, CTime int64 // nanoseconds since the epoch
}

// StatOf is the Stat of what os.Lstat returned.
func StatOf(fi fs.FileInfo) Stat {
	st := Stat{Mode: fi.Mode(), Size: fi.Size(), MTime: fi.ModTime().UnixNano()}
	if sys, ok := fi.Sys().(*syscall.Stat_t); ok {
		st.Ino, st.CTime = sys.Ino, ctimeOf(sys)
	}
	return st
}

// racy is how old a change has to be before the times of a file can tell a
// later change from it. The times of file systems move in ticks: of some
// milliseconds on Linux, of two seconds where it is slowest (FAT).
const racy = 2 * time.Second

// Settled reports whether a change of the file after now would show in its
// Stat: whether its times are older than a tick. What was read of a file that
// is not settled must not be relied on later, however equal its Stat.
func (st Stat) Settled(now time.Time) bool {
	return now.Sub(time.Unix(0, max(st.MTime, st.CTime))) > racy
}

// modeOf turns the system's mode into Go's.
func modeOf(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & syscall.S_IFMT {
	case syscall.S_IFDIR:
		mode |= fs.ModeDir
	case syscall.S_IFLNK:
		mode |= fs.ModeSymlink
	case syscall.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case syscall.S_IFSOCK:
		mode |= fs.ModeSocket
	case syscall.S_IFBLK:
		mode |= fs.ModeDevice
	case syscall.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	}
	for _, b := range [...]struct {
		bit  uint32
		mode fs.FileMode
	}{{syscall.S_ISUID, fs.ModeSetuid}, {syscall.S_ISGID, fs.ModeSetgid}, {syscall.S_ISVTX, fs.ModeSticky}} {
		if m&b.bit != 0 {
			mode |= b.mode
		}
	}
	return mode
}
