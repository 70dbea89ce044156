package store

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/nodefile"
)

// asideDir is where Repair puts what it takes away, below the root: nothing is
// deleted that anybody might have written.
const asideDir = ".repaired"

// Repaired is what Repair found and did.
type Repaired struct {
	Mended []Finding // gone now
	Left   []Finding // still there: somebody has to decide
	// Aside is the directory that holds what was taken away, "" when nothing
	// was.
	Aside string
}

// Repair opens a root, mends what can be mended without losing a byte, and
// returns what it mended and what it left. Mended are the registry's rows,
// histories, messages and meta.json files that Git still has, deletions and
// creations that were cut off, runs of dead processes, and leftovers of writes.
// A damaged file is moved to .repaired/ below the root before another takes its
// place. Sessions limits the work to these ids; none means all. Progress, if
// not nil, is told of each session. Errors are Open's and Check's.
func Repair(ctx context.Context, opt Options, progress func(done, total int), sessions ...string) (Repaired, error) {
	before, err := checkOnly(ctx, opt, sessions)
	if err != nil {
		return Repaired{}, err
	}
	r := &repairer{before: before, aside: filepath.Join(asideDir, time.Now().UTC().Format("20060102T150405.000000000Z"))}
	r.keepRegistry(opt)
	opt.ReadOnly, opt.Reconcile, opt.Watch = false, ReconcileAuto, false
	s, err := Open(ctx, opt)
	if err != nil {
		return Repaired{}, err
	}
	r.s = s
	r.run(ctx, progress)
	if err := s.Close(); err != nil {
		return Repaired{}, err
	}
	after, err := checkOnly(ctx, opt, sessions)
	if err != nil {
		return Repaired{}, err
	}
	out := Repaired{Left: after, Mended: difference(before, after)}
	if r.moved {
		out.Aside = r.aside
	}
	return out, nil
}

// checkOnly checks a root that it opens for reading.
func checkOnly(ctx context.Context, opt Options, sessions []string) ([]Finding, error) {
	opt.ReadOnly, opt.Create, opt.Watch = true, false, false
	s, err := Open(ctx, opt)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var out []Finding
	err = s.Check(ctx, func(f Finding) { out = append(out, f) }, sessions...)
	return out, err
}

// difference returns the findings of before that after has not, by kind and
// place.
func difference(before, after []Finding) []Finding {
	type key struct{ kind, session, path string }
	left := map[key]int{}
	for _, f := range after {
		left[key{f.Kind, f.Session, f.Path}]++
	}
	var out []Finding
	for _, f := range before {
		k := key{f.Kind, f.Session, f.Path}
		if left[k] > 0 {
			left[k]--
			continue
		}
		out = append(out, f)
	}
	return out
}

// repairer mends the findings of one root.
type repairer struct {
	s      *Store
	before []Finding
	aside  string // relative to the root
	moved  bool
}

// keepRegistry copies a registry that is about to be rebuilt: Open itself
// writes it anew.
func (r *repairer) keepRegistry(opt Options) {
	for _, f := range r.before {
		if !strings.HasPrefix(f.Kind, "index_") && f.Kind != "row_without_directory" {
			continue
		}
		fsys := opt.FS
		if fsys == nil {
			fsys = disk.OS
		}
		raw, err := fsys.ReadFile(filepath.Join(opt.Root, "index.json"))
		if err != nil || len(raw) == 0 {
			return
		}
		dir := filepath.Join(opt.Root, r.aside)
		if disk.MkdirOwned(fsys, dir, 0o700) == nil &&
			disk.WriteAtomic(fsys, filepath.Join(dir, "index.json"), raw, disk.WriteOptions{}) == nil {
			r.moved = true
		}
		return
	}
}

// run mends each finding that has a cure. What fails is logged, and found
// again by the check that follows.
func (r *repairer) run(ctx context.Context, progress func(done, total int)) {
	for i, f := range r.before {
		if ctx.Err() != nil {
			return
		}
		if err := r.mend(ctx, f); err != nil {
			r.s.log.Warn("repair", "kind", f.Kind, "session", f.Session, "err", err)
		}
		if progress != nil {
			progress(i+1, len(r.before))
		}
	}
}

// mend mends one finding. Most of what concerns the root, histories that Git
// still has, and dead runs was mended by Open.
func (r *repairer) mend(ctx context.Context, f Finding) error {
	path := filepath.Join(r.s.root, filepath.FromSlash(f.Path))
	if filepath.IsAbs(f.Path) {
		path = f.Path
	}
	switch f.Kind {
	case "row_without_directory":
		return r.dropRow(ctx, f.Session)
	case "temp_file":
		return r.locked(ctx, f.Session, func(layout.Place) error { return r.setAside(path) })
	case "git_lock":
		return r.locked(ctx, f.Session, func(p layout.Place) error { return r.dropGitLock(p, path) })
	case "stale_hold":
		return r.dropHold(path)
	case "dead_lease", "running_without_run":
		return r.s.reconcileOne(ctx, f.Session)
	case "node_without_run":
		_, err := r.s.SweepNodes(ctx, f.Session)
		return err
	case "git_index_damaged":
		if err := r.locked(ctx, f.Session, func(layout.Place) error { return r.setAside(path) }); err != nil {
			return err
		}
		return r.recommit(ctx, f.Session)
	case "empty_ref":
		return r.locked(ctx, f.Session, func(p layout.Place) error { return r.fillRef(ctx, p, path) })
	case "meta_missing", "meta_invalid", "unreadable_node":
		return r.locked(ctx, f.Session, func(p layout.Place) error { return r.fromGit(ctx, p, path) })
	}
	return nil
}

