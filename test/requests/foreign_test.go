package requests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store/storetest"
	"github.com/sessionfs/sessionfs/test/harness"
)

// foreignStore is what the other programs change: a conversation with a fork,
// and one that comes to nothing.
const foreignStore = `
session talk title=Talk
user u1 "first question"
llm a1 "first answer"
user u2 "second question"
llm a2 "second answer"
user u3 <a1 "another question"
llm a3 "another answer"
name a2 plan
head a2
commit turn
session other title=Other agent_id=helper
user q1 hello
llm r1 hi
commit turn
`

// TestNothingIsStale changes a store behind a mount whose caches are all warm,
// and compares everything that the mount shows with what a new mount of the
// same store shows.
func TestNothingIsStale(t *testing.T) {
	for _, mode := range []struct {
		name     string
		readOnly bool
	}{{"read-write", false}, {"read-only", true}} {
		t.Run(mode.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "sessions")
			storetest.Build(t, root, foreignStore)
			m := mount(t, root, mode.readOnly)
			f := &foreign{t: t, root: root, p: harness.NewForeign(t)}
			for _, s := range f.steps() {
				before := m.show(t)
				m.miss(t)
				s.do()
				m.agree(t, s.name, before)
			}
		})
	}
}

// foreign is what other programs do to the store.
type foreign struct {
	t    *testing.T
	root string
	p    *harness.Foreign
	last string // the node that was appended last
}

type step struct {
	name string
	do   func()
}

func (f *foreign) steps() []step {
	meta := func(key, value string) func() {
		return func() {
			f.p.Do(harness.ForeignRequest{Store: f.root, Session: "talk", Op: "meta", Key: key, Value: value})
		}
	}
	return []step{
		{"a message more", f.append},
		{"the head on another branch", meta("head_id", `"a3"`)},
		{"the head at the start of the branch", meta("head_id", `"u1"`)},
		{"the head back at the end", func() { meta("head_id", `"`+f.last+`"`)() }},
		{"another text of the same size and time", func() { f.sameStamp("a1", "first answer", "third answer") }},
		{"a longer text", f.rewrite},
		{"another title", meta("title", `"Talk again"`)},
		{"a field more", meta("group", `"work"`)},
		{"a branch with another name", meta("branches", `{"a3": {"name": "other plan"}}`)},
		{"archived", meta("archived", "true")},
		{"taken back", meta("archived", "false")},
		{"a commit", func() { f.git("commit", "--allow-empty", "-m", "by hand") }},
		{"a commit instead of the last", func() { f.git("commit", "--amend", "--allow-empty", "-m", "by another hand") }},
		{"a history file less", f.remove},
		{"a session more", f.arrive},
		{"a session less", func() { f.must(os.RemoveAll(filepath.Join(f.root, "other"))) }},
	}
}

func (f *foreign) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *foreign) append() {
	a := f.p.Do(harness.ForeignRequest{Store: f.root, Session: "talk", Op: "append", Role: "user", Head: true, PredecessorHead: true, Text: "one more"})
	f.last = a.ID
}

func (f *foreign) rewrite() {
	f.p.Do(harness.ForeignRequest{Store: f.root, Session: "talk", Op: "rewrite", ID: "a2", Text: "a much longer second answer"})
}

// sameStamp puts a file in the place of a node's that differs from it in the
// text alone.
func (f *foreign) sameStamp(id, old, text string) {
	path := f.file(id)
	fi, err := os.Stat(path)
	f.must(err)
	b, err := os.ReadFile(path)
	f.must(err)
	tmp := path + ".tmp"
	f.must(os.WriteFile(tmp, []byte(strings.Replace(string(b), old, text, 1)), 0o600))
	f.must(os.Chtimes(tmp, fi.ModTime(), fi.ModTime()))
	f.must(os.Rename(tmp, path))
	if now, err := os.Stat(path); err != nil || now.Size() != fi.Size() || !now.ModTime().Equal(fi.ModTime()) {
		f.t.Fatalf("size or time differ: %v", err)
	}
}

