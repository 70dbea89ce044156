package mounted

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// A name that is shown only while something is wrong goes with what was wrong.
func TestNamesGoWithTheirReason(t *testing.T) {
	m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Warnings: []string{"WARN"}})
	dirs, err := filepath.Glob(filepath.Join(m.Store, "local_edit_*"))
	if err != nil || len(dirs) != 1 {
		t.Fatal(dirs, err)
	}
	session := filepath.Join(m.Dir, "sessions", filepath.Base(dirs[0]))
	meta := filepath.Join(dirs[0], "meta.json")
	sound, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(meta+".x.tmp", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(meta+".x.tmp", meta); err != nil {
			t.Fatal(err)
		}
	}
	there := func(name string) bool {
		_, err := os.Lstat(filepath.Join(session, name))
		return err == nil
	}
	wait := func(what string, ready func() bool) {
		t.Helper()
		if !harness.Wait(10*time.Second, ready) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
	if there("problems.txt") {
		t.Fatal("a sound session has problems")
	}
	replace([]byte("{"))
	wait("problems.txt to come", func() bool { return there("problems.txt") })
	replace(sound)
	wait("problems.txt to go", func() bool { return !there("problems.txt") })
	history := filepath.Join(dirs[0], "history")
	if !there("messages") || !there("ctl") {
		t.Fatal("a sound session lacks messages or ctl")
	}
	if err := os.Rename(history, history+".away"); err != nil {
		t.Fatal(err)
	}
	wait("what cannot be opened to go", func() bool { return !there("messages") && !there("ctl") && !there("transcript.md") })
	if err := os.Rename(history+".away", history); err != nil {
		t.Fatal(err)
	}
	wait("the session to come back", func() bool { return there("messages") && there("ctl") })
}
