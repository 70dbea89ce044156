package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
)

// repair mends a root and fails with what is left.
func repair(t *testing.T, root string) store.Repaired {
	t.Helper()
	return repair2(t, root, 0)
}

// repair2 is repair when so many findings are to be left.
func repair2(t *testing.T, root string, left int) store.Repaired {
	t.Helper()
	out, err := store.Repair(t.Context(), store.Options{Root: root, Clock: inAMinute}, nil)
	noErr(t, err)
	if len(out.Left) != left {
		t.Errorf("left: %v", out.Left)
	}
	return out
}

// TestRepairRowsFollowTheSessions: the registry is lost together with a
// meta.json, which Git has.
func TestRepairRowsFollowTheSessions(t *testing.T) {
	root, _ := soundRoot(t)
	s := open2(t, store.Options{Root: root})
	noErr(t, s.SetField(t.Context(), "x", "title", "my title"))
	noErr(t, s.SetField(t.Context(), "x", "pinned", "true"))
	_, _, err := s.CommitTurn(t.Context(), "x", "fields")
	noErr(t, err)
	closeNow(t, s)
	before, err := os.ReadFile(filepath.Join(root, "index.json"))
	noErr(t, err)
	noErr(t, os.Remove(filepath.Join(root, "index.json")))
	write(t, filepath.Join(root, "x", "meta.json"), "")
	repair(t, root)
	if found := findingsAt(t, root, func() time.Time { return time.Now().Add(time.Hour) }); len(found) > 0 {
		t.Errorf("an hour later: %v", found)
	}
	after, err := os.ReadFile(filepath.Join(root, "index.json"))
	noErr(t, err)
	for _, line := range strings.Split(string(before), "\n") {
		if strings.Contains(line, "title") && !strings.Contains(string(after), strings.TrimSuffix(strings.TrimSpace(line), ",")) {
			t.Errorf("the row lacks %s:\n%s", line, after)
		}
	}
}

// TestRepairNamesWhatItMended mends one of two findings of a kind and a file.
func TestRepairNamesWhatItMended(t *testing.T) {
	root, ids := soundRoot(t)
	noErr(t, os.Remove(node(t, root, ids[3])))
	edit(t, filepath.Join(root, "x", "meta.json"), `"id": "x"`, `"id": "x", "branches": {"nowhere": {"name": "n"}, "`+ids[3]+`": {"name": "m"}}`)
	out, err := store.Repair(t.Context(), store.Options{Root: root, Clock: inAMinute}, nil)
	noErr(t, err)
	told := func(all []store.Finding, id string) (n int) {
		for _, f := range all {
			if f.Kind == "branch_without_node" && strings.HasSuffix(f.Text, id) {
				n++
			}
		}
		return n
	}
	if told(out.Mended, ids[3]) != 1 || told(out.Left, "nowhere") != 1 || told(out.Mended, "nowhere")+told(out.Left, ids[3]) != 0 {
		t.Errorf("mended %v, left %v", out.Mended, out.Left)
	}
}

// TestCheckFindsARowOfAnotherID: the row's id is not its key.
func TestCheckFindsARowOfAnotherID(t *testing.T) {
	root, _ := soundRoot(t)
	edit(t, filepath.Join(root, "index.json"), `"id": "x"`, `"id": "other"`)
	if found := findings(t, root); found["stale_row"] != 1 {
		t.Fatalf("found %v", found)
	}
	repair(t, root)
	if raw, err := os.ReadFile(filepath.Join(root, "index.json")); err != nil || !strings.Contains(string(raw), `"id": "x"`) {
		t.Errorf("the row is %s, %v", raw, err)
	}
}
