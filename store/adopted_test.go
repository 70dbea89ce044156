package store_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
)

// TestSessionThatIsCopiedSlowly: a session of which the parts come one after the
// other, in whatever order, has a whole row in the end, on disk as well.
func TestSessionThatIsCopiedSlowly(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	bareSessions(t, root, 1)
	s := openStore(t, store.Options{Root: root, Watch: true})
	k := newKeeper(t, s, "late")
	dir := filepath.Join(root, "late")
	check(t, os.Mkdir(dir, 0o700))
	check(t, os.Mkdir(filepath.Join(dir, ".git"), 0o700))
	check(t, os.Mkdir(filepath.Join(dir, "history"), 0o700))
	row := func() (row struct{ Title, Preview string }) {
		raw, err := os.ReadFile(filepath.Join(root, "index.json"))
		check(t, err)
		var rows map[string]json.RawMessage
		check(t, json.Unmarshal(raw, &rows))
		if raw, ok := rows["late"]; ok {
			check(t, json.Unmarshal(raw, &row))
			return row
		}
		row.Title = "no row"
		return row
	}
	until := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, row())
			}
		}
	}
	until("a row of nothing", func() bool { return row().Title == "" })
	writeFile(t, filepath.Join(dir, "meta.json"), bareMeta("late", 4))
	k.comesTo(t, "meta.json", "title 0004")
	until("meta.json", func() bool { return row().Title == "title 0004" })
	writeFile(t, filepath.Join(dir, "history", "0000-u-a.json"), bareNode("a", 4))
	until("a message", func() bool { return row().Preview != "" })
	r, err := s.Row(t.Context(), "late")
	check(t, err)
	if r.Preview != row().Preview {
		t.Errorf("preview %q, on disk %q", r.Preview, row().Preview)
	}
	check(t, s.Close())
	if got := findings(t, root)["stale_row"]; got != 0 {
		t.Errorf("%d findings", got)
	}
}

// TestAdoptedRowOfAnother: who knows more of a session than what is on disk keeps
// its row.
func TestAdoptedRowOfAnother(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	bareSessions(t, root, 1)
	s := openStore(t, store.Options{Root: root, Watch: true})
	writeBare(t, root, "made", 3)
	rows := func() map[string]map[string]any {
		raw, err := os.ReadFile(filepath.Join(root, "index.json"))
		check(t, err)
		var rows map[string]map[string]any
		check(t, json.Unmarshal(raw, &rows))
		return rows
	}
	for rows()["made"]["preview"] == nil { // all of it was found
		time.Sleep(20 * time.Millisecond)
	}
	all := rows()
	all["made"]["channel"], all["made"]["preview"] = "web", "its own"
	text, err := json.Marshal(all)
	check(t, err)
	write(t, filepath.Join(root, "index.json.tmp"), string(text))
	check(t, os.Rename(filepath.Join(root, "index.json.tmp"), filepath.Join(root, "index.json")))
	for r, err := s.Row(t.Context(), "made"); r.Channel != "web"; r, err = s.Row(t.Context(), "made") {
		check(t, err)
		time.Sleep(time.Millisecond)
	}
	writeFile(t, filepath.Join(root, "made", "history", "0001-u-b.json"), bareNode("b", 9))
	time.Sleep(3 * time.Second) // two looks
	check(t, s.Close())
	if got := rows()["made"]; got["channel"] != "web" || got["preview"] != "its own" {
		t.Errorf("row %v", got)
	}
}
