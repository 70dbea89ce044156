package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

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
	dirents  []byte // what directories are read into
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
	ahead       *lookAhead // of the entries lo to hi, nil when they are few
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
	defer unix.Close(d.fd)
	if err := checkContext(s.ctx); err != nil {
		return err
	}
	if depth > maxDepth {
		return fmt.Errorf("scan %s: directories too deep", d.prefix)
	}
	d.ahead = s.lookAhead(d)
	defer d.ahead.wait()
	names, err := s.names(d)
	if err != nil {
		return fmt.Errorf("scan %s: %w", d.prefix, err)
	}
	d.ahead.finish()
	i := d.lo
	for k := range names {
		n := &names[k]
		for i < d.hi && s.below(d, i) < n.key {
			s.gone(&s.old.entries[i])
			i++
		}
		end := i
		if n.tree() {
			for end < d.hi && strings.HasPrefix(s.below(d, end), n.key) {
				end++
			}
			err = s.subdir(d, n, i, end, depth)
		} else {
			for end < d.hi && s.below(d, end) == n.key {
				end++
			}
			err = s.file(d, n, i, end)
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

// below is the name of an old entry, from the directory that is scanned.
func (s *scanner) below(d *dirScan, i int) string { return s.old.entries[i].name[len(d.prefix):] }

// names reads the directory, sorted as the index is, and reads its ignore and
// attribute files.
func (s *scanner) names(d *dirScan) ([]diskName, error) {
	names, err := s.readNames(d.fd, d.hi-d.lo)
	if err != nil {
		return nil, err
	}
	var hasIgnore, hasAttrs bool
	for i := range names {
		n := &names[i]
		hasIgnore = hasIgnore || n.key == ".gitignore"
		hasAttrs = hasAttrs || n.key == ".gitattributes"
		if n.kind == unix.S_IFDIR {
			n.gitlink = s.isGitlink(d, n.key)
			if !n.gitlink {
				n.key += "/"
			}
		}
	}
	sortNames(names)
	s.readRules(d, hasIgnore, hasAttrs)
	return names, nil
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
	fd, st, err := openRegular(dirfd, name)
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd)
	if st.Size > maxRuleFile {
		return nil, false
	}
	b, err := readSized(fd, st.Size)
	return b, err == nil
}

// openRegular opens a regular file of a directory, never a symlink, and never
// waits for the other end of a FIFO.
func openRegular(dirfd int, name string) (int, *unix.Stat_t, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(dirfd, name, flags, 0)
	for err == unix.EINTR {
		fd, err = unix.Openat(dirfd, name, flags, 0)
	}
	if err != nil {
		return -1, nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && fileKind(&st) != unix.S_IFREG {
		err = errFileChanged
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, &st, nil
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
func (s *scanner) subdir(d *dirScan, n *diskName, lo, hi, depth int) error {
	path := d.prefix + n.name()
	sub := dirScan{prefix: path + "/", lo: lo, hi: hi, onlyTracked: d.onlyTracked, ignores: d.ignores, attrs: d.attrs}
	if !sub.onlyTracked && d.ignores.ignored(path, true) {
		sub.onlyTracked = true
	}
	if sub.onlyTracked && lo == hi {
		return nil
	}
	if !storableName(n.name()) && lo == hi {
		s.problem(path, badName)
		return nil
	}
	fd, err := openDir(d.fd, n.name())
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
