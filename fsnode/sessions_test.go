package fsnode

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
)

func TestSessionsComeAndGo(t *testing.T) {
	b := newBench(t, nil)
	for range 3 { // the same id again and again
		if errno := b.mkdir("sessions/x"); errno != 0 {
			t.Fatal(errno)
		}
		if got := b.read("sessions/x/head_id"); got != "" {
			t.Errorf("head_id %q", got)
		}
		if _, errno := b.find("sessions/x/head"); errno != syscall.ENOENT {
			t.Errorf("head of a new session: %v", errno)
		}
		if errno := b.rmdir("sessions/x"); errno != 0 {
			t.Fatal(errno)
		}
		if _, errno := b.find("sessions/x"); errno != syscall.ENOENT {
			t.Errorf("after rmdir: %v", errno)
		}
		if got := b.list("sessions"); len(got) != 0 {
			t.Errorf("after rmdir: %q", got)
		}
	}
	b.chat("y")
	if errno := b.rename("sessions/y", "archived/y"); errno != 0 {
		t.Fatal(errno)
	}
	if s, a := b.list("sessions"), b.list("archived"); len(s) != 0 || !slices.Equal(a, []string{"y"}) {
		t.Errorf("sessions %q, archived %q", s, a)
	}
	if got := b.read("archived/y/fields/archived"); got != "true\n" {
		t.Errorf("archived is %q", got)
	}
	if errno := b.write("archived/y/fields/archived", "no\n"); errno != 0 {
		t.Fatal(errno)
	}
	if s, a := b.list("sessions"), b.list("archived"); len(a) != 0 || !slices.Equal(s, []string{"y"}) {
		t.Errorf("sessions %q, archived %q", s, a)
	}
}

func TestIndexFollowsFields(t *testing.T) {
	b := newBench(t, nil)
	b.chat("s1")
	for _, title := range []string{"one", "two", "three"} {
		if errno := b.write("sessions/s1/fields/title", title+"\n"); errno != 0 {
			t.Fatal(errno)
		}
		if got := b.read("index.json"); !strings.Contains(got, `"title": "`+title+`"`) {
			t.Errorf("index.json lacks the title %s:\n%s", title, got)
		}
	}
}

func TestBranchGestures(t *testing.T) {
	b := newBench(t, nil)
	ids := b.chat("s1")
	p := "sessions/s1/"
	if errno := b.mkdir(p + "branch/mine"); errno != 0 {
		t.Fatal(errno)
	}
	if got := b.list(p + "branch"); !slices.Contains(got, "mine") || slices.Contains(got, short(ids[3])) {
		t.Errorf("branches %q", got)
	}
	if errno := b.mkdir(p + "branch/mine"); errno != syscall.EEXIST {
		t.Errorf("mkdir again: %v", errno)
	}
	if errno := b.rename(p+"branch/mine", p+"branch/a b"); errno != 0 {
		t.Errorf("rename: %v", errno)
	}
	var n0 string
	for _, n := range b.list(p + "nodes") {
		if strings.HasSuffix(n, ids[0]+".md") {
			n0 = n
		}
	}
	if errno := b.symlink("../nodes/"+n0, p+"branch/start"); errno != 0 {
		t.Errorf("ln -s: %v", errno)
	}
	if got := b.list(p + "branch/start"); len(got) != 1 {
		t.Errorf("branch/start: %q", got)
	}
	if errno := b.rmdir(p + "branch/start"); errno != 0 {
		t.Errorf("rmdir: %v", errno)
	}
	if errno := b.rename(p+"nodes/"+n0, p+"branch/again"); errno != 0 {
		t.Errorf("mv nodes branch: %v", errno)
	}
	if got := b.list(p + "branch"); !slices.Contains(got, "again") || slices.Contains(got, "start") || !slices.Contains(got, "a b") {
		t.Errorf("branches %q", got)
	}
	if errno := b.write(p+"append/user", "more\n"); errno != 0 {
		t.Fatal(errno)
	}
	if got := b.list(p + "branch/a b"); len(got) != 4 {
		t.Errorf("the name did not move along: %q", got)
	}
	b.agree("s1", strings.TrimSpace(b.read(p+"head_id")), "more")
}

