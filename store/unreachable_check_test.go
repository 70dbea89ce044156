package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

// movedAway makes a root whose session x is recorded on a disk that is gone.
func movedAway(t *testing.T) string {
	t.Helper()
	root, _ := soundRoot(t)
	place := filepath.Join(t.TempDir(), "disk", "x")
	noErr(t, os.Mkdir(filepath.Dir(place), 0o700))
	noErr(t, os.Rename(filepath.Join(root, "x"), place))
	write(t, filepath.Join(root, "locations.json"), `{"x": "`+place+`"}`)
	if found := findings(t, root); len(found) > 0 {
		t.Fatalf("while the disk is there: %v", found)
	}
	noErr(t, os.Rename(filepath.Dir(place), filepath.Dir(place)+"2"))
	return root
}

// TestCheckFindsAnUnreachableSession: with and without its row, and repair, which
// can do nothing, changes nothing and keeps no copies.
func TestCheckFindsAnUnreachableSession(t *testing.T) {
	for _, row := range []bool{true, false} {
		root := movedAway(t)
		index := filepath.Join(root, "index.json")
		if !row {
			write(t, index, "{}")
		}
		if found := findings(t, root); found["unreachable"] != 1 || len(found) != 1 {
			t.Errorf("with a row %v: found %v", row, found)
		}
		s := openStore(t, store.Options{Root: root, ReadOnly: true})
		named := 0
		noErr(t, s.Check(t.Context(), func(store.Finding) { named++ }, "x"))
		if named != 1 {
			t.Errorf("with a row %v: %d findings of the session alone", row, named)
		}
		before, err := os.ReadFile(index)
		noErr(t, err)
		out, err := store.Repair(t.Context(), store.Options{Root: root, Clock: inAMinute}, nil)
		noErr(t, err)
		if len(out.Mended) != 0 || len(out.Left) != 1 || out.Aside != "" {
			t.Errorf("with a row %v: repair = %+v", row, out)
		}
		if after, err := os.ReadFile(index); err != nil || string(after) != string(before) {
			t.Errorf("with a row %v: the registry became %s, %v", row, after, err)
		}
		if _, err := os.Lstat(filepath.Join(root, ".repaired")); err == nil {
			t.Errorf("with a row %v: something was set aside", row)
		}
	}
}

// TestCheckFindsDeleteIntentsThatAreNoDirectory: then nothing can be deleted.
func TestCheckFindsDeleteIntentsThatAreNoDirectory(t *testing.T) {
	root, _ := soundRoot(t)
	write(t, filepath.Join(root, ".deleted"), "")
	if found := findings(t, root); found["intents_unreadable"] != 1 || len(found) != 1 {
		t.Errorf("found %v", found)
	}
}
