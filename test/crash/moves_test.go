package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/storetest"
)

// moves are the eight moves of the data model. Their crashes are lines of ops.
var moves = []struct {
	name string
	run  func(ctx context.Context, s *store.Store) error
	head string // the head afterwards, "" for a new node
}{
	{"retry", func(ctx context.Context, s *store.Store) error { _, err := s.Retry(ctx, "s1", "@"); return err }, "u2"},
	{"edit", func(ctx context.Context, s *store.Store) error { _, err := s.Edit(ctx, "s1", "u2", "x"); return err }, ""},
	{"sibling", func(ctx context.Context, s *store.Store) error {
		_, err := s.Sibling(ctx, "s1", "@", "next")
		return err
	}, "a2b"},
	{"leaf", func(ctx context.Context, s *store.Store) error { _, err := s.Leaf(ctx, "s1", "u3"); return err }, "a3"},
	{"checkout", func(ctx context.Context, s *store.Store) error { _, err := s.Checkout(ctx, "s1", "side"); return err }, "a3"},
	{"delete branch", func(ctx context.Context, s *store.Store) error { _, err := s.DeleteBranch(ctx, "s1", "@"); return err }, "a3"},
	{"attach", func(ctx context.Context, s *store.Store) error {
		_, err := s.Attach(ctx, store.AttachSpec{Source: "s1", Target: "side"})
		return err
	}, "a2"},
	{"attach across", func(ctx context.Context, s *store.Store) error {
		_, err := s.Attach(ctx, store.AttachSpec{Source: "s2", Target: "b1", Anchor: "s1"})
		return err
	}, "a2"},
	{"rewind", func(ctx context.Context, s *store.Store) error { _, err := s.Rewind(ctx, "s1", "u2", ""); return err }, "a1"},
	{"set head", func(ctx context.Context, s *store.Store) error {
		_, err := s.SetHead(ctx, "s1", "u1", store.HeadMove{})
		return err
	}, "u1"},
}

// TestMoveOrder: a move is in the store, then in the index, then published, and
// its snapshot is whole at each of the three.
func TestMoveOrder(t *testing.T) {
	for _, m := range moves {
		t.Run(m.name, func(t *testing.T) {
			root := filepath.Join(scratch(t), rootName)
			storetest.Build(t, root, talk)
			s, err := store.Open(t.Context(), store.Options{Root: root, FS: storetest.NewDisk()})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Load(t.Context(), "s1"); err != nil { // something to compare with
				t.Fatal(err)
			}
			o := &observer{s: s, root: root}
			cancel := s.Subscribe(o)
			defer cancel()
			if err := m.run(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			o.verify(t, m.head)
		})
	}
}

// observer checks the order of what it is told.
type observer struct {
	s       *store.Store
	root    string
	swapped []uint64 // versions, in the order of Swapped
	told    []uint64 // and of Published
	last    *store.Snapshot
	errs    []error
}

func (o *observer) fail(format string, args ...any) {
	o.errs = append(o.errs, fmt.Errorf(format, args...))
}

// Swapped is called with the session's lock held: the disk must have what New
// says, and New must be whole.
func (o *observer) Swapped(c store.Change) {
	if c.ID != "s1" || c.New == nil {
		return
	}
	o.swapped = append(o.swapped, c.New.Version)
	b, err := os.ReadFile(filepath.Join(o.root, "s1", "meta.json"))
	var meta struct {
		Head string `json:"head_id"`
	}
	if err != nil || json.Unmarshal(b, &meta) != nil {
		o.fail("at Swapped, meta.json is %q, %v", b, err)
		return
	}
	if meta.Head != c.New.Head {
		o.fail("at Swapped, the disk's head is %s and the snapshot's %s", meta.Head, c.New.Head)
	}
	if _, ok := c.New.Index.Get(c.New.Head); !ok {
		o.fail("at Swapped, the head %s is not in the index", c.New.Head)
	}
	branch, err := c.New.Branch()
	if err != nil || len(branch) == 0 || branch[len(branch)-1].ID != c.New.Head {
		o.fail("at Swapped, the branch of %s is %v, %v", c.New.Head, branch, err)
	}
	if held, err := filelock.Held(layout.New(nil, o.root, "", nil).LockPath("s1")); err != nil || !held {
		o.fail("at Swapped, the session's lock is not held: %v", err)
	}
	o.last = c.New
}

// Published is called before the operation returns, with no lock held.
func (o *observer) Published(ctx context.Context, c store.Change) {
	if c.ID != "s1" || c.New == nil || c.New == c.Old { // a commit changes no snapshot
		return
	}
	o.told = append(o.told, c.New.Version)
	for _, id := range []string{"s1", "s2"} {
		if held, err := filelock.Held(layout.New(nil, o.root, "", nil).LockPath(id)); err != nil || held {
			o.fail("at Published, the lock of %s is held: %v", id, err)
		}
	}
	sn, err := o.s.Load(ctx, "s1")
	if err != nil || sn != o.last {
		o.fail("at Published, Load does not give the newest snapshot: %v", err)
	}
	// The in-process lock is free: another operation gets through at once.
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := o.s.SetHead(short, "s1", o.last.Head, store.HeadMove{}); err != nil {
		o.fail("at Published, an operation does not get through: %v", err)
	}
}

func (o *observer) verify(t *testing.T, head string) {
	t.Helper()
	for _, err := range o.errs {
		t.Error(err)
	}
	if len(o.swapped) == 0 || fmt.Sprint(o.swapped) != fmt.Sprint(o.told) {
		t.Errorf("swapped %v, published %v", o.swapped, o.told)
	}
	if o.last == nil {
		return
	}
	if head == "" {
		head = o.last.Index.At(o.last.Index.Len() - 1).ID
	}
	if o.last.Head != head {
		t.Errorf("the head is %s, not %s", o.last.Head, head)
	}
}

// TestMovesAreRefused: no move happens while a run is active, and nothing is
// written then.
func TestMovesAreRefused(t *testing.T) {
	for _, m := range moves {
		t.Run(m.name, func(t *testing.T) {
			root := filepath.Join(scratch(t), rootName)
			storetest.Build(t, root, talk)
			ctx := t.Context()
			d := storetest.NewDisk()
			s, err := store.Open(ctx, store.Options{Root: root, FS: d})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			run, err := s.Begin(ctx, "s1")
			if err != nil {
				t.Fatal(err)
			}
			before, err := capture(ctx, s)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.run(ctx, s); store.CodeOf(err) != store.RunActive {
				t.Errorf("err = %v", err)
			}
			after, err := capture(ctx, s)
			if err != nil {
				t.Fatal(err)
			}
			if d := diff(before, after, func(string) bool { return true }); d != nil {
				t.Errorf("refused, and changed: %v", d)
			}
			if err := run.End(ctx, "idle"); err != nil {
				t.Fatal(err)
			}
			if err := m.run(ctx, s); err != nil {
				t.Errorf("after the run: %v", err)
			}
		})
	}
}
