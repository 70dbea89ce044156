package store_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// lateWatch holds up the watching of the sessions of a root: the second time
// that the root is opened as a directory waits. The first is that of the list.
type lateWatch struct {
	disk.FS
	root   string
	opened atomic.Int32
	held   chan struct{} // closed when the watching waits
	goOn   chan struct{} // closed to let it go on
}

func (f *lateWatch) OpenDir(name string) (disk.Dir, error) {
	if name == f.root && f.opened.Add(1) == 2 {
		close(f.held)
		<-f.goOn
	}
	return f.FS.OpenDir(name)
}

// openUnwatched opens a root with the sessions s0000 and s0001, of which none is
// watched before goOn is called.
func openUnwatched(t *testing.T) (s *store.Store, root string, rec recorder, goOn func()) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	bareSessions(t, root, 2)
	listing(t, root, "", false)
	settleAll()
	f := &lateWatch{FS: disk.OS, root: root, held: make(chan struct{}), goOn: make(chan struct{})}
	released := false
	goOn = func() {
		if !released {
			released = true
			close(f.goOn)
		}
	}
	s = openStore(t, store.Options{Root: root, ReadOnly: true, Watch: true, FS: f})
	t.Cleanup(goOn) // before Close
	select {
	case <-f.held:
	case <-time.After(10 * time.Second):
		t.Fatal("the sessions are not watched in the background")
	}
	rec = recorder{make(chan store.Change, 100), make(chan store.Change, 100)}
	t.Cleanup(s.Subscribe(rec))
	return s, root, rec, goOn
}

// nothingOf fails when something of a session has been told.
func nothingOf(t *testing.T, rec recorder, id string) {
	t.Helper()
	for {
		select {
		case c := <-rec.published:
			if c.ID == id {
				t.Fatalf("%s was told of before: %+v", id, c)
			}
		default:
			return
		}
	}
}

// TestChangeBeforeTheWatch: what another process changes after the start and
// before a session's watch is on is told when it is.
func TestChangeBeforeTheWatch(t *testing.T) {
	t.Parallel()
	s, root, rec, goOn := openUnwatched(t)
	// Of the same size and time, within the file: only the time of change tells.
	rewriteInPlace(t, filepath.Join(root, "s0001", "meta.json"), bareMeta("s0001", 9999))
	time.Sleep(50 * time.Millisecond) // an event would have come by now
	nothingOf(t, rec, "s0001")
	goOn()
	waitFor(t, rec.published, func(c store.Change) bool { return c.ID == "s0001" && c.Row && c.Foreign })
	row, err := s.Row(t.Context(), "s0001")
	check(t, err)
	if row.Title != "title 9999" {
		t.Errorf("title %q", row.Title)
	}
	// And the watch is on.
	writeFile(t, filepath.Join(root, "s0000", "meta.json"), bareMeta("s0000", 8888))
	waitFor(t, rec.published, func(c store.Change) bool { return c.ID == "s0000" && c.Row && c.Foreign })
}

// TestListBetweenStartAndWatch: a list that somebody else asks for meanwhile
// does not hide a change from the observers.
func TestListBetweenStartAndWatch(t *testing.T) {
	t.Parallel()
	s, root, rec, goOn := openUnwatched(t)
	list := func() []store.Row {
		rows, err := s.ListSessions(t.Context(), store.ListQuery{})
		check(t, err)
		return rows
	}
	if rows := list(); len(rows) != 2 {
		t.Fatalf("%d sessions", len(rows))
	}
	writeFile(t, filepath.Join(root, "s0001", "meta.json"), bareMeta("s0001", 9999))
	settleAll() // now the list takes the file for known
	if rows := list(); rows[0].Title != "title 9999" {
		t.Fatalf("the list shows %q", rows[0].Title)
	}
	goOn()
	waitFor(t, rec.published, func(c store.Change) bool { return c.ID == "s0001" && c.Row && c.Foreign })
}

// TestPinnedBeforeTheWatch: who looks into a session has it watched at once; its
// row, listed before, is compared all the same.
func TestPinnedBeforeTheWatch(t *testing.T) {
	t.Parallel()
	s, root, rec, goOn := openUnwatched(t)
	writeFile(t, filepath.Join(root, "s0000", "meta.json"), bareMeta("s0000", 9999))
	_, watched, release, err := s.Pin(t.Context(), "s0000")
	check(t, err)
	defer release()
	if !watched {
		t.Fatal("not watched")
	}
	nothingOf(t, rec, "s0000")
	goOn()
	waitFor(t, rec.published, func(c store.Change) bool { return c.ID == "s0000" && c.Row })
}

