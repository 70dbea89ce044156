package crash

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/storetest"
)

// modes are the ways in which a disk call fails.
var modes = []struct {
	name  string
	fault storetest.Fault
}{
	{"once", storetest.Fault{Err: syscall.EIO}},
	{"done and reported as failed", storetest.Fault{Err: syscall.EIO, Late: true}},
	{"full from then on", storetest.Fault{Err: syscall.ENOSPC, Down: true, Torn: true}},
	{"a read", storetest.Fault{Err: syscall.EIO, Reads: true}},
}

// sampled is how many calls share one failure in the modes after the first.
const sampled = 4

// sampledResumed is the same for a resumed operation, for the first mode and
// the others; store/migrate's own suite fails each of its calls.
var sampledResumed = [2]int{3, 12}

// TestFaults runs each operation with a failure at each of its disk calls in
// turn, and goes on with the same store. In the modes after the first only some
// of the calls fail, unless it is run long.
func TestFaults(t *testing.T) {
	var points, refused atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d operations, %d failing calls, of which %d made the operation fail", len(ops), points.Load(), refused.Load())
	})
	eachOp(t, func(t *testing.T, o op) {
		f := newFaulty(t, o)
		for i, m := range modes {
			step := 1
			switch {
			case long():
			case o.resumed: // hundreds of calls, each carried on to the end
				step = sampledResumed[min(i, 1)]
			case i > 0:
				step = sampled
			}
			for at := 1 + i%step; ; at += step {
				fault := m.fault
				fault.At = at
				hit, err := f.point(fault)
				if hit == "" {
					break
				}
				f.points++
				if err != nil {
					t.Errorf("%s, %s: %v", m.name, hit, err)
					break
				}
			}
		}
		points.Add(int64(f.points))
		refused.Add(int64(f.refused))
	})
}

// faulty is one operation under TestFaults.
type faulty struct {
	o               op
	dir, root       string
	now             time.Time
	tree            *storetest.Tree
	before, after   state
	points, refused int
}

