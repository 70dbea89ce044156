package editors

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestBytesThatAreNoText: a message is text. Bytes that are not UTF-8 are
// refused, not replaced, and kept as they are.
func TestBytesThatAreNoText(t *testing.T) {
	m := start(t, harness.Options{})
	before, raw := conversation(t, m, nested), "caf\xe9 in Latin-1\n"
	message := lastUser(t, m, nested)
	tmp := m.Session(nested, "messages", "tmp")
	want := map[string]string{}
	for name, c := range map[string]struct {
		save func() error
		kept string
	}{
		"append/user":      {func() error { return put(m.Session(nested, "append", "user"), raw) }, "-append-user"},
		"append/assistant": {func() error { return put(m.Session(nested, "append", "assistant"), raw) }, "-append-assistant"},
		"a message":        {func() error { return put(m.Session(nested, "messages", message), raw) }, "-messages-" + message},
		"ctl":              {func() error { return put(m.Session(nested, "ctl"), "edit @ "+raw) }, ""},
		"a rename": {func() error {
			return errors.Join(put(tmp, raw), os.Rename(tmp, m.Session(nested, "messages", message)))
		}, "-messages-" + message},
	} {
		refused(t, m, name, c.save(), syscall.EILSEQ, "invalid")
		if c.kept != "" {
			want[nested+c.kept] = raw
		}
		got := failed(t, m)
		if c.kept != "" && got[nested+c.kept] != raw || len(got) > len(want) {
			t.Errorf("%s: failed/ holds %q", name, got)
		}
		clearFailed(t, m)
		clear(want)
	}
	if got := conversation(t, m, nested); got != before {
		t.Errorf("the session is %s, was %s", got, before)
	}
	refused(t, m, "append/message.json", put(m.Session(nested, "append", "message.json"), `{"role": "user", "content": "`+"\xff"+`"}`), syscall.EINVAL, "invalid")
	refused(t, m, "a title", put(m.Session(nested, "fields", "title"), raw), syscall.EINVAL, "invalid")
}

