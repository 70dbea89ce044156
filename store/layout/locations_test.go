package layout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/disktest"
)

func age(t testing.TB, path, to string) {
	t.Helper()
	at, err := time.Parse(time.RFC3339, to)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func (h *home) record(l *Layout, id, dir string) {
	h.Helper()
	if err := l.RecordLocation(id, dir); err != nil {
		h.Fatal(err)
	}
}

func (h *home) forget(l *Layout, id string) {
	h.Helper()
	if err := l.ForgetLocation(id); err != nil {
		h.Fatal(err)
	}
}

func (h *home) file(path string) string {
	h.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		h.Fatal(err)
	}
	return string(b)
}

func TestRecordKeepsOtherEntries(t *testing.T) {
	h := newHome(t)
	path := h.root + "/locations.json"
	l := h.layout(false)
	h.record(l, "s", h.root+"/projects/p/s")
	first := "{\n  \"s\": \"" + h.root + "/projects/p/s\"\n}"
	h.same("a new file", h.file(path), first)
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	h.record(l, "会\"话", "/ü/会\"话")
	h.same("another", h.file(path), first[:len(first)-2]+",\n  \"会\\\"话\": \"/ü/会\\\"话\"\n}")

	hostile := "{\n  \"x\": \"/\\u00fc/x\",\n  \"y\": {\"later\": [1e400,NaN]},\n  \"s\": \"/a/s\",\n  \"\\ud800\": null\n}\n"
	h.write(path, hostile)
	h.record(l, "s", "/b/s/")
	h.same("one value", h.file(path), strings.Replace(hostile, "/a/s", "/b/s", 1))
	h.forget(l, "s")
	h.same("one less", h.file(path), strings.Replace(hostile, "\n  \"s\": \"/a/s\",", "", 1))
	if p := h.resolve(l, "s"); p.Recorded || p.Dir != h.root+"/s" {
		t.Errorf("a forgotten place: %+v", p)
	}
	h.record(l, "x", "/ü/x")
	h.same("the same value in another spelling", h.file(path),
		strings.Replace(strings.Replace(hostile, "\n  \"s\": \"/a/s\",", "", 1), "\\u00fc", "ü", 1))
}

func TestForget(t *testing.T) {
	h := newHome(t)
	path := h.root + "/locations.json"
	l := h.layout(false)
	h.forget(l, "s")
	if _, err := os.Stat(path); err == nil {
		t.Error("forgetting made a file")
	}
	h.record(l, "s", "/a/s")
	before, _ := os.Stat(path)
	h.forget(l, "t")
	h.record(l, "s", "/a/s")
	after, _ := os.Stat(path)
	if !os.SameFile(before, after) {
		t.Error("a file that was right was written again")
	}
	h.forget(l, "s")
	h.same("the last one", h.file(path), "{}")
}

func TestRecordRefuses(t *testing.T) {
	h := newHome(t)
	l := h.layout(false)
	for id, dir := range map[string]string{
		"..": "/a", "s": "relative", "t": "/a\xff", "u\xff": "/a", "": "/a",
	} {
		if err := l.RecordLocation(id, dir); err == nil {
			t.Errorf("recorded %q at %q", id, dir)
		}
	}
	if entries, _ := os.ReadDir(h.root); len(entries) != 0 {
		t.Errorf("left %v", entries)
	}
}