func newFaulty(t *testing.T, o op) *faulty {
	f := &faulty{o: o, dir: filepath.Join(scratch(t), "state"), now: time.Now()}
	f.root = filepath.Join(f.dir, rootName)
	storetest.Build(t, f.root, o.spec)
	var err error
	if f.tree, err = storetest.LoadTree(f.dir); err != nil {
		t.Fatal(err)
	}
	quiet := f.o
	quiet.run, quiet.quiet = func(*env) error { return nil }, true
	if o.opens {
		quiet.run = func(e *env) error { // Open, without what it is to do
			e.opt.Reconcile, e.opt.Sweep, e.opt.ReadOnly = store.ReconcileNever, false, true
			return open(e)
		}
	}
	for _, r := range []struct {
		o  op
		st *state
	}{{quiet, &f.before}, {o, &f.after}} {
		e, err := f.start(storetest.NewDisk(), r.o)
		if err == nil {
			err = r.o.run(e)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !o.opens {
			*r.st, err = capture(e.ctx, e.s)
			if err = errors.Join(err, e.s.Close()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if *r.st, err = capture(e.ctx, e.s); err != nil {
			t.Fatal(err)
		}
		if err := e.s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f.after = f.after.named(f.before)
	f.before = f.before.named(f.before)
	return f
}

// start lays the store out anew and opens it, unless that is the operation.
func (f *faulty) start(d *storetest.Disk, o op) (*env, error) {
	if err := f.tree.Write(f.dir); err != nil {
		return nil, err
	}
	e := &env{ctx: context.Background(), opt: o.opening(f.root, f.now)}
	e.opt.FS = d
	if o.opens {
		return e, nil
	}
	var err error
	if e.s, err = store.Open(e.ctx, e.opt); err == nil && o.prepare != nil {
		err = o.prepare(e)
	}
	return e, err
}

// point runs the operation with one fault. hit is empty when the operation
// makes fewer calls than that.
func (f *faulty) point(fault storetest.Fault) (hit string, err error) {
	d := storetest.NewDisk()
	e, err := f.start(d, f.o)
	if err != nil {
		return "start", err
	}
	d.Arm(fault)
	failed := f.o.run(e)
	hit = d.Hit()
	d.Arm(storetest.Fault{})
	if failed != nil {
		f.refused++
	}
	if e.s == nil { // Open failed: it must work now
		if err := open(e); err != nil {
			return hit, fmt.Errorf("open again: %w", err)
		}
	}
	if hit == "" {
		return "", errors.Join(failed, e.s.Close())
	}
	if err := f.check(e, failed, fault.Reads); err != nil {
		_ = e.s.Close()
		return hit, fmt.Errorf("the operation returned %v; %w", failed, err)
	}
	return hit, nil
}

// check looks at the store that met the fault, then closes it, and looks at
// what a fresh one finds.
func (f *faulty) check(e *env, failed error, reads bool) error {
	var refusal *store.Error
	if failed != nil && !errors.As(failed, &refusal) {
		return errors.New("that is no error of the store")
	}
	live, err := capture(e.ctx, e.s)
	if err != nil {
		return err
	}
	if err := f.verdict(live, failed, reads); err != nil {
		return fmt.Errorf("the store that met it: %w", err)
	}
	if !f.o.opens {
		if err := sameView(e.ctx, e.s, f.root, f.now, e.opt.State); err != nil {
			return err
		}
		if err := f.o.resume(e.ctx, e.s, f.before, f.after); err != nil {
			return err
		}
		if err := goesOn(e.ctx, e.s, live); err != nil {
			return err
		}
	}
	if err := e.s.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return f.reopened(live)
}

// reopened looks at what a fresh store finds.
func (f *faulty) reopened(live state) error {
	ctx := context.Background()
	s, err := store.Open(ctx, f.o.again(f.root, f.now))
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer s.Close()
	found, err := capture(ctx, s)
	if err != nil {
		return err
	}
	for k, v := range live { // goesOn has added to it, nothing of it may go
		if strings.Contains(v, `"status": "running"`) {
			continue // the reply of a run that died with its store: it is ended
		}
		if strings.HasPrefix(k, "node/") && found[k] != v && !f.o.opens && !f.o.closes {
			return fmt.Errorf("%s has gone, or changed", k)
		}
	}
	if err := sound(ctx, s, found, f.o.allow); err != nil || !f.o.opens {
		return err
	}
	// What one Open could not do, the next one does.
	if d := diff(f.after, found.named(f.before), content); len(d) > 0 {
		return fmt.Errorf("the next Open leaves\n    %s", strings.Join(d, "\n    "))
	}
	return goesOn(ctx, s, found)
}

// verdict judges the state. What was acknowledged must be there; Open's own
// work may wait for the next one.
func (f *faulty) verdict(live state, failed error, reads bool) error {
	live = live.named(f.before)
	if reads { // a subject is made of a text where it can be read
		for k := range live {
			if isCommits(k) {
				delete(live, k)
			}
		}
	}
	verdict, err := judge(f.before, f.after, live, f.o.between)
	if err != nil {
		return err
	}
	if failed == nil && verdict != "after" && !f.o.quiet {
		return fmt.Errorf("acknowledged, and the state is %s:\n    %s", verdict, strings.Join(diff(f.after, live, content), "\n    "))
	}
	return nil
}

// sameView compares what a store says from memory with what a fresh one reads.
func sameView(ctx context.Context, s *store.Store, root string, now time.Time, stateDir string) error {
	fresh, err := store.Open(ctx, store.Options{Root: root, State: stateDir, ReadOnly: true, Clock: func() time.Time { return now }})
	if err != nil {
		return err
	}
	defer fresh.Close()
	a, err := view(ctx, s)
	if err != nil {
		return err
	}
	b, err := view(ctx, fresh)
	if err != nil {
		return err
	}
	if d := diff(b, a, func(string) bool { return true }); len(d) > 0 {
		return fmt.Errorf("the disk and what the store says of it differ:\n    %s", strings.Join(d, "\n    "))
	}
	return nil
}

// view is what a store says of its sessions.
func view(ctx context.Context, s *store.Store) (state, error) {
	rows, err := s.ListSessions(ctx, store.ListQuery{IncludeArchived: true})
	if err != nil {
		return nil, err
	}
	out := state{}
	for _, r := range rows {
		sn, err := s.Load(ctx, r.ID)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return nil, err
		}
		out[r.ID+" head"] = sn.Head
		out[r.ID+" problems"] = fmt.Sprint(sn.Problems)
		for _, f := range sn.Fields() {
			out[r.ID+" field "+f.Name] = f.Text
		}
		for n := range sn.Index.All() {
			out[r.ID+" node "+n.ID] = fmt.Sprintf("%+v", n)
		}
		for _, b := range sn.Branches() {
			out[r.ID+" branch "+b.Head] = fmt.Sprintf("%+v", b)
		}
	}
	return out, nil
}
