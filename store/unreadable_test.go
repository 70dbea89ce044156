package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

// TestUnreadableRegistry: with a registry that is a directory or a symlink, what
// is on disk is listed and checked, nothing is written, what a symlink leads to
// is neither shown nor copied, and Repair sets it aside.
func TestUnreadableRegistry(t *testing.T) {
	for _, kind := range []string{"directory", "symlink", "dangling symlink"} {
		root, out := t.TempDir(), filepath.Join(t.TempDir(), "secret.json")
		s := openStore(t, store.Options{Root: root})
		newSession(t, s, "x", "one")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		index := filepath.Join(root, "index.json")
		if err := os.Remove(index); err != nil {
			t.Fatal(err)
		}
		var err error
		switch kind {
		case "directory":
			err = os.Mkdir(index, 0o700)
		case "symlink":
			write(t, out, `{"password": {"title": "secret"}}`)
			fallthrough
		default:
			err = os.Symlink(out, index)
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := store.Open(t.Context(), store.Options{Root: root, ReadOnly: true})
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		rows, err := r.ListSessions(t.Context(), store.ListQuery{})
		if err != nil || len(rows) != 1 || rows[0].ID != "x" {
			t.Errorf("%s: list %v, %v", kind, rows, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if found := findings(t, root); len(found) != 1 || found["index_unreadable"] != 1 {
			t.Errorf("%s: found %v", kind, found)
		}
		_, err = store.Open(t.Context(), store.Options{Root: root})
		wantCode(t, err, store.Corrupt)
		done, err := store.Repair(t.Context(), store.Options{Root: root}, nil)
		if err != nil || len(done.Left) != 0 || len(done.Mended) != 1 || done.Aside == "" {
			t.Errorf("%s: repair %+v, %v", kind, done, err)
		}
		raw, err := os.ReadFile(index)
		if err != nil || strings.Contains(string(raw), "secret") || !strings.Contains(string(raw), `"x"`) {
			t.Errorf("%s: rebuilt %s, %v", kind, raw, err)
		}
	}
}

// TestSymlinkedLocations: what a symlink in the place of locations.json leads to
// is not read, and is a finding.
func TestSymlinkedLocations(t *testing.T) {
	root, out := t.TempDir(), filepath.Join(t.TempDir(), "secret.json")
	write(t, out, `{"password": "/root"}`)
	s := openStore(t, store.Options{Root: root})
	newSession(t, s, "x", "one")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(out, filepath.Join(root, "locations.json")); err != nil {
		t.Fatal(err)
	}
	if found := findings(t, root); len(found) != 1 || found["locations_unreadable"] != 1 {
		t.Errorf("found %v", found)
	}
}

// TestCheckFindsSymlinks: what is refused for being a symlink is a finding, and
// the rest is looked at all the same.
func TestCheckFindsSymlinks(t *testing.T) {
	for _, name := range []string{
		".locks", ".deleted", ".repaired", ".locks/x.lock", ".locks/.run-x.lock", ".locks/.index.lock",
		"x/.git", "x/.git/refs/heads", "x/.git/sessionfs.lock", "x/.git/objects", "x/.git/objects/4b", "x/.git/objects/pack",
		"x/.git/info", "x/.git/logs/HEAD", "x/.git/logs/refs/heads/main",
	} {
		for _, dangling := range []bool{false, true} {
			root := t.TempDir()
			s := openStore(t, store.Options{Root: root})
			newSession(t, s, "x", "one")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			path, away := filepath.Join(root, name), filepath.Join(t.TempDir(), "away")
			if err := os.Rename(path, away); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if dangling {
				away += "-nowhere"
			} else if _, err := os.Lstat(away); err != nil {
				continue // it was not there, and so it is not elsewhere
			}
			if err := os.Symlink(away, path); err != nil {
				t.Fatal(err)
			}
			if found := findings(t, root); found["symlink"] != 1 {
				t.Errorf("%s, dangling %v: found %v", name, dangling, found)
			}
		}
	}
}

// TestCheckListsNoHistoryElsewhere: what a symlink in the place of history/ leads
// to is nobody's stray file.
func TestCheckListsNoHistoryElsewhere(t *testing.T) {
	root, _ := soundRoot(t)
	dir, away := filepath.Join(root, "x", "history"), t.TempDir()
	noErr(t, os.Rename(dir, filepath.Join(away, "history")))
	write(t, filepath.Join(away, "history", "mine"), "mine")
	noErr(t, os.Symlink(filepath.Join(away, "history"), dir))
	if found := findings(t, root); found["no_history"] != 1 || found["stray_file"] != 0 {
		t.Errorf("found %v", found)
	}
}