// TestKnownPlacesStay: what vanishes from the file, or a file that breaks,
// misplaces no session in this process; other processes' entries come in.
func TestKnownPlacesStay(t *testing.T) {
	h := newHome(t)
	path := h.root + "/locations.json"
	h.session(h.dir + "/disk/s")
	h.session(h.dir + "/disk/t")
	l := h.layout(false)
	h.locations("s", h.dir+"/disk/s")
	h.resolve(l, "s")
	for _, text := range []string{"{}", "", "[1]", "{\"t\": "} {
		h.write(path, text)
		if p := h.resolve(l, "s"); !p.Openable {
			t.Errorf("after %q: %+v", text, p)
		}
	}
	if n := strings.Count(h.log.String(), "cannot be used"); n != 1 {
		t.Errorf("a damaged file was reported %d times", n)
	}
	h.locations("t", h.dir+"/disk/t")
	if p := h.resolve(l, "t"); !p.Openable {
		t.Errorf("a new entry: %+v", p)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if p := h.resolve(l, "t"); !p.Openable {
		t.Errorf("no file: %+v", p)
	}
}

func TestDamagedFileIsReplacedAndKept(t *testing.T) {
	h := newHome(t)
	path := h.root + "/locations.json"
	l := h.layout(false)
	h.locations("a", "/x/a", "b", "/x/b")
	h.resolve(l, "a")
	h.write(path, "{\"a\": \"/x/a\", \"c")
	h.record(l, "d", "/x/d")
	h.same("replaced", h.file(path), "{\n  \"a\": \"/x/a\",\n  \"b\": \"/x/b\",\n  \"d\": \"/x/d\"\n}")
	h.same("kept", h.file(h.root+"/.locations.json.damaged"), "{\"a\": \"/x/a\", \"c")
	h.write(path, "[]")
	h.forget(l, "nobody")
	h.same("no other change", h.file(path), "{\n  \"a\": \"/x/a\",\n  \"b\": \"/x/b\",\n  \"d\": \"/x/d\"\n}")
	h.write(path, "")
	h.forget(l, "a")
	h.same("zero bytes", h.file(path), "{\n  \"b\": \"/x/b\",\n  \"d\": \"/x/d\"\n}")
	h.disk.denied = path
	if err := l.RecordLocation("e", "/x/e"); err == nil {
		t.Error("a file that cannot be read was replaced")
	}
}

// TestUnreadableForAMoment: what could not be read is tried again, although
// the file is the same.
func TestUnreadableForAMoment(t *testing.T) {
	h := newHome(t)
	path := h.root + "/locations.json"
	registry := h.state + "/projects/projects.json"
	h.session(h.dir + "/disk/s")
	h.session(h.root + "/projects/p1/t")
	h.locations("s", h.dir+"/disk/s")
	h.registry("/work", "t")
	age(t, path, "2020-01-01T00:00:00Z")
	age(t, registry, "2020-01-01T00:00:00Z")
	l := h.layout(false)
	h.disk.unreadable = path
	if p := h.resolve(l, "s"); p.Present {
		t.Errorf("%+v", p)
	}
	h.disk.unreadable = ""
	if p := h.resolve(l, "s"); !p.Openable {
		t.Errorf("the same file, readable: %+v", p)
	}
	l = h.layout(false)
	h.disk.unreadable = registry
	if _, err := l.Resolve("t"); err == nil {
		t.Error("placed without a registry")
	}
	h.disk.unreadable = ""
	if p := h.resolve(l, "t"); !p.Openable {
		t.Errorf("the same registry, readable: %+v", p)
	}
}

// TestTwoRecorders: each process writes what the other wrote too.
func TestTwoRecorders(t *testing.T) {
	h := newHome(t)
	a, b := h.layout(false), h.layout(false)
	h.record(a, "a1", "/x/a1")
	h.record(b, "b1", "/x/b1")
	h.record(a, "a2", "/x/a2")
	h.forget(b, "a1")
	h.record(a, "a3", "/x/a3") // does not bring a1 back
	h.same("file", h.file(h.root+"/locations.json"), "{\n  \"b1\": \"/x/b1\",\n  \"a2\": \"/x/a2\",\n  \"a3\": \"/x/a3\"\n}")
}

// TestWritesFailAtEachStep fails each disk call of each write in turn. The
// file is the old or the new one, and trying again succeeds.
func TestWritesFailAtEachStep(t *testing.T) {
	now := 1735000000.0
	for name, write := range map[string]func(*Layout) error{
		"record":    func(l *Layout) error { return l.RecordLocation("new", "/x/new") },
		"forget":    func(l *Layout) error { return l.ForgetLocation("old") },
		"tombstone": func(l *Layout) error { return l.WriteTombstone("old", now) },
	} {
		for n := 1; ; n++ {
			h := newHome(t)
			h.locations("old", "/x/old", "other", "/x/other")
			before := h.file(h.root + "/locations.json")
			failing := disktest.New(disk.OS)
			l := New(failing, h.root, h.state, nil)
			failing.FailAt(n, n%2 == 0)
			err := write(l)
			calls := failing.Calls()
			failing.FailAt(0, false)
			if calls < n {
				if err != nil || n < 5 {
					t.Fatalf("%s made %d calls: %v", name, calls, err)
				}
				break
			}
			after := h.file(h.root + "/locations.json")
			if after != before && strings.Count(after, "other") != 2 {
				t.Fatalf("%s: call %d left %q", name, n, after)
			}
			if err == nil {
				t.Fatalf("%s: call %d failed unnoticed", name, n)
			}
			if err := write(l); err != nil {
				t.Fatalf("%s again after call %d: %v", name, n, err)
			}
			_, known := l.view().locations.dirs["new"]
			_, old := l.view().locations.dirs["old"]
			if name == "record" && !known || name == "forget" && old || name == "tombstone" && !l.Tombstone("old") {
				t.Fatalf("%s: call %d: the second try had no effect", name, n)
			}
		}
	}
}

func TestTombstones(t *testing.T) {
	h := newHome(t)
	l := h.layout(false)
	if ids, err := l.Tombstones(); err != nil || len(ids) != 0 {
		t.Errorf("none: %v, %v", ids, err)
	}
	if err := l.WriteTombstone("s", 1735000000); err != nil {
		t.Fatal(err)
	}
	h.same("text", h.file(h.root+"/.deleted/s"), "{\n  \"session_id\": \"s\",\n  \"deleted_at\": 1735000000.0\n}")
	if err := l.WriteTombstone("s", 1); err != nil {
		t.Fatal(err)
	}
	h.same("written once", h.file(h.root+"/.deleted/s"), "{\n  \"session_id\": \"s\",\n  \"deleted_at\": 1735000000.0\n}")
	for _, id := range []string{"..", "a/b", "x\xff", "projects"} {
		if l.WriteTombstone(id, 1) == nil {
			t.Errorf("deleted %q", id)
		}
	}
	h.write(h.root+"/.deleted/corrupt", "{")
	h.write(h.root+"/.deleted/s.0123456789abcdef0123456789abcdef.tmp", "")
	h.mkdir(h.root + "/.deleted/directory")
	h.symlink("s", h.root+"/.deleted/linked")
	h.symlink("nowhere", h.root+"/.deleted/dangling")
	ids, err := l.Tombstones()
	if err != nil {
		t.Fatal(err)
	}
	h.same("ids", ids, []string{"corrupt", "linked", "s"})
	for _, id := range []string{"corrupt", "linked", "s", "directory", "dangling", "x", filepath.Join("..", "s")} {
		want := id == "corrupt" || id == "linked" || id == "s"
		if got := l.Tombstone(id); got != want {
			t.Errorf("Tombstone(%q) = %v", id, got)
		}
	}
}
