package mounted

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// headOf is the session's head as the store has it on disk.
func headOf(t *testing.T, m *harness.Mount, session string) string {
	t.Helper()
	var meta struct {
		Head string `json:"head_id"`
	}
	if err := json.Unmarshal([]byte(read(t, m.Repo(session, "meta.json"))), &meta); err != nil {
		t.Fatal(err)
	}
	return meta.Head
}

// TestAppend: what is written to append/ becomes one message on the active
// branch, visible at once, and the head is on it.
func TestAppend(t *testing.T) {
	m := start(t, "chat_branches")
	s, copies := m.Session(nested), t.TempDir()
	for i, c := range []struct{ file, script, text, role string }{
		{"user", `echo hello > "$1"`, "hello", "user"},
		{"assistant", `printf 'no newline' > "$1"`, "no newline", "llm"},
		{"system", `printf 'two\nlines\n\n' > "$1"`, "two\nlines\n", "llm"},
		{"user", `echo appended >> "$1"`, "appended", "user"},
		{"user", `(echo a; echo b) > "$1"`, "a\nb", "user"},
		{"user", `{ cat /dev/null; printf x; } > "$1"`, "x", "user"},
		{"assistant", `head -c 300000 /dev/zero | tr '\0' q > "$1"`, strings.Repeat("q", 300000), "llm"},
		{"user", `exec 3> "$1"; echo one >&3; (echo two >&3); /bin/echo three >&3; exec 3>&-`, "one\ntwo\nthree", "user"},
		{"user", `echo 'détour ☂ “” 👩‍👧' | tee "$1" > /dev/null`, "détour ☂ “” 👩‍👧", "user"},
		{"user", `echo copied > "$2/x" && cp "$2/x" "$1"`, "copied", "user"},
	} {
		before, count := headOf(t, m, nested), len(names(t, s, "messages"))
		r := harness.Shell(t, s, c.script, filepath.Join("append", c.file), copies)
		if r.Code != 0 {
			t.Errorf("%s: exit status %d, %s", c.script, r.Code, r.Err)
			continue
		}
		head := strings.TrimSpace(read(t, s, "head_id"))
		n := storedNodes(t, m, nested)[head]
		if n.Output != c.text || n.Role != c.role || n.Predecessor != before || head == before {
			t.Errorf("%s: case %d made %s %.60q after %s; want %s %.60q after %s", c.script, i, n.Role, n.Output, n.Predecessor, c.role, c.text, before)
		}
		list := names(t, s, "messages")
		if len(list) != count+1 || read(t, s, "messages", list[len(list)-1]) != textOf(n) {
			t.Errorf("%s: messages/ has %d entries, had %d", c.script, len(list), count)
		}
		if got := read(t, s, "append", c.file); got != "" {
			t.Errorf("append/%s reads %.60q", c.file, got)
		}
	}
	// Nothing written is nothing said: an empty file is what a command that
	// failed leaves behind >.
	before := headOf(t, m, nested)
	if r := harness.Shell(t, s, `: > append/user; false > append/assistant; true`); r.Code != 0 {
		t.Error(r.Err)
	}
	if got := headOf(t, m, nested); got != before {
		t.Errorf("an empty file made the message %s", got)
	}
	if st, err := os.Stat(filepath.Join(s, "append", "user")); err != nil || st.Mode().Perm() != 0o600 || st.Size() != 0 {
		t.Errorf("append/user: %v, %v", st, err)
	}
}

// TestAppendMessage: a whole message dict, held to the write invariant.
func TestAppendMessage(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	head := headOf(t, m, nested)
	text := `{"role": "assistant", "content": "from a dict", "predecessor": "` + head + `", "id": "dict00000001", "token_model": "model-z", "custom_flag": {"n": 1e400}}`
	if err := put(filepath.Join(s, "append", "message.json"), text); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "head_id"); got != "dict00000001\n" {
		t.Errorf("head is %q", got)
	}
	if raw := read(t, m.Repo(nested, "history", storedStem(t, m, "dict00000001")+".json")); !strings.Contains(raw, "1e400") || !strings.Contains(raw, `"name": "model-z"`) {
		t.Errorf("the node is %s", raw)
	}
	// A side branch leaves the head alone; the same id again changes nothing.
	side := `{"role": "user", "content": "aside", "predecessor": "` + tipDetour + `", "id": "dict00000002"}`
	for range 2 {
		if err := put(filepath.Join(s, "append", "message.json"), side); err != nil {
			t.Errorf("a side branch: %v", err)
		}
	}
	if got := read(t, s, "head_id"); got != "dict00000001\n" {
		t.Errorf("head after a side branch is %q", got)
	}
	for what, text := range map[string]string{
		"no role": `{"content": "x"}`, "a role that is a number": `{"role": 1, "content": "x"}`,
		"an id with a slash": `{"role": "user", "content": "x", "id": "a/b"}`, "bad JSON": `{"role": "user",}`,
	} {
		before := len(names(t, s, "nodes"))
		refused(t, m, what, put(filepath.Join(s, "append", "message.json"), text), syscall.EINVAL, "invalid")
		if got := len(names(t, s, "nodes")); got != before {
			t.Errorf("%s: %d nodes, were %d", what, got, before)
		}
	}
	if kept := strings.Join(failed(t, m), "\n"); !strings.Contains(kept, `{"role": "user",}`) {
		t.Errorf("what was refused is not kept: %q", kept)
	}
}

