package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sessionfs/sessionfs/test/harness"
)

// besideScript appends and reads, round after round. Each verb must succeed, and
// the ids that were made are printed.
const besideScript = `
set -e
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
	sessionfs append local_demo "our message $i"
	sessionfs head local_demo >/dev/null
	sessionfs log local_demo --json >/dev/null
	sessionfs grep foreign >/dev/null || [ $? = 1 ]
	sessionfs ls --json >/dev/null
done`

// TestVerbsBesideAnotherWriter runs the verbs on a store that a process which
// follows OpenProgram's protocol writes to at the same time: no message of
// either is lost, no read fails, and the store is sound afterwards.
func TestVerbsBesideAnotherWriter(t *testing.T) {
	state := t.TempDir()
	root := filepath.Join(state, "store")
	binary := harness.Binary(t)
	env := append(harness.Environ(filepath.Join(state, ".state")), "SESSIONFS_STORE="+root, "PATH="+filepath.Dir(binary)+":/usr/bin:/bin")
	if r := harness.Command(t, state, env, binary, "sample-store", root); r.Code != 0 {
		t.Fatal(r.Err)
	}
	foreign := harness.NewForeign(t)
	ended := make(chan harness.Result, 1)
	go func() { ended <- harness.Command(t, state, env, "sh", "-c", besideScript) }()
	var theirs []string
	var ours harness.Result
	for running := true; running; {
		a := foreign.Do(harness.ForeignRequest{
			Op: "append", Store: root, Session: "local_demo", Role: "user", Head: true, PredecessorHead: true,
			ID: fmt.Sprintf("foreign%04d", len(theirs)), Text: "foreign message",
		})
		theirs = append(theirs, a.ID)
		select {
		case ours = <-ended:
			running = false
		case <-time.After(20 * time.Millisecond):
		}
	}
	if ours.Code != 0 {
		t.Fatalf("a verb failed: status %d, %s", ours.Code, ours.Err)
	}
	all := harness.Command(t, state, env, binary, "grep", "--json", "message").Out
	for _, id := range append(strings.Fields(ours.Out), theirs...) {
		if !strings.Contains(all, `"node":"`+id+`"`) {
			t.Errorf("the message %s is lost", id)
		}
	}
	if r := harness.Command(t, state, env, binary, "check", "local_demo"); r.Code != 0 {
		t.Errorf("the store has findings:\n%s", r.Out)
	}
	t.Logf("%d messages of ours, %d of theirs", len(strings.Fields(ours.Out)), len(theirs))
}

// TestVerbsSayTheSameBesideAnotherWriter runs each verb on a store that nobody
// else uses, and on one in which another process writes all the time: keys of
// its own into meta.json of the very session, and messages into another. What
// the verbs print is the same, check's findings too, and afterwards no row is
// behind but those of what the other process appended to, which wrote none.
func TestVerbsSayTheSameBesideAnotherWriter(t *testing.T) {
	archive, err := txtar.ParseFile(filepath.Join("testdata", "script", "same_mounted.txtar"))
	if err != nil || len(archive.Files) != 1 {
		t.Fatalf("the script of all verbs: %v", err)
	}
	binary := harness.Binary(t)
	verbs := func(beside func(root string)) string {
		dir := t.TempDir()
		env := append(harness.Environ(filepath.Join(dir, ".state")), "TZ=UTC", "PATH="+filepath.Dir(binary)+":/usr/bin:/bin")
		root := filepath.Join(dir, "store")
		if r := harness.Command(t, dir, env, binary, "sample-store", root); r.Code != 0 {
			t.Fatal(r.Err)
		}
		if err := os.WriteFile(filepath.Join(dir, "verbs.sh"), archive.Files[0].Data, 0o600); err != nil {
			t.Fatal(err)
		}
		ended := make(chan harness.Result, 1)
		go func() { ended <- harness.Command(t, dir, env, "sh", "-c", "sh verbs.sh 2>&1") }()
		for {
			select {
			case r := <-ended:
				wantRows(t, dir, append(env, "SESSIONFS_STORE="+root))
				return settled(r.Out)
			case <-time.After(25 * time.Millisecond):
				beside(root)
			}
		}
	}
	alone := verbs(func(string) {})
	if n := strings.Count(alone, "$ sessionfs "); n < 30 {
		t.Fatalf("only %d verbs were run:\n%s", n, alone)
	}
	foreign := harness.NewForeign(t)
	n := 0
	together := verbs(func(root string) {
		foreign.Do(harness.ForeignRequest{Op: "meta", Store: root, Session: "local_demo", Key: "peer_note", Value: fmt.Sprint(n)})
		foreign.Do(harness.ForeignRequest{
			Op: "append", Store: root, Session: "local_zh", Role: "user", Head: true, PredecessorHead: true,
			ID: fmt.Sprintf("foreign%04d", n), Text: "foreign message",
		})
		n++
	})
	if n < 2 { // how often it gets to write is the machine's affair
		t.Errorf("the other process wrote only %d times", n)
	}
	if diff := cmp.Diff(alone, together); diff != "" {
		t.Errorf("beside another writer the verbs say something else (-alone +together):\n%s", diff)
	}
	t.Logf("%d writes of the other process", 2*n)
}

