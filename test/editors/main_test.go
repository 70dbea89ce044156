package editors

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, map[string]harness.Role{"open": openRole}))
}

// The session that is edited: forks inside forks, and the head at the end of
// eight messages (chat_branches).
const (
	nested    = "local_nested_dd1d18bf"
	tipTrunk  = "07eb635e4d17" // the head
	tipDetour = "3de090a0e4a7"
	retry     = "local_retry_ef355ff3"
)

// start mounts a copy of the golden store.
func start(t *testing.T, opt harness.Options) *harness.Mount {
	t.Helper()
	if opt.Store == "" {
		opt.Store = harness.Golden(t, "chat_branches")
	}
	return harness.Start(t, opt)
}

// need skips a test whose program is not installed; where the tests must be
// complete it fails.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed", program)
	}
	t.Skipf("%s is not installed", program)
}

// meta reads meta.json from the store's disk.
func meta(t testing.TB, m *harness.Mount, session string) map[string]any {
	t.Helper()
	out := map[string]any{}
	b, err := os.ReadFile(m.Repo(session, "meta.json"))
	if err = errors.Join(err, json.Unmarshal(b, &out)); err != nil {
		t.Fatal(err)
	}
	return out
}

func text(t testing.TB, m *harness.Mount, session, key string) string {
	t.Helper()
	s, _ := meta(t, m, session)[key].(string)
	return s
}

// node is a history file as it is on the store's disk.
type node struct {
	ID, Role    string
	Output      any
	Predecessor string
	Metadata    map[string]any
}

// stored reads the history files of a session from the store's disk, by id.
func stored(t testing.TB, m *harness.Mount, session string) map[string]node {
	t.Helper()
	files, err := filepath.Glob(m.Repo(session, "history", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]node{}
	for _, f := range files {
		var n node
		b, err := os.ReadFile(f)
		if err = errors.Join(err, json.Unmarshal(b, &n)); err != nil {
			t.Fatal(err)
		}
		out[n.ID] = n
	}
	return out
}

// names lists a directory.
func names(t testing.TB, path ...string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func read(t testing.TB, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// put writes a text as a shell's > does and returns the first error.
func put(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// failed maps what is kept in failed/, without the time and the token in its
// name, to its text. Two of one name are an error.
func failed(t testing.TB, m *harness.Mount) map[string]string {
	t.Helper()
	return failedIn(t, filepath.Join(m.State, "sessionfs", "failed"))
}

var failedName = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}\.[0-9]{6}Z-(.*)-[0-9a-f]{8}$`)

func failedIn(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range names(t, dir) {
		p := failedName.FindStringSubmatch(name)
		if p == nil {
			t.Errorf("failed/ has %q", name)
			continue
		}
		if _, twice := out[p[1]]; twice {
			t.Errorf("failed/ has %q twice", p[1])
		}
		out[p[1]] = read(t, dir, name)
	}
	return out
}

// lastError is the newest line of .sessionfs/errors.
func lastError(t testing.TB, m *harness.Mount) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(read(t, m.Path(".sessionfs", "errors"))), "\n")
	return lines[len(lines)-1]
}

// refused fails the test unless err is the errno and the newest line of
// .sessionfs/errors has the code.
func refused(t testing.TB, m *harness.Mount, what string, err, errno error, code string) {
	t.Helper()
	if !errors.Is(err, errno) {
		t.Errorf("%s: %v; want %v", what, err, errno)
	}
	if last := lastError(t, m); !strings.Contains(last, "\t"+code+"\t") {
		t.Errorf("%s: the last line of .sessionfs/errors is %q; want the code %s", what, last, code)
	}
}

// ours matches the names of a session's own in its messages directory.
var ours = regexp.MustCompile(`^[0-9]{6,}-[a-z]+-[0-9a-f]{8}\.md$`)

// foreign lists the names in a session's directory, in fields/ and messages/
// that are not the session's own.
func foreign(t testing.TB, m *harness.Mount, session string) []string {
	t.Helper()
	known := []string{"head", "head_id", "messages", "branch", "nodes", "history", "dag", "fields", "meta.json", "transcript.md", "transcript.jsonl",
		"graph.txt", "graph.dot", "problems.txt", "append", "ctl", "attachments", "workdir", "context", "commits"}
	var out []string
	for _, n := range names(t, m.Session(session)) {
		if !slices.Contains(known, n) {
			out = append(out, n)
		}
	}
	for _, n := range names(t, m.Session(session, "fields")) {
		if strings.ContainsAny(n, ".~#") || n == "4913" {
			out = append(out, "fields/"+n)
		}
	}
	for _, n := range names(t, m.Session(session, "messages")) {
		if !ours.MatchString(n) {
			out = append(out, "messages/"+n)
		}
	}
	return out
}

// pure fails the test when the session's repository holds anything that a
// session does not consist of.
func pure(t testing.TB, m *harness.Mount, session string) {
	t.Helper()
	for _, n := range names(t, m.Repo(session)) {
		if !slices.Contains([]string{".git", "history", "meta.json", "workdir", "context"}, n) {
			t.Errorf("the repository holds %q", n)
		}
	}
	for _, n := range names(t, m.Repo(session, "history")) {
		if !strings.HasSuffix(n, ".json") {
			t.Errorf("history/ holds %q", n)
		}
	}
}

// lastUser is the newest user's message of the active branch, in messages/.
func lastUser(t testing.TB, m *harness.Mount, session string) string {
	t.Helper()
	var last string
	for _, n := range names(t, m.Session(session, "messages")) {
		if ours.MatchString(n) && strings.Contains(n, "-user-") {
			last = n
		}
	}
	return last
}

// openRequest is a step of a writer that a test wants to kill: a file that is
// opened with flags and written, and stays open.
type openRequest struct {
	Path, Text string
	Flags      int
}

// openRole opens and writes files, which only the end of its process closes.
func openRole([]string) int {
	var open []*os.File
	code := harness.Serve(func(q openRequest) string {
		f, err := os.OpenFile(q.Path, q.Flags, 0o600)
		if err != nil {
			return err.Error()
		}
		open = append(open, f)
		if _, err := f.WriteString(q.Text); err != nil {
			return err.Error()
		}
		return ""
	})
	for _, f := range open {
		_ = f.Close()
	}
	return code
}

// openIn makes another process open and write a file.
func openIn(t testing.TB, p *harness.Process, q openRequest) {
	t.Helper()
	var said string
	if err := p.Call(q, &said); err != nil || said != "" {
		t.Fatalf("open %s: %s %v", q.Path, said, err)
	}
}

// soon waits for what a process's end brings in its own time.
func soon(ready func() bool) bool { return harness.Wait(harness.Slow(3*time.Second), ready) }