func storedStem(t *testing.T, m *harness.Mount, id string) string {
	t.Helper()
	return storedNodes(t, m, nested)[id].Stem
}

// TestKilledWriter: a writer that is killed in the middle publishes nothing;
// its text is kept.
func TestKilledWriter(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	before := look(s)
	nodes := len(names(t, s, "nodes"))
	w := harness.Spawn(t, "write")
	var said string
	if err := w.Call(writeRequest{Path: filepath.Join(s, "append", "user"), Text: "the half of a sen"}, &said); err != nil || said != "" {
		t.Fatal(said, err)
	}
	w.Kill()
	if !harness.Wait(harness.Slow(3e9), func() bool { return strings.Contains(strings.Join(failed(t, m), "\n"), "the half of a sen") }) {
		t.Errorf("the killed writer's text is not in failed/: %q", failed(t, m))
	}
	if d := look(s).differs(before); d != "" {
		t.Errorf("a killed writer published: %s", d)
	}
	if got := len(names(t, s, "nodes")); got != nodes {
		t.Errorf("%d nodes, were %d", got, nodes)
	}
}

// TestLaterFlush: flush is not the last close. What comes after it completes
// the message that it made: one open file is one message.
func TestLaterFlush(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	nodes := len(names(t, s, "nodes"))
	f, err := os.OpenFile(filepath.Join(s, "append", "user"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	text, id := "", ""
	for i := range 4 {
		line := fmt.Sprintf("line %d\n", i)
		text += line
		if _, err := f.WriteString(line); err != nil {
			t.Fatal(err)
		}
		flush(t, f)
		head := strings.TrimSpace(read(t, s, "head_id"))
		if i > 0 && head != id {
			t.Errorf("flush %d made another message: %s, was %s", i, head, id)
		}
		id = head
		if got := read(t, s, "head"); got != text {
			t.Errorf("after flush %d the message is %q, want %q", i, got, text)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if got := len(names(t, s, "nodes")); got != nodes+1 {
		t.Errorf("%d nodes, were %d: want one more", got, nodes)
	}
}

// TestTooLarge: a message over the limit is refused and the rest goes on.
func TestTooLarge(t *testing.T) {
	m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches")})
	s := m.Session(nested)
	before := look(s)
	r := harness.Shell(t, s, `head -c 68000000 /dev/zero | tr '\0' z > append/user`)
	if r.Code == 0 || !strings.Contains(r.Err, "File too large") {
		t.Errorf("exit status %d, %.200q; want File too large", r.Code, r.Err)
	}
	if d := look(s).differs(before); d != "" {
		t.Error(d)
	}
	if err := put(filepath.Join(s, "append", "user"), "small\n"); err != nil {
		t.Errorf("a message after it: %v", err)
	}
}

// TestConcurrentAppends: many writers at once, through the mount and beside
// it, lose nothing and break no chain.
func TestConcurrentAppends(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	foreign := harness.NewForeign(t)
	const writers, each = 6, 10
	errs := make(chan error, writers*each)
	for w := range writers {
		go func() {
			for i := range each {
				errs <- put(filepath.Join(s, "append", "user"), fmt.Sprintf("writer %d says %d\n", w, i))
			}
		}()
	}
	for i := range each {
		foreign.Do(harness.ForeignRequest{Store: m.Store, Session: nested, Op: "append", Role: "user", Head: true, PredecessorHead: true, Text: fmt.Sprintf("writer 9 says %d", i)})
	}
	for range writers * each {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	nodes := storedNodes(t, m, nested)
	head := headOf(t, m, nested)
	if !harness.Wait(harness.Slow(2e9), func() bool { return read(t, s, "head_id") == head+"\n" }) {
		t.Errorf("head_id is %q, the store has %s", read(t, s, "head_id"), head)
	}
	want := map[string]bool{}
	for w := range writers {
		for i := range each {
			want[fmt.Sprintf("writer %d says %d", w, i)] = true
		}
	}
	for i := range each {
		want[fmt.Sprintf("writer 9 says %d", i)] = true
	}
	for _, n := range chainOf(nodes, head) {
		text, _ := n.Output.(string)
		delete(want, text)
	}
	if len(want) > 0 {
		t.Errorf("%d messages are not on the branch: %v", len(want), want)
	}
	if got, on := len(names(t, s, "messages")), len(chainOf(nodes, head)); got != on {
		t.Errorf("messages/ has %d entries, the branch %d", got, on)
	}
}
