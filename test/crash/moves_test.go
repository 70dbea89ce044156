package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/storetest"
)

// move is one of the eight moves of the data model, in one of its forms. Its
// crashes are the line of ops that has its name.
type move struct {
	name string
	run  func(ctx context.Context, s *store.Store) error
	head string // the head afterwards, "" for a new node
}

var moves = []move{
	{"retry", func(ctx context.Context, s *store.Store) error { _, err := s.Retry(ctx, "s1", "@"); return err }, "u2"},
	{"edit", func(ctx context.Context, s *store.Store) error { _, err := s.Edit(ctx, "s1", "u2", "x"); return err }, ""},
	{"sibling", func(ctx context.Context, s *store.Store) error {
		_, err := s.Sibling(ctx, "s1", "@", "next")
		return err
	}, "a2b"},
	{"leaf", func(ctx context.Context, s *store.Store) error { _, err := s.Leaf(ctx, "s1", "u3"); return err }, "a3"},
	{"checkout", func(ctx context.Context, s *store.Store) error { _, err := s.Checkout(ctx, "s1", "side"); return err }, "a3"},
	{"delete branch", func(ctx context.Context, s *store.Store) error { _, err := s.DeleteBranch(ctx, "s1", "@"); return err }, "a3"},
	{"delete subtree", func(ctx context.Context, s *store.Store) error {
		_, err := s.DeleteSubtree(ctx, "s1", "u2")
		return err
	}, "a3"},
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

// TestEveryMoveIsDriven: the data model's moves are all here, and each has its
// crashes.
func TestEveryMoveIsDriven(t *testing.T) {
	driven, here := map[string]bool{}, map[string]bool{"rewind over files": true} // TestRewindOrder
	for _, o := range ops {
		driven[o.name] = true
	}
	for _, m := range moves {
		here[m.name] = true
	}
	for _, name := range []string{"retry", "edit", "sibling", "leaf", "checkout", "delete branch", "delete subtree", "attach", "attach across", "rewind"} {
		if !here[name] {
			t.Errorf("%s is not among the moves", name)
		}
	}
	for name := range here {
		if !driven[name] {
			t.Errorf("%s has no crashes", name)
		}
	}
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
	state   string // the state directory, "" for none
	dir     string // the session's, "" for the default place
	atSwap  func() error
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
	if o.dir == "" {
		o.dir = filepath.Join(o.root, "s1")
	}
	b, err := os.ReadFile(filepath.Join(o.dir, "meta.json"))
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
	for _, e := range c.New.Entries() {
		if _, err := os.Stat(filepath.Join(o.dir, "history", e.File)); err != nil {
			o.fail("at Swapped, a node is in the index and not in the store: %v", err)
		}
	}
	if o.atSwap != nil {
		if err := o.atSwap(); err != nil {
			o.fail("at Swapped, %v", err)
		}
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
	o.othersSee(ctx)
	// The in-process lock is free: another operation gets through at once.
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := o.s.SetHead(short, "s1", o.last.Head, store.HeadMove{}); err != nil {
		o.fail("at Published, an operation does not get through: %v", err)
	}
}

// othersSee: what is published is what another process reads.
func (o *observer) othersSee(ctx context.Context) {
	other, err := store.Open(ctx, store.Options{Root: o.root, State: o.state, ReadOnly: true})
	if err != nil {
		o.fail("at Published, another store: %v", err)
		return
	}
	defer other.Close()
	sn, err := other.Load(ctx, "s1")
	if err != nil || sn.Head != o.last.Head || sn.Index.Len() != o.last.Index.Len() || string(sn.MetaJSON()) != string(o.last.MetaJSON()) {
		o.fail("at Published, another store has another state: %v", err)
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

// TestRewindOrder: the files of a rewind are in place before its head has moved
// and anybody is told.
func TestRewindOrder(t *testing.T) {
	dir := scratch(t)
	root := filepath.Join(dir, rootName)
	storetest.Build(t, root, work)
	e := &env{ctx: t.Context(), opt: store.Options{Root: root, State: dir, FS: storetest.NewDisk()}}
	if err := open(e); err != nil {
		t.Fatal(err)
	}
	defer e.s.Close()
	if err := changeFiles(e); err != nil {
		t.Fatal(err)
	}
	o := &observer{s: e.s, root: root, state: dir, dir: filepath.Join(root, "projects", "p1", "s1"), atSwap: func() error {
		b, err := os.ReadFile(workFile(e, "f.txt"))
		if string(b) != "before" {
			return fmt.Errorf("the file is %q, %w", b, err)
		}
		return nil
	}}
	defer e.s.Subscribe(o)()
	if _, err := e.s.Rewind(e.ctx, "s1", "u2", e.plan); err != nil {
		t.Fatal(err)
	}
	o.verify(t, "a1")
}

// activeBy are the ways in which a run is active in s1: one of this process, and
// what another program writes of its own.
var activeBy = map[string]func(ctx context.Context, s *store.Store) (end func() error, err error){
	"our own run": func(ctx context.Context, s *store.Store) (func() error, error) {
		run, err := s.Begin(ctx, "s1")
		return func() error { return run.End(ctx, "idle") }, err
	},
	"running":     saysItself("running"),
	"needs_input": saysItself("needs_input"),
	"cancelling":  saysItself("cancelling"),
}

// saysItself writes a status into meta.json as another program does.
func saysItself(status string) func(context.Context, *store.Store) (func() error, error) {
	return func(ctx context.Context, s *store.Store) (func() error, error) {
		sn, err := s.Load(ctx, "s1")
		if err != nil {
			return nil, err
		}
		path, idle := filepath.Join(sn.Dir, "meta.json"), sn.MetaJSON()
		busy := strings.Replace(string(idle), "{", `{"status": "`+status+`", `, 1)
		end := func() error { return replace(path, string(idle)) }
		return end, replace(path, busy)
	}
}

// replace writes a file as everybody does who shares a store.
func replace(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// TestMovesAreRefused: no move happens while a run is active, and nothing is
// written then.
func TestMovesAreRefused(t *testing.T) {
	for _, m := range moves {
		for by, begin := range activeBy {
			t.Run(m.name+"/"+by, func(t *testing.T) {
				root := filepath.Join(scratch(t), rootName)
				storetest.Build(t, root, talk)
				s, err := store.Open(t.Context(), store.Options{Root: root, FS: storetest.NewDisk()})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				refused(t, s, begin, m.run)
			})
		}
	}
}

// refused checks that a move is refused while a run is active, changes nothing
// then, and goes through afterwards.
func refused(t *testing.T, s *store.Store, begin func(context.Context, *store.Store) (func() error, error), run func(context.Context, *store.Store) error) {
	t.Helper()
	ctx := t.Context()
	end, err := begin(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	before, err := capture(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(ctx, s); store.CodeOf(err) != store.RunActive {
		t.Errorf("err = %v", err)
	}
	after, err := capture(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(before, after, func(string) bool { return true }); d != nil {
		t.Errorf("refused, and changed: %v", d)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if err := run(ctx, s); err != nil {
		t.Errorf("after the run: %v", err)
	}
}

// TestAttachAcrossIsRefusedByEither: a run in the session that is pointed to
// refuses as one in the session that is written to does.
func TestAttachAcrossIsRefusedByEither(t *testing.T) {
	root := filepath.Join(scratch(t), rootName)
	storetest.Build(t, root, talk)
	s, err := store.Open(t.Context(), store.Options{Root: root, FS: storetest.NewDisk()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	refused(t, s, activeBy["our own run"], func(ctx context.Context, s *store.Store) error {
		_, err := s.Attach(ctx, store.AttachSpec{Source: "s1", Target: "side", Anchor: "s2"})
		return err
	})
}

// TestRewindOverFilesIsRefused: the project's files stay too.
func TestRewindOverFilesIsRefused(t *testing.T) {
	for by, begin := range activeBy {
		t.Run(by, func(t *testing.T) {
			dir := scratch(t)
			storetest.Build(t, filepath.Join(dir, rootName), work)
			e := &env{ctx: t.Context(), opt: store.Options{Root: filepath.Join(dir, rootName), State: dir, FS: storetest.NewDisk()}}
			if err := open(e); err != nil {
				t.Fatal(err)
			}
			defer e.s.Close()
			if err := changeFiles(e); err != nil {
				t.Fatal(err)
			}
			refused(t, e.s, begin, func(ctx context.Context, s *store.Store) error {
				_, err := s.Rewind(ctx, "s1", "u2", e.plan)
				return err
			})
		})
	}
}
