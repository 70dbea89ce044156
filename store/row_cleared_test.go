package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

// TestFieldTakenOutOfMeta: what another process takes out of meta.json is no
// longer listed, is a finding until the row follows, and the row is mended.
func TestFieldTakenOutOfMeta(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	bareSessions(t, root, 2)
	const id = "s0000"
	path := filepath.Join(root, id, "meta.json")
	put := func(text string) {
		t.Helper()
		write(t, path+".tmp", text)
		check(t, os.Rename(path+".tmp", path))
	}
	put(`{"id": "s0000", "agent_id": "main", "title": "t", "status": "done", "pinned": true, "archived": true, "unread": true, "group": "g"}`)
	s := openStore(t, store.Options{Root: root, Watch: true})
	k := newKeeper(t, s, id)
	k.ask(t.Context())
	k.comesTo(t, "the start", "t")
	check(t, s.Close()) // the row is written
	put(`{"id": "s0000"}`)

	kinds := findings(t, root)
	if kinds["stale_row"] != 6 {
		t.Errorf("findings: %v", kinds)
	}
	s = openStore(t, store.Options{Root: root, Watch: true})
	r, err := s.Row(t.Context(), id)
	check(t, err)
	if r.Title != "" || r.Group != "" || r.Status != "idle" || r.Pinned || r.Archived || r.Unread || r.AgentID != "main" {
		t.Errorf("row %+v", r)
	}
	list, err := s.ListSessions(t.Context(), store.ListQuery{})
	check(t, err)
	if len(list) != 2 {
		t.Errorf("listed are %d", len(list))
	}
	check(t, s.Close())
	if kinds := findings(t, root); kinds["stale_row"] != 0 {
		t.Errorf("findings when the row was mended: %v", kinds)
	}
}

// TestRunOfARowAlone: that something runs is believed of a row whose meta.json
// has no status; it is no stale one.
func TestRunOfARowAlone(t *testing.T) {
	root := t.TempDir()
	bareSessions(t, root, 1)
	write(t, filepath.Join(root, "index.json"), `{"s0000": {"id": "s0000", "status": "running"}}`)
	s := openStore(t, store.Options{Root: root, ReadOnly: true})
	r, err := s.Row(t.Context(), "s0000")
	check(t, err)
	if r.Status != "running" {
		t.Errorf("status %q", r.Status)
	}
}
