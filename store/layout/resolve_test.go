package layout

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// TestOrder tries every combination of the five places that a session may be
// in, of what is recorded and bound, and compares with the order of reference
// 1.5 spelled out.
func TestOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	for _, standalone := range []bool{false, true} {
		for bits := range 1 << 7 {
			if rng.IntN(2) == 0 && bits > 31 { // half of them is plenty
				continue
			}
			checkOrder(t, standalone, bits)
		}
	}
}

func checkOrder(t *testing.T, standalone bool, bits int) {
	t.Helper()
	h := newHome(t)
	on := func(i int) bool { return bits>>i&1 == 1 }
	elsewhere := filepath.Join(h.dir, "elsewhere", "s")
	nested := filepath.Join(h.root, "projects/p1/s")
	plain := filepath.Join(h.root, "s")
	legacy := filepath.Join(h.dir, "work/.openprogram/sessions/s")
	for i, dir := range []string{elsewhere, nested, plain, legacy} {
		if on(i) {
			h.session(dir)
		}
	}
	recorded, bound, dead := on(4), on(5), on(6)
	if recorded {
		h.locations("s", elsewhere)
	}
	if bound {
		h.registry(filepath.Join(h.dir, "work"), "s")
	}
	if dead {
		h.write(filepath.Join(h.root, ".deleted/s"), "")
	}
	inRegistry := bound && !standalone

	want := Place{ID: "s", Deleted: dead, Dir: plain, Present: true}
	switch {
	case recorded && on(0):
		want.Dir = elsewhere
	case inRegistry && on(1):
		want.Dir = nested
	case on(2):
	case inRegistry && on(3):
		want.Dir, want.Legacy = legacy, true
	case !inRegistry && on(1): // found by looking
		want.Dir = nested
	default:
		want.Present = false
		if inRegistry {
			want.Dir = nested
		}
		if recorded {
			want.Dir, want.Unreachable = elsewhere, true
		}
	}
	want.Present = want.Present && !dead
	want.Openable = want.Present
	want.Recorded = recorded && want.Dir == elsewhere
	if inRegistry || want.Dir == nested {
		want.Project = "p1"
	}
	l := h.layout(standalone)
	for round := range 2 { // the second time from what is cached
		if got := h.resolve(l, "s"); got != want {
			t.Errorf("standalone %v, bits %07b, round %d:\ngot  %+v\nwant %+v", standalone, bits, round, got, want)
		}
	}
}

func TestKindsOfPresence(t *testing.T) {
	h := newHome(t)
	l := h.layout(false)
	at := func(id string) string { return filepath.Join(h.root, id) }
	h.session(at("whole"))
	h.mkdir(at("history/history"))
	h.write(at("meta/meta.json"), "broken")
	h.mkdir(at("nothing/workdir"))
	h.write(at("file"), "")
	h.mkdir(at("odd/meta.json"))
	h.write(at("odd/history"), "")
	h.mkdir(at("nogit/history"))
	h.mkdir(at("first/history/.git"))
	h.mkdir(at("gitfile/history"))
	h.write(at("gitfile/.git"), "gitdir: elsewhere")
	h.symlink("whole", at("link"))
	h.symlink(filepath.Join(h.dir, "nowhere"), at("dead"))
	h.symlink("loop", at("loop"))
	h.mkdir(at("inner"))
	h.symlink("../whole/history", at("inner/history"))
	for id, want := range map[string]Place{
		"whole":   {Present: true, Openable: true},
		"history": {Present: true},
		"meta":    {Present: true},
		"nothing": {},
		"file":    {},
		"odd":     {},
		"nogit":   {Present: true},
		"first":   {Present: true, HistoryRepo: true},
		"gitfile": {Present: true, Openable: true},
		"link":    {Present: true, Symlink: true},
		"dead":    {Symlink: true},
		"loop":    {Symlink: true},
		"inner":   {Present: true},
		"nobody":  {},
		".dotted": {},
	} {
		want.ID, want.Dir = id, at(id)
		if got := h.resolve(l, id); got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", id, got, want)
		}
	}
}

func TestInvalidIDs(t *testing.T) {
	h := newHome(t)
	h.session(filepath.Join(h.root, "projects"))
	l := h.layout(true)
	for _, id := range []string{"", ".", "..", "a/b", "../x", `a\b`, "projects", ".locks", "a\x00"} {
		if p, err := l.Resolve(id); !errors.Is(err, ErrInvalidID) || p.Present || p.Dir != "" {
			t.Errorf("Resolve(%q) = %+v, %v", id, p, err)
		}
	}
}