func (f *foreign) file(id string) string {
	found, err := filepath.Glob(filepath.Join(f.root, "talk", "history", "*-"+id+".json"))
	f.must(err)
	if len(found) != 1 {
		f.t.Fatalf("%d files of %s", len(found), id)
	}
	return found[0]
}

func (f *foreign) remove() { f.must(os.Remove(f.file("a3"))) }

// arrive puts a whole session in place, as a copy by hand does.
func (f *foreign) arrive() {
	tmp := filepath.Join(f.t.TempDir(), "copy")
	storetest.Build(f.t, tmp, "session newcomer title=New\nuser n1 hello\ncommit turn\n")
	f.must(os.CopyFS(filepath.Join(f.root, ".newcomer"), os.DirFS(filepath.Join(tmp, "newcomer"))))
	f.must(os.Rename(filepath.Join(f.root, ".newcomer"), filepath.Join(f.root, "newcomer")))
}

func (f *foreign) git(words ...string) {
	cmd := exec.Command("git", append([]string{"-C", filepath.Join(f.root, "talk"), "-c", "user.name=x", "-c", "user.email=x@example.org"}, words...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("git %q: %v: %s", words, err, out)
	}
}

// show is everything that a mount shows, by path: what a directory lists,
// where a link points, size and text of a file. It leaves out what tells of the
// mount itself, and times, which follow when a mount noticed a change.
func (m *mounted) show(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(m.dir, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(m.dir, path)
		switch {
		case err != nil:
			out[name] = err.Error() // it went while it was looked at
			return nil
		case name == ".sessionfs":
			return fs.SkipDir
		}
		out[name] = look(path, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func look(path string, e fs.DirEntry) string {
	switch {
	case e.IsDir():
		return "directory"
	case e.Type() == fs.ModeSymlink:
		to, err := os.Readlink(path)
		return fmt.Sprintf("-> %s %v", to, err)
	}
	fi, err := os.Lstat(path)
	if err != nil {
		return err.Error()
	}
	b, err := os.ReadFile(path)
	return fmt.Sprintf("%v %d bytes: %q %v", fi.Mode(), fi.Size(), b, err)
}

// miss asks for names that are not there and may come.
func (m *mounted) miss(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"sessions/newcomer", "archived/talk", "sessions/talk/messages/000005-user-00000000.md",
		"sessions/talk/fields/group", "sessions/talk/branch/other plan", "sessions/talk/nodes/0006-u-x.md", "sessions/talk/problems.txt",
	} {
		for range 2 {
			_, err := os.Lstat(filepath.Join(m.dir, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// agree waits until the mount shows what a new one does; before is what it
// showed before the change.
func (m *mounted) agree(t *testing.T, what string, before map[string]string) {
	t.Helper()
	fresh := mount(t, m.store, m.readOnly)
	defer fresh.p.Close()
	var diff string
	if harness.Wait(harness.Slow(5*time.Second), func() bool {
		want := fresh.show(t)
		// By their paths first: a listing brings the names in it along.
		if diff = m.byName(before, want); diff == "" {
			diff = differs(m.show(t), want)
		}
		return diff == ""
	}) {
		return
	}
	t.Errorf("after %s: %s", what, diff)
}

// byName looks, by path, for what came and for what went.
func (m *mounted) byName(before, want map[string]string) string {
	for path := range want {
		if _, ok := before[path]; !ok {
			if _, err := os.Lstat(filepath.Join(m.dir, path)); err != nil {
				return err.Error()
			}
		}
	}
	for path, was := range before {
		if _, ok := want[path]; ok || was == "directory" || strings.HasPrefix(was, "->") {
			continue
		}
		if b, err := os.ReadFile(filepath.Join(m.dir, path)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("%s has gone, and reads %q, %v", path, b, err)
		}
	}
	return ""
}

// differs names the first few paths at which two mounts differ.
func differs(got, want map[string]string) string {
	var out []string
	for path, w := range want {
		if g, ok := got[path]; g != w {
			out = append(out, fmt.Sprintf("%s is %.200s (there: %v), want %.200s", path, g, ok, w))
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok {
			out = append(out, path+" is there")
		}
	}
	return strings.Join(out[:min(len(out), 5)], "\n\t")
}
