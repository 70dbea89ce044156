package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/storetest"
)

// quick opens a root for a check that waits for nobody for long.
func quick(t *testing.T, root string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Root: root, ReadOnly: true, Clock: inAMinute, LockTimeout: 50 * time.Millisecond})
	noErr(t, err)
	return s
}

// TestCheckLeavesABranchDeletionAlone checks at every change that a deletion of
// messages makes: its intent is there, and some of the files.
func TestCheckLeavesABranchDeletionAlone(t *testing.T) {
	root := buildForked(t)
	d := storetest.NewDisk()
	s, err := store.Open(t.Context(), store.Options{Root: root, FS: d})
	noErr(t, err)
	checks := 0
	look := func(op, name string) bool {
		if strings.Contains(name, "/x/") {
			checks++
			c := quick(t, root)
			defer closeNow(t, c)
			noErr(t, c.Check(t.Context(), func(f store.Finding) { t.Errorf("at %s %s found: %s", op, name, f) }))
		}
		return false
	}
	d.Arm(storetest.Fault{At: 1, Only: look})
	_, err = s.DeleteBranch(t.Context(), "x", "doomed")
	noErr(t, err)
	noErr(t, s.Close())
	if checks == 0 {
		t.Error("nothing was checked")
	}
}

// TestCheckLeavesACreationAlone: who makes a session holds its lock until all of
// it is there.
func TestCheckLeavesACreationAlone(t *testing.T) {
	root, _ := soundRoot(t)
	noErr(t, os.Remove(filepath.Join(root, "x", ".git", "HEAD")))
	noErr(t, os.MkdirAll(filepath.Join(root, "y", "history"), 0o700))
	var locks []*filelock.Lock
	for _, id := range []string{"x", "y"} {
		lock, err := filelock.Acquire(t.Context(), filepath.Join(root, ".locks", id+".lock"), time.Second)
		noErr(t, err)
		locks = append(locks, lock)
	}
	s := quick(t, root)
	noErr(t, s.Check(t.Context(), func(f store.Finding) { t.Errorf("found of what is being made: %s", f) }))
	closeNow(t, s)
	for _, l := range locks {
		noErr(t, l.Unlock())
	}
	found := findings(t, root)
	for _, kind := range []string{"meta_missing", "no_repository", "git_broken", "directory_without_row"} {
		if found[kind] != 1 {
			t.Errorf("%s of what was cut off: %v", kind, found)
		}
	}
}

// TestCheckReportsWhatLasts: a writer that does not let go hides nothing that
// none makes in the middle of a change.
func TestCheckReportsWhatLasts(t *testing.T) {
	root, _ := soundRoot(t)
	write(t, filepath.Join(root, "x", "history", "notes.txt"), "mine")
	lock, err := filelock.Acquire(t.Context(), filepath.Join(root, ".locks", "x.lock"), time.Second)
	noErr(t, err)
	defer lock.Unlock()
	s := quick(t, root)
	defer closeNow(t, s)
	found := 0
	noErr(t, s.Check(t.Context(), func(f store.Finding) { found++ }))
	if found != 1 {
		t.Errorf("%d findings, want the stray file", found)
	}
}

// TestCheckLeavesAMigrationAlone: who migrates a session holds a lock of its own.
func TestCheckLeavesAMigrationAlone(t *testing.T) {
	root, _ := soundRoot(t)
	write(t, filepath.Join(root, ".migration", "journal.json"), `{"sessions": {"x": {"stage": "copy"}}}`)
	lock, err := filelock.Acquire(t.Context(), filepath.Join(root, ".locks", ".migration-x.lock"), time.Second)
	noErr(t, err)
	if found := findings(t, root); len(found) > 0 {
		t.Errorf("a migration that goes on: %v", found)
	}
	noErr(t, lock.Unlock())
	if found := findings(t, root); found["half_migration"] != 1 {
		t.Errorf("one that was cut off: %v", found)
	}
}