func TestRecordedPlaces(t *testing.T) {
	h := newHome(t)
	h.session(h.dir + "/disk/.openprogram/sessions/old")
	h.session(h.dir + "/disk/moved")
	h.mkdir(h.dir + "/disk/empty")
	h.locations(
		"old", h.dir+"/disk/.openprogram/sessions/old",
		"moved", h.dir+"/disk//x/../moved/",
		"empty", h.dir+"/disk/empty",
		"gone", h.root+"/projects/p/gone",
		"away", h.dir+"/not-mounted/away",
		"odd", "relative/odd",
		"plain", h.root+"/plain",
	)
	h.session(h.root + "/plain")
	l := h.layout(false)
	for id, want := range map[string]Place{
		"old":   {Dir: h.dir + "/disk/.openprogram/sessions/old", Present: true, Openable: true, Legacy: true, Recorded: true},
		"moved": {Dir: h.dir + "/disk/moved", Present: true, Openable: true, Recorded: true},
		"empty": {Dir: h.dir + "/disk/empty", Recorded: true},
		"gone":  {Dir: h.root + "/projects/p/gone", Recorded: true, Project: "p"},
		"away":  {Dir: h.dir + "/not-mounted/away", Recorded: true, Unreachable: true},
		"odd":   {Dir: h.root + "/odd"},
		"plain": {Dir: h.root + "/plain", Present: true, Openable: true, Recorded: true},
	} {
		want.ID = id
		if got := h.resolve(l, id); got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", id, got, want)
		}
	}
}

// TestRootBehindASymlink: recorded paths are resolved ones, the root may not
// be; such a place is inside of the root all the same.
func TestRootBehindASymlink(t *testing.T) {
	h := newHome(t)
	h.symlink(h.dir, h.dir+"/alias")
	h.session(h.root + "/projects/p/s")
	h.locations("s", h.root+"/projects/p/s", "t", h.root+"/t")
	l := New(disk.OS, h.dir+"/alias/.openprogram/sessions", h.dir+"/alias/.openprogram", nil)
	if p := h.resolve(l, "s"); p.Project != "p" || p.Legacy || !p.Openable {
		t.Errorf("%+v", p)
	}
	if p := h.resolve(l, "t"); p.Legacy || p.Unreachable {
		t.Errorf("%+v", p)
	}
}

func TestWhatCannotBeLookedAt(t *testing.T) {
	h := newHome(t)
	h.session(h.root + "/s")
	h.session(h.dir + "/disk/s")
	l := h.layout(false)
	h.disk.denied = h.root + "/s"
	if p := h.resolve(l, "s"); p.Present || !p.Unreachable {
		t.Errorf("a closed directory: %+v", p)
	}
	h.disk.denied = h.root + "/s/history"
	if p := h.resolve(l, "s"); !p.Present || p.Openable || p.Unreachable {
		t.Errorf("a closed history: %+v", p)
	}
	h.disk.denied = h.root + "/.deleted"
	if p, err := l.Resolve("s"); err == nil || p.Present {
		t.Errorf("closed delete intents: %+v, %v", p, err)
	}
	if l.Tombstone("s") {
		t.Error("unknown is not deleted")
	}
	if _, err := l.Discover(); err == nil {
		t.Error("discovered in spite of unknown deletions")
	}
	h.disk.denied = ""
	h.locations("s", h.dir+"/disk/s")
	h.disk.denied = h.dir + "/disk"
	if p := h.resolve(l, "s"); !p.Present || p.Dir != h.root+"/s" {
		t.Errorf("another place: %+v", p)
	}
	if err := os.RemoveAll(h.root + "/s"); err != nil {
		t.Fatal(err)
	}
	if p := h.resolve(l, "s"); p.Present || !p.Unreachable || p.Dir != h.dir+"/disk/s" {
		t.Errorf("no other place: %+v", p)
	}
}

// TestClosedWorkingFolder: the session may be in there; it is not elsewhere.
func TestClosedWorkingFolder(t *testing.T) {
	h := newHome(t)
	legacy := h.session(h.dir + "/folder/.openprogram/sessions/s")
	h.registry(h.dir+"/folder", "s")
	h.disk.denied = h.dir + "/folder"
	want := Place{ID: "s", Dir: legacy, Legacy: true, Unreachable: true, Project: "p1"}
	if p := h.resolve(h.layout(false), "s"); p != want {
		t.Errorf("got %+v, want %+v", p, want)
	}
}

