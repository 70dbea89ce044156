package mounted

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestFields: a field is a file with its value; writing it changes meta.json
// and the registry, and nothing else.
func TestFields(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	for _, c := range []struct{ field, write, want, meta string }{
		{"title", "A new title\n", "A new title\n", `"title": "A new title"`},
		{"title", "détour ☂ \"quoted\" \\ back\n", "détour ☂ \"quoted\" \\ back\n", `"title": "détour ☂ \"quoted\" \\ back"`},
		{"pinned", "yes\n", "true\n", `"pinned": true`},
		{"pinned", "0\n", "false\n", `"pinned": false`},
		{"unread", "1", "true\n", `"unread": true`},
		{"group", "kitchen\n", "kitchen\n", `"group": "kitchen"`},
		{"status", "done\n", "done\n", `"status": "done"`},
		{"status", "idle\n", "idle\n", `"status": "idle"`},
	} {
		path := filepath.Join(s, "fields", c.field)
		if err := put(path, c.write); err != nil {
			t.Errorf("%s = %q: %v", c.field, c.write, err)
			continue
		}
		if got := read(t, path); got != c.want {
			t.Errorf("%s = %q reads %q, want %q", c.field, c.write, got, c.want)
		}
		if st, err := os.Stat(path); err != nil || st.Size() != int64(len(c.want)) {
			t.Errorf("%s: size %d, %v; want %d", c.field, st.Size(), err, len(c.want))
		}
		for _, meta := range []string{read(t, s, "meta.json"), read(t, m.Repo(nested, "meta.json"))} {
			if !strings.Contains(meta, c.meta) {
				t.Errorf("%s = %q: meta.json has no %s: %.300s", c.field, c.write, c.meta, meta)
			}
		}
		if c.field == "title" && !strings.Contains(read(t, m.Path("index.json")), c.meta) {
			t.Errorf("index.json lacks %s", c.meta)
		}
	}
	if !strings.Contains(read(t, m.Repo(nested, "meta.json")), `"_user_titled": true`) {
		t.Error("a title that the user set is not marked as such")
	}
	for _, name := range names(t, s, "fields") {
		if strings.HasPrefix(name, "_") {
			t.Errorf("fields/ shows the internal marker %s", name)
		}
	}
	for _, fixed := range []string{"id", "created_at", "updated_at", "agent_id"} {
		if err := put(filepath.Join(s, "fields", fixed), "x\n"); err == nil {
			t.Errorf("fields/%s was written", fixed)
		}
	}
}

// TestArchive: an archived session moves between the two listings at once.
func TestArchive(t *testing.T) {
	m := start(t, "chat_branches")
	if err := put(m.Session(nested, "fields", "archived"), "true\n"); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(names(t, m.Path("sessions")), nested) || !slices.Contains(names(t, m.Path("archived")), nested) {
		t.Errorf("sessions/ has %v, archived/ has %v", names(t, m.Path("sessions")), names(t, m.Path("archived")))
	}
	if _, err := os.Stat(m.Session(nested)); err == nil {
		t.Error("an archived session is still found in sessions/")
	}
	if err := put(m.Path("archived", nested, "fields", "archived"), "false\n"); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(names(t, m.Path("sessions")), nested) || slices.Contains(names(t, m.Path("archived")), nested) {
		t.Error("unarchiving does not bring it back")
	}
	read(t, m.Session(nested, "transcript.md"))
}

// TestMakeAndRemove: mkdir makes a session that can be used at once, and
// rmdir takes away an empty one and nothing else.
func TestMakeAndRemove(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session("fresh-1")
	if err := os.Mkdir(s, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"head", "head_id"} {
		_, err := os.Lstat(filepath.Join(s, name))
		t.Logf("%s of a new session: %v", name, err)
	}
	if got := names(t, s, "messages"); len(got) != 0 {
		t.Errorf("messages of a new session: %v", got)
	}
	if err := os.Mkdir(s, 0o700); !os.IsExist(err) {
		t.Errorf("mkdir of it again: %v", err)
	}
	if err := syscall.Rmdir(s); err != nil {
		t.Errorf("rmdir of an empty session: %v", err)
	}
	if _, err := os.Stat(s); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	if err := os.Mkdir(s, 0o700); err != nil {
		t.Errorf("mkdir after rmdir: the id is not burnt: %v", err)
	}
	if err := put(filepath.Join(s, "append", "user"), "first words\n"); err != nil {
		t.Fatal(err)
	}
	list := names(t, s, "messages")
	if len(list) != 1 || !strings.HasPrefix(list[0], "000001-user-") || read(t, s, "messages", list[0]) != "first words\n" {
		t.Errorf("messages after the first one: %v", list)
	}
	if err := put(filepath.Join(s, "append", "assistant"), "an answer\n"); err != nil {
		t.Fatal(err)
	}
	refused(t, m, "rmdir of a session with messages", syscall.Rmdir(s), syscall.ENOTEMPTY, "not_empty")
	if r := harness.Shell(t, m.Repo("fresh-1"), "git status --porcelain && git fsck --strict && git log --oneline | wc -l"); r.Code != 0 || r.Err != "" {
		t.Errorf("the repository: %s %s", r.Out, r.Err)
	} else if strings.TrimSpace(r.Out) == "" || strings.Contains(r.Out, "??") || strings.Contains(r.Out, " M ") {
		t.Errorf("git status after append/assistant: %q", r.Out)
	}
}

// TestBranchDirectories: each branch root to tip, the same file names as in
// messages/, each a link to its node.
func TestBranchDirectories(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	nodes := storedNodes(t, m, nested)
	for _, x := range targets(t, m) {
		var want []string
		for i, n := range chainOf(nodes, x.ID) {
			want = append(want, messageName(i+1, n))
		}
		if got := names(t, s, "branch", x.Branch); !slices.Equal(got, want) {
			t.Errorf("branch/%s is %v, want %v", x.Branch, got, want)
		}
		for i, n := range chainOf(nodes, x.ID) {
			path := filepath.Join(s, "branch", x.Branch, messageName(i+1, n))
			if to, err := os.Readlink(path); err != nil || to != "../../nodes/"+n.Stem+".md" {
				t.Errorf("%s -> %s, %v", path, to, err)
			}
			if read(t, path) != textOf(n) {
				t.Errorf("%s is not the node's text", path)
			}
		}
	}
	for id, n := range nodes {
		if got, want := read(t, s, "history", n.Stem+".json"), read(t, m.Repo(nested, "history", n.Stem+".json")); got != want {
			t.Errorf("history/ of %s is not the file's bytes", id)
		}
		if got := read(t, s, "nodes", n.Stem+".md"); n.Role != "code" && got != textOf(n) {
			t.Errorf("nodes/ of %s is %.60q, want %.60q", id, got, textOf(n))
		}
	}
}

// TestCommit: ctl commit leaves a clean work tree.
func TestCommit(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	if err := put(filepath.Join(s, "append", "user"), "to be committed\n"); err != nil {
		t.Fatal(err)
	}
	if err := put(filepath.Join(s, "ctl"), "commit a message of my own\n"); err != nil {
		t.Fatal(err)
	}
	r := harness.Shell(t, m.Repo(nested), "git status --porcelain; git fsck --strict; git log -1 --format=%s")
	if r.Out != "a message of my own\n" || r.Err != "" {
		t.Errorf("git says %q %q", r.Out, r.Err)
	}
	if got := read(t, s, "ctl"); !strings.Contains(got, "ok") {
		t.Errorf("ctl reads %q", got)
	}
}
