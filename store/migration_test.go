package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

func TestMigrateOutOfAWorkingFolder(t *testing.T) {
	s, project := projectStore(t)
	ctx := t.Context()
	q, err := s.AppendText(ctx, "x", "user", "q")
	if err != nil {
		t.Fatal(err)
	}
	// As an old version left it: in the working folder, nowhere recorded.
	dir := load(t, s, "x").Dir
	legacy := filepath.Join(project, ".openprogram", "sessions", "x")
	if err := os.MkdirAll(filepath.Dir(legacy), 0o700); err != nil {
		t.Fatal(err)
	}
	root, state := s.Root(), filepath.Dir(s.Root())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, legacy); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(root, "locations.json")); err != nil {
		t.Fatal(err)
	}
	markIdentity(t, state, project)
	s = openStore(t, store.Options{Root: root, State: state})
	_, err = s.AppendText(ctx, "x", "user", "refused")
	wantCode(t, err, store.ReadOnly)
	if rows, err := s.ListSessions(ctx, store.ListQuery{}); err != nil || len(rows) != 1 {
		t.Errorf("a session that waits for its migration is not listed: %v, %v", rows, err)
	}
	if ids, err := s.Unmigrated(ctx); err != nil || len(ids) != 1 {
		t.Fatalf("unmigrated = %v, %v", ids, err)
	}
	done, err := s.Migrate(ctx, nil)
	if err != nil || len(done) != 1 || done[0].Err != nil || len(done[0].Kept) > 0 {
		t.Fatalf("migrated = %+v, %v", done, err)
	}
	if sn := load(t, s, "x"); sn.Dir != dir || sn.Legacy || sn.Head != q.ID {
		t.Errorf("served from %s, head %s", sn.Dir, sn.Head)
	}
	if _, err := s.AppendText(ctx, "x", "user", "taken"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(legacy); !os.IsNotExist(err) {
		t.Errorf("the old copy is still there: %v", err)
	}
}

// markIdentity makes the project's record prove which folder it means.
func markIdentity(t *testing.T, state, project string) {
	t.Helper()
	registry := `{"p1": {"id": "p1", "name": "Work", "path": "` + project + `", "session_ids": ["x"], "directory_identity": {"any": "thing"}}}`
	if err := os.WriteFile(filepath.Join(state, "projects", "projects.json"), []byte(registry), 0o600); err != nil {
		t.Fatal(err)
	}
}
