package store_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// rootReads counts how often a root is read as a directory.
type rootReads struct {
	disk.FS
	root string
	n    atomic.Int64
}

func (f *rootReads) ReadDir(name string) ([]os.DirEntry, error) {
	if name == f.root {
		f.n.Add(1)
	}
	return f.FS.ReadDir(name)
}

// TestListAsOpened: the first list of who has subscribed may be that of the
// start; what happened since is in it, or is told.
func TestListAsOpened(t *testing.T) {
	t.Parallel()
	titled := func(rows []store.Row, id string) string {
		if i := slices.IndexFunc(rows, func(r store.Row) bool { return r.ID == id }); i >= 0 {
			return rows[i].Title
		}
		return "not listed"
	}
	for name, between := range map[string]func(t *testing.T, s *store.Store, rec recorder, root string) (id, title string, mayBeTold bool){
		"nothing": func(*testing.T, *store.Store, recorder, string) (string, string, bool) {
			return "s0001", "title 0001", false
		},
		"an own change": func(t *testing.T, s *store.Store, _ recorder, _ string) (string, string, bool) {
			check(t, s.SetField(t.Context(), "s0001", "title", "mine"))
			return "s0001", "mine", false
		},
		"a deletion": func(t *testing.T, s *store.Store, _ recorder, _ string) (string, string, bool) {
			check(t, s.DeleteSession(t.Context(), "s0001"))
			return "s0001", "not listed", false
		},
		"a change by another": func(t *testing.T, _ *store.Store, _ recorder, root string) (string, string, bool) {
			writeFile(t, filepath.Join(root, "s0001", "meta.json"), bareMeta("s0001", 9999))
			return "s0001", "title 9999", true
		},
		"a session by another, told": func(t *testing.T, _ *store.Store, rec recorder, root string) (string, string, bool) {
			writeBare(t, root, "s0007", 7)
			waitFor(t, rec.published, func(c store.Change) bool { return c.ID == "s0007" && c.Listing })
			return "s0007", "title 0007", true
		},
		"a removal by another, told": func(t *testing.T, _ *store.Store, rec recorder, root string) (string, string, bool) {
			check(t, os.Rename(filepath.Join(root, "s0001"), filepath.Join(t.TempDir(), "away")))
			waitFor(t, rec.published, func(c store.Change) bool { return c.ID == "s0001" && c.Listing })
			return "s0001", "not listed", false
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, err := filepath.EvalSymlinks(t.TempDir())
			check(t, err)
			bareSessions(t, root, 3)
			listing(t, root, "", false)
			settleAll()
			f := &rootReads{FS: disk.OS, root: root}
			s := openStore(t, store.Options{Root: root, Watch: true, FS: f})
			rec := recorder{make(chan store.Change, 100), make(chan store.Change, 100)}
			t.Cleanup(s.Subscribe(rec))
			id, want, mayBeTold := between(t, s, rec, root)
			before := f.n.Load()
			rows, err := s.ListSessions(t.Context(), store.ListQuery{AsOpened: true})
			check(t, err)
			again := f.n.Load() > before
			got := titled(rows, id)
			if got != want && mayBeTold {
				waitFor(t, rec.published, func(c store.Change) bool { return c.ID == id && c.Row })
				row, err := s.Row(t.Context(), id)
				check(t, err)
				got = row.Title
			}
			if got != want {
				t.Errorf("%s: %q, not %q", id, got, want)
			}
			if name != "nothing" {
				return
			}
			t.Logf("looked for the sessions once more: %v", again) // where the machine was slow
			now, err := s.ListSessions(t.Context(), store.ListQuery{})
			check(t, err)
			same := slices.EqualFunc(rows, now, func(a, b store.Row) bool { return string(a.JSON) == string(b.JSON) })
			if !same {
				t.Errorf("%v is listed, then %v", rows, now)
			}
		})
	}
}
