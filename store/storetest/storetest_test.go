package storetest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// remembering returns a disk that remembers an empty directory.
func remembering(t *testing.T) (*Disk, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	must(t, os.Mkdir(root, 0o755))
	d := NewDisk()
	must(t, d.Remember(root))
	return d, root
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, d *Disk, path, text string, sync bool) {
	t.Helper()
	f, err := d.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	must(t, err)
	_, err = f.Write([]byte(text))
	must(t, err)
	if sync {
		must(t, f.Sync())
	}
	must(t, f.Close())
}

// list is what a tree holds: "name=content" or "name/" each.
func list(t *testing.T, tree *Tree) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	must(t, tree.Write(dir))
	var out []string
	must(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		switch {
		case err != nil || rel == ".":
		case e.IsDir():
			out = append(out, rel+"/")
		default:
			b, _ := os.ReadFile(path)
			out = append(out, rel+"="+string(b))
		}
		return err
	}))
	return strings.Join(out, " ")
}

// TestForgetting follows one file through what is durable of it.
func TestForgetting(t *testing.T) {
	d, root := remembering(t)
	at := func(name string) string { return filepath.Join(root, name) }
	lossy := Loss{Names: Drop, Data: Drop}
	want := func(when string, loss Loss, tree string) {
		t.Helper()
		if got := list(t, d.After(d.Steps(), loss)); got != tree {
			t.Errorf("%s, %v: %q, want %q", when, loss, got, tree)
		}
	}
	put(t, d, at("a"), "one", false)
	want("nothing synced", lossy, "")
	want("nothing synced", Loss{Names: Keep, Data: Drop}, "a=")
	want("nothing synced", Loss{}, "a=one")
	must(t, d.SyncDir(root))
	want("the name synced", lossy, "a=")
	put(t, d, at("a.tmp"), "two", true)
	must(t, d.Rename(at("a.tmp"), at("a")))
	want("renamed", lossy, "a=")
	want("renamed", Loss{Names: Keep, Data: Drop}, "a=two")
	must(t, d.SyncDir(root))
	want("the rename synced", lossy, "a=two")
	must(t, d.Mkdir(at("d"), 0o755))
	put(t, d, at("d/x"), "x", true)
	must(t, d.SyncDir(at("d")))
	want("a directory whose own name is not synced", lossy, "a=two")
	must(t, d.SyncDir(root))
	want("and then it is", lossy, "a=two d/ d/x=x")
	must(t, d.Remove(at("a")))
	want("removed", lossy, "a=two d/ d/x=x")
	want("removed", Loss{}, "d/ d/x=x")
	must(t, d.RemoveAll(at("d")))
	must(t, d.SyncDir(root))
	want("all removed", lossy, "")
	if got := d.Behind(func(string) bool { return false }); got != nil {
		t.Errorf("behind the disk's back: %v", got)
	}
	must(t, os.WriteFile(at("other"), []byte("o"), 0o600))
	if got := d.Behind(func(string) bool { return false }); len(got) != 1 {
		t.Errorf("behind the disk's back: %v", got)
	}
}

// TestAtomicWriteSurvives: whatever is lost, an acknowledged durable write is
// there, and before that the old text or the new.
func TestAtomicWriteSurvives(t *testing.T) {
	d, root := remembering(t)
	path := filepath.Join(root, "f")
	must(t, disk.WriteAtomic(d, path, []byte("old"), disk.WriteOptions{}))
	start := d.Steps()
	must(t, disk.WriteAtomic(d, path, []byte("new"), disk.WriteOptions{}))
	seen := map[string]bool{}
	for k := start; k <= d.Steps(); k++ {
		for _, loss := range Losses(20, 1) {
			out := filepath.Join(t.TempDir(), "out")
			must(t, d.After(k, loss).Write(out))
			b, err := os.ReadFile(filepath.Join(out, "f"))
			if err != nil || string(b) != "old" && string(b) != "new" || k == d.Steps() && string(b) != "new" {
				t.Fatalf("after step %d of %d, %v: %q, %v", k, d.Steps(), loss, b, err)
			}
			seen[string(b)] = true
		}
	}
	if len(seen) != 2 {
		t.Errorf("only %v was seen", seen)
	}
}

// TestForgettingFindsMissingSync: a write without syncs is found out.
func TestForgettingFindsMissingSync(t *testing.T) {
	d, root := remembering(t)
	must(t, disk.WriteAtomic(d, filepath.Join(root, "f"), []byte("old"), disk.WriteOptions{}))
	put(t, d, filepath.Join(root, "g"), "new", false)
	must(t, d.Rename(filepath.Join(root, "g"), filepath.Join(root, "f")))
	seen := map[string]bool{}
	for _, loss := range Losses(40, 7) {
		seen[list(t, d.After(d.Steps(), loss))] = true
	}
	for _, want := range []string{"f=old", "f=", "f=new", "f=\x00\x00\x00"} {
		if !seen[want] {
			t.Errorf("%q is lawful and does not occur in %v", want, seen)
		}
	}
}

func TestFaults(t *testing.T) {
	dir := t.TempDir()
	d := NewDisk()
	path := filepath.Join(dir, "f")
	write := func() error { return disk.WriteAtomic(d, path, []byte("text"), disk.WriteOptions{}) }
	d.Arm(Fault{})
	must(t, write())
	n := d.Calls()
	if n < 5 {
		t.Fatalf("%d calls", n)
	}
	for at := 1; at <= n; at++ {
		for _, f := range []Fault{{At: at}, {At: at, Late: true, Err: syscall.ENOSPC}, {At: at, Down: true, Torn: true}} {
			d.Arm(f)
			err := write()
			if d.Hit() == "" || !errors.Is(err, max(f.Err, syscall.EIO)) {
				t.Errorf("%+v: hit %q, err %v", f, d.Hit(), err)
			}
		}
	}
	d.Arm(Fault{At: 1, Reads: true})
	if _, err := d.ReadFile(path); !errors.Is(err, syscall.EIO) {
		t.Errorf("read: %v", err)
	}
	if b, err := d.ReadFile(path); err != nil || string(b) != "text" {
		t.Errorf("read again: %q, %v", b, err)
	}
}

// TestBuild builds one of everything.
func TestBuild(t *testing.T) {
	root := filepath.Join(t.TempDir(), "state", "sessions")
	Build(t, root, `
		project p1 "Project One"
		session s1 project=p1 "title=A title"   # nested
		root
		user u1 "hello \"you\""
		llm a1 hi
		tool t1 ^a1 "out"
		llm a2 <u1 "hi again"
		name a2 other
		field pinned true
		raw workdir/f.txt "text"
		commit "turn: hello"
		break node a1
		session s2
		break meta
		deleted s0
	`)
	for _, name := range []string{
		"projects/p1/s1/history/0001-u-u1.json", "projects/p1/s1/workdir/f.txt", "s2/meta.json", ".deleted/s0",
		"locations.json", "index.json", "../projects/projects.json",
	} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
	meta, err := os.ReadFile(filepath.Join(root, "projects/p1/s1/meta.json"))
	must(t, err)
	for _, want := range []string{`"head_id": "a2"`, `"name": "other"`, `"pinned": true`, `"title": "A title"`} {
		if !strings.Contains(string(meta), want) {
			t.Errorf("%s lacks %s", meta, want)
		}
	}
}
