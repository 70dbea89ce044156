package migrate

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// convert makes the new repository beside the session and puts it in place.
func (c *conversion) convert(ctx context.Context) error {
	var err error
	for range attempts {
		err = c.try(ctx)
		if !errors.Is(err, ErrSourceChanged) {
			return err
		}
	}
	return err
}

func (c *conversion) try(ctx context.Context) error {
	if err := c.checkOld(); err != nil {
		return err
	}
	t, err := c.inventory(ctx, c.dir, nil)
	if err != nil {
		return err
	}
	err = c.write(StageInventory, jsonedit.Member{Key: "inventory", Raw: encodeInventory(t.entries)})
	if err != nil {
		return err
	}
	staged := filepath.Join(c.Layout.StagingDir(c.sid), "session")
	if err := c.stage(ctx, t, staged); err != nil {
		return err
	}
	if err := c.write(StageVerify); err != nil {
		return err
	}
	if err := c.verifyStaged(ctx, t, staged); err != nil {
		return err
	}
	if err := c.syncTree(ctx, filepath.Join(staged, ".git")); err != nil {
		return err
	}
	now, err := c.stamps(ctx, c.dir)
	if err != nil {
		return err
	}
	if !t.untouched(now) {
		return ErrSourceChanged
	}
	if err := c.runner.publish(ctx, filepath.Join(staged, ".git"), filepath.Join(c.dir, ".git")); err != nil {
		return err
	}
	c.res.Stage = StagePublish
	return c.write(StagePublish)
}

// checkOld refuses a repository that is not all in history/.git.
func (c *conversion) checkOld() error {
	old := filepath.Join(c.dir, oldRepo)
	fi, err := c.FS.Lstat(old)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%w: %s is no directory", ErrUnsupported, old)
	}
	for _, name := range []string{"commondir", "objects/info/alternates"} {
		if _, err := c.FS.Lstat(filepath.Join(old, name)); err == nil {
			return fmt.Errorf("%w: %s has %s", ErrUnsupported, old, name)
		}
	}
	return nil
}

// stage makes a session of the present layout: the files, the old repository
// as its .git, and a commit of the files as they are.
func (c *conversion) stage(ctx context.Context, t *tree, staged string) error {
	if err := c.write(StageCopy); err != nil {
		return err
	}
	if err := c.FS.RemoveAll(c.Layout.StagingDir(c.sid)); err != nil {
		return err
	}
	old, files := t.below(oldRepo)
	var done int64
	tell := func(n int64) {
		done += n
		c.progress(c.sid, StageCopy, done, t.bytes)
	}
	if err := c.copyTree(ctx, files, c.dir, staged, tell); err != nil {
		return err
	}
	git := filepath.Join(staged, ".git")
	if err := c.copyTree(ctx, withoutIndex(old), filepath.Join(c.dir, oldRepo), git, tell); err != nil {
		return err
	}
	if err := c.adaptGit(git); err != nil {
		return err
	}
	if err := gitrepo.Init(ctx, staged, c.gitOptions()); err != nil {
		return err
	}
	repo, err := gitrepo.Open(staged, c.gitOptions())
	if err != nil {
		return err
	}
	_, _, err = repo.CommitAll(ctx, convertMessage)
	return errors.Join(err, repo.Close())
}

func (c *conversion) gitOptions() gitrepo.Options {
	return gitrepo.Options{FS: c.FS, Now: c.Now, Log: c.Log}
}

// withoutIndex leaves out what is of the old place: the index, whose paths are
// relative to history/, and locks.
func withoutIndex(t *tree) *tree {
	out := newTree()
	out.dirs = t.dirs
	for _, e := range t.entries {
		if e.rel != "index" && e.rel != "sessionfs.lock" && !(strings.HasSuffix(e.rel, ".lock") && !strings.HasPrefix(e.rel, "objects/")) {
			out.add(e)
		}
	}
	return out
}

// verifyStaged compares the staged session with the inventory, and its commit
// with the old one.
func (c *conversion) verifyStaged(ctx context.Context, t *tree, staged string) error {
	have, err := c.inventory(ctx, staged, nil)
	if err != nil {
		return err
	}
	old, files := t.below(oldRepo)
	for _, e := range files.entries {
		if now, ok := have.find(e.rel); !ok || now != e.content {
			return fmt.Errorf("%w: %s", ErrVerify, e.rel)
		}
	}
	for _, e := range old.entries {
		if !strings.HasPrefix(e.rel, "objects/") {
			continue
		}
		e.rel = path.Join(".git", e.rel)
		if now, ok := have.find(e.rel); !ok || now != e.content {
			return fmt.Errorf("%w: %s", ErrVerify, e.rel)
		}
	}
	return c.verifyCommit(ctx, files, staged)
}

// verifyCommit checks that what the old repository had a version of is in the
// new commit, below history/, as far as it still exists.
func (c *conversion) verifyCommit(ctx context.Context, files *tree, staged string) error {
	repo, err := gitrepo.Open(staged, c.gitOptions())
	if err != nil {
		return err
	}
	defer repo.Close()
	log, err := repo.Log(ctx, 2)
	if err != nil {
		return err
	}
	if len(log) < 2 {
		return nil // the old repository had no commit
	}
	before, err := repo.List(ctx, log[1].Hash, "")
	if err != nil {
		return err
	}
	for _, e := range before {
		rel := path.Join("history", e.Name)
		if _, exists := files.find(rel); !exists {
			continue
		}
		if _, err := repo.Stat(ctx, log[0].Hash, rel); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrVerify, rel, err)
		}
	}
	return nil
}
