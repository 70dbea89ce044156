package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

// Another program may write a status of its own over ours, from what it
// remembered: the lease alone says that a run is on.
func TestAHeldLeaseIsARun(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "one", "two")
	ctx := t.Context()
	run, err := s.BeginTurn(ctx, "x", store.Turn{Placeholder: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []string{"idle", "interrupted"} {
		stampStatus(t, s, "x", status)
		_, err = s.SetHead(ctx, "x", ids[0], store.HeadMove{})
		wantCode(t, err, store.RunActive)
		_, err = s.AppendText(ctx, "x", "user", "no")
		wantCode(t, err, store.RunActive)
		wantCode(t, s.DeleteSession(ctx, "x"), store.RunActive)
		if active, err := s.RunIsActive(ctx, "x"); err != nil || !active {
			t.Errorf("status %s: active %v, %v", status, active, err)
		}
	}
	// A reply that somebody removed is not silently lost.
	sn := load(t, s, "x")
	e, _ := sn.Entry(run.Node())
	if err := os.Remove(filepath.Join(sn.Dir, "history", e.File)); err != nil {
		t.Fatal(err)
	}
	text := "said"
	wantCode(t, run.Finish(ctx, store.Outcome{Status: "completed", Text: &text}), store.Conflict)
	if _, err := s.SetHead(ctx, "x", ids[0], store.HeadMove{}); err != nil {
		t.Errorf("after the run: %v", err)
	}
}

func TestHeadNeverStandsAtTheRoot(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "one")
	_, err := s.SetHead(t.Context(), "x", "ROOT", store.HeadMove{})
	wantCode(t, err, store.Invalid)
	_, err = s.Checkout(t.Context(), "x", "ROOT")
	wantCode(t, err, store.Invalid)
	if head(t, s, "x") != ids[0] {
		t.Error("a refused move moved the head")
	}
}

func TestUpdateSessionRefusesWhatReadersCannotRead(t *testing.T) {
	s := openStore(t, store.Options{})
	newSession(t, s, "x", "one")
	for key, raw := range map[string]string{"title": "5", "pinned": `"yes"`, "merged_heads": "5", "updated_at": `"z"`, "branches": "[]"} {
		wantCode(t, s.UpdateSession(t.Context(), "x", []store.KV{{Key: key, Raw: []byte(raw)}}), store.Invalid)
	}
	if err := s.UpdateSession(t.Context(), "x", []store.KV{{Key: "note", Raw: []byte(`"\ud800x"`)}}); err != nil {
		t.Fatal(err)
	}
	if meta := string(load(t, s, "x").MetaJSON()); strings.Contains(meta, "ud800") {
		t.Errorf("a lone surrogate was written: %s", meta)
	}
}

func TestAnUnfinishedChangeOfThePeerIsLeftAlone(t *testing.T) {
	s := openStore(t, store.Options{})
	newSession(t, s, "x", "one")
	intent := filepath.Join(load(t, s, "x").Dir, ".git", "openprogram-append.json")
	if err := os.WriteFile(intent, []byte(`{"version":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.DeleteSession(t.Context(), "x"), store.ReadOnly)
	wantCode(t, s.RemoveEmpty(t.Context(), "x"), store.ReadOnly)
	_, err := s.Compact(t.Context(), "x")
	wantCode(t, err, store.ReadOnly)
}
