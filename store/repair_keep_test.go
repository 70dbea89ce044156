package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

// gitSays runs git in the session x and returns what it prints.
func gitSays(t *testing.T, root string, args ...string) string {
	t.Helper()
	return strings.TrimSpace(git(t, filepath.Join(root, "x"), args...))
}

// killedRun leaves what a run of a process that was killed does, committed.
func killedRun(t *testing.T, root string, ids []string) {
	t.Helper()
	edit(t, filepath.Join(root, "x", "meta.json"), `"id": "x"`, `"id": "x", "status": "running"`)
	setMetadata(t, node(t, root, ids[3]), `"status": "running"`)
	write(t, filepath.Join(root, ".locks", ".run-x.lock"), `{"pid": `+deadPID+`, "started": 1.0}`)
	gitSays(t, root, "add", "-A")
	gitSays(t, root, "commit", "-qm", "turn: cut off")
}

// TestRepairCommits: what was mended of a session is in one commit.
func TestRepairCommits(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, root string, ids []string){
		"a dead run": killedRun,
		"a lost node": func(t *testing.T, root string, ids []string) {
			noErr(t, os.Remove(node(t, root, ids[1])))
			gitSays(t, root, "commit", "-qam", "turn: without it")
		},
		"a lost meta.json": func(t *testing.T, root string, _ []string) {
			noErr(t, os.Remove(filepath.Join(root, "x", "meta.json")))
			gitSays(t, root, "commit", "-qam", "turn: without it")
		},
		"an unreadable node": func(t *testing.T, root string, ids []string) {
			write(t, node(t, root, ids[1]), "{")
			gitSays(t, root, "commit", "-qam", "turn: with it")
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, ids := soundRoot(t)
			damage(t, root, ids)
			head := gitSays(t, root, "rev-parse", "HEAD")
			repair(t, root)
			if left := gitSays(t, root, "status", "--porcelain"); left != "" {
				t.Errorf("not committed:\n%s", left)
			}
			if got := gitSays(t, root, "log", "--format=%s", head+".."); got != "sessionfs: repair" {
				t.Errorf("the commits are %q", got)
			}
		})
	}
}

// TestRepairCommitsOnlyWhatItChanged: a session in which it mends nothing keeps
// what waits for a commit of its owner's.
func TestRepairCommitsOnlyWhatItChanged(t *testing.T) {
	root, _ := soundRoot(t)
	write(t, filepath.Join(root, "x", "history", "notes.txt"), "mine")
	head := gitSays(t, root, "rev-parse", "HEAD")
	repair2(t, root, 1)
	if now := gitSays(t, root, "rev-parse", "HEAD"); now != head {
		t.Errorf("it made the commit %s", gitSays(t, root, "show", "--stat"))
	}
}

// TestReindexCommitsWhatOpenEnded is TestRepairCommits for the run that the
// start of reindex ends.
func TestReindexCommitsWhatOpenEnded(t *testing.T) {
	root, ids := soundRoot(t)
	killedRun(t, root, ids)
	s := open2(t, store.Options{Root: root, Reconcile: store.ReconcileAuto, Clock: inAMinute})
	_, err := s.Reindex(t.Context(), nil)
	noErr(t, err)
	closeNow(t, s)
	if left := gitSays(t, root, "status", "--porcelain"); left != "" {
		t.Errorf("not committed:\n%s", left)
	}
	if raw, err := os.ReadFile(filepath.Join(root, "x", "meta.json")); err != nil || !strings.Contains(string(raw), `"interrupted"`) {
		t.Errorf("the run was not ended: %s, %v", raw, err)
	}
}

// TestRepairKeepsWhatItChanges: meta.json, a message and the registry are kept as
// they were, and nothing that stays as it is.
func TestRepairKeepsWhatItChanges(t *testing.T) {
	root, ids := soundRoot(t)
	killedRun(t, root, ids)
	files := []string{"index.json", "x/meta.json", "x/history/" + filepath.Base(node(t, root, ids[3]))}
	want := map[string]string{}
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(root, f))
		noErr(t, err)
		want[f] = string(raw)
	}
	out := repair(t, root)
	got := map[string]string{}
	aside := filepath.Join(root, out.Aside)
	noErr(t, filepath.WalkDir(aside, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		rel, _ := filepath.Rel(aside, path)
		got[rel] = string(raw)
		return err
	}))
	for f, text := range want {
		if got[f] != text {
			t.Errorf("%s was\n%s\nand is kept as\n%s", f, text, got[f])
		}
	}
	if len(got) != len(want) {
		t.Errorf("kept %d files, want %d: %v", len(got), len(want), got)
	}
}
