package migrate

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"

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
