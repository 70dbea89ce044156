package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

// projectStore opens a store whose session "x" is bound to a project.
func projectStore(t *testing.T) (s *store.Store, project string) {
	t.Helper()
	state := t.TempDir()
	project = filepath.Join(state, "work")
	if err := os.MkdirAll(filepath.Join(state, "projects"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(project, 0o700); err != nil {
		t.Fatal(err)
	}
	registry := `{"p1": {"id": "p1", "name": "Work", "path": "` + project + `", "session_ids": []}}`
	if err := os.WriteFile(filepath.Join(state, "projects", "projects.json"), []byte(registry), 0o600); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, store.Options{Root: filepath.Join(state, "sessions"), State: state, Create: true})
	if err := s.CreateSession(t.Context(), store.NewSession{ID: "x", Root: true, Project: "p1"}); err != nil {
		t.Fatal(err)
	}
	return s, project
}

func TestRewindRestoresFiles(t *testing.T) {
	s, project := projectStore(t)
	ctx := t.Context()
	say := func(role, text string) string {
		res, err := s.AppendText(ctx, "x", role, text)
		if err != nil {
			t.Fatal(err)
		}
		return res.ID
	}
	q1, a1, q2, a2 := say("user", "q1"), say("assistant", "a1"), say("user", "q2"), say("assistant", "a2")
	file, made := filepath.Join(project, "f"), filepath.Join(project, "new")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "before")
	for _, p := range []string{file, made} {
		if err := s.BeforeWrite(ctx, "x", a2, p); err != nil {
			t.Fatal(err)
		}
		write(p, "after")
		if err := s.AfterWrite(ctx, "x", a2, p); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Rewind(ctx, "x", q2, "")
	wantCode(t, err, store.Confirm)
	plan, err := s.PlanRewind(ctx, "x", q2)
	if err != nil || len(plan.Files) != 2 || plan.Text != "q2" || plan.Head != a1 {
		t.Fatalf("plan = %+v, %v", plan, err)
	}
	_, err = s.Rewind(ctx, "x", q2, "another plan")
	wantCode(t, err, store.Conflict)
	if head(t, s, "x") != a2 {
		t.Fatal("a refused rewind moved the head")
	}
	if _, err := s.Rewind(ctx, "x", q2, plan.Hash); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(file); string(b) != "before" {
		t.Errorf("file = %q", b)
	}
	if _, err := os.Stat(made); !os.IsNotExist(err) {
		t.Errorf("the file that the turn made is still there: %v", err)
	}
	if head(t, s, "x") != a1 {
		t.Errorf("head = %s, want %s", head(t, s, "x"), a1)
	}
	if branches, _ := s.ListBranches(ctx, "x"); len(branches) != 1 || branches[0].Head != a2 {
		t.Errorf("the old line is gone: %+v", branches)
	}
	commits, _ := s.SessionCommits(ctx, "x", 1)
	if commits[0].Message != "rewind" {
		t.Errorf("newest commit = %q", commits[0].Message)
	}
	// To before the first message: no head.
	if _, err := s.Rewind(ctx, "x", q1, ""); err != nil || head(t, s, "x") != "" {
		t.Errorf("rewind to the beginning: %v, head %q", err, head(t, s, "x"))
	}
	_, err = s.Rewind(ctx, "x", a1, "")
	wantCode(t, err, store.Invalid)
}

func TestRewindRefusesAConflict(t *testing.T) {
	s, project := projectStore(t)
	ctx := t.Context()
	q, _ := s.AppendText(ctx, "x", "user", "q")
	a, _ := s.AppendText(ctx, "x", "assistant", "a")
	file := filepath.Join(project, "f")
	if err := s.BeforeWrite(ctx, "x", a.ID, file); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(file, []byte("the turn's"), 0o600)
	if err := s.AfterWrite(ctx, "x", a.ID, file); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(file, []byte("somebody else's"), 0o600)
	plan, err := s.PlanRewind(ctx, "x", q.ID)
	if err != nil || len(plan.Conflicts) != 1 {
		t.Fatalf("plan = %+v, %v", plan, err)
	}
	_, err = s.Rewind(ctx, "x", q.ID, plan.Hash)
	wantCode(t, err, store.Conflict)
	if b, _ := os.ReadFile(file); string(b) != "somebody else's" || head(t, s, "x") != a.ID {
		t.Errorf("a refused rewind changed something: %q, head %s", b, head(t, s, "x"))
	}
}
