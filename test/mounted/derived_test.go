package mounted

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// derivedWrong compares what follows from a session's state with that state,
// read in the plain places, and says what is wrong.
func derivedWrong(t *testing.T, m *harness.Mount, id string) string {
	t.Helper()
	dir := m.Session(id)
	head := strings.TrimSpace(read(t, dir, "head_id"))
	title := strings.TrimSpace(read(t, dir, "fields", "title"))
	if title == "" {
		title = "untitled"
	}
	nodes := storedNodes(t, m, id)
	var want []string
	for node := range nodes {
		want = append(want, node)
	}
	slices.Sort(want)
	if got := names(t, dir, "dag"); !slices.Equal(sorted(got), want) {
		return fmt.Sprintf("dag has %d nodes, the store %d", len(got), len(want))
	}
	if lines := strings.Count(read(t, dir, "transcript.jsonl"), "\n"); lines != len(names(t, dir, "messages")) {
		return fmt.Sprintf("transcript.jsonl has %d lines for %d messages", lines, len(names(t, dir, "messages")))
	}
	if graph := read(t, dir, "graph.txt"); strings.Count(graph, "(HEAD") != 1 || !strings.Contains(graph, "* "+head+" (HEAD") {
		return "graph.txt does not show the head " + head + ":\n" + graph
	}
	if dot := read(t, dir, "graph.dot"); !strings.Contains(dot, head) {
		return "graph.dot lacks the head"
	}
	if text, err := os.ReadFile(filepath.Join(dir, "dag", head, "text")); err != nil || string(text) != read(t, dir, "head") {
		return fmt.Sprintf("dag/%s/text is not the head's: %v", head, err)
	}
	if !slices.Contains(names(t, m.Path("views", "title")), title+"~"+id[len(id)-8:]) {
		return "views/title lacks " + title
	}
	status := strings.TrimSpace(read(t, dir, "fields", "status"))
	if target, err := os.Readlink(m.Path("views", "status", status, id)); err != nil || target != "../../../sessions/"+id {
		return fmt.Sprintf("views/status/%s: %q, %v", status, target, err)
	}
	pinned := strings.TrimSpace(read(t, dir, "fields", "pinned")) == "true"
	if slices.Contains(names(t, m.Path("views", "pinned")), id) != pinned {
		return fmt.Sprintf("views/pinned; pinned is %v", pinned)
	}
	return ""
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// TestDerivedFollow: what follows from a session is right at the very next
// system call after each gesture of another process on the mount, while two
// processes keep every cache warm.
func TestDerivedFollow(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	for _, dir := range []string{"dag", ""} {
		harness.Spawn(t, "read", m.Session(nested, dir))
	}
	harness.Spawn(t, "read", m.Path("views"))
	gestures := []string{
		`echo ` + tipTrunk + ` > head_id`,
		`echo 'another message' > append/user`,
		`ln -sfn "branch/$(ls branch | tail -1)" head`,
		`echo "A new title %d" > fields/title`,
		`echo yes > fields/pinned`,
		`echo "name @ name %d" > ctl`,
		`echo "edit $(basename "$(ls messages | grep -m1 user)" .md | sed 's/.*-//') asked anew %d" > ctl`,
		`mkdir branch/made-%d`,
		`echo failed > fields/status`,
		`echo no > fields/pinned`,
		`echo idle > fields/status`,
		`echo "checkout name %d" > ctl`,
		`echo commit > ctl`,
	}
	for round := range 2 {
		for _, g := range gestures {
			script := strings.ReplaceAll(g, "%d", fmt.Sprint(round))
			if r := harness.Shell(t, s, script); r.Code != 0 {
				t.Fatalf("%s: %s", script, r.Err)
			}
			if wrong := derivedWrong(t, m, nested); wrong != "" {
				t.Errorf("round %d, after %s: %s", round, script, wrong)
			}
		}
	}
	if r := harness.Shell(t, m.Dir, `mv sessions/`+nested+` archived/ && [ ! -e views/status/idle/`+nested+` ] && ! ls views/title | grep -q `+nested[len(nested)-8:]); r.Code != 0 {
		t.Errorf("an archived session is in views/: %s", r.Err)
	}
}

// TestDerivedFollowOtherProcess: the same for what is done in the store,
// without the mount, by this program and by a writer of its own.
func TestDerivedFollowOtherProcess(t *testing.T) {
	m := start(t, "chat_branches")
	derivedWrong(t, m, nested) // every cache is warm
	follow := func(what string) {
		t.Helper()
		wrong := "?"
		if !harness.Wait(harness.Slow(2*time.Second), func() bool { wrong = derivedWrong(t, m, nested); return wrong == "" }) {
			t.Errorf("after %s: %s", what, wrong)
		}
	}
	commits := names(t, m.Session(nested, "commits"))
	foreign := harness.NewForeign(t)
	for i := range 5 {
		foreign.Do(harness.ForeignRequest{Store: m.Store, Session: nested, Op: "append", Role: "user", Head: true, PredecessorHead: true, Text: fmt.Sprint("foreign ", i)})
		follow("a foreign append")
		title, _ := json.Marshal(fmt.Sprint("foreign title ", i))
		foreign.Do(harness.ForeignRequest{Store: m.Store, Session: nested, Op: "meta", Key: "title", Value: string(title)})
		if !harness.Wait(harness.Slow(2*time.Second), func() bool {
			return slices.ContainsFunc(names(t, m.Path("views", "title")), func(n string) bool { return strings.HasPrefix(n, fmt.Sprint("foreign title ", i)) })
		}) {
			t.Errorf("views/title: %q", names(t, m.Path("views", "title")))
		}
	}
	if r := harness.CLI(t, m.Store, m.State, "commit", nested, "-m", "by hand"); r.Code != 0 {
		t.Fatal(r.Err)
	}
	after := names(t, m.Session(nested, "commits"))
	if len(after) != len(commits)+1 || !strings.Contains(read(t, m.Session(nested, "commits", after[len(after)-1])), "by hand") {
		t.Errorf("commits were %q, are %q", commits, after)
	}
}

// TestCommitTreesAreTheCommits: with -o commits=tree the last commit's
// directory is what git says, and nothing was checked out for it.
func TestCommitTreesAreTheCommits(t *testing.T) {
	m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Args: []string{"-o", "commits=tree"}})
	for _, script := range []string{
		`last=$(ls commits | tail -1); git -C "$1" archive HEAD | tar -C "$2" -xf - && diff -r --no-dereference "commits/$last" "$2"`,
		`[ $(ls commits | wc -l) = $(git -C "$1" rev-list --count HEAD) ] || ls commits`,
		`ls commits | tail -1 | grep -q "$(git -C "$1" rev-parse --short=8 HEAD)" || ls commits`,
		`git -C "$1" status --porcelain`,
	} {
		if r := harness.Shell(t, m.Session(nested), script, m.Repo(nested), t.TempDir()); r.Out != "" || r.Err != "" {
			t.Errorf("%s: %.400s %.400s", script, r.Out, r.Err)
		}
	}
}

