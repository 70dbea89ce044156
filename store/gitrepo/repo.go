package gitrepo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// Repo is one repository. It keeps no state of it between calls but what its
// name or checksum proves to be current (decoded packs, the index that it wrote
// itself), so that what other processes do is seen at once. It is safe for
// concurrent use.
type Repo struct {
	work   string // work tree
	git    string // .git, or the private directory of a linked work tree
	common string // where objects, refs and config lie; usually git
	opt    Options
	fs     disk.FS

	uid, gid int  // owner of git; new files take it
	give     bool // this process is somebody else
	started  func() string
	perm     fs.FileMode // permissions of git

	objects  objectReader
	commitMu sync.Mutex                    // one commit of this process at a time
	made     atomic.Pointer[object.Commit] // the last one of this process
	kept     atomic.Pointer[keptIndex]
	pieces   atomic.Pointer[treePieces] // of the last trees that were written
	warned   atomic.Bool                // of a damaged ref

	problemsMu sync.Mutex
	problems   []Problem
}

// Open opens the repository whose work tree is dir. It reads next to nothing:
// a Repo can be kept for as long as one likes. ErrNotRepository when there is
// no .git or it is only begun.
func Open(dir string, opt Options) (*Repo, error) {
	opt = opt.withDefaults()
	git, err := gitDir(opt.FS, dir)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	r, err := newRepo(dir, git, opt)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	if !isGitDir(opt.FS, r.git, r.common) {
		return nil, fmt.Errorf("open %s: %w", dir, ErrNotRepository)
	}
	return r, nil
}

// Forget drops what the repository keeps of the objects that were read. The
// next reading begins anew.
func (r *Repo) Forget() { r.objects.forget() }

func newRepo(work, git string, opt Options) (*Repo, error) {
	r := &Repo{work: work, git: git, common: commonDir(opt.FS, git), opt: opt, fs: opt.FS}
	fi, err := r.fs.Stat(git)
	if err != nil {
		return nil, err
	}
	r.perm = fi.Mode().Perm() | 0o600
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		r.uid, r.gid = int(st.Uid), int(st.Gid)
		r.give = r.uid != os.Geteuid() || r.gid != os.Getegid()
	}
	r.objects = objectReader{fs: r.fs, common: r.common}
	r.started = sync.OnceValue(processStart)
	return r, nil
}

// Close forgets what is cached. The Repo stays usable.
func (r *Repo) Close() error {
	r.made.Store(nil)
	r.kept.Store(nil)
	r.pieces.Store(nil)
	r.objects.close()
	return nil
}

// Dir returns the work tree.
func (r *Repo) Dir() string { return r.work }

// gitDir finds the Git directory of a work tree: .git itself, or where the file
// .git points.
func gitDir(f disk.FS, work string) (string, error) {
	path := filepath.Join(work, ".git")
	fi, err := f.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || isNotDir(err) {
		return "", ErrNotRepository
	}
	if err != nil {
		return "", err
	}
	if fi.IsDir() {
		return path, nil
	}
	b, err := f.ReadFile(path)
	if err != nil {
		return "", err
	}
	target, ok := strings.CutPrefix(strings.TrimRight(string(b), "\r\n"), "gitdir: ")
	if !ok {
		return "", fmt.Errorf("%w: .git is neither a directory nor points to one", ErrNotRepository)
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(work, target)
	}
	return filepath.Clean(target), nil
}

// commonDir is the Git directory that linked work trees share.
func commonDir(f disk.FS, git string) string {
	b, err := f.ReadFile(filepath.Join(git, "commondir"))
	if err != nil {
		return git
	}
	dir := strings.TrimRight(string(b), "\r\n")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(git, dir)
	}
	return filepath.Clean(dir)
}

// isGitDir is git's own test: a HEAD that makes sense, objects and refs.
func isGitDir(f disk.FS, git, common string) bool {
	for _, dir := range []string{"objects", "refs"} {
		if fi, err := f.Stat(filepath.Join(common, dir)); err != nil || !fi.IsDir() {
			return false
		}
	}
	head := filepath.Join(git, "HEAD")
	if link, err := f.Readlink(head); err == nil {
		return strings.HasPrefix(link, "refs/")
	}
	b, err := f.ReadFile(head)
	if err != nil {
		return false
	}
	text := string(b)
	if target, ok := strings.CutPrefix(text, "ref:"); ok {
		return strings.HasPrefix(strings.TrimLeft(target, " \t"), "refs/")
	}
	_, ok := parseHash(strings.TrimRight(text, " \t\r\n"))
	return ok
}

// create makes a new file below .git that belongs to the owner of .git. It
// fails when the file exists.
func (r *Repo) create(path string, perm fs.FileMode) (disk.File, error) {
	f, err := r.fs.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm&r.perm)
	if err != nil {
		return nil, err
	}
	if err := r.own(f); err != nil {
		return nil, errors.Join(err, f.Close(), r.fs.Remove(path))
	}
	return f, nil
}

// own gives a file to the owner of .git, as far as this process may.
func (r *Repo) own(f disk.File) error {
	if !r.give {
		return nil
	}
	if err := f.Chown(r.uid, r.gid); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// mkdir makes a directory below .git and the missing ones above it, owned as
// their parents are.
func (r *Repo) mkdir(dir string) error {
	if fi, err := r.fs.Stat(dir); err == nil && fi.IsDir() {
		return nil
	}
	return disk.MkdirOwned(r.fs, dir, 0o777&r.perm)
}

// report keeps problems for Problems and logs each of them.
func (r *Repo) report(problems []Problem) {
	for _, p := range problems {
		r.opt.Log.Warn("git commit", "dir", r.work, "path", p.Path, "problem", p.Text)
	}
	r.problemsMu.Lock()
	defer r.problemsMu.Unlock()
	r.problems = problems
}

// Problems returns what the last CommitAll could not store as git would have
// been asked to: filters and encodings (the raw bytes were stored), names that
// Git cannot hold and nested repositories without a commit (left out).
func (r *Repo) Problems() []Problem {
	r.problemsMu.Lock()
	defer r.problemsMu.Unlock()
	return append([]Problem(nil), r.problems...)
}