// TestErrorsOfManyFiles: a command that is refused at each file of a session
// takes a line or two of .sessionfs/errors, and what others were told stays.
func TestErrorsOfManyFiles(t *testing.T) {
	m := start(t, harness.Options{})
	if err := put(m.Session(retry, "head_id"), "nonsense\n"); !errors.Is(err, syscall.ENOENT) {
		t.Fatal(err)
	}
	for range 2 {
		if r := harness.Shell(t, m.Dir, `rm -rf sessions/"$1"`, nested); r.Code == 0 {
			t.Error("rm -rf of a session went well")
		}
	}
	list := read(t, m.Path(".sessionfs", "errors"))
	lines := strings.Split(strings.TrimSpace(list), "\n")
	if len(lines) > 5 || !strings.Contains(lines[0], "nonsense") || !strings.Contains(list, " times)\n") {
		t.Errorf(".sessionfs/errors has %d lines: %.2000s", len(lines), list)
	}
	for i := range 150 {
		_ = put(m.Session(nested, "head_id"), fmt.Sprintf("nonsense %d\n", i))
	}
	if lines := strings.Split(strings.TrimSpace(read(t, m.Path(".sessionfs", "errors"))), "\n"); len(lines) != 100 || !strings.Contains(lines[99], "nonsense 149") {
		t.Errorf("it has %d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}

// TestRemoveALargeFile: a large file that is in no commit is not put into one
// because it is removed; it is in failed/ afterwards. One that Git has is just
// removed.
func TestRemoveALargeFile(t *testing.T) {
	m := start(t, harness.Options{})
	dir := m.Session(nested)
	commits := git(t, m, nested, "rev-list", "--count", "HEAD")
	r := harness.Shell(t, dir, `mkdir attachments/d && head -c 20000000 /dev/urandom > attachments/d/big && sha256sum < attachments/d/big && rm attachments/d/big`)
	if r.Code != 0 {
		t.Fatal(r.Err)
	}
	sum := func(path string) string { return harness.Shell(t, dir, `sha256sum < "$1"`, path).Out }
	kept := names(t, m.Path(".sessionfs", "failed"))
	if len(kept) != 1 || !strings.Contains(kept[0], nested+"-attachments.d.big-") {
		t.Fatalf("failed/ holds %q", kept)
	}
	if got := sum(m.Path(".sessionfs", "failed", kept[0])); got != r.Out {
		t.Errorf("what is kept has the sum %s, want %s", got, r.Out)
	}
	if got := git(t, m, nested, "rev-list", "--count", "HEAD"); got != commits {
		t.Errorf("%s commits, were %s", got, commits)
	}
	clearFailed(t, m)

	r = harness.Shell(t, dir, `head -c 20000000 /dev/urandom > attachments/d/big && sha256sum < attachments/d/big && sleep 0.1 && echo commit > ctl && rm attachments/d/big`)
	if r.Code != 0 {
		t.Fatal(r.Err)
	}
	if got := names(t, m.Path(".sessionfs", "failed")); len(got) > 0 {
		t.Errorf("failed/ holds %q of a file that Git has", got)
	}
	if got := harness.Shell(t, m.Repo(nested), `git show HEAD:workdir/attachments/d/big | sha256sum`).Out; got != r.Out {
		t.Errorf("Git has the sum %s, want %s", got, r.Out)
	}
	// Where failed/ has no room for it, it goes into a commit.
	fill := harness.Shell(t, dir, `truncate -s 550000000 "$1"/sessionfs/failed/20260101T000000.000000Z-fill-00000000 && head -c 20000000 /dev/urandom > attachments/d/big && sha256sum < attachments/d/big && rm attachments/d/big`, m.State)
	if fill.Code != 0 {
		t.Fatal(fill.Err)
	}
	if got := harness.Shell(t, m.Repo(nested), `git show HEAD:workdir/attachments/d/big | sha256sum`).Out; got != fill.Out {
		t.Errorf("without room Git has the sum %s, want %s", got, fill.Out)
	}
}

// TestKilledDaemon: what was written to a document that was not closed yet is
// in failed/ after the daemon was killed, and the documents are what they were.
func TestKilledDaemon(t *testing.T) {
	m := start(t, harness.Options{})
	before, raw := conversation(t, m, nested), read(t, m.Repo(nested, "meta.json"))
	message := lastUser(t, m, nested)
	p := harness.Spawn(t, "open")
	openIn(t, p, openRequest{m.Session(nested, "messages", message), "half a message", os.O_WRONLY | os.O_TRUNC})
	openIn(t, p, openRequest{m.Session(nested, "meta.json"), "{half", os.O_WRONLY | os.O_TRUNC})
	openIn(t, p, openRequest{m.Session(nested, "append", "user"), "half a question", os.O_WRONLY})
	m.Kill()
	again := harness.Start(t, harness.Options{Store: m.Store, State: m.State, Warnings: []string{"recovered|kept|left"}})
	want := map[string]string{nested + "-messages-" + message: "half a message", nested + "-meta.json": "{half", nested + "-append-user": "half a question"}
	if got := failed(t, again); !maps.Equal(got, want) {
		t.Errorf("failed/ holds %q, want %q", got, want)
	}
	if got := conversation(t, again, nested); got != before || read(t, again.Repo(nested, "meta.json")) != raw {
		t.Errorf("the session is %s, was %s", got, before)
	}
	pure(t, again, nested)
}

// TestKilledVim: vim's swap file survives vim, so that what was not saved can be
// recovered; nothing of it is in the session.
func TestKilledVim(t *testing.T) {
	need(t, "vim")
	m := start(t, harness.Options{})
	before := conversation(t, m, nested)
	message := lastUser(t, m, nested)
	path := m.Session(nested, "messages", message)
	env := append(harness.Environ(t.TempDir()), "TMPDIR="+ownTemp(t)) // of its own: vim leaves it behind
	r := harness.Command(t, t.TempDir(), env, "vim", "-N", "-u", "DEFAULTS", "-i", "NONE", "-es", "-c", "set directory=.", "-c", "normal ggccnever saved", "-c", "preserve",
		"-c", "call system('kill -9 ' . getpid())", path)
	if r.Code == 0 {
		t.Fatalf("vim lives: %s%s", r.Out, r.Err)
	}
	swap := m.Session(nested, "messages", "."+message+".swp")
	if _, err := os.Stat(swap); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	if r := harness.Command(t, t.TempDir(), nil, "vim", "-N", "-u", "DEFAULTS", "-i", "NONE", "-es", "-c", "recover "+swap, "-c", "w! "+out, "-c", "qa!"); read(t, out) != "never saved\n" {
		t.Errorf("recovered is %q, %s", read(t, out), r.Err)
	}
	m.Stop()
	if got := failed(t, m); len(got) != 1 || !strings.Contains(got[nested+"-messages-."+message+".swp"], "never saved") {
		t.Errorf("failed/ holds %q", slices.Collect(maps.Keys(got)))
	}
	if got := conversation(t, m, nested); got != before {
		t.Errorf("the session is %s, was %s", got, before)
	}
	pure(t, m, nested)
}

// TestUnmountWithScratchFilesOpen: scratch files that are still there when the
// mount goes, open ones too, move to failed/; so do those that a daemon leaves
// which was killed, at the next start.
func TestUnmountWithScratchFilesOpen(t *testing.T) {
	want := map[string]string{nested + "-open.txt": "open", nested + "-fields-closed.txt": "closed", nested + "-messages-renamed": "renamed"}
	leave := func(t *testing.T, m *harness.Mount) *harness.Process {
		p := harness.Spawn(t, "open")
		openIn(t, p, openRequest{m.Session(nested, "open.txt"), "open", os.O_WRONLY | os.O_CREATE})
		err := errors.Join(put(m.Session(nested, "fields", "closed.txt"), "closed"), put(m.Session(nested, "empty"), ""),
			put(m.Session(nested, "gone"), "gone"), os.Remove(m.Session(nested, "gone")), os.Symlink("x", m.Session(nested, "link")),
			put(m.Session(nested, "first"), "renamed"), os.Rename(m.Session(nested, "first"), m.Session(nested, "messages", "renamed")))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Run("unmount", func(t *testing.T) {
		m := start(t, harness.Options{})
		before := conversation(t, m, nested)
		p := leave(t, m)
		r := harness.CLI(t, m.Store, m.State, "umount", m.Dir)
		if r.Code == 0 {
			t.Error("umount of a mount in use went well")
		}
		p.Close()
		m.Stop()
		if got := failed(t, m); !maps.Equal(got, want) {
			t.Errorf("failed/ holds %q, want %q", got, want)
		}
		if got := conversation(t, m, nested); got != before {
			t.Errorf("the session is %s, was %s", got, before)
		}
		pure(t, m, nested)
	})
	t.Run("killed daemon", func(t *testing.T) {
		m := start(t, harness.Options{})
		// What is in memory only is gone with the daemon: it is a file that is
		// open, and was neither closed nor synced.
		leave(t, m).Close()
		if !soon(func() bool { return read(t, m.Session(nested, "open.txt")) == "open" }) {
			t.Error("open.txt is not there")
		}
		m.Kill()
		again := harness.Start(t, harness.Options{Store: m.Store, State: m.State, Warnings: []string{"recovered|kept|left"}})
		got := failed(t, again)
		// After a crash a file is known by the name that it was made with.
		if want := map[string]string{nested + "-open.txt": "open", nested + "-fields-closed.txt": "closed", nested + "-first": "renamed"}; !maps.Equal(got, want) {
			t.Errorf("failed/ holds %q, want %q", got, want)
		}
	})
}
