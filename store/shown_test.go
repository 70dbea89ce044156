package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
)

// keeper keeps a session's row as a mount does: what a snapshot shows, and after
// every other change what the store says then.
type keeper struct {
	s  *store.Store
	id string

	mu     sync.Mutex
	title  string
	listed bool
}

func (k *keeper) Swapped(c store.Change) {
	if c.ID != k.id || c.New == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listed, k.title = true, c.New.Title()
}

func (k *keeper) Published(ctx context.Context, c store.Change) {
	if c.ID == k.id && c.New == nil {
		k.ask(ctx)
	}
}

func (k *keeper) ask(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, err := k.s.Row(ctx, k.id)
	k.listed, k.title = err == nil, r.Title
}

func (k *keeper) know() (title string, listed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.title, k.listed
}

// comesTo waits until the keeper knows a title, or with "" that there is no such
// session.
func (k *keeper) comesTo(t *testing.T, after, want string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		title, listed := k.know()
		if listed == (want != "") && (want == "" || title == want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %s known is %q, listed %v; want %q", after, title, listed, want)
		}
	}
}

func newKeeper(t *testing.T, s *store.Store, id string) *keeper {
	k := &keeper{s: s, id: id}
	t.Cleanup(s.Subscribe(k))
	return k
}

// TestOwnSessionTakenAwayAtOnce: another process takes a new session away before
// the store has looked at its root again.
func TestOwnSessionTakenAwayAtOnce(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sessions")
	s := openStore(t, store.Options{Root: root, Create: true, Watch: true})
	for i := range 10 {
		id := fmt.Sprint("new_", i)
		k := newKeeper(t, s, id)
		check(t, s.CreateSession(t.Context(), store.NewSession{ID: id}))
		check(t, os.Rename(filepath.Join(root, id), filepath.Join(root, ".away-"+id)))
		k.comesTo(t, "a removal", "")
	}
}

// TestChangedAndBack: who was told of a change, on whichever way, is told when
// another process takes it back, although the row is then what the observers
// were told before.
func TestChangedAndBack(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	bareSessions(t, root, 2)
	const id = "s0000"
	path := filepath.Join(root, id, "meta.json")
	titled := func(title string) {
		t.Helper()
		write(t, path+".tmp", fmt.Sprintf(`{"id": %q, "title": %q}`, id, title))
		check(t, os.Rename(path+".tmp", path))
	}
	titled("before")
	s := openStore(t, store.Options{Root: root, Watch: true})
	k := newKeeper(t, s, id)
	k.ask(t.Context())
	k.comesTo(t, "the start", "before")
	list := func() {
		rows, err := s.ListSessions(t.Context(), store.ListQuery{})
		check(t, err)
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, r := range rows {
			if r.ID == id {
				k.title = r.Title
			}
		}
	}
	for range 300 {
		for way, show := range map[string]func(){"a row": func() { k.ask(t.Context()) }, "a list": list} {
			titled("after")
			show()
			titled("before")
			k.comesTo(t, way, "before")
		}
	}
	for range 300 {
		titled("after")
		list()
		check(t, os.Rename(filepath.Join(root, id), filepath.Join(root, ".away")))
		k.comesTo(t, "a removal", "")
		check(t, os.Rename(filepath.Join(root, ".away"), filepath.Join(root, id)))
		k.comesTo(t, "its return", "after")
	}
}
