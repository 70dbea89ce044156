package conformance

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/test/harness"
)

// TestSweep opens the shells of startup_cleanup without their history/. What
// holds nothing at all goes; what Git, workdir/, age or the archive keeps
// stays, and what Git has of a history is restored and reported.
func TestSweep(t *testing.T) {
	tarball := filepath.Join(harness.ModuleDir(t), "test", "testdata", "stores", "startup_cleanup.tar.gz")
	c := extract(t, tarball)
	for _, s := range c.disk.sessions {
		if err := os.RemoveAll(filepath.Join(s.dir, "history")); err != nil {
			t.Fatal(err)
		}
	}
	c.open()
	goes := []string{"local_oldshell_87d34f9b", "local_pinshell_aa70b959", "local_tmpshell_e111453e"}
	for _, id := range c.disk.order {
		_, err := os.Stat(filepath.Join(c.disk.sessions[id].dir, "meta.json"))
		if gone := err != nil; gone != slices.Contains(goes, id) {
			t.Errorf("opening removed %s: %v", id, gone)
		}
	}
	for _, id := range goes {
		if _, err := c.s.Load(c.ctx, id); store.CodeOf(err) != store.NotFound {
			t.Errorf("load of the removed %s: %v", id, err)
		}
		if _, err := os.Stat(filepath.Join(c.root, ".deleted", id)); err == nil {
			t.Errorf("%s has a delete intent: its id is not burnt", id)
		}
	}
	for _, id := range []string{"local_keep_9a66b653", "local_archold_d6bbbfff", "local_rootshell_fe9f3f9c"} {
		c.before = manifest(t, c.root) // restored by now, so not "had before"
		s := c.disk.sessions[id]
		delete(c.before, filepath.Base(s.dir)+"/history/")
		c.checkRestored(s)
	}
	listed := ids(c.list(store.ListQuery{IncludeArchived: true}))
	if len(listed) != len(c.disk.order)-len(goes) {
		t.Errorf("%d sessions are listed: %v", len(listed), listed)
	}
}
