package fsnode

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/store"
)

// must fails the test unless a gesture went well.
func must(t *testing.T, what string, errno syscall.Errno) {
	t.Helper()
	if errno != 0 {
		t.Fatalf("%s: %v", what, errno)
	}
}

// same fails the test unless a directory lists these names.
func (b *bench) same(dir string, want ...string) {
	b.t.Helper()
	if got := b.list(dir); !slices.Equal(got, want) {
		b.t.Errorf("%s: %q, want %q", dir, got, want)
	}
}

// absent fails the test unless there is no such name.
func (b *bench) absent(path string) {
	b.t.Helper()
	if _, errno := b.find(path); errno != syscall.ENOENT {
		b.t.Errorf("%s: %v, want ENOENT", path, errno)
	}
}

func TestViews(t *testing.T) {
	b := newBench(t, nil)
	b.same("views", "title", "project", "agent", "source", "status", "group", "pinned", "date")
	b.chat("first-session")
	b.chat("s2")
	today := time.Now().Format(time.DateOnly)
	b.same("views/agent", "main")
	b.same("views/agent/main", "first-session", "s2")
	b.same("views/source/sessionfs", "first-session", "s2")
	b.same("views/date/"+today, "first-session", "s2")
	b.same("views/pinned")
	b.same("views/group")
	if got := b.readlink("views/agent/main/s2"); got != "../../../sessions/s2" {
		t.Errorf("link %q", got)
	}
	must(t, "title", b.write("sessions/first-session/fields/title", "a/b ☂\n"))
	must(t, "title", b.write("sessions/s2/fields/title", ".hidden\n"))
	b.same("views/title", "%2Ehidden~s2", "a%2Fb ☂~-session"[:len("a%2Fb ☂~")]+"%2Dsession")
	if got := b.readlink("views/title/%2Ehidden~s2"); got != "../../sessions/s2" {
		t.Errorf("link %q", got)
	}
	must(t, "group", b.write("sessions/s2/fields/group", "work\n"))
	b.same("views/group/work", "s2")
	must(t, "group", b.write("sessions/s2/fields/group", "play\n"))
	b.absent("views/group/work")
	b.same("views/group", "play")
	must(t, "no group", b.write("sessions/s2/fields/group", "\n"))
	b.absent("views/group/play")
	b.same("views/group")
	must(t, "pin", b.write("sessions/s2/fields/pinned", "yes\n"))
	b.same("views/pinned", "s2")
	if got := b.readlink("views/pinned/s2"); got != "../../sessions/s2" {
		t.Errorf("link %q", got)
	}
	run, err := b.st.Begin(context.Background(), "s2")
	if err != nil {
		t.Fatal(err)
	}
	b.same("views/status", "idle", "running")
	b.same("views/status/running", "s2")
	if err := run.End(context.Background(), "done"); err != nil {
		t.Fatal(err)
	}
	b.same("views/status", "done", "idle")
	must(t, "archive", b.rename("sessions/s2", "archived/s2"))
	b.same("views/status", "idle")
	b.same("views/pinned")
	b.same("views/agent/main", "first-session")
	b.absent("views/agent/main/s2")
	must(t, "unarchive", b.rename("archived/s2", "sessions/s2"))
	b.same("views/agent/main", "first-session", "s2")
	for _, p := range []string{"views/nope", "views/agent/nope", "views/agent/main/nope", "views/title/s2", "views/date/1970-01-01"} {
		b.absent(p)
	}
	h := hdr(b.node("views/agent"))
	if st := b.fs.Rmdir(nil, &h, "main"); syscall.Errno(st) != syscall.EPERM {
		t.Errorf("rmdir in a view: %v", st)
	}
}

func TestTitlesThatAreTheSame(t *testing.T) {
	b := newBench(t, nil)
	for _, id := range []string{"a-12345678", "b-12345678", "c-87654321"} {
		must(t, "mkdir", b.mkdir("sessions/"+id))
		must(t, "title", b.write("sessions/"+id+"/fields/title", strings.Repeat("long ", 80)+"\n"))
	}
	names := b.list("views/title")
	if len(names) != 3 {
		t.Fatalf("%q", names)
	}
	ids := map[string]bool{}
	for _, n := range names {
		if len(n) > 255 {
			t.Errorf("%d bytes: %s", len(n), n)
		}
		ids[path.Base(b.readlink("views/title/"+n))] = true
	}
	if len(ids) != 3 {
		t.Errorf("the links lead to %v", ids)
	}
}

// links maps the links of a directory to their targets.
func (b *bench) links(dir string) map[string]string {
	b.t.Helper()
	out := map[string]string{}
	for _, n := range b.list(dir) {
		if out1, errno := b.find(dir + "/" + n); errno == 0 && out1.Mode&syscall.S_IFMT == syscall.S_IFLNK {
			out[n] = b.readlink(dir + "/" + n)
		}
	}
	return out
}