// churnScript makes, changes and removes sessions of its own until a file says
// that it is enough.
const churnScript = `
i=0
while [ ! -e "$DONE" ]; do
	id=churn_$1_$((i+=1))
	sessionfs new $id --title "title $i" >/dev/null
	sessionfs append $id "question $i" >/dev/null
	sessionfs set $id title "another $i"
	sessionfs edit $id --text "edited $i" >/dev/null 2>&1
	sessionfs append local_files "to all $1 $i" >/dev/null
	sessionfs commit $id >/dev/null
	sessionfs reindex >/dev/null
	[ $((i % 2)) = 0 ] && sessionfs rm --yes $id >/dev/null
done
echo $i`

// TestCheckBesideWriters: check finds nothing in a sound store, whatever others
// make, change and remove while it looks.
func TestCheckBesideWriters(t *testing.T) {
	state := t.TempDir()
	root, done := filepath.Join(state, "store"), filepath.Join(state, "done")
	binary := harness.Binary(t)
	env := append(harness.Environ(filepath.Join(state, ".state")), "SESSIONFS_STORE="+root, "DONE="+done, "PATH="+filepath.Dir(binary)+":/usr/bin:/bin")
	if r := harness.Command(t, state, env, binary, "sample-store", root); r.Code != 0 {
		t.Fatal(r.Err)
	}
	var writers sync.WaitGroup
	for n := range 2 {
		writers.Go(func() {
			r := harness.Command(t, state, env, "sh", "-c", churnScript, "sh", fmt.Sprint(n))
			if r.Err != "" {
				t.Errorf("a verb failed: %s", r.Err)
			}
			t.Logf("%s sessions", strings.TrimSpace(r.Out))
		})
	}
	foreign := harness.NewForeign(t)
	for i := range 40 {
		foreign.Do(harness.ForeignRequest{
			Op: "append", Store: root, Session: "local_zh", Role: "user", Head: true, PredecessorHead: true,
			ID: fmt.Sprintf("foreign%04d", i), Text: "foreign message",
		})
		if r := harness.Command(t, state, env, binary, "check"); r.Code != 0 {
			t.Errorf("round %d:\n%s%s", i, r.Out, r.Err)
		}
	}
	harness.Command(t, state, env, "touch", done)
	writers.Wait()
	wantRows(t, state, env)
}

// wantRows checks the registry of a store that nobody writes to any more, as it
// is when every row has had its time to come.
func wantRows(t *testing.T, dir string, env []string) {
	t.Helper()
	sh := func(script string) string { return harness.Command(t, dir, env, "sh", "-c", script).Out }
	sh(`find "$SESSIONFS_STORE" -name meta.json -exec touch -d '1 minute ago' {} +`)
	late := regexp.MustCompile(`(?m)^warning: local_zh: index.json \[stale_row\]: (updated_at|preview) differs from meta.json\n`)
	if out := late.ReplaceAllString(sh("sessionfs check | grep -v ' findings\\?$'"), ""); out != "" {
		t.Errorf("beside rows that the other process did not write:\n%s", out)
	}
	if out := sh("sessionfs reindex >&2; sessionfs check"); out != "0 findings\n" {
		t.Errorf("after a reindex:\n%s", out)
	}
}

// settled leaves out what the other process may change: its own session's line,
// how many rows a reindex found changed, and how many objects there are.
func settled(out string) string {
	out = regexp.MustCompile(`(?m)^  local_zh .*\n`).ReplaceAllString(out, "")
	return regexp.MustCompile(`\d+ (changed|objects)`).ReplaceAllString(out, "N $1")
}
