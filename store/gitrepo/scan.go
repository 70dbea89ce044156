package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store/internal/disk"
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
	return names, nil
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

// gone handles an index entry without a file: a deletion, unless the entry says
// that the work tree does not count.
func (s *scanner) gone(e *indexEntry) {
	if e.pinned() && e.stage() == 0 {
		s.keep(e)
		return
	}
	s.touch(e.name)
	s.dirty = true
}

// keep takes an entry over as it is.
func (s *scanner) keep(e *indexEntry) { s.new.entries = append(s.new.entries, *e) }

// touch marks the directories above a path as changed.
func (s *scanner) touch(path string) {
	for {
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			s.changed[""] = true
			return
		}
		path = path[:i]
		if s.changed[path] {
			return
		}
		s.changed[path] = true
	}
}

func (s *scanner) problem(path, text string) {
	s.problems = append(s.problems, Problem{path, text})
}

// file handles one name that is not a directory to descend into. old are the
// entries of that path: none, one, or the stages of a merge conflict.
func (s *scanner) file(d *dirScan, n *diskName, path string, old []indexEntry) error {
	var e *indexEntry
	if len(old) == 1 && old[0].stage() == 0 {
		e = &old[0]
	}
	if e != nil && e.pinned() {
		s.keep(e)
		return nil
	}
	if len(old) == 0 && (d.onlyTracked || n.kind == unix.S_IFIFO || d.ignores.ignored(path, n.gitlink)) {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, n.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			s.goneAll(old)
			return nil
		}
		return fmt.Errorf("scan %s: %w", path, err)
	}
	if e != nil && e.ext&flagIntentToAdd == 0 && s.unchanged(e, &st, n.gitlink) {
		s.keep(e)
		return nil
	}
	return s.stage(d, n, path, &st, old, e)
}

func (s *scanner) goneAll(old []indexEntry) {
	for i := range old {
		s.gone(&old[i])
	}
}

// unchanged reports whether lstat alone shows that the file is as the index has
// it.
func (s *scanner) unchanged(e *indexEntry, st *unix.Stat_t, gitlink bool) bool {
	if gitlink || e.mode != s.modeFor(st, e) {
		return false
	}
	now := statOf(st)
	was := e.stat
	now.dev, was.dev = 0, 0 // differs between mounts of one disk
	if now != was {
		return false
	}
	racy := was.mtimeSec > s.oldTime.sec || was.mtimeSec == s.oldTime.sec && was.mtimeNsec >= s.oldTime.nsec
	return !racy
}

// modeFor is the mode that a file gets in the index; 0 for what Git does not
// store. e is its entry, or nil.
func (s *scanner) modeFor(st *unix.Stat_t, e *indexEntry) uint32 {
	switch fileKind(st) {
	case unix.S_IFLNK:
		return modeSymlink
	case unix.S_IFREG:
		if e != nil && !s.symlinks && e.mode == modeSymlink {
			return modeSymlink
		}
		if !s.fileMode {
			if e != nil && e.mode&modeType == modeFile&modeType {
				return e.mode
			}
			return modeFile
		}
		if st.Mode&unix.S_IXUSR != 0 {
			return modeExec
		}
		return modeFile
	}
	return 0
}

// stage makes the entry of a file that is new or may have changed.
func (s *scanner) stage(d *dirScan, n *diskName, path string, st *unix.Stat_t, old []indexEntry, e *indexEntry) error {
	mode := s.modeFor(st, e)
	if e == nil && (!storableName(n.name) || mode == modeSymlink && n.name == ".gitmodules") {
		s.problem(path, badName)
		return nil
	}
	if len(old) == 0 {
		s.unpin(path + "/")
	}
	var h plumbing.Hash
	var err error
	switch {
	case n.gitlink && fileKind(st) == unix.S_IFDIR:
		return s.stageGitlink(path, st, e)
	case mode == 0:
		s.goneAll(old)
		return nil
	default:
		h, err = s.store(d, n.name, path, mode, st, e)
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP):
		s.goneAll(old)
		return nil
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		s.problem(path, "file is not readable")
		for i := range old {
			s.keep(&old[i])
		}
		return nil
	case err != nil:
		return fmt.Errorf("store %s: %w", path, err)
	}
	s.put(indexEntry{name: path, mode: mode, hash: h, stat: statOf(st)}, e)
	return nil
}

// unpin makes the entries below a path that has become a file count as gone.
func (s *scanner) unpin(prefix string) {
	lo, hi := s.old.under(prefix)
	for i := lo; i < hi; i++ {
		s.old.entries[i].flg, s.old.entries[i].ext = 0, 0
	}
}

// put adds the entry that replaces e, or a new one.
func (s *scanner) put(n indexEntry, e *indexEntry) {
	s.new.entries = append(s.new.entries, n)
	if e == nil || e.mode != n.mode || e.hash != n.hash || e.ext != 0 {
		s.touch(n.name)
		s.dirty = true
		return
	}
	if e.stat != n.stat {
		s.dirty = true
	}
}

// stageGitlink stores the commit that a nested repository is at.
func (s *scanner) stageGitlink(path string, st *unix.Stat_t, e *indexEntry) error {
	h, ok := nestedHead(s.r.fs, filepath.Join(s.r.work, path))
	if !ok && e == nil {
		// git add refuses the whole work tree for this.
		s.problem(path, "nested repository without a commit")
		return nil
	}
	if !ok {
		s.keep(e) // not checked out: an empty directory stands for it
		return nil
	}
	if e != nil && e.hash == h && e.mode == modeGitlink {
		s.keep(e)
		return nil
	}
	s.put(indexEntry{name: path, mode: modeGitlink, hash: h, stat: statOf(st)}, e)
	return nil
}

// nestedHead is the commit of a nested repository's HEAD.
func nestedHead(f disk.FS, dir string) (plumbing.Hash, bool) {
	git, err := gitDir(f, dir)
	if err != nil {
		return plumbing.ZeroHash, false
	}
	sub := Repo{work: dir, git: git, common: commonDir(f, git), fs: f, opt: Options{FS: f}.withDefaults()}
	sub.objects = objectReader{fs: f, common: sub.common}
	if !isGitDir(f, sub.git, sub.common) {
		return plumbing.ZeroHash, false
	}
	head, err := sub.readHead()
	return head.hash, err == nil && head.born
}

const badName = "git cannot store this name"

// storableName refuses what Git refuses in a path: names that stand for .git on
// some file system.
func storableName(name string) bool {
	low := asciiLower(name)
	low = strings.TrimRight(low, " .")
	if i := strings.IndexAny(low, `:\\`); i >= 0 {
		low = strings.TrimRight(low[:i], " .")
	}
	return low != ".git" && low != "git~1"
}
