package migrate

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

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