func TestStoreErrorsReachTheCaller(t *testing.T) {
	var f *faulty
	b := newBench(t, func(st *store.Store) Store { f = &faulty{Store: st}; return f })
	ids := b.chat("s1")
	for code, want := range contract {
		f.mu.Lock()
		f.head = &store.Error{Code: code, Op: "set head"}
		f.mu.Unlock()
		if got := b.write("sessions/s1/head_id", ids[0]+"\n"); got != want {
			t.Errorf("%s: %v, want %v", code, got, want)
		}
	}
}

func TestForeignChangeShows(t *testing.T) {
	b := newBench(t, nil)
	ids := b.chat("s1")
	b.agree("s1", ids[3], "another second question")
	dir := filepath.Join(b.st.Root(), "s1")
	raw, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(raw), ids[3], ids[0], 1)
	if err := os.WriteFile(filepath.Join(dir, "meta.json.tmp"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "meta.json.tmp"), filepath.Join(dir, "meta.json")); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); b.read("sessions/s1/head_id") != ids[0]+"\n" && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	b.agree("s1", ids[0], "first question")
}

func TestReadOnlyRefusesEverything(t *testing.T) {
	b := newBench(t, nil)
	ids := b.chat("s1")
	b.tree.readOnly = true
	p := "sessions/s1/"
	node := b.list(p + "nodes")[1]
	for name, got := range map[string]syscall.Errno{
		"head_id": b.write(p+"head_id", ids[0]+"\n"),
		"rename":  b.rename("sessions/s1", "archived/s1"),
		"mkdir":   b.mkdir("sessions/s2"),
		"rmdir":   b.rmdir("sessions/s1"),
		"append":  b.write(p+"append/user", "x\n"),
		"ctl":     b.write(p+"ctl", "commit\n"),
		"field":   b.write(p+"fields/title", "x\n"),
		"symlink": b.symlink("nodes/"+node, p+"x"),
		"branch":  b.mkdir(p + "branch/x"),
	} {
		if got != syscall.EROFS {
			t.Errorf("%s: %v, want EROFS", name, got)
		}
	}
	if e, _ := b.find(p + "head_id"); e.Attr.Mode&0o777 != 0o400 {
		t.Errorf("head_id has mode %o", e.Attr.Mode)
	}
}

// blind is a store that has no watch left.
type blind struct{ *store.Store }

func (b blind) Pin(ctx context.Context, id string) (*store.Snapshot, bool, func(), error) {
	sn, _, release, err := b.Store.Pin(ctx, id)
	return sn, false, release, err
}

func TestUnwatchedSessionIsAskedEachTime(t *testing.T) {
	b := newBench(t, func(st *store.Store) Store { return blind{st} })
	ids := b.chat("s1")
	b.agree("s1", ids[3], "another second question")
	for _, p := range []string{"head", "head_id", "messages", "nodes", "meta.json", "transcript.md"} {
		out, errno := b.find("sessions/s1/" + p)
		if errno != 0 || out.EntryTimeout() != 0 || out.AttrTimeout() != 0 {
			t.Errorf("%s: %v, kept for %v and %v", p, errno, out.EntryTimeout(), out.AttrTimeout())
		}
	}
	old := b.node("sessions/s1/head")
	dir := filepath.Join(b.st.Root(), "s1")
	for i, id := range []string{ids[0], ids[2], ids[0]} {
		raw, err := os.ReadFile(filepath.Join(dir, "meta.json"))
		if err != nil {
			t.Fatal(err)
		}
		head := strings.TrimSpace(b.read("sessions/s1/head_id"))
		if err := os.WriteFile(filepath.Join(dir, "tmp"), []byte(strings.Replace(string(raw), head, id, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "meta.json")); err != nil {
			t.Fatal(err)
		}
		b.agree("s1", id, map[string]string{ids[0]: "first question", ids[2]: "second question"}[id])
		if i == 0 && b.node("sessions/s1/head") == old {
			t.Error("another target has the same inode, and the kernel keeps a link's target")
		}
	}
}

func TestSessionIsReleasedWhenForgotten(t *testing.T) {
	b := newBench(t, nil)
	b.chat("s1")
	s := b.tree.sessions["s1"]
	if s.release(false) {
		t.Fatal("released while the kernel knows it")
	}
	if !s.release(true) || s.unpin != nil {
		t.Fatal("not released")
	}
	if _, errno := b.find("sessions/s1/head_id"); errno != 0 {
		t.Errorf("looked up again: %v", errno)
	}
	if b.tree.sessions["s1"] == s {
		t.Error("the released object is used again")
	}
}
