package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// oldRepo is the repository of the first layout, relative to the session.
const oldRepo = "history/.git"

// retiredRepo is where it is put before it is removed: within the new .git,
// where it is no repository in the work tree, and on the same disk.
const retiredRepo = ".git/sessionfs-history.git"

// convertMessage is the subject of the commit that a conversion makes.
const convertMessage = "migrate: history is part of the session's repository"

// conversion is one session of the first layout on its way to the present one.
type conversion struct {
	*runner
	sid, pid, dir string
	row           Row
	res           Result
}

// planConversion returns what is to be done, nil when it is nothing.
func (r *runner) planConversion(sid string) (*conversion, error) {
	row, journaled, err := r.row(sid, true)
	if err != nil {
		return nil, err
	}
	p, err := r.Layout.Resolve(sid)
	if err != nil {
		return nil, err
	}
	c := &conversion{runner: r, sid: sid, pid: p.Project, dir: p.Dir, row: row}
	if active := journaled && row.unfinished(); active {
		c.dir = row.Destination
	} else if !convertible(p) {
		return nil, nil
	}
	c.res = Result{SessionID: sid, Stage: row.Stage, Source: c.dir, Destination: c.dir, Converted: true, Kept: row.Kept}
	return c, nil
}

// run converts the session, or goes on where an interrupted run left off.
// Requires the lock migration-<sid>.
func (c *conversion) run(ctx context.Context) (Result, error) {
	err := c.locked(ctx)
	if err == nil || ctx.Err() != nil {
		return c.res, err
	}
	stage := StageFailed
	switch {
	case errors.Is(err, ErrDeleted):
		stage = StageDeleted
		err = errors.Join(err, c.FS.RemoveAll(c.Layout.StagingDir(c.sid)))
	case errors.Is(err, ErrDeferred):
		stage = StageDeferred
	case errors.Is(err, ErrUnavailable):
		stage = StagePending
	case c.res.Stage == StagePublish || c.res.Stage == StageCleanup:
		stage = c.res.Stage
	}
	return c.res, errors.Join(err, c.writeError(stage, failure(err)))
}

func (c *conversion) locked(ctx context.Context) (err error) {
	lock, err := c.quiesce(ctx, c.sid)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	p, err := c.Layout.Resolve(c.sid)
	switch {
	case err != nil:
		return err
	case p.Deleted:
		return ErrDeleted
	case !p.Present:
		return fmt.Errorf("%w: %s", ErrUnavailable, c.dir)
	case !sameDir(p.Dir, c.dir) || p.Symlink || p.Legacy:
		return fmt.Errorf("%w: the session is served from %s", ErrConflict, p.Dir)
	}
	published, err := c.published(ctx)
	if err != nil {
		return err
	}
	if !published {
		if err := c.convert(ctx); err != nil {
			return err
		}
	}
	return c.finish(ctx)
}

// published reports whether the session has its new repository. One that lacks
// objects of the old one was made by somebody else.
func (c *conversion) published(ctx context.Context) (bool, error) {
	if _, err := c.FS.Lstat(filepath.Join(c.dir, ".git")); absent(err) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if _, err := c.FS.Lstat(filepath.Join(c.dir, oldRepo)); absent(err) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	missing, err := c.missingObjects(ctx, oldRepo)
	if err != nil {
		return false, err
	}
	if len(missing) > 0 && c.row.Stage != StagePublish && c.row.Stage != StageCleanup {
		return false, fmt.Errorf("%w: .git lacks %s of history/.git", ErrConflict, missing[0])
	}
	return true, nil
}

// missingObjects returns the objects and refs of an old repository that the
// new one does not have.
func (c *conversion) missingObjects(ctx context.Context, old string) ([]string, error) {
	t, err := c.inventory(ctx, filepath.Join(c.dir, old), nil)
	if err != nil {
		return nil, err
	}
	// A copy of it is compared as if it were the .git of a session.
	as := newTree()
	for _, e := range t.entries {
		e.rel = path.Join(".git", e.rel)
		as.add(e)
	}
	return c.missingGit(ctx, as, filepath.Join(c.dir, old), filepath.Join(c.dir, ".git"))
}

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

