package store_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

// TestRest: at rest only the last sessions stay loaded that nobody pins, and
// what was dropped is read again.
func TestRest(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sessions")
	const sessions = 20
	bareSessions(t, root, sessions)
	s := openStore(t, store.Options{Root: root})
	id := func(n int) string { return fmt.Sprintf("s%04d", n) }
	load := func(n int) *store.Snapshot {
		t.Helper()
		sn, err := s.Load(t.Context(), id(n))
		if err != nil {
			t.Fatal(err)
		}
		return sn
	}
	_, _, release, err := s.Pin(t.Context(), id(0))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	var before [sessions]*store.Snapshot
	for n := range before {
		before[n] = load(n)
	}
	s.Rest()
	for n, dropped := range map[int]bool{0: false, 1: true, 2: true, sessions - 1: false} {
		sn := load(n)
		if (sn != before[n]) != dropped {
			t.Errorf("session %d is dropped: %v", n, sn != before[n])
		}
		if sn.Head != before[n].Head || sn.Index.Len() != 1 {
			t.Errorf("session %d has the head %q and %d nodes", n, sn.Head, sn.Index.Len())
		}
	}
}
