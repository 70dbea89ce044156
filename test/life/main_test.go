package life

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, map[string]harness.Role{"append": appendRole}))
}

// The session that the tests work on (chat_branches), and nodes to move to.
const (
	nested    = "local_nested_dd1d18bf"
	tipTrunk  = "07eb635e4d17"
	tipDetour = "3de090a0e4a7"
	tipSame   = "68915d1391a7"
	otherID   = "local_retry_ef355ff3"
)

func put(path, text string) error { return harness.Put(path, text) }

func read(t testing.TB, path ...string) string {
	t.Helper()
	return harness.Read(t, path...)
}

func names(t testing.TB, path ...string) []string {
	t.Helper()
	return harness.Names(t, path...)
}

// soon waits for what another daemon learns in its own time.
func soon(ready func() bool) bool { return harness.Wait(harness.Slow(2*time.Second), ready) }

// eventually fails the test when a thing does not come to be.
func eventually(t testing.TB, what string, ready func() bool) {
	t.Helper()
	if !soon(ready) {
		t.Errorf("%s: not seen", what)
	}
}

// kept are the texts in failed/ of a mount's state.
func kept(t testing.TB, state string) string {
	t.Helper()
	var all []string
	for _, name := range names(t, state, "sessionfs", "failed") {
		all = append(all, read(t, state, "sessionfs", "failed", name))
	}
	return strings.Join(all, "|")
}

// outputs are the texts of a session's nodes as the store has them on disk.
func outputs(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "history", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no history in %s: %v", dir, err)
	}
	var out []string
	for _, f := range files {
		var n struct{ Output any }
		if err := json.Unmarshal([]byte(read(t, f)), &n); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if s, ok := n.Output.(string); ok {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// times counts a text among others.
func times(all []string, text string) int {
	n := 0
	for _, s := range all {
		if s == text {
			n++
		}
	}
	return n
}

// appendRole appends what it is asked to and says what came of it: the part
// of a user's program, in a process that knows nothing of the test.
func appendRole(args []string) int {
	return harness.Serve(func(text string) string {
		if err := put(args[0], text); err != nil {
			return err.Error()
		}
		return ""
	})
}
