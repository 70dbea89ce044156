package store

import (
	"bytes"
	"context"
	"crypto/sha1"
	"errors"
	"os"
	"path/filepath"

	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/layout"
)

// git checks the repository as far as it can be without reading every object:
// that it opens, that its configuration can be read, that HEAD's branch names a commit, that the newest commit can be
// read, that what it has is not missing from history/, and that no lock was left.
func (c *checker) git(ctx context.Context, p layout.Place, sn *Snapshot) {
	dir := filepath.Join(p.Dir, ".git")
	if c.symlink(p.ID, dir) {
		return
	}
	if fi, err := os.Lstat(dir); err != nil || !fi.IsDir() {
		return
	}
	if name := gitrepo.SymlinkedPart(c.s.fs, dir); name != "" {
		c.symlink(p.ID, filepath.Join(dir, filepath.FromSlash(name)))
	}
	for _, name := range []string{"index.lock", "HEAD.lock", "refs/heads/main.lock"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if fi, err := c.s.fs.Lstat(path); err == nil && c.s.now().Sub(fi.ModTime()) > youngTemp {
			c.add("git_lock", Warning, p.ID, path, "a process that is gone left Git's lock behind")
		}
	}
	r, err := gitrepo.Open(p.Dir, c.s.git)
	if err != nil {
		c.add("git_broken", Fault, p.ID, dir, "%v", err)
	} else {
		defer r.Close()
		if !c.config(p, r) {
			return // of what follows nothing is certain
		}
		c.repository(ctx, p, sn, r)
	}
	// Last: its repair commits, and what else was mended goes into that.
	if index := filepath.Join(dir, "index"); c.damagedIndex(index) {
		c.add("git_index_damaged", Warning, p.ID, index, "Git's index is cut off or damaged; it can be made anew")
	}
}

// config checks a repository's configuration, and reports whether the repository
// is of the format that the rest of the check knows.
func (c *checker) config(p layout.Place, r *gitrepo.Repo) bool {
	err := r.CheckConfig()
	switch {
	case err == nil:
		return true
	case errors.Is(err, gitrepo.ErrUnsupported):
		c.add("git_broken", Fault, p.ID, filepath.Join(p.Dir, ".git"), "%v", err)
		return false
	}
	c.add("git_config_damaged", Fault, p.ID, r.ConfigPath(), "no commit can be made: %v", err)
	return r.KnownFormat()
}

// repository checks a repository that opens.
func (c *checker) repository(ctx context.Context, p layout.Place, sn *Snapshot, r *gitrepo.Repo) {
	dir := filepath.Join(p.Dir, ".git")
	if !c.ref(p, r) {
		return
	}
	if _, err := r.Log(ctx, 1); err != nil {
		c.add("git_broken", Fault, p.ID, dir, "%v", err)
		return
	}
	damaged := c.objects(ctx, p, r)
	has, err := r.HeadHasPath(ctx, historyDir)
	if damaged && err != nil {
		return // told
	}
	if err != nil {
		c.add("git_broken", Fault, p.ID, dir, "%v", err)
		return
	}
	if fi, err := c.s.fs.Lstat(filepath.Join(p.Dir, historyDir)); has && (err != nil || fi.Mode().IsRegular()) {
		c.add("history_only_in_git", Fault, p.ID, p.Dir, "history/ is missing and can be restored from Git")
		return
	}
	c.lostNodes(ctx, p, sn, r)
}

// maxMissing bounds how many objects of a session are reported.
const maxMissing = 100

// objects checks that the trees and files of the newest commit are there, and
// reports whether any is not.
func (c *checker) objects(ctx context.Context, p layout.Place, r *gitrepo.Repo) bool {
	for _, path := range r.DamagedPacks() {
		c.add("git_pack_damaged", Fault, p.ID, path, "the pack is cut off or damaged at its end, and git uses nothing of it")
	}
	missing, err := r.MissingObjects(ctx, maxMissing)
	if err != nil {
		return false // told by what reads the same next
	}
	for _, m := range missing {
		what := m.Path
		if m.Tree {
			what += "/"
		}
		c.add("git_object_missing", Fault, p.ID, m.File, "the newest commit cannot be read: its object of %s is lost or damaged", what)
	}
	return len(missing) > 0
}

// ref checks HEAD and its branch, and reports whether they can be used.
func (c *checker) ref(p layout.Place, r *gitrepo.Repo) bool {
	f, err := r.RefFault()
	if err != nil {
		c.add("git_broken", Fault, p.ID, filepath.Join(p.Dir, ".git"), "%v", err)
		return false
	}
	switch f.Kind {
	case gitrepo.RefBlank:
		c.add("empty_ref", Warning, p.ID, f.Path, "a crash emptied the branch's ref; its log says what it named")
	case gitrepo.RefMissing:
		c.add("missing_ref", Fault, p.ID, f.Path, "the branch's ref is not there; the last commit is %.8s", f.Commit)
	case gitrepo.RefDamaged:
		c.add("damaged_ref", Fault, p.ID, f.Path, "the branch's ref holds what names no commit")
		return false
	case gitrepo.RefLost:
		c.add("damaged_ref", Fault, p.ID, f.Path, "the branch's ref names a commit that is not there")
		return f.Commit != ""
	case gitrepo.HeadAstray:
		c.add("head_astray", Fault, p.ID, f.Path, "Git's HEAD names a branch without a commit; main has them, the newest is %.8s", f.Commit)
	}
	return true
}

// damagedIndex reports whether Git's index is there and does not end in the
// checksum of what comes before it (gitformat-index).
func (c *checker) damagedIndex(path string) bool {
	raw, err := c.s.fs.ReadFile(path)
	if err != nil {
		return false
	}
	if len(raw) < 12+sha1.Size || !bytes.HasPrefix(raw, []byte("DIRC")) {
		return true
	}
	at := len(raw) - sha1.Size
	sum := sha1.Sum(raw[:at])
	// A sum of zeros means that it was not computed (index.skipHash).
	return !bytes.Equal(raw[at:], sum[:]) && !bytes.Equal(raw[at:], make([]byte, sha1.Size))
}
