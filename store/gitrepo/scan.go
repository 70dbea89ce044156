package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// scanner compares the work tree with the index and makes the index that
// `git add -A` would make. Directories are read through descriptors: no path is
// walked for each file, and nobody can put a symlink in the way meanwhile.
type scanner struct {
	ctx     context.Context
	r       *Repo
	old     *gitIndex
	oldTime indexTime // of the old index file
	new     *gitIndex
	changed map[string]bool // directories below which an entry changed
	dirty   bool            // the new index differs from the old one
	objects *objectWriter

	fileMode bool // the executable bit counts
	symlinks bool // symlinks are files of their own
	fold     bool // names differ by case only are the same, for patterns
	autocrlf string
	ignores  *ignorer   // of the whole repository
	attrs    *attrFile  // of the user and the system
	info     []attrLine // .git/info/attributes, over all others
	problems []Problem
}

// indexTime is the time of the index file: what changed at or after it may have
// been missed by a comparison of times ("racy", gitformat-index).
type indexTime struct{ sec, nsec uint32 }

// errFileChanged says that a file changed while it was read.
var errFileChanged = errors.New("file changed while it was read")

// dirScan is the scan of one directory.
type dirScan struct {
	fd     int
	prefix string // "" or ending in '/'
	lo, hi int    // entries of the old index below it
	// onlyTracked is set below an ignored directory: nothing new is taken.
	onlyTracked bool
	ignores     *ignorer
	attrs       *attrFile
}

// diskName is a directory entry under its sort key.
type diskName struct {
	key, name string
	kind      uint32 // S_IFMT part, 0 when not known
	gitlink   bool
	seen      *unix.Stat_t // its lstat, where that was made ahead
}

// run scans the whole work tree.
func (s *scanner) run() error {
	fd, err := openDir(unix.AT_FDCWD, s.r.work)
	if err != nil {
		return fmt.Errorf("scan %s: %w", s.r.work, err)
	}
	s.new = &gitIndex{entries: make([]indexEntry, 0, len(s.old.entries)+16)}
	s.changed = map[string]bool{}
	top := dirScan{fd: fd, hi: len(s.old.entries), ignores: s.ignores, attrs: s.attrs}
	return s.dir(&top, 0)
}

