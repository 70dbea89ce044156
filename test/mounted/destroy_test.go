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

// TestRemoveAll: what an ignoring tool does to a whole mount leaves every
// session's conversation in place.
func TestRemoveAll(t *testing.T) {
	m := start(t, "chat_branches")
	count := func() map[string]int {
		out := map[string]int{}
		for _, id := range names(t, m.Path("sessions")) {
			out[id] = len(names(t, m.Session(id, "nodes")))
		}
		return out
	}
	before := count()
	for _, script := range []string{`rm -rf sessions archived`, `find . -delete`, `rmdir sessions/* archived/*`} {
		harness.Shell(t, m.Dir, script)
	}
	after := count()
	for id, n := range before {
		if after[id] != n {
			t.Errorf("%s has %d nodes, had %d", id, after[id], n)
		}
	}
}

// TestDamaged: each kind of damage costs what is damaged and nothing else.
func TestDamaged(t *testing.T) {
	m := harness.Start(t, harness.Options{Store: harness.Golden(t, "broken_layout"), Warnings: []string{"WARN"}})
	listed := names(t, m.Path("sessions"))
	for _, id := range listed {
		harness.Shell(t, m.Session(id), `ls -lR . > /dev/null 2>&1; cat meta.json problems.txt > /dev/null 2>&1`)
	}
	good := func(id string) {
		t.Helper()
		s := m.Session(id)
		if err := put(filepath.Join(s, "append", "user"), "still here\n"); err != nil {
			t.Errorf("append to %s: %v", id, err)
		}
		if got := read(t, s, "head"); got != "still here\n" {
			t.Errorf("head of %s is %q", id, got)
		}
	}
	good("local_ok_6eb34978")
	good("local_nohist_a4a815c6") // restored from Git
	for id, readable := range map[string][]string{
		"local_badmeta_0a450bc3": {"history", "problems.txt", "nodes"},
		"local_nogit_8dd3a602":   {"history", "problems.txt", "meta.json"},
		"local_nohist_a4a815c6":  {"history", "problems.txt", "nodes", "messages", "transcript.md"},
		"local_otherid_d074a4fe": {"history", "nodes"},
	} {
		for _, name := range readable {
			if r := harness.Shell(t, m.Session(id), `cat "$1"/* 2>/dev/null || cat "$1"`, name); r.Code != 0 || r.Out == "" {
				t.Errorf("%s/%s: exit status %d, %q, %s", id, name, r.Code, r.Out, r.Err)
			}
		}
	}
	for what, err := range map[string]error{
		"append without .git":  put(m.Session("local_nogit_8dd3a602", "append", "user"), "x\n"),
		"head_id without .git": put(m.Session("local_nogit_8dd3a602", "head_id"), "cdd9db5bded5\n"),
		"append to a symlink":  put(m.Session("local_link", "append", "user"), "x\n"),
	} {
		if err == nil {
			t.Errorf("%s succeeds", what)
		}
	}
	for _, absent := range []string{"local_deadlink", "just_a_dir", "stray.txt", "row_without_dir"} {
		if slices.Contains(listed, absent) {
			t.Errorf("%s is listed", absent)
		}
		if _, err := os.Lstat(m.Session(absent)); err == nil {
			t.Errorf("%s is found", absent)
		}
	}
}

// TestDamagedNodes: a node that cannot be read appears in history/ and in
// problems.txt only; a chain that breaks fails what shows the branch.
func TestDamagedNodes(t *testing.T) {
	m := harness.Start(t, harness.Options{Store: harness.Golden(t, "broken_nodes"), Warnings: []string{"WARN"}})
	const cut, broken = "local_cut_f67610f8", "local_nopred_4d4631ff"
	s := m.Session(cut)
	if history, nodes := len(names(t, s, "history")), len(names(t, s, "nodes")); history != 8 || nodes != 7 {
		t.Errorf("history/ has %d files and nodes/ %d, want 8 and 7", history, nodes)
	}
	if got := read(t, s, "problems.txt"); !strings.Contains(got, "history/") || strings.Count(got, "\n") < 1 {
		t.Errorf("problems.txt is %q", got)
	}
	for _, stem := range names(t, s, "history") {
		if got, want := read(t, s, "history", stem), read(t, m.Repo(cut, "history", stem)); got != want {
			t.Errorf("history/%s is not the file's bytes", stem)
		}
	}
	b := m.Session(broken)
	_, err := os.ReadDir(filepath.Join(b, "messages"))
	refused(t, m, "ls messages of a broken chain", err, syscall.EIO, "corrupt")
	_, err = os.ReadFile(filepath.Join(b, "transcript.md"))
	refused(t, m, "transcript.md of a broken chain", err, syscall.EIO, "corrupt")
	if got := len(names(t, b, "nodes")); got != 8 {
		t.Errorf("nodes/ of a broken chain has %d entries", got)
	}
	for _, name := range names(t, b, "nodes") {
		read(t, b, "nodes", name)
	}
	read(t, b, "head_id")
	read(t, b, "meta.json")
	read(t, b, "problems.txt")
	for _, id := range names(t, m.Path("sessions")) { // loops end
		harness.Shell(t, m.Session(id), `ls -lR . > /dev/null; cat transcript.md problems.txt > /dev/null`)
	}
	good := m.Session("local_extra_2df7d465")
	if err := put(filepath.Join(good, "append", "user"), "beside damage\n"); err != nil {
		t.Errorf("append in a good session beside them: %v", err)
	}
	// Damage that comes while mounted, and goes again.
	victim := filepath.Join(m.Repo("local_extra_2df7d465", "history"), names(t, good, "history")[0])
	text := read(t, victim)
	replaceFile(t, victim, text[:len(text)/2])
	if !harness.Wait(harness.Slow(2e9), func() bool { _, err := os.Lstat(filepath.Join(good, "problems.txt")); return err == nil }) {
		t.Error("new damage is not reported")
	}
	replaceFile(t, victim, text)
	if !harness.Wait(harness.Slow(2e9), func() bool {
		return !strings.Contains(readSoft(filepath.Join(good, "problems.txt")), filepath.Base(victim))
	}) {
		t.Error("damage that was mended is still reported")
	}
}

func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	tmp := path + ".0123456789abcdef0123456789abcdef.tmp"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatal(err)
	}
}

func readSoft(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}