// TestPinWatchesAtOnce: a session that somebody looks into is followed while the
// others are not watched yet.
func TestPinWatchesAtOnce(t *testing.T) {
	t.Parallel()
	s, root, rec, _ := openUnwatched(t)
	_, _, release, err := s.Pin(t.Context(), "s0000")
	check(t, err)
	defer release()
	writeFile(t, filepath.Join(root, "s0000", "history", "0001-u-b.json"), strings.Replace(bareNode("b", 1), "ROOT", "a", 1))
	waitFor(t, rec.published, func(c store.Change) bool {
		return c.ID == "s0000" && c.New != nil && c.New.Index.Len() == 2
	})
}

// TestSessionsComeBeforeTheWatch: sessions that come and go while the others are
// not watched yet are told of.
func TestSessionsComeBeforeTheWatch(t *testing.T) {
	t.Parallel()
	_, root, rec, goOn := openUnwatched(t)
	writeBare(t, root, "new", 7)
	waitFor(t, rec.published, func(c store.Change) bool { return c.ID == "new" && c.Listing })
	check(t, os.RemoveAll(filepath.Join(root, "s0001")))
	waitFor(t, rec.published, func(c store.Change) bool { return c.ID == "s0001" && c.Listing })
	goOn()
	writeFile(t, filepath.Join(root, "new", "meta.json"), bareMeta("new", 9999))
	waitFor(t, rec.published, func(c store.Change) bool { return c.ID == "new" && c.Row && !c.Listing })
}

// TestProjectComesLater: the sessions of a project whose directory comes while
// the store is open are followed, though it was empty at first.
func TestProjectComesLater(t *testing.T) {
	t.Parallel()
	_, root, rec, goOn := openUnwatched(t)
	goOn()
	check(t, os.MkdirAll(filepath.Join(root, "projects"), 0o700))
	time.Sleep(50 * time.Millisecond)
	check(t, os.Mkdir(filepath.Join(root, "projects", "p1"), 0o700))
	time.Sleep(50 * time.Millisecond)
	writeBare(t, filepath.Join(root, "projects", "p1"), "inside", 7)
	waitFor(t, rec.published, func(c store.Change) bool { return c.ID == "inside" && c.Listing })
}

// TestStartShowsNoDeadRun: the first list of a start, for which rows are at
// hand, shows what the start has put right: also where only the row said that
// something runs.
func TestStartShowsNoDeadRun(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	bareSessions(t, root, 3)
	writeFile(t, filepath.Join(root, "s0001", "meta.json"), `{"id": "s0001", "status": "running", "updated_at": 5.0}`)
	check(t, os.Remove(filepath.Join(root, "s0002", ".git"))) // can only be read
	rows := map[string]map[string]any{}
	for i := range 3 {
		id := fmt.Sprintf("s%04d", i)
		rows[id] = map[string]any{"id": id, "status": "running"}
	}
	text, err := json.Marshal(rows)
	check(t, err)
	writeFile(t, filepath.Join(root, "index.json"), string(text))
	settleAll()
	s := openStore(t, store.Options{Root: root, Watch: true, Reconcile: store.ReconcileAlways, Sweep: true})
	for range 2 {
		list, err := s.ListSessions(t.Context(), store.ListQuery{})
		check(t, err)
		if len(list) != 3 {
			t.Fatalf("%d sessions", len(list))
		}
		for _, r := range list {
			if r.Status != "interrupted" {
				t.Errorf("%s is %s", r.ID, r.Status)
			}
		}
	}
}

// TestStartShowsWhatCameAfterIt: the rows that a start keeps for the first list
// are not shown of a session that has changed since.
func TestStartShowsWhatCameAfterIt(t *testing.T) {
	t.Parallel()
	s, root, _, _ := openUnwatched(t)
	list := func(want string) {
		t.Helper()
		rows, err := s.ListSessions(t.Context(), store.ListQuery{})
		check(t, err)
		var got []string
		for _, r := range rows {
			got = append(got, r.ID+" "+r.Title)
		}
		if strings.Join(got, ",") != want {
			t.Errorf("list %q, want %q", got, want)
		}
	}
	rewriteInPlace(t, filepath.Join(root, "s0001", "meta.json"), bareMeta("s0001", 9999))
	list("s0001 title 9999,s0000 title 0000")
	writeBare(t, root, "new", 7)
	check(t, os.RemoveAll(filepath.Join(root, "s0000")))
	list("s0001 title 9999,new title 0007")
}
