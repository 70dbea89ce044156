package mounted

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// target is a place to move the head to.
type target struct {
	ID, Stem string
	Branch   string // the name in branch/, "" for a node that is no tip
}

// gesture is one way to move the head, as system calls.
type gesture struct {
	name string
	move func(session string, to target) error
}

// gestures are the five ways of the contract.
var gestures = []gesture{
	{"write head_id", func(s string, to target) error { return put(filepath.Join(s, "head_id"), to.ID+"\n") }},
	{"write head", func(s string, to target) error { return put(filepath.Join(s, "head"), to.ID+"\n") }},
	{"rename", func(s string, to target) error {
		return os.Rename(filepath.Join(s, "nodes", to.Stem+".md"), filepath.Join(s, "head"))
	}},
	{"ln -sfn node", func(s string, to target) error { return relink(s, "nodes/"+to.Stem+".md") }},
	{"ln -sfn branch", func(s string, to target) error { return relink(s, "branch/"+to.Branch) }},
}

// relink is `ln -sfn`: a new link under a name of its own, renamed over head.
func relink(session, to string) error {
	tmp := filepath.Join(session, fmt.Sprintf("Cu%06x", rand.Uint32()&0xffffff))
	if err := os.Symlink(to, tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(session, "head")); err != nil {
		_ = os.Remove(tmp) // as ln does
		return err
	}
	return nil
}

// rounds is how often each gesture is made: SESSIONFS_ROUNDS, or the default.
func rounds(t testing.TB, usual int) int {
	t.Helper()
	if s := os.Getenv("SESSIONFS_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("SESSIONFS_ROUNDS: %v", err)
		}
		return n
	}
	if testing.Short() {
		return usual / 20
	}
	return usual
}

// targets are the tips of the nested session with their names in branch/.
func targets(t testing.TB, m *harness.Mount) []target {
	t.Helper()
	nodes := storedNodes(t, m, nested)
	return []target{
		{tipTrunk, nodes[tipTrunk].Stem, "trunk"},
		{tipDetour, nodes[tipDetour].Stem, "détour ☂"},
		{tipSame, nodes[tipSame].Stem, "same name~" + tipSame},
	}
}

// TestOneDoor makes every gesture many times and looks, in the very next
// system call, from the mover's process and from another one.
func TestOneDoor(t *testing.T) {
	m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Plain: true, Limit: 9 * time.Minute})
	oneDoor(t, m, rounds(t, 2000))
}

// TestOneDoorBusy is TestOneDoor with eight readers and two walkers that keep
// every cache of the kernel warm and requests in flight.
func TestOneDoorBusy(t *testing.T) {
	m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Limit: 9 * time.Minute})
	for i := range 10 {
		dir := m.Session(nested)
		if i%5 == 4 {
			dir = m.Dir // ls -lR of everything
		}
		harness.Spawn(t, "read", dir)
	}
	n := 2000
	if harness.Race() {
		n = 60 // ten times slower; SESSIONFS_ROUNDS=2000 makes them all
	}
	oneDoor(t, m, rounds(t, n))
}

func oneDoor(t *testing.T, m *harness.Mount, n int) {
	t.Helper()
	to := targets(t, m)
	var heads []string
	for _, x := range to {
		heads = append(heads, x.ID)
	}
	want := learn(t, m, nested, heads)
	other := harness.Spawn(t, "look")
	for _, g := range gestures {
		begin, wrong := time.Now(), 0
		for i := range n {
			x := to[i%len(to)]
			if err := g.move(m.Session(nested), x); err != nil {
				t.Fatalf("%s to %s, round %d: %v", g.name, x.ID, i, err)
			}
			// Half of the rounds the other process looks first.
			if d := lookBoth(t, other, m.Session(nested), want[x.ID], i%2 == 0); d != "" {
				t.Errorf("%s to %s, round %d: %s", g.name, x.ID, i, d)
				if wrong++; wrong > 5 {
					t.Fatal("too many wrong looks")
				}
			}
		}
		t.Logf("%s: %d rounds, %d wrong, %v a round", g.name, n, wrong, (time.Since(begin) / time.Duration(n)).Round(time.Microsecond))
	}
}

func lookBoth(t testing.TB, other *harness.Process, session string, want view, otherFirst bool) string {
	t.Helper()
	var theirs, ours view
	if !otherFirst {
		ours = look(session)
	}
	if err := other.Call(session, &theirs); err != nil {
		t.Fatal(err)
	}
	if otherFirst {
		ours = look(session)
	}
	out := []string{}
	if d := ours.differs(want); d != "" {
		out = append(out, "the mover sees: "+d)
	}
	if d := theirs.differs(want); d != "" {
		out = append(out, "another process sees: "+d)
	}
	return strings.Join(out, "; ")
}

