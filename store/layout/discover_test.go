package layout

import (
	"os"
	"path/filepath"
	"testing"
)

func (h *home) discover(l *Layout) (ids []string, places map[string]Place) {
	h.Helper()
	list, err := l.Discover()
	if err != nil {
		h.Fatal(err)
	}
	places = map[string]Place{}
	for _, p := range list {
		if _, twice := places[p.ID]; twice {
			h.Errorf("%s comes twice", p.ID)
		}
		ids = append(ids, p.ID)
		places[p.ID] = p
	}
	return ids, places
}

func TestDiscover(t *testing.T) {
	for _, standalone := range []bool{false, true} {
		h := newHome(t)
		for _, id := range []string{
			"b", "a", "twice", "dead", ".hidden", ".file-recovery",
			"projects/p2/twice", "projects/p2/n2", "projects/p1/n1", "projects/p1/dead",
			"projects/p1/.file-recovery", "projects/.hidden/n3", "projects/p1/projects",
			"projects/p2/moved",
		} {
			h.session(filepath.Join(h.root, id))
		}
		h.session(h.dir + "/disk/away")
		h.session(h.dir + "/disk/moved")
		h.session(h.dir + "/disk/dead")
		h.mkdir(h.root + "/shell/workdir")
		h.write(h.root+"/meta/meta.json", "{")
		h.write(h.root+"/stray.txt", "")
		h.write(h.root+"/projects/notes.txt", "")
		h.write(h.root+"/projects/p1/notes.txt", "")
		h.symlink("a", h.root+"/link")
		h.symlink("nowhere", h.root+"/deadlink")
		h.symlink("stray.txt", h.root+"/filelink")
		h.symlink("p1", h.root+"/projects/alias")
		h.write(h.root+"/.deleted/dead", "")
		h.locations("away", h.dir+"/disk/away", "moved", h.dir+"/disk/moved",
			"dead", h.dir+"/disk/dead", "gone", h.dir+"/disk/gone", "../x", "/x")
		l := h.layout(standalone)
		ids, places := h.discover(l)
		h.same("ids", ids, []string{"a", "b", "link", "meta", "twice", "n1", "moved", "n2", "away"})
		if p := places["link"]; !p.Symlink || p.Openable {
			t.Errorf("link: %+v", p)
		}
		if p := places["moved"]; p.Dir != h.dir+"/disk/moved" {
			t.Errorf("moved is served from %s", p.Dir)
		}
		if p := places["twice"]; p.Dir != h.root+"/twice" {
			t.Errorf("twice is served from %s", p.Dir)
		}
		for id, want := range places {
			if got := h.resolve(l, id); got.Dir != want.Dir || got.Present != want.Present || got.Openable != want.Openable {
				t.Errorf("%s: discovered %+v, resolved %+v", id, want, got)
			}
		}
	}
}

func TestDiscoverBoundSessions(t *testing.T) {
	h := newHome(t)
	h.session(h.root + "/bound")
	h.session(h.root + "/projects/p1/bound")
	h.session(h.root + "/projects/p2/stray")
	h.session(h.dir + "/folder/.openprogram/sessions/legacy")
	h.registry(h.dir+"/folder", "bound", "legacy")
	ids, places := h.discover(h.layout(false))
	h.same("ids", ids, []string{"bound", "stray", "legacy"})
	if p := places["bound"]; p.Dir != h.root+"/projects/p1/bound" || p.Project != "p1" {
		t.Errorf("bound: %+v", p)
	}
	if p := places["stray"]; p.Project != "p2" {
		t.Errorf("stray: %+v", p)
	}
}

func TestDiscoverBadRoots(t *testing.T) {
	h := newHome(t)
	if ids, _ := h.discover(h.layout(false)); len(ids) != 0 {
		t.Errorf("an empty root holds %v", ids)
	}
	h.write(h.root+"/projects", "a file")
	h.session(h.root + "/s")
	h.mkdir(h.root + "/.deleted")
	ids, _ := h.discover(h.layout(false))
	h.same("projects is a file", ids, []string{"s"})
	if err := os.RemoveAll(h.root); err != nil {
		t.Fatal(err)
	}
	if _, err := h.layout(false).Discover(); err == nil {
		t.Error("a root that is not there was searched")
	}
}

func TestUnreadableProjectLosesNoOther(t *testing.T) {
	h := newHome(t)
	h.session(h.root + "/projects/p1/a")
	h.session(h.root + "/projects/p2/b")
	h.disk.denied = h.root + "/projects/p1"
	ids, _ := h.discover(h.layout(true))
	h.same("ids", ids, []string{"b"})
}

func BenchmarkDiscover1000(b *testing.B) {
	h := newHome(b)
	for i := range 1000 {
		dir := filepath.Join(h.root, "local_"+string(rune('a'+i%26))+string(rune('a'+i/26%26))+string(rune('a'+i/676)))
		h.mkdir(filepath.Join(dir, "history"))
		h.mkdir(filepath.Join(dir, ".git"))
	}
	l := h.layout(false)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Discover(); err != nil {
			b.Fatal(err)
		}
	}
}
