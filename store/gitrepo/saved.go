package gitrepo

import (
	"crypto/sha1"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"

	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/sys/unix"
)

// SavedFiles is what the index of a repository knew at one moment.
type SavedFiles struct {
	path string // of the index
	mark unix.Stat_t
	s    *scanner
}

// SavedFiles reads the index. It takes no lock.
func (r *Repo) SavedFiles() (*SavedFiles, error) {
	f := &SavedFiles{path: filepath.Join(r.git, "index")}
	if err := unix.Stat(f.path, &f.mark); err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	idx, when, err := r.readIndex(emptyTree)
	if err != nil {
		return nil, err
	}
	f.s = &scanner{r: r, old: idx, oldTime: when, symlinks: true}
	return f, nil
}

// Current reports whether the index is still the one that was read.
func (f *SavedFiles) Current() bool {
	var st unix.Stat_t
	return unix.Stat(f.path, &st) == nil && st.Ino == f.mark.Ino && st.Size == f.mark.Size && st.Mtim == f.mark.Mtim && st.Ctim == f.mark.Ctim
}

// Has reports whether Git has the content of a file as it is now: the index
// knows its path (slash-separated, from the work tree) as its attributes show
// it or, where these leave a doubt, as its bytes do. The file is name in the
// directory dirfd. False when in doubt.
func (f *SavedFiles) Has(path string, dirfd int, name string) bool {
	all := f.s.old.entries
	i := sort.Search(len(all), func(i int) bool { return all[i].name >= path })
	if i == len(all) || all[i].name != path {
		return false
	}
	e := &all[i]
	var st unix.Stat_t
	if e.stage() != 0 || e.ext&flagIntentToAdd != 0 || unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	if !e.pinned() && f.s.unchanged(e, &st, false) {
		return true
	}
	return fileKind(&st) == unix.S_IFREG && e.mode&modeType == modeFile&modeType && blobHash(dirfd, name, st.Size) == e.hash
}

// blobHash is the name that Git gives the bytes of a file; zero when they
// cannot be read.
func blobHash(dirfd int, name string, size int64) (h plumbing.Hash) {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return h
	}
	file := os.NewFile(uintptr(fd), name)
	defer func() { _ = file.Close() }()
	sum := sha1.New()
	fmt.Fprintf(sum, "blob %d\x00", size)
	if n, err := io.Copy(sum, file); err != nil || n != size {
		return h
	}
	return plumbing.Hash(sum.Sum(nil))
}

// Untouched reports whether nobody has written a file since it was staged, not
// even the same content again: it has the time that the index has of it, and
// both have these bytes. Path is slash-separated, from the work tree; blob is a
// full hash. False when in doubt.
func (f *SavedFiles) Untouched(path, blob string) bool {
	all := f.s.old.entries
	i := sort.Search(len(all), func(i int) bool { return all[i].name >= path })
	if i == len(all) || all[i].name != path || all[i].hash.String() != blob {
		return false
	}
	var st unix.Stat_t
	full := filepath.Join(f.s.r.work, filepath.FromSlash(path))
	if unix.Lstat(full, &st) != nil || fileKind(&st) != unix.S_IFREG {
		return false
	}
	now, was := statOf(&st), all[i].stat
	if now.mtimeSec != was.mtimeSec || now.mtimeNsec != was.mtimeNsec {
		return false
	}
	return blobHash(unix.AT_FDCWD, full, st.Size) == all[i].hash
}
