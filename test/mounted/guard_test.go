package mounted

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestRunActive: while a run is active every move, a user's append and what
// else changes the conversation's place is refused with EBUSY, nothing moves,
// and the command says why.
func TestRunActive(t *testing.T) {
	t.Run("begun through ctl", func(t *testing.T) {
		m := start(t, "chat_branches")
		ctl := begin(t, m, nested)
		allRefused(t, m)
		if _, err := ctl.WriteString("end\n"); err != nil {
			t.Errorf("end: %v", err)
		}
		allMove(t, m)
		if err := ctl.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("stamped by a foreign worker", func(t *testing.T) {
		m := start(t, "chat_branches")
		foreign := harness.NewForeign(t)
		for _, status := range []string{"running", "needs_input", "cancelling"} {
			foreign.Do(harness.ForeignRequest{Store: m.Store, Session: nested, Op: "meta", Key: "status", Value: `"` + status + `"`})
			allRefused(t, m)
		}
		foreign.Do(harness.ForeignRequest{Store: m.Store, Session: nested, Op: "meta", Key: "status", Value: `"idle"`})
		allMove(t, m)
	})
}

// begin starts a run on a held handle.
func begin(t *testing.T, m *harness.Mount, session string) *os.File {
	t.Helper()
	ctl, err := os.OpenFile(m.Session(session, "ctl"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ctl.Close() })
	if _, err := ctl.WriteString("begin\n"); err != nil {
		t.Fatalf("begin: %v", err)
	}
	return ctl
}

func allRefused(t *testing.T, m *harness.Mount) {
	t.Helper()
	s := m.Session(nested)
	before := look(s)
	listing := strings.Join(names(t, s, "nodes"), " ")
	moves := append([]gesture{}, gestures...)
	moves = append(moves,
		gesture{"ctl head", func(s string, to target) error { return put(filepath.Join(s, "ctl"), "head "+to.ID+"\n") }},
		gesture{"append/user", func(s string, _ target) error { return put(filepath.Join(s, "append", "user"), "hello\n") }},
		gesture{"ctl begin", func(s string, _ target) error { return put(filepath.Join(s, "ctl"), "begin\n") }},
		gesture{"fields/status", func(s string, _ target) error { return put(filepath.Join(s, "fields", "status"), "done\n") }},
	)
	for _, g := range moves {
		err := g.move(s, targets(t, m)[1])
		refused(t, m, g.name, err, syscall.EBUSY, "run_active")
	}
	for _, script := range []string{
		`echo "$2" > "$1/head_id"`, `echo "$2" > "$1/head"`, `mv "$1/nodes/$3.md" "$1/head"`,
		`ln -sfn "nodes/$3.md" "$1/head"`, `ln -sfn "branch/détour ☂" "$1/head"`, `echo hello > "$1/append/user"`,
	} {
		// bash, because dash's echo says "I/O error" whatever the errno is.
		r := harness.Command(t, m.Dir, nil, "bash", "-c", script, "bash", s, tipDetour, targets(t, m)[1].Stem)
		if r.Code == 0 || !strings.Contains(r.Err, "Device or resource busy") {
			t.Errorf("%s: exit status %d, %q; want Device or resource busy", script, r.Code, r.Err)
		}
	}
	if r := harness.CLI(t, m.Store, m.State, "head", nested, tipDetour); r.Code == 0 || !strings.Contains(r.Err, "run_active") {
		t.Errorf("sessionfs head: exit status %d, %q; want run_active", r.Code, r.Err)
	}
	if d := look(s).differs(before); d != "" {
		t.Errorf("a refused move moved: %s", d)
	}
	if got := strings.Join(names(t, s, "nodes"), " "); got != listing {
		t.Errorf("a refused change changed nodes/: %s", got)
	}
	if extra := scratch(t, s); len(extra) > 0 {
		t.Errorf("a refused move leaves %q", extra)
	}
}

// scratch lists what `ln` may have left in the session directory.
func scratch(t *testing.T, s string) []string {
	t.Helper()
	var out []string
	for _, name := range names(t, s) {
		if strings.HasPrefix(name, "Cu") {
			out = append(out, name)
		}
	}
	return out
}

func allMove(t *testing.T, m *harness.Mount) {
	t.Helper()
	nodes := storedNodes(t, m, nested)
	for i, g := range gestures {
		to := targets(t, m)[i%2]
		if err := g.move(m.Session(nested), to); err != nil {
			t.Errorf("%s after the run: %v", g.name, err)
			continue
		}
		want := expected(nodes, to.ID)
		want.Transcript = look(m.Session(nested)).Transcript
		if d := look(m.Session(nested)).differs(want); d != "" {
			t.Errorf("%s after the run: %s", g.name, d)
		}
	}
}

// TestRunEndsWithItsHandle: a run belongs to the open handle and ends
// interrupted when that closes without end, also when its process is killed;
// what the run itself appends is not refused.
func TestRunEndsWithItsHandle(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	ctl := begin(t, m, nested)
	if got := read(t, s, "fields", "status"); got != "running\n" {
		t.Errorf("status while a run is active is %q", got)
	}
	if err := put(filepath.Join(s, "append", "assistant"), "an answer\n"); err != nil {
		t.Errorf("append/assistant by the run itself: %v", err)
	}
	if got := read(t, s, "head"); got != "an answer\n" {
		t.Errorf("head after append/assistant is %q", got)
	}
	if err := ctl.Close(); err != nil {
		t.Error(err)
	}
	waitStatus(t, s, "interrupted\n")

	w := harness.Spawn(t, "write")
	var said string
	if err := w.Call(writeRequest{Path: filepath.Join(s, "ctl"), Text: "begin\n"}, &said); err != nil || said != "" {
		t.Fatalf("begin in another process: %s %v", said, err)
	}
	refused(t, m, "head_id during another process's run", put(filepath.Join(s, "head_id"), tipDetour+"\n"), syscall.EBUSY, "run_active")
	w.Kill()
	waitStatus(t, s, "interrupted\n")
	if err := put(filepath.Join(s, "head_id"), tipDetour+"\n"); err != nil {
		t.Errorf("a move after the run's process was killed: %v", err)
	}
	ctl = begin(t, m, nested)
	if _, err := ctl.WriteString("end failed\n"); err != nil {
		t.Errorf("end failed: %v", err)
	}
	if got := read(t, s, "fields", "status"); got != "failed\n" {
		t.Errorf("status after `end failed` is %q", got)
	}
}

// waitStatus waits for what the kernel's release brings, which follows the
// close that a process makes.
func waitStatus(t *testing.T, s, want string) {
	t.Helper()
	if !harness.Wait(harness.Slow(3*time.Second), func() bool { return read(t, s, "fields", "status") == want }) {
		t.Errorf("status is %q, want %q", read(t, s, "fields", "status"), want)
	}
}
