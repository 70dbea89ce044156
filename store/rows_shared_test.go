package store_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

// sharedRow is what index.json says of a session.
type sharedRow struct {
	Title     string  `json:"title"`
	Preview   string  `json:"preview"`
	Channel   any     `json:"channel"`
	Status    string  `json:"status"`
	Group     *string `json:"group"`
	UpdatedAt float64 `json:"updated_at"`
	fields    map[string]json.RawMessage
}

func decodeRow(t *testing.T, index []byte, id string) sharedRow {
	t.Helper()
	var rows map[string]json.RawMessage
	if err := json.Unmarshal(index, &rows); err != nil {
		t.Fatal(err)
	}
	var r sharedRow
	if err := json.Unmarshal(rows[id], &r); err != nil {
		t.Fatalf("row of %s: %v in %s", id, err, index)
	}
	if err := json.Unmarshal(rows[id], &r.fields); err != nil {
		t.Fatal(err)
	}
	return r
}

func rowOnDisk(t *testing.T, root, id string) sharedRow {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	return decodeRow(t, raw, id)
}

// open2 opens a store that the test closes itself, which writes its rows.
func open2(t *testing.T, opt store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeNow(t *testing.T, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func sharedRoot(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "sessions")
	closeNow(t, open2(t, store.Options{Root: root, Create: true}))
	return root
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantNoStaleRow checks that the registry's rows agree with the sessions.
func wantNoStaleRow(t *testing.T, root string) {
	t.Helper()
	s := open2(t, store.Options{Root: root, ReadOnly: true})
	defer s.Close()
	noErr(t, s.CheckRoot(t.Context(), func(f store.Finding) { t.Errorf("check: %+v", f) }))
}

// TestLearnedRowYields: a store that finds another's session on disk before
// its row gives it one of its own, which must not replace the other's.
func TestLearnedRowYields(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		root := sharedRoot(t)
		mount := open2(t, store.Options{Root: root, ReadOnly: readOnly})
		cli := open2(t, store.Options{Root: root})
		noErr(t, cli.CreateSession(t.Context(), store.NewSession{ID: "w1", Title: "zz", Root: true}))
		// No notification has come: the mount knows the directory, not the row.
		if _, err := mount.ListSessions(t.Context(), store.ListQuery{}); err != nil {
			t.Fatal(err)
		}
		_, err := cli.AppendText(t.Context(), "w1", "user", "hi")
		noErr(t, err)
		noErr(t, cli.SetField(t.Context(), "w1", "title", "later"))
		closeNow(t, cli)
		before := rowOnDisk(t, root, "w1")
		closeNow(t, mount)
		got := rowOnDisk(t, root, "w1")
		if got.Preview != "hi" || got.Title != "later" || got.UpdatedAt != before.UpdatedAt {
			t.Errorf("read-only %v: row on disk is %+v", readOnly, got)
		}
		if _, ok := got.fields["channel"]; !ok {
			t.Errorf("read-only %v: the row lost its channel", readOnly)
		}
		wantNoStaleRow(t, root)
	}
}

// TestWaitingRowIsNotOlder: a change of a row that waits to be written holds
// no older value than the session has by then.
func TestWaitingRowIsNotOlder(t *testing.T) {
	root := sharedRoot(t)
	mount := open2(t, store.Options{Root: root})
	newSession(t, mount, "x", "first", "reply")
	noErr(t, mount.SetField(t.Context(), "x", "title", "mine"))
	noErr(t, mount.SetField(t.Context(), "x", "group", "work"))
	cli := open2(t, store.Options{Root: root})
	_, err := cli.AppendText(t.Context(), "x", "user", "second")
	noErr(t, err)
	noErr(t, cli.SetField(t.Context(), "x", "title", "theirs"))
	noErr(t, cli.SetField(t.Context(), "x", "group", ""))
	closeNow(t, cli)
	want := rowOnDisk(t, root, "x")
	closeNow(t, mount)
	got := rowOnDisk(t, root, "x")
	if got.Preview != "second" || got.Title != "theirs" || got.Group != nil || got.UpdatedAt != want.UpdatedAt {
		t.Errorf("row is %+v, want %+v", got, want)
	}
	wantNoStaleRow(t, root)
}

// TestRunKeepsAnothersRow: another process appends while a turn runs.
func TestRunKeepsAnothersRow(t *testing.T) {
	root := sharedRoot(t)
	runner := open2(t, store.Options{Root: root})
	newSession(t, runner, "x", "question")
	run, err := runner.BeginTurn(t.Context(), "x", store.Turn{Placeholder: true})
	noErr(t, err)
	cli := open2(t, store.Options{Root: root})
	_, err = cli.AppendText(t.Context(), "x", "assistant", "q")
	noErr(t, err)
	closeNow(t, cli)
	want := rowOnDisk(t, root, "x").UpdatedAt
	noErr(t, run.Finish(t.Context(), store.Outcome{Status: "completed"}))
	closeNow(t, runner)
	if got := rowOnDisk(t, root, "x"); got.UpdatedAt != want || got.Status != "idle" {
		t.Errorf("row is %+v, want updated_at %v", got, want)
	}
	wantNoStaleRow(t, root)
}