func TestProjectRegistry(t *testing.T) {
	h := newHome(t)
	l := h.layout(false)
	if _, bound, err := l.Projects(); err != nil || len(bound) != 0 {
		t.Errorf("no registry: %v, %v", bound, err)
	}
	h.registry("/work", "s")
	byID, bound, err := l.Projects()
	if err != nil {
		t.Fatal(err)
	}
	h.same("projects", byID, map[string]Project{
		"default": {ID: "default", Name: "Home", Path: h.dir, Default: true},
		"p1":      {ID: "p1", Name: "One", Path: "/work", LocationState: "available"},
		"p2":      {ID: "p2", Name: "Two", LocationState: "missing"},
	})
	h.same("bound", bound, map[string]string{"home": "default", "s": "p1"})
	if p, ok := l.Project("p2"); !ok || p.Available() || !byID["p1"].Available() || !byID["default"].Available() {
		t.Errorf("Project: %+v, %v", p, ok)
	}
	if p, ok := l.BoundProject("s"); !ok || p.Name != "One" {
		t.Errorf("BoundProject: %+v, %v", p, ok)
	}
	if p := h.resolve(l, "home"); p.Dir != h.root+"/home" || p.Project != "default" {
		t.Errorf("bound to the default project: %+v", p)
	}
	h.registry("/work", "other")
	if _, ok := l.BoundProject("s"); ok {
		t.Error("a changed registry is not read again")
	}
	if _, bound, _ := h.layout(true).Projects(); len(bound) != 0 {
		t.Error("a standalone root consults the registry")
	}
}

func TestProjectRegistryDamaged(t *testing.T) {
	h := newHome(t)
	registry := h.state + "/projects/projects.json"
	for _, id := range []string{"plain", "both", "projects/p/both", "projects/p/nested", "recorded"} {
		h.session(filepath.Join(h.root, id))
	}
	h.locations("recorded", h.root+"/recorded")
	for _, text := range []string{"", "[]", `{"p1": {"session_ids": ["pl`} {
		h.write(registry, text)
		l := h.layout(false)
		if _, _, err := l.Projects(); err == nil {
			t.Errorf("%q is a registry", text)
		}
		for _, id := range []string{"plain", "recorded"} {
			if p := h.resolve(l, id); !p.Openable {
				t.Errorf("%q: %+v", text, p)
			}
		}
		for _, id := range []string{"both", "nested", "nobody"} {
			if p, err := l.Resolve(id); !errors.Is(err, ErrPlacement) || p.Present {
				t.Errorf("%q: %s: %+v, %v", text, id, p, err)
			}
		}
		places, err := l.Discover()
		if err != nil || len(places) != 2 {
			t.Errorf("%q: discovered %+v, %v", text, places, err)
		}
	}
	h.write(h.root+"/.deleted/nested", "")
	l := h.layout(false)
	if p := h.resolve(l, "nested"); !p.Deleted {
		t.Errorf("deleted: %+v", p)
	}
	h.registry("/work", "nested")
	if p := h.resolve(l, "both"); !p.Openable {
		t.Errorf("repaired: %+v", p)
	}
}

func TestBadProjectID(t *testing.T) {
	h := newHome(t)
	h.write(h.state+"/projects/projects.json", `{"../../out": {"path": "/w", "session_ids": ["s"]}}`)
	if p := h.resolve(h.layout(false), "s"); p.Dir != h.root+"/s" {
		t.Errorf("%+v", p)
	}
}

// TestResolveIsCheap: no directory is listed for a session in its place, and
// the small files are read once while they stay as they are.
func TestResolveIsCheap(t *testing.T) {
	h := newHome(t)
	h.session(h.root + "/plain")
	h.session(h.root + "/projects/p1/nested")
	h.session(h.root + "/projects/p9/stray")
	h.registry("/work", "nested")
	h.locations("x", "/x")
	past := "2020-01-01T00:00:00Z"
	for _, path := range []string{h.root + "/locations.json", h.state + "/projects/projects.json"} {
		age(t, path, past)
	}
	l := h.layout(false)
	h.resolve(l, "plain")
	reads := h.disk.reads.Load()
	for range 10 {
		h.resolve(l, "plain")
		h.resolve(l, "nested")
	}
	if n := h.disk.reads.Load() - reads; n != 0 {
		t.Errorf("%d files read again", n)
	}
	if n := h.disk.lists.Load(); n != 0 {
		t.Errorf("%d directories listed", n)
	}
	h.resolve(l, "stray")
	lists := h.disk.lists.Load()
	if p := h.resolve(l, "stray"); !p.Openable || h.disk.lists.Load() != lists {
		t.Error("where a session was found by looking is not remembered")
	}
	if err := os.Rename(h.root+"/projects/p9", h.root+"/projects/p8"); err != nil {
		t.Fatal(err)
	}
	if p := h.resolve(l, "stray"); !p.Openable || p.Project != "p8" {
		t.Errorf("a session that moved: %+v", p)
	}
}

func BenchmarkResolve(b *testing.B) {
	h := newHome(b)
	h.session(h.root + "/plain")
	h.registry("/work", "x")
	h.locations("x", "/x")
	for _, path := range []string{h.root + "/locations.json", h.state + "/projects/projects.json"} {
		age(b, path, "2020-01-01T00:00:00Z")
	}
	l := h.layout(false)
	b.ReportAllocs()
	for b.Loop() {
		h.resolve(l, "plain")
	}
}