// finish removes the old repository of a session that has its new one.
func (c *conversion) finish(ctx context.Context) error {
	c.res.Stage = StageCleanup
	if err := c.write(StageCleanup); err != nil {
		return err
	}
	if err := c.retireOld(ctx); err != nil {
		return err
	}
	// The directories that the new layout has and the old one had not.
	if err := c.removeTemps(); err != nil {
		return err
	}
	if err := gitrepo.Init(ctx, c.dir, c.gitOptions()); err != nil {
		return err
	}
	if err := c.FS.RemoveAll(c.Layout.StagingDir(c.sid)); err != nil {
		return err
	}
	return c.write(StageDone, jsonedit.Member{Key: "inventory", Raw: []byte("[]")})
}

// removeTemps removes what an interrupted run left of its .gitkeep: the next
// commit would take it in.
func (c *conversion) removeTemps() error {
	dir := filepath.Join(c.dir, "workdir")
	entries, err := c.FS.ReadDir(dir)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".gitkeep.") && disk.IsTemp(e.Name()) {
			if err := c.FS.Remove(filepath.Join(dir, e.Name())); err != nil && !absent(err) {
				return err
			}
		}
	}
	return nil
}

// retireOld takes the old repository out of the work tree and removes it, when
// the new one has all of it.
func (c *conversion) retireOld(ctx context.Context) error {
	old, retired := filepath.Join(c.dir, oldRepo), filepath.Join(c.dir, retiredRepo)
	err := c.FS.RenameNoReplace(old, retired)
	moved := err == nil
	if err != nil && !absent(err) && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if errors.Is(err, fs.ErrExist) {
		return c.keepAt(old) // a second one: whoever made it may want it
	}
	for _, dir := range []string{filepath.Dir(retired), filepath.Dir(old)} {
		if err := c.FS.SyncDir(dir); err != nil {
			return err
		}
	}
	if _, err := c.FS.Lstat(retired); absent(err) {
		return nil
	}
	if len(c.row.cleanup) == 0 || moved { // not compared yet
		missing, err := c.missingObjects(ctx, retiredRepo)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			c.Log.Warn("old repository has more than the new one and is kept", "session", c.sid, "path", retired)
			return c.keepAt(retired)
		}
		done := []leftover{{of: "repository", path: old, aside: retired, verified: true}}
		if err := c.write(StageCleanup, jsonedit.Member{Key: "cleanup", Raw: encodeLeftovers(done)}); err != nil {
			return err
		}
	}
	if err := c.FS.RemoveAll(retired); err != nil {
		return err
	}
	if err := c.FS.SyncDir(filepath.Dir(retired)); err != nil {
		return err
	}
	return c.write(StageCleanup, jsonedit.Member{Key: "cleanup", Raw: []byte("[]")})
}

func (c *conversion) keepAt(path string) error {
	return c.write(StageCleanup, jsonedit.Member{Key: "kept", Raw: jsonedit.EncodeStrings([]string{path})})
}

func (c *conversion) write(stage string, more ...jsonedit.Member) error {
	return c.writeError(stage, "", more...)
}

func (c *conversion) writeError(stage, text string, more ...jsonedit.Member) error {
	err := c.update(c.sid, true, func(o *jsonedit.Object) {
		o.SetAll(append([]jsonedit.Member{
			{Key: "project_id", Raw: jsonedit.EncodeString(c.pid)},
			{Key: "source", Raw: jsonedit.EncodeString(c.dir)},
			{Key: "destination", Raw: jsonedit.EncodeString(c.dir)},
			{Key: "stage", Raw: jsonedit.EncodeString(stage)},
			{Key: "error", Raw: jsonedit.EncodeString(text)},
		}, more...))
		c.row = parseRow(c.sid, o)
		c.row.Conversion = true
	})
	if err != nil {
		return err
	}
	c.res.Stage, c.res.Kept = stage, c.row.Kept
	c.progress(c.sid, stage, 0, 0)
	return nil
}