func openDir(at int, name string) (int, error) {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	if at != unix.AT_FDCWD {
		flags |= unix.O_NOFOLLOW
	}
	for {
		fd, err := unix.Openat(at, name, flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// dir merges the names of a directory with the index entries below it. It
// closes d.fd.
func (s *scanner) dir(d *dirScan, depth int) error {
	f := os.NewFile(uintptr(d.fd), d.prefix)
	defer f.Close()
	if err := checkContext(s.ctx); err != nil {
		return err
	}
	if depth > maxDepth {
		return fmt.Errorf("scan %s: directories too deep", d.prefix)
	}
	names, err := s.names(d, f)
	if err != nil {
		return fmt.Errorf("scan %s: %w", d.prefix, err)
	}
	i := d.lo
	for k := range names {
		n := &names[k]
		path := d.prefix + n.name
		full := d.prefix + n.key
		for i < d.hi && s.old.entries[i].name < full {
			s.gone(&s.old.entries[i])
			i++
		}
		end := i
		if strings.HasSuffix(n.key, "/") {
			for end < d.hi && strings.HasPrefix(s.old.entries[end].name, full) {
				end++
			}
			err = s.subdir(d, n, path, i, end, depth)
		} else {
			for end < d.hi && s.old.entries[end].name == path {
				end++
			}
			err = s.file(d, n, path, s.old.entries[i:end])
		}
		if err != nil {
			return err
		}
		i = end
	}
	for ; i < d.hi; i++ {
		s.gone(&s.old.entries[i])
	}
	return nil
}

// names reads the directory, sorted as the index is, and reads its ignore and
// attribute files.
func (s *scanner) names(d *dirScan, f *os.File) ([]diskName, error) {
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	names := make([]diskName, 0, len(entries))
	var hasIgnore, hasAttrs bool
	for _, e := range entries {
		n := diskName{key: e.Name(), name: e.Name(), kind: kindOf(e.Type())}
		if n.name == ".git" {
			continue
		}
		hasIgnore = hasIgnore || n.name == ".gitignore"
		hasAttrs = hasAttrs || n.name == ".gitattributes"
		if n.kind == unix.S_IFDIR {
			n.gitlink = s.isGitlink(d, n.name)
			if !n.gitlink {
				n.key += "/"
			}
		}
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b diskName) int { return strings.Compare(a.key, b.key) })
	s.readRules(d, hasIgnore, hasAttrs)
	lookAhead(d.fd, names)
	return names, nil
}

// manyNames is the number of names from which it pays to look at the files side
// by side before they are compared one after the other.
const manyNames = 256

// lookAhead makes the lstat of the files of a large directory. One that differs
// from the index is looked at again before it is stored.
func lookAhead(fd int, names []diskName) {
	if len(names) < manyNames {
		return
	}
	stats := make([]unix.Stat_t, len(names))
	var next atomic.Int64
	var wg sync.WaitGroup
	work := func() {
		for {
			to := int(next.Add(64))
			if to-64 >= len(names) {
				return
			}
			for i := to - 64; i < min(to, len(names)); i++ {
				if names[i].kind == unix.S_IFREG && unix.Fstatat(fd, names[i].name, &stats[i], unix.AT_SYMLINK_NOFOLLOW) == nil {
					names[i].seen = &stats[i]
				}
			}
		}
	}
	for range min(runtime.GOMAXPROCS(0), 4) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}

func kindOf(t os.FileMode) uint32 {
	switch {
	case t.IsDir():
		return unix.S_IFDIR
	case t.IsRegular():
		return unix.S_IFREG
	case t&os.ModeSymlink != 0:
		return unix.S_IFLNK
	}
	return unix.S_IFIFO // something that Git does not store
}

// readRules puts the directory's own rules before those of the directories
// above it. Git follows no symlink here.
func (s *scanner) readRules(d *dirScan, hasIgnore, hasAttrs bool) {
	if hasIgnore && !d.onlyTracked {
		if b, ok := readRuleFile(d.fd, ".gitignore"); ok {
			d.ignores = &ignorer{up: d.ignores, list: parseIgnore(string(b), d.prefix, s.fold)}
		}
	}
	if hasAttrs {
		if b, ok := readRuleFile(d.fd, ".gitattributes"); ok {
			d.attrs = &attrFile{up: d.attrs, lines: parseAttributes(string(b), d.prefix, d.prefix == "", s.fold)}
		}
	}
}

// maxRuleFile bounds an ignore or attribute file, as git bounds the latter.
const maxRuleFile = 100 << 20

func readRuleFile(dirfd int, name string) ([]byte, bool) {
	f, st, err := openRegular(dirfd, name)
	if err != nil || st.Size > maxRuleFile {
		if f != nil {
			f.Close()
		}
		return nil, false
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return b, err == nil
}

// openRegular opens a regular file of a directory, never a symlink, and never
// waits for the other end of a FIFO.
func openRegular(dirfd int, name string) (*os.File, *unix.Stat_t, error) {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	for err == unix.EINTR {
		fd, err = unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, nil, err
	}
	if fileKind(&st) != unix.S_IFREG {
		unix.Close(fd)
		return nil, nil, errFileChanged
	}
	return os.NewFile(uintptr(fd), name), &st, nil
}

// isGitlink reports whether a directory is stored as a link to a commit: it is
// already, or it is a repository with nothing of it in the index.
func (s *scanner) isGitlink(d *dirScan, name string) bool {
	path := d.prefix + name
	if e := s.old.find(path); e != nil {
		if e.mode == modeGitlink {
			return true
		}
		e.flg, e.ext = 0, 0 // there is a directory, whatever the entry claims
	}
	lo, hi := s.old.under(path + "/")
	if lo != hi {
		return false
	}
	var st unix.Stat_t
	if unix.Fstatat(d.fd, name+"/.git", &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	return s.nested(path)
}

// nested reports whether a directory is a repository.
func (s *scanner) nested(path string) bool {
	git, err := gitDir(s.r.fs, filepath.Join(s.r.work, path))
	return err == nil && isGitDir(s.r.fs, git, commonDir(s.r.fs, git))
}

// subdir scans a directory that is stored as a tree.
func (s *scanner) subdir(d *dirScan, n *diskName, path string, lo, hi, depth int) error {
	sub := dirScan{prefix: path + "/", lo: lo, hi: hi, onlyTracked: d.onlyTracked, ignores: d.ignores, attrs: d.attrs}
	if !sub.onlyTracked && d.ignores.ignored(path, true) {
		sub.onlyTracked = true
	}
	if sub.onlyTracked && lo == hi {
		return nil
	}
	if !storableName(n.name) && lo == hi {
		s.problem(path, badName)
		return nil
	}
	fd, err := openDir(d.fd, n.name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		for i := lo; i < hi; i++ { // it went away meanwhile
			s.gone(&s.old.entries[i])
		}
		return nil
	}
	if errors.Is(err, unix.EACCES) {
		s.problem(path, "directory is not readable")
		for i := lo; i < hi; i++ {
			s.keep(&s.old.entries[i])
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("scan %s: %w", path, err)
	}
	sub.fd = fd
	return s.dir(&sub, depth+1)
}
