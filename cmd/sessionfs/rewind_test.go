package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionfs/sessionfs/store"
)

func testPlan() *store.RewindPlan {
	return &store.RewindPlan{
		Target: "q2", Text: "Second\nquestion", Head: "a1", Turns: []string{"a3", "a2"},
		Files: []store.RewindFile{
			{Path: "main.go", Action: "restore"}, {Path: "new\nline", Action: "remove", Gap: true},
		},
		Conflicts: []string{"notes.txt: changed outside"},
	}
}

func TestWritePlan(t *testing.T) {
	var out bytes.Buffer
	if err := writePlan(&out, testPlan()); err != nil {
		t.Fatal(err)
	}
	want := `before:   q2  Second question
head:     a1
undone:   a3
undone:   a2
restore:  main.go
remove:   new line  (changed by somebody else in between, which goes too)
conflict: notes.txt: changed outside
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlanJSONHasNoNulls(t *testing.T) {
	raw, err := json.Marshal(newPlanJSON("s", &store.RewindPlan{Target: "q"}, false))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"session":"s","target":"q","text":"","head":"","turns":[],"files":[],"conflicts":[],"done":false}`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	raw, err = json.Marshal(newPlanJSON("s", testPlan(), true).Files)
	if err != nil {
		t.Fatal(err)
	}
	if want := `[{"path":"main.go","action":"restore","gap":false},{"path":"new\nline","action":"remove","gap":true}]`; string(raw) != want {
		t.Errorf("got %s", raw)
	}
}
