package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/nodefile"
)

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

// setAside moves a file, or what stands in its place, below .repaired/, under the
// path that it had: a directory whole, a symlink itself.
func (r *repairer) setAside(path string) error {
	rel, err := filepath.Rel(r.s.root, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return nil // outside of the root, in a working folder: left alone
	}
	if _, err := r.s.fs.Lstat(path); err != nil {
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
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil || cwd == dir || strings.HasPrefix(cwd, dir+"/") {
			return true
		}
	}
	return false
}

// recommit commits what is there, which makes Git's own files anew.
func (r *repairer) recommit(ctx context.Context, id string) error {
	_, _, err := r.s.CommitTurn(ctx, id, repairSubject)
	return err
}

// fromGit puts the newest sound content of a file of the session that Git has
// back, after the damaged one was set aside. A file that Git has not is left as
// it is.
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
	content, err := lastSound(ctx, repo, filepath.ToSlash(rel))
	if err != nil || content == nil {
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

// restoreMissing puts messages back that others, or the head, refer to and that
// Git has, unless they were deleted on purpose. What comes back may refer to
// another one.
func (r *repairer) restoreMissing(ctx context.Context, p layout.Place) error {
	repo, err := gitrepo.Open(p.Dir, r.s.git)
	if err != nil {
		return nil
	}
	defer repo.Close()
	sn, err := r.s.Load(ctx, p.ID)
	if err != nil {
		return err
	}
	past, err := goneNodes(ctx, repo, sn)
	if err != nil {
		return err
	}
	for {
		n, err := r.restoreNodes(ctx, p, repo, past, sn)
		if err != nil || n == 0 {
			return err
		}
		if sn, err = r.s.Load(ctx, p.ID); err != nil {
			return err
		}
	}
}

// lost returns the ids that a predecessor or the head names and no node has.
func (sn *Snapshot) lost() map[string]bool {
	out := map[string]bool{}
	note := func(id string) {
		if _, ok := sn.Index.Get(id); !ok && id != "" && id != dag.RootID {
			out[id] = true
		}
	}
	note(sn.Head)
	for n := range sn.Index.All() {
		note(n.Predecessor)
	}
	return out
}

// restoreNodes writes those of the gone files that hold a node which the
// snapshot lacks, and returns how many.
func (r *repairer) restoreNodes(ctx context.Context, p layout.Place, repo *gitrepo.Repo, past map[string]*goneNode, sn *Snapshot) (n int, err error) {
	for id := range sn.lost() {
		g := past[id]
		if g == nil || !g.lost(ctx, repo, sn, id) {
			continue
		}
		path := filepath.Join(p.Dir, historyDir, g.file)
		if _, err := r.s.fs.Lstat(path); err == nil {
			continue
		}
		content, err := g.lastSound(ctx, repo)
		if err != nil {
			return n, err
		}
		if content == nil {
			continue
		}
		if err := disk.WriteAtomic(r.s.fs, path, content, disk.WriteOptions{NoReplace: true}); err != nil {
			return n, err
		}
		n++
	}
	if n == 0 {
		return 0, nil
	}
	return n, r.s.Reload(ctx, p.ID)
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
