package conformance

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/test/harness"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// check is the comparison of one store.
type check struct {
	t    *testing.T
	ctx  context.Context
	y    *tally
	root string
	disk *diskStore // as extracted, before opening
	want *expectedFile
	s    *store.Store

	before map[string]string // manifest as extracted
	gone   map[string]bool   // sessions that opening removed
	shells map[string]bool   // shells that opening must remove
	// tarball is the store's file; custom is set when it is not one of the
	// repository's own.
	tarball string
	custom  bool
	// deviations counts the rows that are right by rule and not as recorded.
	deviations int
	models     map[string]*model // as after opening; see model
	// dead are the nodes that a dead worker left in the middle of their turn,
	// by session and id, as they were.
	dead map[string]map[string]node
}

// TestConformance opens a copy of every store and compares every recorded
// answer.
func TestConformance(t *testing.T) {
	tarballs, err := filepath.Glob(filepath.Join(harness.StoresDir(t), "*.tar.gz"))
	if err != nil || len(tarballs) == 0 {
		t.Fatalf("no stores in %s: %v", harness.StoresDir(t), err)
	}
	var mu sync.Mutex
	total := newTally(t)
	t.Cleanup(func() { // after the parallel subtests
		t.Logf("%d stores: %s", len(tarballs), total)
		if total.n == 0 {
			t.Error("nothing was compared")
		}
	})
	for _, tarball := range tarballs {
		name := strings.TrimSuffix(filepath.Base(tarball), ".tar.gz")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := openStore(t, tarball)
			c.run()
			t.Logf("%s: %s", name, c.y)
			mu.Lock()
			defer mu.Unlock()
			total.add(c.y)
		})
	}
}

// extract unpacks a store and reads its recorded answers.
func extract(t *testing.T, tarball string) *check {
	t.Helper()
	root, err := harness.Extract(tarball, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	want, err := loadExpected(strings.TrimSuffix(tarball, ".tar.gz")+".expected.json", root)
	if err != nil {
		t.Fatal(err)
	}
	if err := harness.FillPlaceholders(root, want.PlaceholderFiles); err != nil {
		t.Fatal(err)
	}
	c := &check{
		t: t, ctx: t.Context(), y: newTally(t), root: root, want: want,
		tarball: tarball, custom: os.Getenv("SESSIONFS_FIXTURES") != "",
	}
	c.look()
	return c
}

// look reads the store as it is before it is opened.
func (c *check) look() {
	c.disk, c.before = readDisk(c.t, c.root), manifest(c.t, c.root)
	c.gone, c.shells, c.models, c.dead = map[string]bool{}, map[string]bool{}, map[string]*model{}, map[string]map[string]node{}
	for id, s := range c.disk.sessions {
		c.shells[id] = c.disk.isShell(c.t, s, c.want.RecordedAt)
		c.dead[id] = deadNodes(s)
	}
}

// openStore opens the copy as a worker's mount does: what a dead process left
// running is reconciled, its nodes too, and empty shells are swept, at the
// recorded time.
func openStore(t *testing.T, tarball string) *check {
	t.Helper()
	c := extract(t, tarball).open()
	c.sweepNodes()
	return c
}

func (c *check) open() *check {
	c.t.Helper()
	s, err := store.Open(c.ctx, store.Options{
		Root: c.root, Reconcile: store.ReconcileAlways, Sweep: true, Clock: c.clock,
	})
	if err != nil {
		c.t.Fatalf("Open: %v", err)
	}
	c.s = s
	c.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			c.t.Errorf("Close: %v", err)
		}
	})
	return c
}

// clock stands at the time of the recording, to the microsecond.
func (c *check) clock() time.Time {
	return time.UnixMicro(int64(math.Round(c.want.RecordedAt * 1e6)))
}

func (c *check) run() {
	c.y.checkThat(true, "opened") // also where the peer failed to (open_error)
	c.checkSweep()
	c.checkList()
	c.checkStated()
	for _, id := range sortedIDs(c.want.Sessions) {
		want := c.want.Sessions[id]
		c.checkSession(id, &want)
	}
	c.checkMissing()
	c.checkExpectations()
	c.checkOverrides()
	c.checkDisk()
	c.checkNodeSweep()
	c.checkRegistry()
}

func sortedIDs[V any](m map[string]V) []string {
	var out []string
	for id := range m {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// decode reads a recorded value into a type; an unknown key fails the test.
func (c *check) decode(what string, raw json.RawMessage, into any) {
	c.t.Helper()
	if err := strict(raw, into); err != nil {
		c.t.Fatalf("%s is recorded in a form that the suite does not know: %v", what, err)
	}
}

// value decodes a recorded value of any form.
func (c *check) value(raw []byte) any {
	c.t.Helper()
	v, err := pyDecode(raw)
	if err != nil {
		c.t.Fatalf("recorded value %.80s: %v", raw, err)
	}
	return recorded(v)
}

// deviation notes a row that is right by rule and not as recorded.
func (c *check) deviation(id, why string) {
	c.deviations++
	c.t.Logf("the list is the disk's: %s: %s", id, why)
}

// override applies the recorded overrides of an answer to its value.
func (c *check) override(value map[string]any, api, session string) {
	for _, o := range c.want.SeedOverrides {
		if o.API != api || o.Session != session || o.Node != "" || value == nil {
			continue
		}
		path := strings.Split(o.Field, ".")
		at := value
		for _, key := range path[:len(path)-1] {
			at, _ = at[key].(map[string]any)
		}
		if at == nil || !equal(at[path[len(path)-1]], c.value(o.Peer)) {
			c.t.Errorf("override of %s %s: the recorded value is not %s", api, o.Field, o.Peer)
			continue
		}
		at[path[len(path)-1]] = c.value(o.Seed)
	}
}

// checkOverrides holds the product to the overrides of files and refuses one
// of a kind that no part of the suite applies.
func (c *check) checkOverrides() {
	for _, o := range c.want.SeedOverrides {
		switch o.API {
		case "list_sessions", "get_session", "get_messages":
		case "disk":
			c.checkDiskOverride(o)
		default:
			c.t.Errorf("an override of an unknown answer: %s", o.API)
		}
	}
}

func (c *check) checkDiskOverride(o override) {
	var b []byte
	var err error
	switch o.File {
	case "meta.json":
		b, err = os.ReadFile(filepath.Join(c.disk.sessions[o.Session].dir, o.File))
	case "index.json":
		// The registry follows within a second; what it would hold now is
		// the answer.
		b, err = c.s.IndexJSON(c.ctx)
	default:
		c.t.Fatalf("an override of an unknown file: %s", o.File)
	}
	m := pyObject(b)
	if row, ok := m[o.Session].(map[string]any); ok && o.File == "index.json" {
		m = row
	}
	c.y.checkThat(err == nil, "read %s: %v", o.File, err)
	c.y.check(o.File+" of "+o.Session+": "+o.Field, m[o.Field], c.value(o.Seed))
}
