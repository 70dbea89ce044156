package requests

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store/storetest"
)

// The store of these tests: sessions of messages, each a conversation of one
// branch with one commit.
const (
	sessions = 12
	messages = 10
)

func build(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for s := range sessions {
		fmt.Fprintf(&text, "session s%02d title=T%02d\n", s, s)
		for m := range messages {
			role := "user"
			if m%2 == 1 {
				role = "llm"
			}
			fmt.Fprintf(&text, "%s %s words\n", role, node(s, m))
		}
		text.WriteString("commit turn\n")
	}
	root := filepath.Join(t.TempDir(), "sessions")
	storetest.Build(t, root, text.String())
	// Half of them lack the directories of real files.
	for s := 0; s < sessions; s += 2 {
		for _, d := range []string{"workdir", "context"} {
			if err := os.RemoveAll(filepath.Join(root, fmt.Sprintf("s%02d", s), d)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

// node is the id of a message.
func node(session, message int) string { return fmt.Sprintf("%06x%06x", session, message) }

// run runs a tool, whose output is of no interest; grep that finds nothing is
// no error.
func run(t *testing.T, words ...string) {
	t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	out, err := cmd.CombinedOutput()
	if e, ok := err.(*exec.ExitError); ok && words[0] == "grep" && e.ExitCode() == 1 {
		err = nil
	}
	if err != nil {
		t.Errorf("%q: %v: %s", words, err, out)
	}
}

func (m *mounted) walk() []string { return []string{"find", m.dir} }

// size counts the directories and the entries of what walk sees.
func (m *mounted) size() (dirs, entries int) {
	m.t.Helper()
	err := filepath.WalkDir(m.dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		entries++
		if e.IsDir() {
			dirs++
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return dirs, entries
}

func (m *mounted) messageDirs() (dirs []string) {
	for s := range sessions {
		dirs = append(dirs, filepath.Join(m.dir, "sessions", fmt.Sprintf("s%02d", s), "messages"))
	}
	return dirs
}

// tool is a program that runs over the mount three times.
type tool struct {
	name  string
	words func(m *mounted) []string
	dirs  int // that it reads, or looks into on its way
	files int // that it reads
	seen  int // entries that it sees
	// rw and ro are what the kernel asks for in each pass, but for what
	// changes with the tool's version: ACCESS and STATFS.
	rw, ro [3]string
}

var tools = []tool{
	{
		name:  "ls -l",
		words: func(m *mounted) []string { return []string{"ls", "-l", filepath.Join(m.dir, "sessions")} },
		dirs:  2, seen: sessions,
		rw: [3]string{"GETXATTR=1 LOOKUP=1 OPENDIR=1 READDIRPLUS=2", "GETATTR=1", ""},
		ro: [3]string{"GETXATTR=1 LOOKUP=1 OPENDIR=1 READDIRPLUS=2", "", ""},
	},
	{
		name:  "find",
		words: (*mounted).walk,
		rw:    [3]string{"GETATTR=10 OPENDIR=1 READDIRPLUS=1050", "GETATTR=539", "GETATTR=8"},
		ro:    [3]string{"GETATTR=9 OPENDIR=1 READDIRPLUS=1050", "GETATTR=8", "GETATTR=8"},
	},
	{
		name:  "grep -r",
		words: func(m *mounted) []string { return append([]string{"grep", "-r", "nothing"}, m.messageDirs()...) },
		dirs:  2 + 2*sessions, files: messages * sessions, seen: (messages + 1) * sessions,
		rw: [3]string{"LOOKUP=25 OPEN=120 OPENDIR=1 READ=120 READDIRPLUS=24 RELEASE=120", "GETATTR=132 OPEN=120 RELEASE=120", "OPEN=120 RELEASE=120"},
		ro: [3]string{"FLUSH=1 LOOKUP=25 OPEN=1 OPENDIR=1 READ=120 READDIRPLUS=24", "", ""},
	},
	{
		name: "cat",
		words: func(m *mounted) []string {
			return []string{"cat", filepath.Join(m.dir, "sessions", "s00", "messages", "000001-user-"+node(0, 0)[:8]+".md")}
		},
		dirs: 4, files: 1, seen: 1,
		rw: [3]string{"LOOKUP=4 OPEN=1 READ=1 RELEASE=1", "GETATTR=1 OPEN=1 RELEASE=1", "OPEN=1 RELEASE=1"},
		ro: [3]string{"FLUSH=1 LOOKUP=4 OPEN=1 READ=1", "", ""},
	},
}

// once are requests that a mount refuses for ever with its first answer.
var once = []string{"OPENDIR", "GETXATTR"}

// TestPasses holds each tool to what its three passes may take, read-write and
// read-only, each on a mount of its own.
func TestPasses(t *testing.T) {
	root := build(t)
	for _, mode := range []struct {
		name     string
		readOnly bool
	}{{"read-write", false}, {"read-only", true}} {
		t.Run(mode.name, func(t *testing.T) {
			dirs, entries := mount(t, root, mode.readOnly).size()
			for _, c := range tools {
				t.Run(c.name, func(t *testing.T) {
					if c.seen == 0 {
						c.dirs, c.seen = dirs, entries
					}
					c.run(t, root, mode.readOnly)
				})
			}
		})
	}
}

// run compares the passes with the table. The kernel may drop what it keeps at
// any time, when it needs the memory; so what is not as it should be is looked
// at again.
func (c tool) run(t *testing.T, root string, readOnly bool) {
	want := c.rw
	if readOnly {
		want = c.ro
	}
	for try := 3; ; try-- {
		m := mount(t, root, readOnly)
		var got [3]string
		var p [3]counts
		for i := range p {
			p[i] = m.count(func() { run(t, c.words(m)...) })
			delete(p[i], "ACCESS")
			delete(p[i], "STATFS")
			got[i] = p[i].String()
		}
		if got != want && try > 1 {
			t.Logf("%q", got)
			continue
		}
		if got != want && knowsEpoch() {
			t.Errorf("the passes take\n%q, want\n%q", got, want)
		}
		c.bounds(t, readOnly, p[0], p[2])
		return
	}
}

// bounds holds the first and the third pass to what is promised.
func (c tool) bounds(t *testing.T, readOnly bool, first, third counts) {
	perFile := 4
	if readOnly {
		perFile = 1
	}
	for i, k := range []counts{first, third} {
		for _, op := range once {
			if most := 1 - i; k[op] > most {
				t.Errorf("%s is asked for %d times in pass %d", op, k[op], 1+2*i)
			}
			delete(k, op)
		}
		if readOnly && k["OPEN"]+k["FLUSH"] > 2-2*i || readOnly && k["RELEASE"] > 0 {
			t.Errorf("pass %d of a read-only mount opens files: %s", 1+2*i, k)
		}
	}
	// Nobody tells of a project's name, or of what is put into failed/.
	asked := 2
	if c.name == "find" {
		asked = 10
	}
	if n := first.total(); n > 2*c.dirs+perFile*c.files+asked {
		t.Errorf("the first pass takes %d requests for %d directories and %d files: %s", n, c.dirs, c.files, first)
	}
	if !readOnly && c.files > 0 {
		if third.total() > 2*c.files || third["OPEN"] != third.total()-third["RELEASE"] {
			t.Errorf("the third pass takes more than an open and a release for each file: %s", third)
		}
		return
	}
	if n := third.total(); n*100 > c.seen {
		t.Errorf("the third pass takes %d requests for %d entries: %s", n, c.seen, third)
	}
}

// knowsEpoch reports whether the kernel can be told to ask for all names
// again, which lets it keep more of them.
func knowsEpoch() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major > 6 || major == 6 && minor >= 16)
}

// TestAMoveByWriting counts `echo <id> > head_id`.
func TestAMoveByWriting(t *testing.T) {
	m := mount(t, build(t), false)
	s := filepath.Join(m.dir, "sessions", "s00")
	for i := range 3 {
		for range 2 {
			run(t, "ls", "-l", s)
		}
		echo := m.count(func() { run(t, "sh", "-c", "echo "+node(0, 5-i)+" > "+s+"/head_id") })
		// A shell closes its own descriptor and the copy that echo writes to.
		if want := "FLUSH=2 OPEN=1 RELEASE=1 WRITE=1"; echo.String() != want {
			t.Errorf("echo > head_id takes %s, want %s", echo, want)
		}
		target, err := os.Readlink(filepath.Join(s, "head"))
		if err != nil || !strings.Contains(target, node(0, 5-i)) {
			t.Errorf("head points to %q, %v", target, err)
		}
	}
}

// TestAMoveByRenaming counts `mv nodes/<n> head`. The kernel asks for names
// anew afterwards, and then no more.
func TestAMoveByRenaming(t *testing.T) {
	m := mount(t, build(t), false)
	s := filepath.Join(m.dir, "sessions", "s00")
	run(t, "ls", "-l", s, s+"/nodes")
	nodes, err := filepath.Glob(filepath.Join(s, "nodes", "*"))
	if err != nil || len(nodes) != messages {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}
	for i := range 3 {
		mv := m.count(func() { run(t, "mv", nodes[i], s+"/head") })
		delete(mv, "ACCESS")
		if mv["RENAME"] != 1 || mv.total() > 12 {
			t.Errorf("mv takes %d requests: %s", mv.total(), mv)
		}
		var p [3]counts
		for i := range p {
			p[i] = m.count(func() { run(t, "ls", "-l", s+"/nodes") })
		}
		if p[0].total() > 2+2+messages || p[2].total() != 0 {
			t.Errorf("after a move ls -l nodes takes %s, then %s, then %s", p[0], p[1], p[2])
		}
	}
}
