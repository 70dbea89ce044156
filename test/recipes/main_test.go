package recipes

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, nil)) }

// The session that most recipes work on: forks inside forks, nineteen nodes
// (chat_branches), and three of its tips.
const (
	nested    = "local_nested_dd1d18bf"
	tipTrunk  = "07eb635e4d17" // the branch trunk, and the head
	tipDetour = "3de090a0e4a7" // the branch "détour ☂"
	tipSame   = "68915d1391a7"
)

// walked are the stores that the walks go over.
var walked = []string{"chat_branches", "chat_tools", "content_mix", "attachments"}

// start mounts a copy of a golden store.
func start(t *testing.T, golden string) *harness.Mount {
	t.Helper()
	return harness.Start(t, harness.Options{Store: harness.Golden(t, golden)})
}

func put(path, text string) error { return harness.Put(path, text) }

func read(t testing.TB, path ...string) string {
	t.Helper()
	return harness.Read(t, path...)
}

func names(t testing.TB, path ...string) []string {
	t.Helper()
	return harness.Names(t, path...)
}

func lstat(t *testing.T, path string) syscall.Stat_t {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return st
}

// stem is a node's file name without its ending.
func stem(t testing.TB, m *harness.Mount, id string) string {
	t.Helper()
	for _, name := range names(t, m.Session(nested, "nodes")) {
		if s, ok := strings.CutSuffix(name, "-"+id+".md"); ok {
			return s + "-" + id
		}
	}
	t.Fatalf("no node %s", id)
	return ""
}

// need skips a test whose program is not installed; where the tests must be
// complete it fails.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			harness.Missing(t, p)
		}
	}
}

// quiet fails the test unless a script says nothing and ends well.
func quiet(t *testing.T, dir, script string, args ...string) {
	t.Helper()
	if r := harness.Shell(t, dir, script, args...); r.Code != 0 || r.Out != "" || r.Err != "" {
		t.Errorf("%s: exit status %d: %.600s %.600s", script, r.Code, r.Out, r.Err)
	}
}

// refused fails the test unless err is one of the errnos.
func refused(t *testing.T, what string, err error, errnos ...syscall.Errno) {
	t.Helper()
	for _, e := range errnos {
		if errors.Is(err, e) {
			return
		}
	}
	t.Errorf("%s: %v, want one of %v", what, err, errnos)
}
