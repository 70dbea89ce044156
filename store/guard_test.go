package store_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

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

// Who reads the status that ends a run may begin the next one at once: the
// lease is not held longer than the session's lock is.
func TestAnEndedRunHoldsNothing(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sessions")
	s := openStore(t, store.Options{Root: root, Create: true})
	newSession(t, s, "x", "one")
	other := openStore(t, store.Options{Root: root})
	defer s.Subscribe(slowObserver{})()
	ctx := t.Context()
	for i := range 20 {
		run, err := s.BeginTurn(ctx, "x", store.Turn{Placeholder: true})
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		ended := make(chan error, 1)
		go func() { ended <- run.End(ctx, "idle") }()
		meta := filepath.Join(load(t, s, "x").Dir, "meta.json")
		for !strings.Contains(readFile(t, meta), `"idle"`) {
			runtime.Gosched()
		}
		next, err := other.Begin(ctx, "x")
		if err != nil {
			t.Fatalf("round %d, begin after the end was seen: %v", i, err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if err := next.End(ctx, "idle"); err != nil {
			t.Fatal(err)
		}
	}
}

// slowObserver makes the time between a write and the end of its call long.
type slowObserver struct{}

func (slowObserver) Swapped(store.Change)                    {}
func (slowObserver) Published(context.Context, store.Change) { time.Sleep(20 * time.Millisecond) }

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
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
