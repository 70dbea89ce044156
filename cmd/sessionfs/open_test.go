package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLocate(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", filepath.Join(home, "xdg"))
	t.Setenv("OPENPROGRAM_PROFILE", "")
	t.Setenv("SESSIONFS_STORE", "")
	own := filepath.Join(home, "xdg", "sessionfs", "sessions")
	peer := filepath.Join(home, ".openprogram", "sessions")
	other := filepath.Join(home, "other", "sessions")

	check := func(name string, a *app, want location) {
		t.Helper()
		got, err := a.locate()
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, want)
		}
	}
	check("nothing there", &app{}, location{root: own})
	if err := os.MkdirAll(peer, 0o700); err != nil {
		t.Fatal(err)
	}
	check("the peer's store", &app{}, location{root: peer, state: filepath.Dir(peer)})
	check("the peer's store by name", &app{store: peer}, location{root: peer, state: filepath.Dir(peer), chosen: true})
	check("another store", &app{store: other}, location{root: other, chosen: true})
	if err := os.MkdirAll(filepath.Join(filepath.Dir(other), "projects"), 0o700); err != nil {
		t.Fatal(err)
	}
	registry := filepath.Join(filepath.Dir(other), "projects", "projects.json")
	if err := os.WriteFile(registry, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("beside a project registry", &app{store: other}, location{root: other, state: filepath.Dir(other), chosen: true})
}

func TestStateDirIgnoresARelativeVariable(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	t.Setenv("XDG_STATE_HOME", "relative")
	if got, err := stateDir(); err != nil || got != "/home/u/.local/state/sessionfs" {
		t.Errorf("got %q, %v", got, err)
	}
}