func TestDAG(t *testing.T) {
	b := newBench(t, nil)
	ids := b.chat("s1")
	p := "sessions/s1/dag/"
	if got := b.list("sessions/s1/dag"); len(got) != len(ids)+1 {
		t.Errorf("dag: %q", got)
	}
	b.same(p+ids[1], "text", "json", "predecessor", "children", "callees")
	b.same(p+ids[1]+"/children", ids[2], ids[3])
	b.same(p + ids[2] + "/children")
	l := b.links(p + ids[3])
	if l["predecessor"] != "../"+ids[1] {
		t.Errorf("links %q", l)
	}
	for name, want := range map[string]string{"text": "another second question\n", "json": ids[3]} {
		if got := b.read("sessions/s1/" + strings.TrimPrefix(l[name], "../../")); !strings.Contains(got, want) {
			t.Errorf("%s leads to %q", name, got)
		}
	}
	if got := b.readlink(p + ids[1] + "/children/" + ids[2]); got != "../../"+ids[2] {
		t.Errorf("child %q", got)
	}
	must(t, "append", b.write("sessions/s1/append/user", "more\n"))
	id := strings.TrimSpace(b.read("sessions/s1/head_id"))
	b.same(p+ids[3]+"/children", id)
	must(t, "delete", b.write("sessions/s1/ctl", "delete "+id+"\n"))
	b.absent(p + id)
	b.absent(p + ids[3])
	b.same(p+ids[1]+"/children", ids[2])
	for _, n := range []string{"nope", ids[0] + "/nope", ids[0] + "/children/nope", ids[1] + "/caller", ids[1] + "/children/" + ids[0]} {
		b.absent(p + n)
	}
}

func TestDerivedTexts(t *testing.T) {
	b := newBench(t, nil)
	ids := b.chat("s1")
	p := "sessions/s1/"
	check := func(head string, n int) {
		t.Helper()
		if got := strings.Count(b.read(p+"transcript.jsonl"), "\n"); got != n {
			t.Errorf("transcript.jsonl has %d lines, want %d", got, n)
		}
		for l := range strings.Lines(b.read(p + "graph.txt")) {
			if strings.Contains(l, "HEAD") != strings.Contains(l, head) {
				t.Errorf("head %s: line %q", head, l)
			}
		}
		if got := b.read(p + "graph.dot"); !strings.HasPrefix(got, "digraph") || !strings.Contains(got, head) {
			t.Errorf("graph.dot: %s", got)
		}
	}
	check(ids[3], 3)
	must(t, "head", b.write(p+"head_id", ids[2]+"\n"))
	check(ids[2], 3)
	must(t, "head", b.write(p+"head_id", ids[0]+"\n"))
	check(ids[0], 1)
	must(t, "append", b.write(p+"append/user", "yet another\n"))
	check(strings.TrimSpace(b.read(p+"head_id")), 2)
	must(t, "name", b.write(p+"ctl", "name "+ids[1]+" answer\n"))
	if got := b.read(p + "graph.txt"); !strings.Contains(got, "answer") {
		t.Errorf("graph.txt lacks the new name:\n%s", got)
	}
}

func TestCommits(t *testing.T) {
	for _, trees := range []bool{false, true} {
		b := newBench(t, nil)
		b.tree.commitTrees = trees
		b.chat("s1")
		p := "sessions/s1/"
		before := b.list(p + "commits")
		must(t, "append", b.write(p+"append/user", "for the record\n"))
		must(t, "commit", b.write(p+"ctl", "commit 'by hand'\n"))
		after := b.list(p + "commits")
		if len(after) != len(before)+1 || !slices.Equal(after[:len(before)], before) {
			t.Fatalf("before %q, after %q", before, after)
		}
		last := after[len(after)-1]
		form := `^0*` + fmt.Sprint(len(after)) + `-[0-9a-f]{8}`
		if !trees {
			form += `\.txt`
		}
		if !regexp.MustCompile(form + "$").MatchString(last) {
			t.Errorf("the last one is %q", last)
		}
		for _, n := range []string{"x", "000001-00000000.txt", "000099-" + last[7:]} {
			b.absent(p + "commits/" + n)
		}
		if trees {
			b.commitTree(p, p+"commits/"+last)
			continue
		}
		if got := b.read(p + "commits/" + last); !strings.Contains(got, "    by hand\n") || !strings.Contains(got, "\nhistory/") {
			t.Errorf("%s: %s", last, got)
		}
	}
}

// commitTree checks that a commit's directory is what the session is.
func (b *bench) commitTree(session, dir string) {
	b.t.Helper()
	if got := b.list(dir); !slices.Contains(got, "meta.json") || !slices.Contains(got, "history") {
		b.t.Errorf("%s: %q", dir, got)
	}
	if b.read(dir+"/meta.json") != b.read(session+"meta.json") {
		b.t.Error("meta.json differs")
	}
	for _, n := range b.list(dir + "/history") {
		if b.read(dir+"/history/"+n) != b.read(session+"history/"+n) {
			b.t.Errorf("%s differs", n)
		}
	}
	b.absent(dir + "/nope")
	if errno := b.write(dir+"/meta.json", "x"); errno != syscall.EPERM {
		b.t.Errorf("write: %v", errno)
	}
}