// TestMetricsFile: .sessionfs/metrics ends as OpenMetrics text does, is as
// long as its own stat says, and counts.
func TestMetricsFile(t *testing.T) {
	m := start(t, "chat_branches")
	_ = put(m.Session(nested, "head_id"), "no such node\n")
	f, err := os.Open(m.Path(".sessionfs", "metrics"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := read(t, m.Path(".sessionfs", "metrics"))
	if !strings.HasSuffix(text, "\n# EOF\n") || !strings.Contains(text, `sessionfs_refusals_total{code="not_found"} 1`) {
		t.Errorf("metrics:\n%s", text)
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	n, _ := f.ReadAt(buf, 0)
	if int64(n) != st.Size() || !strings.HasSuffix(string(buf[:n]), "# EOF\n") {
		t.Errorf("a handle reads %d bytes, its stat says %d", n, st.Size())
	}
}

// TestRealDirectoriesTogether: workdir/ and attachments/ are one tree with a
// link between them, and context/ only reads.
func TestRealDirectoriesTogether(t *testing.T) {
	m := start(t, "chat_branches")
	for _, script := range []string{
		`echo x > workdir/a && mv workdir/a attachments/a && [ "$(cat workdir/attachments/a)" = x ] || echo moved`,
		`ln attachments/a workdir/b && [ "$(stat -c %h workdir/b)" = 2 ] || echo linked`,
		`[ -f "$1/workdir/attachments/a" ] && [ -f "$1/workdir/b" ] || echo missing`,
		`rm workdir/attachments 2>/dev/null && echo removed`,
		`(echo x > context/new) 2>/dev/null && echo made`,
		`rm -f attachments/a workdir/b`,
	} {
		if r := harness.Shell(t, m.Session(nested), script, m.Repo(nested)); r.Out != "" || r.Err != "" {
			t.Errorf("%s: %s %s", script, r.Out, r.Err)
		}
	}
	refused(t, m, "write in context", os.WriteFile(m.Session(nested, "context", "new"), nil, 0o600), 1, "immutable")
}

// TestMountHelper: mount(8) mounts by the type's name, as fstab would.
func TestMountHelper(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can call mount(8)")
	}
	harness.RequireFUSE(t)
	const helper = "/sbin/mount.fuse.sessionfs"
	if _, err := os.Lstat(helper); err == nil {
		t.Skip(helper + " is there already")
	}
	store, state, dir := harness.Golden(t, "chat_branches"), t.TempDir(), t.TempDir()
	harness.Mark(t, dir)
	if err := os.Symlink(harness.Binary(t), helper); err != nil {
		t.Skip(err)
	}
	defer os.Remove(helper)
	if r := harness.Command(t, "/", harness.Environ(state), "mount", "-t", "fuse.sessionfs", "-o", "ro,noexec,nofail", store, dir); r.Code != 0 {
		t.Fatalf("mount: %s %s", r.Out, r.Err)
	}
	if got := names(t, dir, "sessions", nested); !slices.Contains(got, "head_id") {
		t.Errorf("mounted: %q", got)
	}
	if r := harness.CLI(t, store, state, "umount", dir); r.Code != 0 {
		t.Errorf("umount: %s", r.Err)
	}
}
