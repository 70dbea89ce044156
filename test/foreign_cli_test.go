package test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