// doorScript moves the head with the tools that people use, and looks with
// them. $1 is the session, then come pairs of a node's stem and a branch.
const doorScript = `
set -eu
cd "$1"; shift
rounds=$1; shift
check() { # $1 id, $2 stem, $3 how
	a=$(readlink head); b=$(cat head_id); c=$(sed 's/.*"head_id": "\([^"]*\)".*/\1/' meta.json)
	d=$(ls messages | tail -n 1); n=$(ls messages | wc -l)
	e=$(tail -n 1 "messages/$d"); f=$(tail -n 1 head); g=$(grep -cF -- "$f" transcript.md || true)
	[ "$a" = "nodes/$2.md" ] && [ "$b" = "$1" ] && [ "$c" = "$1" ] && [ "$e" = "$f" ] && [ "$g" -ge 1 ] || {
		echo "WRONG after $3 to $1: readlink=$a head_id=$b meta=$c last=$d ($n) [$e] [$f] in transcript $g"; exit 1; }
}
while [ "$rounds" -gt 0 ]; do
	rounds=$((rounds - 1))
	for x in "$@"; do
		id=${x%%,*}; rest=${x#*,}; stem=${rest%%,*}; branch=${rest#*,}
		echo "$id" > head_id;                 check "$id" "$stem" 'echo > head_id'
	done
	for x in "$@"; do
		id=${x%%,*}; rest=${x#*,}; stem=${rest%%,*}; branch=${rest#*,}
		echo "$id" > head;                    check "$id" "$stem" 'echo > head'
	done
	for x in "$@"; do
		id=${x%%,*}; rest=${x#*,}; stem=${rest%%,*}; branch=${rest#*,}
		mv "nodes/$stem.md" head;             check "$id" "$stem" 'mv'
	done
	for x in "$@"; do
		id=${x%%,*}; rest=${x#*,}; stem=${rest%%,*}; branch=${rest#*,}
		ln -sfn "nodes/$stem.md" head;        check "$id" "$stem" 'ln -sfn node'
	done
	for x in "$@"; do
		id=${x%%,*}; rest=${x#*,}; stem=${rest%%,*}; branch=${rest#*,}
		ln -sfn "branch/$branch" head;        check "$id" "$stem" 'ln -sfn branch'
	done
done
`

// TestOneDoorShell makes the gestures with echo, mv and ln, and looks with
// readlink, cat, ls and grep: every look is another process.
func TestOneDoorShell(t *testing.T) {
	m := start(t, "chat_branches")
	args := []string{m.Session(nested), strconv.Itoa(rounds(t, 20))}
	for _, x := range targets(t, m) {
		args = append(args, x.ID+","+x.Stem+","+x.Branch)
	}
	if r := harness.Shell(t, m.Dir, doorScript, args...); r.Code != 0 {
		t.Fatalf("exit status %d: %s %s", r.Code, r.Out, r.Err)
	}
}

// TestRefsAndTargets: what a head may be called, and what is no name of one.
func TestRefsAndTargets(t *testing.T) {
	m := start(t, "chat_branches")
	nodes := storedNodes(t, m, nested)
	chain := chainOf(nodes, tipTrunk)
	parent := chain[len(chain)-2].ID
	s := m.Session(nested)
	for _, c := range []struct{ ref, want string }{
		{tipDetour, tipDetour}, {"trunk", tipTrunk}, {"détour ☂", tipDetour}, {tipTrunk[:6], tipTrunk},
		{"trunk~1", parent}, {tipTrunk, tipTrunk}, {tipTrunk[:4] + "~1", parent},
	} {
		if err := put(filepath.Join(s, "head_id"), c.ref+"\n"); err != nil {
			t.Errorf("head_id = %q: %v", c.ref, err)
		} else if got := read(t, s, "head_id"); got != c.want+"\n" {
			t.Errorf("head_id = %q gives %q, want %s", c.ref, got, c.want)
		}
	}
	if err := put(filepath.Join(s, "head_id"), tipDetour); err != nil { // printf without a newline
		t.Errorf("an exact id without a newline: %v", err)
	}
	for _, link := range []string{"./nodes/" + nodes[tipTrunk].Stem + ".md", "branch/../nodes/" + nodes[tipTrunk].Stem + ".md"} {
		if err := relink(s, link); err != nil {
			t.Errorf("ln -sfn %s: %v", link, err)
		}
	}
	// A write of the value in two halves is one value; a prefix of an id in
	// mid-value is never acted on.
	f, err := os.OpenFile(filepath.Join(s, "head_id"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, half := range []string{tipDetour[:6], tipDetour[6:] + "\n"} {
		if _, err := f.WriteString(half); err != nil {
			t.Errorf("half a value: %v", err)
		}
		if i == 0 && read(t, s, "head_id") != tipTrunk+"\n" {
			t.Error("half an id moved the head")
		}
	}
	if err := f.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if got := read(t, s, "head_id"); got != tipDetour+"\n" {
		t.Errorf("a value in two writes gives %q", got)
	}
}
