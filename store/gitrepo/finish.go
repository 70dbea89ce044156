package gitrepo

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// finishGit completes a repository that lacks pieces or its first commit. One
// that has a commit is left as it is.
func finishGit(ctx context.Context, dir string, opt Options) error {
	git, err := gitDir(opt.FS, dir)
	if err != nil {
		return err
	}
	r, err := newRepo(dir, git, opt)
	if err != nil {
		return err
	}
	if isGitDir(opt.FS, r.git, r.common) {
		if head, err := r.readHead(); err != nil || head.born && !head.lost {
			return err
		}
	}
	return r.finish(ctx)
}

func (r *Repo) finish(ctx context.Context) (err error) {
	l, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.release()) }()
	if err := r.addMissing(); err != nil {
		return err
	}
	head, err := r.readHead()
	if err == nil && head.lost {
		return l.restoreRef(ctx, head)
	}
	if err != nil || head.born {
		return err
	}
	return r.commitInit(ctx, l, head)
}

// addMissing makes the parts of a .git that are not there.
func (r *Repo) addMissing() error {
	for _, d := range gitDirs() {
		base := r.common
		if err := r.mkdir(filepath.Join(base, d)); err != nil {
			return err
		}
	}
	for _, f := range []struct{ path, content string }{
		{filepath.Join(r.common, "config"), initConfig},
		{filepath.Join(r.git, "HEAD"), initHead},
	} {
		fi, err := r.fs.Stat(f.path)
		if err == nil && fi.Size() > 0 {
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := disk.WriteAtomic(r.fs, f.path, []byte(f.content), disk.WriteOptions{Mode: 0o666 & r.perm}); err != nil {
			return err
		}
	}
	return r.addIdentity()
}

// addIdentity gives the repository the peer's identity unless it has its own.
func (r *Repo) addIdentity() error {
	path := filepath.Join(r.common, "config")
	own := &gitConfig{values: map[string]string{}}
	if err := own.readFile(r.fs, func(string) string { return "" }, path, maxIncludes); err != nil {
		return err
	}
	if own.str("user.name") != "" || own.str("user.email") != "" {
		return nil
	}
	b, err := r.fs.ReadFile(path)
	if err != nil {
		return err
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		b = append(b, '\n')
	}
	return disk.WriteAtomic(r.fs, path, append(b, identityConfig...), disk.WriteOptions{})
}

// commitInit makes the first commit of a branch that has none.
func (r *Repo) commitInit(ctx context.Context, l *gitLocks, head headRef) (err error) {
	cfg, err := loadConfig(r.fs, r.opt.Env, r.common)
	if err != nil {
		return err
	}
	w, err := r.newObjectWriter()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	when, who := r.opt.Now(), cfg.identity()
	if _, err := w.put(plumbing.TreeObject, nil); err != nil {
		return err
	}
	hash, err := w.put(plumbing.CommitObject, commitObject(emptyTree, tip{}, who, when, initMessage+"\n"))
	if err != nil {
		return err
	}
	u, err := l.lockHead(ctx, head, hash)
	if err != nil {
		return err
	}
	t := &transaction{ctx: ctx, r: r, cfg: cfg, locks: l, objects: w}
	if err := w.publish(t.durable(u.ref)...); err != nil {
		return err
	}
	if err := l.commit(u.ref); err != nil {
		return err
	}
	return t.finish(u, who, when, initMessage)
}

// ownAs gives a path the owner that fi has, as far as this process may.
func ownAs(f disk.FS, path string, fi fs.FileInfo) error {
	uid, gid, ok := ownerOf(fi)
	if !ok || uid == os.Geteuid() && gid == os.Getegid() {
		return nil
	}
	return ignorePermission(f.Lchown(path, uid, gid))
}

func ignorePermission(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
