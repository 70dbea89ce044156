package crash

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/storetest"
)

const (
	// losses is how many outcomes of a power cut are tried at each point.
	losses = 6
	// A resumed operation is cut after every second step, and after the last.
	lossesResumed = 2
	everyResumed  = 2
	lossesLong    = 40
	// fsckEach is how many distinct points share one git fsck.
	fsckEach = 40
)

// TestPowerCut runs each operation once on a disk that remembers, and looks at
// what the disk may hold when the power goes after each of its changes.
func TestPowerCut(t *testing.T) {
	var points, distinct atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d operations, %d points, %d distinct trees opened and checked", len(ops), points.Load(), distinct.Load())
	})
	eachOp(t, func(t *testing.T, o op) {
		c := newCut(t, o)
		c.all()
		points.Add(int64(c.points))
		distinct.Add(int64(len(c.seen)))
	})
}

// cut is one operation under TestPowerCut.
type cut struct {
	t          *testing.T
	o          op
	dir, root  string
	now        time.Time
	disk       *storetest.Disk
	start, end int // steps when the operation began and when it returned
	final      int // and when the store was closed
	before     state
	after      state
	points     int
	seen       map[string]bool
	verdicts   map[string]int
}

func newCut(t *testing.T, o op) *cut {
	c := &cut{t: t, o: o, dir: filepath.Join(scratch(t), "state"), now: time.Now(), disk: storetest.NewDisk(),
		seen: map[string]bool{}, verdicts: map[string]int{}}
	c.root = filepath.Join(c.dir, rootName)
	storetest.Build(t, c.root, o.spec)
	if err := c.disk.Remember(c.dir); err != nil {
		t.Fatal(err)
	}
	c.perform()
	return c
}

// perform runs the operation, undisturbed.
func (c *cut) perform() {
	e := &env{ctx: context.Background(), opt: c.o.opening(c.root, c.now)}
	e.opt.FS = c.disk
	var err error
	if !c.o.opens {
		if e.s, err = store.Open(e.ctx, e.opt); err != nil {
			c.t.Fatal(err)
		}
	}
	if c.o.prepare != nil {
		if err := c.o.prepare(e); err != nil {
			c.t.Fatal(err)
		}
	}
	c.start = c.disk.Steps()
	if err := c.o.run(e); err != nil {
		c.t.Fatal(err)
	}
	c.end = c.disk.Steps()
	if err := e.s.Close(); err != nil {
		c.t.Fatal(err)
	}
	c.final = c.disk.Steps()
	behind := c.disk.Behind(func(rel string) bool {
		// Locks hold nothing. The attachments' directory is made by a path that
		// cannot be led astray, below the disk's interface; it is remembered as
		// soon as something is in it, and as not synced.
		return filepath.Base(rel) == ".locks" || filepath.Ext(rel) == ".lock" || filepath.Base(rel) == "attachments"
	})
	if behind != nil {
		c.t.Errorf("changed without the disk: %v", behind)
	}
}

func (c *cut) all() {
	c.before = c.reopened(c.start)
	c.after = c.reopened(c.end)
	if len(diff(c.before, c.after, func(string) bool { return true })) == 0 && !c.o.quiet && !c.o.settles {
		c.t.Errorf("the operation changes nothing")
	}
	last := c.final
	if c.o.closes {
		last = c.end
	}
	n, every := losses, 1
	switch {
	case long():
		n = lossesLong
	case c.o.resumed: // hundreds of steps, each carried on to the end
		n, every = lossesResumed, everyResumed
	}
	for k := c.start; k <= last; k = min(k+every, max(k+1, last)) {
		for _, loss := range storetest.Losses(n, uint64(k)*1000) {
			c.points++
			if err := c.point(k, loss); err != nil {
				c.t.Errorf("after step %d of %d..%d, %v: %v", k, c.start, c.end, loss, err)
				return
			}
		}
	}
	if c.verdicts["after"] == 0 {
		c.t.Errorf("the state after was never found: %v", c.verdicts)
	}
}

// reopened is the state that a store has which is opened after k steps.
func (c *cut) reopened(k int) state {
	c.t.Helper()
	if err := c.disk.After(k, storetest.Loss{}).Write(c.dir); err != nil {
		c.t.Fatal(err)
	}
	s, err := c.reopen()
	if err != nil {
		c.t.Fatal(err)
	}
	defer s.Close()
	st, err := capture(context.Background(), s)
	if err != nil {
		c.t.Fatal(err)
	}
	return st
}

func (c *cut) reopen() (*store.Store, error) {
	return store.Open(context.Background(), c.o.again(c.root, c.now))
}

// point looks at what is left after k steps.
func (c *cut) point(k int, loss storetest.Loss) error {
	tree := c.disk.After(k, loss)
	acked := k >= c.end
	key := fmt.Sprint(acked, tree.Key())
	if c.seen[key] {
		return nil
	}
	c.seen[key] = true
	if err := tree.Write(c.dir); err != nil {
		return err
	}
	s, err := c.reopen()
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer s.Close()
	ctx := context.Background()
	got, err := capture(ctx, s)
	if err != nil {
		return err
	}
	verdict, err := judge(c.before, c.after, got, c.o.between)
	if err != nil {
		return err
	}
	c.verdicts[verdict]++
	if acked && verdict != "after" && !c.o.quiet {
		return fmt.Errorf("acknowledged, and the state is %s:\n    %s", verdict, strings.Join(diff(c.after, got, content), "\n    "))
	}
	if d := diff(c.after, got, isCommits); acked && len(d) > 0 {
		return fmt.Errorf("acknowledged, and commits are missing: %v", d)
	}
	if err := sound(ctx, s, got, c.o.allow); err != nil {
		return err
	}
	if err := c.o.resume(ctx, s, c.before, c.after); err != nil {
		return err
	}
	if err := goesOn(ctx, s, got); err != nil {
		return err
	}
	if len(c.seen)%fsckEach == 0 {
		return fsck(c.t, c.root, got)
	}
	return nil
}

func isCommits(key string) bool { return strings.HasPrefix(key, "commits/") }

// goesOn checks that every session can be written to.
func goesOn(ctx context.Context, s *store.Store, st state) error {
	for k := range st {
		id, ok := strings.CutPrefix(k, "session/")
		if !ok {
			continue
		}
		if _, err := s.AppendMessage(ctx, id, []byte(`{"role": "user", "content": "and on"}`)); err != nil {
			return fmt.Errorf("go on: %w", err)
		}
		if id != "s1" { // one commit is enough
			continue
		}
		if _, ok, err := s.CommitTurn(ctx, id, "go on"); err != nil || !ok {
			return fmt.Errorf("commit after going on: %v, %w", ok, err)
		}
	}
	return nil
}
