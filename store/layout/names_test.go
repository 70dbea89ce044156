package layout

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/disktest"
)

func TestValidID(t *testing.T) {
	for id, want := range map[string]struct{ read, create bool }{
		"local_0123456789":                     {true, true},
		"8d3f2f4e-4e1e-4d5f-9f5c-2b7a3f0f1c11": {true, true},
		"会话":                                   {true, true},
		" x ":                                  {true, true},
		"a..b":                                 {true, true},
		"-x":                                   {true, true},
		"Projects":                             {true, true},
		strings.Repeat("x", 200):               {true, true},
		strings.Repeat("x", 201):               {true, false},
		"...":                                  {true, false},
		".hidden":                              {true, false},
		"a\nb":                                 {true, false},
		"a\x7f":                                {true, false},
		"a\u0085":                              {true, false},
		"a\xff":                                {true, false},
		"":                                     {},
		".":                                    {},
		"..":                                   {},
		"a/b":                                  {},
		"/":                                    {},
		`a\b`:                                  {},
		"a\x00b":                               {},
		"projects":                             {},
		"index.json":                           {},
		"locations.json":                       {},
		".locks":                               {},
		".migration":                           {},
		".deleted":                             {},
		".file-recovery":                       {},
		".session-locks":                       {},
	} {
		if err := ValidID(id); (err == nil) != want.read || err != nil && !errors.Is(err, ErrInvalidID) {
			t.Errorf("ValidID(%q) = %v", id, err)
		}
		if err := ValidNewID(id); (err == nil) != want.create || err != nil && !errors.Is(err, ErrInvalidID) {
			t.Errorf("ValidNewID(%q) = %v", id, err)
		}
	}
}

// FuzzValidNewID: a new id is one path component that discovery shows, and its
// lock file and the temporary file of its delete intent can be made.
func FuzzValidNewID(f *testing.F) {
	for _, s := range []string{"a", "..", "a/b", ".x", "\xff", strings.Repeat("会", 66)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if ValidNewID(id) != nil {
			return
		}
		if filepath.Base(id) != id || hidden(id) || ValidID(id) != nil {
			t.Errorf("%q is no name of a session", id)
		}
		if len(id)+len(".")+32+len(".tmp") > 255 {
			t.Errorf("%q is too long", id)
		}
	})
}

func TestDefaultRoot(t *testing.T) {
	home := t.TempDir()
	env := map[string]string{}
	check := func(what, wantState, wantRoot string, wantExists bool) {
		t.Helper()
		state, root, exists := DefaultRoot(func(k string) string { return env[k] }, home)
		if state != wantState || root != wantRoot || exists != wantExists {
			t.Errorf("%s: %q, %q, %v", what, state, root, exists)
		}
	}
	mkdir := func(path string) {
		t.Helper()
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	own := home + "/.local/state/sessionfs/sessions"
	check("nothing there", "", own, false)
	env["XDG_STATE_HOME"] = "relative"
	check("a relative state home", "", own, false)
	env["XDG_STATE_HOME"] = home + "/xdg"
	check("a state home", "", home+"/xdg/sessionfs/sessions", false)
	mkdir(home + "/xdg/sessionfs/sessions")
	check("our own", "", home+"/xdg/sessionfs/sessions", true)
	mkdir(home + "/.openprogram")
	check("a state directory without sessions", "", home+"/xdg/sessionfs/sessions", true)
	mkdir(home + "/.openprogram/sessions-git")
	check("the historic name", home+"/.openprogram", home+"/.openprogram/sessions-git", true)
	mkdir(home + "/.openprogram/sessions")
	check("OpenProgram's", home+"/.openprogram", home+"/.openprogram/sessions", true)
	env["OPENPROGRAM_PROFILE"] = "work"
	check("a profile without a root", "", home+"/xdg/sessionfs/sessions", true)
	mkdir(home + "/.openprogram-work/sessions")
	check("a profile", home+"/.openprogram-work", home+"/.openprogram-work/sessions", true)
}

func TestAdoptRoot(t *testing.T) {
	state := t.TempDir()
	root, old := filepath.Join(state, "sessions"), filepath.Join(state, "sessions-git")
	failing := disktest.New(disk.OS)
	adopt := func(want string, fails bool) {
		t.Helper()
		got, err := AdoptRoot(failing, state)
		if got != want || (err != nil) != fails {
			t.Errorf("AdoptRoot = %q, %v, want %q", got, err, want)
		}
	}
	adopt(root, false)
	if failing.Calls() != 0 {
		t.Error("a root that is not there was made")
	}
	if err := os.MkdirAll(filepath.Join(old, "s"), 0o700); err != nil {
		t.Fatal(err)
	}
	failing.FailAt(1, false)
	adopt(old, true)
	failing.FailAt(2, false) // renamed, but perhaps not for good
	adopt(root, true)
	failing.FailAt(0, false)
	adopt(root, false)
	if _, err := os.Stat(filepath.Join(root, "s")); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	adopt(root, false)
	if _, err := os.Stat(old); err != nil {
		t.Error("a second root went away")
	}
}
