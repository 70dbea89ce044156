package requests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/fsnode"
	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/test/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, map[string]harness.Role{"serve": serveRole}))
}

// counts are requests by their name in the protocol.
type counts map[string]int

func (c counts) total() (n int) {
	for _, k := range c {
		n += k
	}
	return n
}

func (c counts) String() string {
	var words []string
	for _, op := range slices.Sorted(maps.Keys(c)) {
		words = append(words, fmt.Sprintf("%s=%d", op, c[op]))
	}
	return strings.Join(words, " ")
}

// counter is a log that counts the requests in go-fuse's own messages: they
// tell of every request, also of those that no handler sees.
type counter struct {
	mu sync.Mutex
	n  counts
}

var (
	request = regexp.MustCompile(`^rx \d+: ([A-Z_]+)`)
	// What the kernel sends in its own time is no part of what a program costs.
	asides = regexp.MustCompile(`FORGET|INTERRUPT`)
)

// Enabled is slog.Handler's: every message is looked at.
func (c *counter) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs is slog.Handler's.
func (c *counter) WithAttrs([]slog.Attr) slog.Handler { return c }

// WithGroup is slog.Handler's.
func (c *counter) WithGroup(string) slog.Handler { return c }

// Handle counts a message that is a request.
func (c *counter) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if m := request.FindStringSubmatch(a.Value.String()); m != nil && !asides.MatchString(m[1]) {
			c.mu.Lock()
			c.n[m[1]]++
			c.mu.Unlock()
		}
		return true
	})
	return nil
}

// take returns what was counted since the last time.
func (c *counter) take() counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = counts{}
	return n
}

// order is what the test tells the serving process; without a mountpoint it
// asks for what was counted.
type order struct {
	Store, Dir, State string
	ReadOnly          bool
	Unfollowed        bool // real files are not followed
}

type answer struct {
	Counts counts
	Error  string
}

// serveRole mounts a store and counts.
func serveRole([]string) int {
	c := &counter{n: counts{}}
	var m *fsnode.Mount
	var st *store.Store
	status := harness.Serve(func(o order) answer {
		if o.Dir == "" {
			return answer{Counts: c.take()}
		}
		var err error
		if st, m, err = serve(o, c); err != nil {
			return answer{Error: err.Error()}
		}
		return answer{}
	})
	if m != nil {
		err := m.Unmount(false)
		m.Wait()
		if err = errors.Join(err, st.Close()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return status
}

func serve(o order, c *counter) (*store.Store, *fsnode.Mount, error) {
	ctx := context.Background()
	st, err := store.Open(ctx, store.Options{Root: o.Store, State: o.State, ReadOnly: o.ReadOnly, Watch: true})
	if err != nil {
		return nil, nil, err
	}
	var front fsnode.Store = st
	if o.Unfollowed {
		front = unfollowed{st}
	}
	m, err := fsnode.Start(ctx, fsnode.Config{
		Store: front, Mountpoint: o.Dir, ReadOnly: o.ReadOnly, Debug: true, Log: slog.New(c),
		SpoolDir: filepath.Join(o.State, "spool"),
	})
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	return st, m, nil
}

// mounted is a store that is served and counted.
type mounted struct {
	t          *testing.T
	dir, store string
	readOnly   bool
	p          *harness.Process
}

// mount serves a store until the test ends.
func mount(t *testing.T, root string, readOnly bool) *mounted {
	t.Helper()
	return mountOrder(t, order{Store: root, ReadOnly: readOnly})
}

func mountOrder(t *testing.T, o order) *mounted {
	t.Helper()
	harness.RequireFUSE(t)
	m := &mounted{t: t, dir: filepath.Join(t.TempDir(), "mnt"), store: o.Store, readOnly: o.ReadOnly, p: harness.Spawn(t, "serve")}
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	harness.Mark(t, m.dir)
	harness.AbortAfter(t, m.dir, 2*time.Minute)
	var a answer
	o.Dir, o.State = m.dir, t.TempDir()
	if err := m.p.Call(o, &a); err != nil || a.Error != "" {
		t.Fatalf("mount: %v %s", err, a.Error)
	}
	return m
}

// settle is how long the mount is left alone before requests are counted: a
// release follows a close in its own time, and so does what could not be told
// before a rename was answered.
const settle = 100 * time.Millisecond

// count returns the requests that something costs.
func (m *mounted) count(do func()) counts {
	m.t.Helper()
	m.take()
	do()
	time.Sleep(settle)
	return m.take()
}

func (m *mounted) take() counts {
	m.t.Helper()
	var a answer
	if err := m.p.Call(order{}, &a); err != nil {
		m.t.Fatal(err)
	}
	return a.Counts
}
