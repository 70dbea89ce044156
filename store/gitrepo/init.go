package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// initMessage is the subject of a session's first commit (reference 4).
const initMessage = "session init"

// initConfig is the configuration of a new repository: what git init writes,
// and the peer's identity (reference 4).
const initConfig = `[core]
	repositoryformatversion = 0
	filemode = true
	bare = false
	logallrefupdates = true
` + identityConfig

const identityConfig = `[user]
	email = ` + defaultEmail + `
	name = ` + defaultName + `
`

const (
	initDescription = "Unnamed repository; edit this file 'description' to name the repository.\n"
	initExclude     = "# Files that this repository ignores, one pattern a line.\n"
	initHead        = "ref: refs/heads/main\n"
)

// Init makes a session's directories and its repository (reference 4):
// history/, context/, workdir/ with an empty .gitkeep, and .git on branch main
// with one commit "session init" of the empty tree.
//
// It is idempotent, leaves an existing repository as it is, and finishes one
// that a crash left without a commit. A new .git appears whole: it is made under
// another name and renamed.
func Init(ctx context.Context, dir string, opt Options) error {
	opt = opt.withDefaults()
	if err := initWorkTree(opt.FS, dir); err != nil {
		return fmt.Errorf("init %s: %w", dir, err)
	}
	if err := initGit(ctx, dir, opt); err != nil {
		return fmt.Errorf("init %s: %w", dir, err)
	}
	return nil
}

func initWorkTree(f disk.FS, dir string) error {
	for _, sub := range []string{"history", "context", "workdir"} {
		if err := disk.MkdirOwned(f, filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	keep := filepath.Join(dir, "workdir", ".gitkeep")
	if _, err := f.Lstat(keep); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := disk.WriteAtomic(f, keep, nil, disk.WriteOptions{Mode: 0o644, NoReplace: true})
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// tempGitPrefix begins the name that a .git has while it is made.
const tempGitPrefix = ".git.sessionfs-"

func initGit(ctx context.Context, dir string, opt Options) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	git := filepath.Join(dir, ".git")
	_, err := opt.FS.Lstat(git)
	if err == nil {
		return finishGit(ctx, dir, opt)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := removeLeftovers(opt.FS, dir); err != nil {
		return err
	}
	temp := filepath.Join(dir, tempGitPrefix+randomName())
	err = makeGit(opt, dir, temp)
	if err == nil {
		err = opt.FS.RenameNoReplace(temp, git)
	}
	if err != nil {
		err = errors.Join(err, opt.FS.RemoveAll(temp))
		if errors.Is(err, fs.ErrExist) {
			return finishGit(ctx, dir, opt) // somebody else was faster
		}
		return err
	}
	if opt.Sync == SyncBatch {
		return opt.FS.SyncDir(dir)
	}
	return nil
}

// leftoverAge is the age from which a half-made .git counts as a crash's.
const leftoverAge = 10 * time.Minute

func removeLeftovers(f disk.FS, dir string) error {
	entries, err := f.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempGitPrefix) {
			continue
		}
		fi, err := e.Info()
		if err != nil || time.Since(fi.ModTime()) < leftoverAge {
			continue
		}
		if err := f.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// makeGit makes a whole repository at git, with its first commit.
func makeGit(opt Options, work, git string) error {
	if err := opt.FS.Mkdir(git, 0o755); err != nil {
		return err
	}
	wi, err := opt.FS.Stat(work)
	if err != nil {
		return err
	}
	if err := ownAs(opt.FS, git, wi); err != nil {
		return err
	}
	r, err := newRepo(work, git, opt)
	if err != nil {
		return err
	}
	n := newGit{r: r, dirs: map[string]bool{git: true}}
	defer n.close()
	return n.make()
}

// newGit collects what a new repository's durability needs.
type newGit struct {
	r     *Repo
	dirs  map[string]bool
	files []disk.File
}

func (n *newGit) close() {
	for _, f := range n.files {
		f.Close()
	}
}

func (n *newGit) make() error {
	for _, d := range gitDirs() {
		if err := n.mkdir(d); err != nil {
			return err
		}
	}
	files := []struct{ name, content string }{
		{"HEAD", initHead}, {"config", initConfig}, {"description", initDescription},
		{"info/exclude", initExclude}, {"index", string((&gitIndex{}).encode(&treeNode{hash: emptyTree}))},
	}
	for _, f := range files {
		if err := n.file(f.name, f.content); err != nil {
			return err
		}
	}
	if err := n.firstCommit(); err != nil {
		return err
	}
	if n.r.opt.Sync != SyncBatch {
		return nil
	}
	jobs := make([]func() error, 0, len(n.files))
	for _, f := range n.files {
		jobs = append(jobs, f.Sync)
	}
	if err := sideBySide(jobs); err != nil {
		return err
	}
	return n.r.syncDirs(n.dirs)
}

// gitDirs are the directories of a new .git, parents first.
func gitDirs() []string {
	return []string{"branches", "hooks", "info", "objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags"}
}

func (n *newGit) mkdir(name string) error {
	dir := filepath.Join(n.r.git, name)
	err := n.r.fs.Mkdir(dir, 0o777&n.r.perm)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	n.dirs[dir], n.dirs[filepath.Dir(dir)] = true, true
	if !n.r.give {
		return nil
	}
	return ignorePermission(n.r.fs.Lchown(dir, n.r.uid, n.r.gid))
}

// file makes one file, kept open so that it can be synced with the others.
func (n *newGit) file(name, content string) error {
	f, err := n.r.create(filepath.Join(n.r.git, name), 0o666)
	if err != nil {
		return err
	}
	n.files = append(n.files, f)
	n.dirs[filepath.Dir(filepath.Join(n.r.git, name))] = true
	_, err = f.Write([]byte(content))
	return err
}

// firstCommit writes the empty tree, the commit and the branch.
func (n *newGit) firstCommit() (err error) {
	w, err := n.r.newObjectWriter()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	cfg, err := loadConfig(n.r.fs, n.r.opt.Env, n.r.git)
	if err != nil {
		return err
	}
	when, who := n.r.opt.Now(), cfg.identity()
	if _, err := w.put(plumbing.TreeObject, nil); err != nil {
		return err
	}
	main := headRef{ref: "refs/heads/main"}
	hash, err := w.put(plumbing.CommitObject, commitObject(emptyTree, tip{}, who, when, initMessage+"\n"))
	if err != nil {
		return err
	}
	if err := w.publish(); err != nil {
		return err
	}
	if err := n.file("refs/heads/main", hash.String()+"\n"); err != nil {
		return err
	}
	u := &refUpdate{old: main, new: headRef{ref: main.ref, hash: hash, born: true}}
	return n.r.reflog(cfg, u, who, when, "commit (initial): "+initMessage)
}
