package store

import (
	"time"

	"golang.org/x/sys/unix"
)

// cameAfter reports whether a directory came to its path after a moment: it was
// made later, or it was made before and moved there later, which changes its
// ctime alone. Where the file system does not know when it was made, it may
// have come after.
func cameAfter(path string, moment time.Time) bool {
	var st unix.Statx_t
	const want = unix.STATX_BTIME | unix.STATX_CTIME | unix.STATX_MTIME
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, want, &st)
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return true
	}
	born, changed := statxTime(st.Btime), statxTime(st.Ctime)
	return born.After(moment) || changed.After(moment) && !changed.Equal(statxTime(st.Mtime))
}

func statxTime(ts unix.StatxTimestamp) time.Time { return time.Unix(ts.Sec, int64(ts.Nsec)) }
