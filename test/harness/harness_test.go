package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	os.Exit(Main(m, map[string]Role{"echo": func([]string) int { return Serve(func(s string) string { return s + "!" }) }}))
}

// TestExtract: modes, times and symlinks are kept, the placeholder is filled.
func TestExtract(t *testing.T) {
	root := Golden(t, "nested_projects")
	locations, err := os.ReadFile(filepath.Join(root, "locations.json"))
	if err != nil || strings.Contains(string(locations), placeholder) || !strings.Contains(string(locations), root+"/projects/") {
		t.Errorf("locations.json: %s, %v", locations, err)
	}
	broken := Golden(t, "broken_layout")
	if to, err := os.Readlink(filepath.Join(broken, "local_deadlink")); err != nil || to != "/home/user/not-there" {
		t.Errorf("the dangling link: %q, %v", to, err)
	}
	st, err := os.Stat(filepath.Join(broken, "local_ok_6eb34978", "meta.json"))
	if err != nil || st.Mode().Perm() != 0o600 || st.ModTime().Year() != 2026 || time.Since(st.ModTime()).Abs() < time.Minute {
		t.Errorf("meta.json: %v %v, %v", st.Mode(), st.ModTime(), err)
	}
	dir, err := os.Stat(filepath.Join(broken, "local_ok_6eb34978", "history"))
	if err != nil || time.Since(dir.ModTime()).Abs() < time.Minute {
		t.Errorf("history/: %v, %v", dir.ModTime(), err)
	}
	if _, err := Extract(filepath.Join(root, "index.json"), t.TempDir()); err == nil {
		t.Error("a file that is no archive is extracted")
	}
}

// TestLeftovers: a process of this run that is still there is found, and
// ended; one of anybody else is not.
func TestLeftovers(t *testing.T) {
	mine, other := exec.Command("sleep", "60"), exec.Command("sleep", "60")
	mine.Env = Environ(t.TempDir())
	for _, cmd := range []*exec.Cmd{mine, other} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = other.Wait() }()
	defer func() { _ = other.Process.Kill() }()
	var found []string
	if !Wait(5*time.Second, func() bool { found = leftovers(run.base); return len(found) > 0 }) || len(found) != 1 || !strings.Contains(found[0], "sleep 60") {
		t.Errorf("left over: %q", found)
	}
	if err := mine.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process of this run ended with %v", err)
	}
}

// TestMountTable: the kernel's escapes.
func TestMountTable(t *testing.T) {
	for in, want := range map[string]string{`/a\040b\134c`: `/a b\c`, `/plain`: `/plain`, `/x\04`: `/x\04`} {
		if got := unescapeMount(in); got != want {
			t.Errorf("unescapeMount(%q) = %q, want %q", in, got, want)
		}
	}
	if !slices.ContainsFunc(mountpoints(), func(m mountEntry) bool { return m.dir == "/proc" && m.fstype == "proc" }) {
		t.Errorf("/proc is not in %v", mountpoints())
	}
}

// TestForeignProtocol: what the foreign writer leaves is what the peer does.
func TestForeignProtocol(t *testing.T) {
	root := Golden(t, "chat_linear")
	const id = "local_short_dae0373c"
	f := NewForeign(t)
	a := f.Do(ForeignRequest{Store: root, Session: id, Op: "append", Role: "user", Head: true, PredecessorHead: true, Text: "a <b> & c ☂"})
	node, err := os.ReadFile(filepath.Join(root, id, "history", a.Stem+".json"))
	if err != nil || !strings.Contains(string(node), `"output": "a <b> & c ☂"`) || !strings.Contains(string(node), `"predecessor": "dfb2066dd481"`) || a.Stem != "0006-u-"+a.ID {
		t.Errorf("the node %s is %s, %v", a.Stem, node, err)
	}
	meta, err := os.ReadFile(filepath.Join(root, id, "meta.json"))
	if err != nil || !strings.Contains(string(meta), `"head_id": "`+a.ID+`"`) || !strings.HasPrefix(string(meta), `{"id": "`+id+`", `) {
		t.Errorf("meta.json is %s, %v", meta, err)
	}
	f.Do(ForeignRequest{Store: root, Session: id, Op: "lock"})
	f.Do(ForeignRequest{Store: root, Session: id, Op: "unlock"})
}

// TestSpawn: a role answers line by line.
func TestSpawn(t *testing.T) {
	p := Spawn(t, "echo")
	for _, s := range []string{"a", "two\nlines", ""} {
		var got string
		if err := p.Call(s, &got); err != nil || got != s+"!" {
			t.Errorf("Call(%q) = %q, %v", s, got, err)
		}
	}
}