// TestForeignCommitShows: a commit by another program shows at the next look,
// also when it has the time of the one before.
func TestForeignCommitShows(t *testing.T) {
	b := newBench(t, nil)
	b.chat("s1")
	stat := func() fuse.AttrOut {
		var a fuse.AttrOut
		b.fs.GetAttr(nil, &fuse.GetAttrIn{InHeader: hdr(b.node("sessions/s1/commits"))}, &a)
		return a
	}
	before, was := b.list("sessions/s1/commits"), stat()
	other, err := store.Open(context.Background(), store.Options{Root: b.st.Root(), GitSync: "off"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := os.WriteFile(filepath.Join(b.st.Root(), "s1", "context", "x.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := other.CommitTurn(context.Background(), "s1", "elsewhere"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if got := b.list("sessions/s1/commits"); len(got) != len(before)+1 {
		t.Errorf("before %q, after %q", before, got)
	}
	if is := stat(); is.Mtime == was.Mtime && is.Mtimensec == was.Mtimensec {
		t.Error("the directory's time is the same: the kernel would keep its listing")
	}
}

func TestRealDirectories(t *testing.T) {
	b := newBench(t, nil)
	b.chat("s1")
	dir := filepath.Join(b.st.Root(), "s1")
	if err := os.WriteFile(filepath.Join(dir, "context", "note.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.same("sessions/s1/context", "note.json")
	if _, errno := b.openWrite(b.node("sessions/s1/context/note.json")); errno != syscall.EPERM {
		t.Errorf("write in context: %v", errno)
	}
	h := hdr(b.node("sessions/s1/context"))
	if st := b.fs.Unlink(nil, &h, "note.json"); syscall.Errno(st) != syscall.EPERM {
		t.Errorf("unlink in context: %v", st)
	}
	if got := b.read(".sessionfs/errors"); !strings.Contains(got, "sessions/s1/context\tEPERM\timmutable") {
		t.Errorf("errors:\n%s", got)
	}
	if got := b.readlink("sessions/s1/workdir/attachments"); got != "../attachments" {
		t.Errorf("workdir/attachments -> %q", got)
	}
	h = hdr(b.node("sessions/s1/workdir"))
	if st := b.fs.Unlink(nil, &h, "attachments"); syscall.Errno(st) != syscall.EPERM {
		t.Errorf("unlink of workdir/attachments: %v", st)
	}
	must(t, "mkdir", b.mkdir("sessions/s1/attachments/d"))
	must(t, "rename across", b.rename("sessions/s1/attachments/d", "sessions/s1/workdir/d"))
	if fi, err := os.Stat(filepath.Join(dir, "workdir", "d")); err != nil || !fi.IsDir() {
		t.Error(fi, err)
	}
}

func TestTextCacheIsBounded(t *testing.T) {
	var m meter
	c := newTextCache(10_000, &m)
	for i := range 100 {
		k := textKey{session: fmt.Sprint(i)}
		if _, err := c.text(k, func() ([]byte, error) { return make([]byte, 1000), nil }); err != nil {
			t.Fatal(err)
		}
		if c.size > 10_000 || len(c.byKey) != c.order.Len() {
			t.Fatalf("%d bytes, %d keys, %d in order", c.size, len(c.byKey), c.order.Len())
		}
	}
	made := false
	for _, k := range []string{"99", "98"} {
		_, _ = c.text(textKey{session: k}, func() ([]byte, error) { made = true; return nil, nil })
	}
	if made || m.cache.Get("hit") != 2 {
		t.Error("the last ones are not kept")
	}
	c.put(textKey{session: "huge"}, []byte{}, 6000)
	if c.get(textKey{session: "huge"}) != nil {
		t.Error("what is half of it is kept")
	}
}

func TestPinnedSessionsAreBounded(t *testing.T) {
	b := newBench(t, nil)
	b.tree.maxOpen = 16
	for i := range 40 {
		id := fmt.Sprintf("s%02d", i)
		must(t, "mkdir", b.mkdir("sessions/"+id))
		b.read("sessions/" + id + "/head_id")
		if n := b.tree.opened.Load() - b.tree.told.Load(); n > 17 {
			t.Fatalf("%d sessions are kept open", n)
		}
	}
	b.read("sessions/s00/head_id")
	b.tree.mu.Lock()
	first, last := b.tree.sessions["s00"].told.Load(), b.tree.sessions["s39"].told.Load()
	b.tree.mu.Unlock()
	if first || last {
		t.Error("a session in use was to be forgotten")
	}
}
