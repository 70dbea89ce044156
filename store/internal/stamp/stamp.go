// Package stamp tells cheaply whether a file is still the one that was read:
// one stat instead of a read. It knows nothing of what the file holds.
package stamp

import (
	"errors"
	"io/fs"
	"syscall"
	"time"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// racy is how old a file has to be before its modification time can tell a
// later write from the one that was seen: file times move in ticks of some
// milliseconds, and an inode number freed by one replacement may be used by
// the next.
const racy = 100 * time.Millisecond

// Stamp identifies one state of a file. The zero Stamp is that of a file that
// is not there. Stamps are compared with ==.
type Stamp struct {
	dev, ino uint64
	size     int64
	mtime    int64 // ns
	// settled: a write after this stamp was taken shows in the next one.
	settled bool
}

// Take stats path, following no symlink. A missing file is no error.
func Take(f disk.FS, path string, now time.Time) (Stamp, error) {
	fi, err := f.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Stamp{}, nil
	}
	if err != nil {
		return Stamp{}, err
	}
	return of(fi, now), nil
}

func of(fi fs.FileInfo, now time.Time) Stamp {
	s := Stamp{size: fi.Size(), mtime: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.dev, s.ino = uint64(st.Dev), uint64(st.Ino)
	}
	age := now.Sub(fi.ModTime())
	s.settled = age > racy
	return s
}

// Missing reports whether the file was not there.
func (s Stamp) Missing() bool { return s == Stamp{} }

// Same reports whether a file with the stamp now is known to hold what it held
// when s was taken, provided that s was taken before reading it. It errs to
// false: a file written just before s was taken has to be read again.
func (s Stamp) Same(now Stamp) bool {
	if s.Missing() || now.Missing() {
		return s.Missing() && now.Missing()
	}
	return s.settled && s.dev == now.dev && s.ino == now.ino && s.size == now.size && s.mtime == now.mtime
}
