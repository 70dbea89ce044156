package gitrepo

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

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

// file handles one name that is not a directory to descend into. lo to hi are
// the entries of that path: none, one, or the stages of a merge conflict.
func (s *scanner) file(d *dirScan, n *diskName, lo, hi int) error {
	old := s.old.entries[lo:hi]
	var e *indexEntry
	if len(old) == 1 && old[0].stage() == 0 {
		e = &old[0]
	}
	if e != nil && e.pinned() {
		s.keep(e)
		return nil
	}
	wanted := e != nil && e.ext&flagIntentToAdd == 0 // the entry has content
	if wanted && !n.gitlink && d.ahead.saw(d, lo) {
		s.keep(e)
		return nil
	}
	path := d.prefix + n.key
	if len(old) == 0 && (d.onlyTracked || n.kind == unix.S_IFIFO || d.ignores.ignored(path, n.gitlink)) {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, n.key, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			s.goneAll(old)
			return nil
		}
		return fmt.Errorf("scan %s: %w", path, err)
	}
	if wanted && s.unchanged(e, &st, n.gitlink) {
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
	if e == nil && (!storableName(n.key) || mode == modeSymlink && n.key == ".gitmodules") {
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
		h, err = s.store(d, n.key, path, mode, st, e)
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
	head, err := sub.storedHead()
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
