package mounted

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestErrors is the table of errors: each row with the call that meets it,
// the exact errno, and the code in .sessionfs/errors.
func TestErrors(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	foreign := harness.NewForeign(t)
	for _, id := range []string{"abcd00000001", "abcd00000002"} {
		foreign.Do(harness.ForeignRequest{Store: m.Store, Session: nested, Op: "append", ID: id, Role: "user", Text: "side", Predecessor: tipTrunk})
	}
	if err := os.MkdirAll(filepath.Join(m.Store, ".deleted"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.Store, ".deleted", "burnt_one"), []byte(`{"session_id": "burnt_one"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(s, "nodes", storedNodes(t, m, nested)[tipDetour].Stem+".md")
	before := look(s)
	for _, c := range []struct {
		what  string
		err   error
		errno syscall.Errno
		code  string
	}{
		{"head_id names no node", put(filepath.Join(s, "head_id"), "nosuchnode\n"), syscall.ENOENT, "not_found"},
		{"a text to head that is no ref", put(filepath.Join(s, "head"), "some words of a text\n"), syscall.EPERM, ""},
		{"ctl head names no node", put(filepath.Join(s, "ctl"), "head nosuchnode\n"), syscall.ENOENT, "not_found"},
		{"a link to no node", relink(s, "nodes/9999-u-nosuchnode.md"), syscall.ENOENT, "not_found"},
		{"a link to no branch", relink(s, "branch/nosuch"), syscall.ENOENT, "not_found"},
		{"an unknown session", statErr(m.Session("nosuch")), syscall.ENOENT, ""},
		{"an unknown node", statErr(filepath.Join(s, "nodes", "0000-u-nosuch.md")), syscall.ENOENT, ""},
		{"an unknown branch", statErr(filepath.Join(s, "branch", "nosuch")), syscall.ENOENT, ""},
		{"an unknown field", statErr(filepath.Join(s, "fields", "nosuch")), syscall.ENOENT, ""},
		{"an ambiguous prefix", put(filepath.Join(s, "head_id"), "abcd0\n"), syscall.EINVAL, "ambiguous"},
		{"an ambiguous name", put(filepath.Join(s, "head_id"), "same name\n"), syscall.EINVAL, "ambiguous"},
		{"an empty head", put(filepath.Join(s, "head_id"), "\n"), syscall.EINVAL, "invalid"},
		{"a boolean that is none", put(filepath.Join(s, "fields", "pinned"), "maybe\n"), syscall.EINVAL, "invalid"},
		{"a status of a run", put(filepath.Join(s, "fields", "status"), "running\n"), syscall.EINVAL, "invalid"},
		{"a status that is none", put(filepath.Join(s, "fields", "status"), "sleeping\n"), syscall.EINVAL, "invalid"},
		{"an unknown command", put(filepath.Join(s, "ctl"), "frobnicate x\n"), syscall.EINVAL, "invalid"},
		{"a command without its argument", put(filepath.Join(s, "ctl"), "head\n"), syscall.EINVAL, "invalid"},
		{"bad JSON", put(filepath.Join(s, "append", "message.json"), `{"role": "user"`), syscall.EINVAL, "invalid"},
		{"JSON that is no object", put(filepath.Join(s, "append", "message.json"), `[1]`), syscall.EINVAL, "invalid"},
		{"a bad id", os.Mkdir(m.Session(".hidden"), 0o700), syscall.EINVAL, "invalid"},
		{"a reserved id", os.Mkdir(m.Session("projects"), 0o700), syscall.EINVAL, "invalid"},
		{"an absolute link", relink(s, "/etc/passwd"), syscall.EINVAL, "invalid"},
		{"a link out of the session", relink(s, "../../../etc/passwd"), syscall.EINVAL, ""},
		{"a message without predecessor", put(filepath.Join(s, "append", "message.json"), `{"role": "assistant", "content": "x", "predecessor": null}`), syscall.EINVAL, "predecessor_missing"},
		{"a write to a node", put(node, "rewritten\n"), syscall.EPERM, ""},
		{"a write to history", put(historyFile(t, s), "rewritten\n"), syscall.EPERM, ""},
		{"a write to transcript.md", put(filepath.Join(s, "transcript.md"), "x\n"), syscall.EPERM, ""},
		{"unlink of a node", os.Remove(node), syscall.EPERM, "immutable"},
		{"unlink of head", syscall.Unlink(filepath.Join(s, "head")), syscall.EPERM, "immutable"},
		{"unlink of a field", syscall.Unlink(filepath.Join(s, "fields", "title")), syscall.EPERM, "immutable"},
		{"unlink of a message", syscall.Unlink(filepath.Join(s, "messages", before.Messages[0])), syscall.EPERM, "immutable"},
		{"mkdir of a session that exists", os.Mkdir(m.Session(nested), 0o700), syscall.EEXIST, ""},
		{"mkdir of a deleted id", os.Mkdir(m.Session("burnt_one"), 0o700), syscall.EEXIST, "burnt_id"},
		{"rmdir of a session with content", syscall.Rmdir(m.Session(nested)), syscall.ENOTEMPTY, "not_empty"},
		{"a value over the limit", put(filepath.Join(s, "head_id"), strings.Repeat("a", 65<<10)), syscall.EFBIG, "too_large"},
		{"a command over the limit", put(filepath.Join(s, "ctl"), "head "+strings.Repeat("a", 1<<20)+"\n"), syscall.EFBIG, "too_large"},
	} {
		refused(t, m, c.what, c.err, c.errno, "")
		if c.code != "" && !slices.ContainsFunc(strings.Split(read(t, m.Path(".sessionfs", "errors")), "\n"), func(l string) bool { return strings.Contains(l, c.code) }) {
			t.Errorf("%s: no line of .sessionfs/errors has the code %s", c.what, c.code)
		}
	}
	if d := look(s).differs(before); d != "" {
		t.Errorf("after nothing but refusals: %s", d)
	}
}

func statErr(path string) error {
	_, err := os.Lstat(path)
	return err
}

func historyFile(t *testing.T, s string) string {
	t.Helper()
	return filepath.Join(s, "history", names(t, s, "history")[0])
}

// TestSummaryHead: a compaction summary can never be the head.
func TestSummaryHead(t *testing.T) {
	m := start(t, "chat_compaction")
	const session, summary = "local_middle_d173ea7c", "summary_61bf9173df"
	s := m.Session(session)
	before := look(s)
	stem := storedNodes(t, m, session)[summary].Stem
	refused(t, m, "head_id", put(filepath.Join(s, "head_id"), summary+"\n"), syscall.EINVAL, "summary_head")
	refused(t, m, "rename", os.Rename(filepath.Join(s, "nodes", stem+".md"), filepath.Join(s, "head")), syscall.EINVAL, "summary_head")
	refused(t, m, "link", relink(s, "nodes/"+stem+".md"), syscall.EINVAL, "summary_head")
	if d := look(s).differs(before); d != "" {
		t.Error(d)
	}
}

// TestLocked: a lock that another process holds is waited for, one second
// under a rename, and then the move is refused.
func TestLocked(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	foreign := harness.NewForeign(t)
	foreign.Do(harness.ForeignRequest{Store: m.Store, Session: nested, Op: "lock"})
	begin := time.Now()
	stem := storedNodes(t, m, nested)[tipDetour].Stem
	refused(t, m, "rename while the lock is held", os.Rename(filepath.Join(s, "nodes", stem+".md"), filepath.Join(s, "head")), syscall.EBUSY, "locked")
	if took := time.Since(begin); took < 500*time.Millisecond || took > harness.Slow(4*time.Second) {
		t.Errorf("the rename was refused after %v, want about 1 s", took)
	}
	read(t, s, "transcript.md") // readers wait for nobody
	done := make(chan error, 1)
	go func() { done <- put(filepath.Join(s, "head_id"), tipDetour+"\n") }()
	time.Sleep(50 * time.Millisecond) // let the write find the lock held
	foreign.Do(harness.ForeignRequest{Store: m.Store, Session: nested, Op: "unlock"})
	if err := <-done; err != nil {
		t.Errorf("a write that waited for the lock: %v", err)
	}
	if got := read(t, s, "head_id"); got != tipDetour+"\n" {
		t.Errorf("head_id is %q", got)
	}
}

// TestReadOnly: a read-only mount changes nothing at all below the store.
func TestReadOnly(t *testing.T) {
	store := harness.Golden(t, "index_missing")
	before := tree(t, store)
	m := harness.Start(t, harness.Options{Store: store, Args: []string{"--read-only"}, Warnings: []string{"registry is rebuilt"}})
	id := "local_real_8146050e"
	s := m.Session(id)
	for what, err := range map[string]error{
		"head_id":      put(filepath.Join(s, "head_id"), "564b8002a3bc\n"),
		"fields/title": put(filepath.Join(s, "fields", "title"), "x\n"),
		"append/user":  put(filepath.Join(s, "append", "user"), "x\n"),
		"ctl":          put(filepath.Join(s, "ctl"), "commit\n"),
		"mkdir":        os.Mkdir(m.Session("fresh"), 0o700),
		"rmdir":        syscall.Rmdir(s),
		"ln -sfn":      relink(s, "nodes/0000-u-564b8002a3bc.md"),
		"attachments":  os.WriteFile(filepath.Join(s, "attachments", "x"), []byte("x"), 0o600),
		"unlink":       syscall.Unlink(filepath.Join(s, "head")),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s on a read-only mount: %v, want %v", what, err, syscall.EROFS)
		}
	}
	read(t, s, "transcript.md")
	m.Stop()
	if d := difference(before, tree(t, store)); len(d) > 0 {
		t.Errorf("a read-only mount changed the store: %q", d)
	}
}

// TestConflict: a later flush of the same handle, when the head has moved on
// meanwhile, keeps the text and says so.
func TestConflict(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	f, err := os.OpenFile(filepath.Join(s, "append", "user"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("first half\n"); err != nil {
		t.Fatal(err)
	}
	flush(t, f)
	made := strings.TrimSpace(read(t, s, "head_id"))
	if err := put(filepath.Join(s, "head_id"), tipDetour+"\n"); err != nil {
		t.Fatal(err)
	}
	_, writeErr := f.WriteString("the other half\n")
	refused(t, m, "a later flush after the head moved on", errors.Join(writeErr, f.Close()), syscall.ESTALE, "conflict")
	if got := read(t, s, "head_id"); got != tipDetour+"\n" {
		t.Errorf("head is %q", got)
	}
	if n := storedNodes(t, m, nested)[made]; n.Output != "first half" {
		t.Errorf("the message that was made is %q", n.Output)
	}
	if kept := strings.Join(failed(t, m), "|"); !strings.Contains(kept, "the other half") {
		t.Errorf("failed/ has %q", kept)
	}
}

// flush closes a duplicate of a file: the kernel sends FLUSH for it.
func flush(t *testing.T, f *os.File) {
	t.Helper()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Close(fd); err != nil {
		t.Fatal(err)
	}
}