// locked runs fn with a session's inter-process lock held, or without one for
// what belongs to the root. Placement is read with the lock held.
func (r *repairer) locked(ctx context.Context, id string, fn func(layout.Place) error) error {
	if id == "" {
		return fn(layout.Place{})
	}
	lock, err := filelock.Acquire(ctx, r.s.layout.LockPath(id), r.s.lockTimeout)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	p, err := r.s.layout.Resolve(id)
	if err != nil {
		return err
	}
	if p.Legacy || p.Symlink || p.Deleted || p.Unreachable {
		return nil // not ours to change
	}
	return fn(p)
}

// dropRow removes a row whose session is not there, after another look.
func (r *repairer) dropRow(ctx context.Context, id string) error {
	if p, err := r.s.layout.Resolve(id); err != nil || p.Present || p.Symlink || p.Unreachable {
		return err
	}
	r.s.list.removeKnown(id)
	return r.s.list.flush(ctx)
}

// setAside moves a file below .repaired/, under the path that it had.
func (r *repairer) setAside(path string) error {
	rel, err := filepath.Rel(r.s.root, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return nil // outside of the root, in a working folder: left alone
	}
	if fi, err := r.s.fs.Lstat(path); err != nil || !fi.Mode().IsRegular() {
		return ignoreMissing(err)
	}
	to := filepath.Join(r.s.root, r.aside, rel)
	if err := disk.MkdirOwned(r.s.fs, filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := r.s.fs.RenameNoReplace(path, to); err != nil {
		return err
	}
	r.moved = true
	return errors.Join(r.s.fs.SyncDir(filepath.Dir(to)), r.s.fs.SyncDir(filepath.Dir(path)))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// dropGitLock removes a lock of Git's that no process can own any more: no
// process of git stands in the session's directory, and none has the file open.
func (r *repairer) dropGitLock(p layout.Place, path string) error {
	if gitAtWork(p.Dir) {
		return nil
	}
	return ignoreMissing(r.s.fs.Remove(path))
}

// gitAtWork reports whether a process of git works in a directory, as far as
// this process may see others.
func gitAtWork(dir string) bool {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join("/proc", p.Name(), "comm"))
		if err != nil || !strings.HasPrefix(string(comm), "git") {
			continue
		}
		cwd, err := os.Readlink(filepath.Join("/proc", p.Name(), "cwd"))
		if err != nil || cwd == dir || strings.HasPrefix(cwd, dir+"/") {
			return true
		}
	}
	return false
}

// dropHold removes the hold of a migrating process that is gone.
func (r *repairer) dropHold(path string) error {
	raw, err := r.s.fs.ReadFile(path)
	if err != nil {
		return ignoreMissing(err)
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil && processAlive(pid) {
		return nil
	}
	return ignoreMissing(r.s.fs.Remove(path))
}

// recommit commits what is there, which makes Git's own files anew.
func (r *repairer) recommit(ctx context.Context, id string) error {
	_, _, err := r.s.CommitTurn(ctx, id, "sessionfs: repair")
	return err
}

// fillRef gives an emptied ref the commit that its log names last.
func (r *repairer) fillRef(ctx context.Context, p layout.Place, path string) error {
	if raw, err := r.s.fs.ReadFile(path); err != nil || len(bytes.TrimSpace(raw)) > 0 {
		return ignoreMissing(err)
	}
	repo, err := gitrepo.Open(p.Dir, r.s.git)
	if err != nil {
		return nil
	}
	defer repo.Close()
	log, err := repo.Log(ctx, 1)
	if err != nil || len(log) == 0 {
		return err
	}
	return disk.WriteAtomic(r.s.fs, path, []byte(log[0].Hash+"\n"), disk.WriteOptions{})
}

// fromGit puts the newest committed content of a file of the session back,
// after the damaged one was set aside. A file that Git has not is left as it is.
func (r *repairer) fromGit(ctx context.Context, p layout.Place, path string) error {
	rel, err := filepath.Rel(p.Dir, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return nil
	}
	repo, err := gitrepo.Open(p.Dir, r.s.git)
	if err != nil {
		return nil // found by the check, too
	}
	defer repo.Close()
	content, err := committed(ctx, repo, filepath.ToSlash(rel))
	if err != nil || content == nil || !sound(rel, content) {
		return err
	}
	if err := r.setAside(path); err != nil {
		return err
	}
	if err := disk.WriteAtomic(r.s.fs, path, content, disk.WriteOptions{NoReplace: true}); err != nil {
		return err
	}
	return r.s.Reload(ctx, p.ID)
}

// committed returns a regular file of the newest commit, nil when it has none.
func committed(ctx context.Context, repo *gitrepo.Repo, path string) ([]byte, error) {
	log, err := repo.Log(ctx, 1)
	if err != nil || len(log) == 0 {
		return nil, err
	}
	e, err := repo.Stat(ctx, log[0].Hash, path)
	if errors.Is(err, gitrepo.ErrNotFound) || err == nil && !e.FileMode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return repo.Blob(ctx, e.Hash)
}

// sound reports whether a file's content can take the place of a damaged one.
func sound(rel string, content []byte) bool {
	if filepath.Base(rel) == metaFile {
		_, err := jsonedit.ParseObject(content)
		return err == nil
	}
	_, err := nodefile.Parse(content)
	return err == nil
}
