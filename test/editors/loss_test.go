package editors

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// conversation is what must never vanish: the nodes of a session and its head.
func conversation(t testing.TB, m *harness.Mount, session string) string {
	t.Helper()
	n := stored(t, m, session)
	return strings.Join(slices.Sorted(maps.Keys(n)), " ") + " @ " + text(t, m, session, "head_id")
}

// git runs Git on a session's repository.
func git(t *testing.T, m *harness.Mount, session string, args ...string) string {
	t.Helper()
	need(t, "git")
	r := harness.Command(t, m.Repo(session), nil, append([]string{"git"}, args...)...)
	if r.Code != 0 {
		t.Errorf("git %q: %s", args, r.Err)
	}
	return strings.TrimSpace(r.Out)
}

// TestMoveIntoASession: `mv report.pdf sessions/x/` makes a scratch file; at
// unmount it is in failed/ and not in the session.
func TestMoveIntoASession(t *testing.T) {
	m := start(t, harness.Options{})
	before := conversation(t, m, nested)
	source := filepath.Join(t.TempDir(), "report.pdf")
	if err := os.WriteFile(source, []byte("%PDF the only copy"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := harness.Shell(t, m.Dir, `mv "$1" sessions/"$2"/ && cat sessions/"$2"/report.pdf && stat -c %a sessions/"$2"/report.pdf`, source, nested)
	if r.Code != 0 || r.Out != "%PDF the only copy644\n" {
		t.Errorf("exit status %d, %q, %s", r.Code, r.Out, r.Err)
	}
	if r := harness.Shell(t, m.Dir, `rmdir sessions/"$1"`, nested); r.Code == 0 {
		t.Error("rmdir of a session with messages and a scratch file went well")
	}
	m.Stop()
	pure(t, m, nested)
	if got := conversation(t, m, nested); got != before {
		t.Errorf("the session is %s, was %s", got, before)
	}
	if got := failed(t, m); len(got) != 1 || got[nested+"-report.pdf"] != "%PDF the only copy" {
		t.Errorf("failed/ holds %q", got)
	}
}

// TestMoveIntoAttachments: `mv report.pdf sessions/x/attachments/` is what
// was meant: the file is the session's, and in the next commit.
func TestMoveIntoAttachments(t *testing.T) {
	m := start(t, harness.Options{})
	source := filepath.Join(t.TempDir(), "report.pdf")
	if err := os.WriteFile(source, []byte("%PDF"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := harness.Shell(t, m.Dir, `mv "$1" sessions/"$2"/attachments/`, source, nested); r.Code != 0 {
		t.Errorf("exit status %d, %s", r.Code, r.Err)
	}
	m.Stop()
	if got := git(t, m, nested, "show", "HEAD:workdir/attachments/report.pdf"); got != "%PDF" {
		t.Errorf("Git has %q", got)
	}
	if got := failed(t, m); len(got) > 0 {
		t.Errorf("failed/ holds %q", got)
	}
}

// TestCopyASession: `cp -r sessions/a sessions/b` fails, says why, and leaves
// nothing behind: no message can arrive, and an empty b would look as if it had.
// What is copied into a session that is there arrives where it can be written.
func TestCopyASession(t *testing.T) {
	m := start(t, harness.Options{})
	if err := put(m.Session(nested, "attachments", "f.txt"), "a file\n"); err != nil {
		t.Fatal(err)
	}
	before, was := conversation(t, m, nested), text(t, m, nested, "title")
	for what, script := range map[string]string{
		"cp -r":    `cp -r sessions/"$1" sessions/b`,
		"cp -a":    `cp -a sessions/"$1" sessions/b`,
		"copytree": `python3 -c 'import shutil, sys; shutil.copytree("sessions/" + sys.argv[1], "sessions/b")' "$1"`,
	} {
		if what == "copytree" {
			if _, err := exec.LookPath("python3"); err != nil {
				continue
			}
		}
		if r := harness.Shell(t, m.Dir, script, nested); r.Code == 0 {
			t.Errorf("%s of a session went well", what)
		}
		if got := conversation(t, m, nested); got != before {
			t.Errorf("%s: the session is %s, was %s", what, got, before)
		}
		if !harness.Wait(time.Minute, func() bool { return !slices.Contains(names(t, m.Path("sessions")), "b") }) {
			t.Errorf("%s leaves b, with %v", what, stored(t, m, "b"))
		}
		if got := read(t, m.Path(".sessionfs", "errors")); !strings.Contains(got, "sessions/b/head\t") || !strings.Contains(got, "taken back") {
			t.Errorf("%s: the errors are %s", what, got)
		}
	}
	clearFailed(t, m) // of the meta.json that came before it was gone
	// Who makes a session keeps it, whatever else fails.
	r := harness.Shell(t, m.Dir, `mkdir sessions/b; ln -s nodes/none sessions/b/head; echo none > sessions/b/head_id; test -d sessions/b`)
	if r.Code != 0 {
		t.Errorf("a session that was made by hand is gone: %s", r.Err)
	}
	// Into a session that is there, entry by entry, what can be written is.
	r = harness.Shell(t, m.Dir, `cp -r sessions/"$1"/. sessions/b/`, nested)
	if r.Code == 0 {
		t.Error("cp -r into a session went well")
	}
	if got := conversation(t, m, nested); got != before {
		t.Errorf("the session is %s, was %s", got, before)
	}
	if n := stored(t, m, "b"); len(n) != 1 || text(t, m, "b", "id") != "b" || text(t, m, "b", "title") != was {
		t.Errorf("the copy has %v, meta.json %v", n, meta(t, m, "b"))
	}
	if got := read(t, m.Repo("b", "workdir", "attachments", "f.txt")); got != "a file\n" {
		t.Errorf("its attachment is %q", got)
	}
	pure(t, m, "b")
	if got := failed(t, m); len(got) != 1 || !strings.Contains(got["b-meta.json"], nested) {
		t.Errorf("failed/ holds %q", got)
	}
}

// TestRemoveASession: `rm -rf` and `find -delete` of a session fail and take
// nothing of its conversation; of the real files they do take nothing that Git
// does not have, and all of it costs one commit.
func TestRemoveASession(t *testing.T) {
	for name, script := range map[string]string{
		"rm -rf":       `rm -rf sessions/"$1"`,
		"find -delete": `find sessions/"$1" -delete`,
		"rmtree":       `python3 -c 'import shutil, sys; shutil.rmtree(sys.argv[1], ignore_errors=True); sys.exit(1)' sessions/"$1"`,
	} {
		t.Run(name, func(t *testing.T) {
			if name == "rmtree" {
				need(t, "python3")
			}
			m := start(t, harness.Options{})
			before := conversation(t, m, nested)
			r := harness.Shell(t, m.Session(nested), `mkdir attachments/d workdir/w; for i in $(seq 20); do echo $i > attachments/d/$i; echo w$i > workdir/w/$i; done; echo scratch > mine`)
			if r.Code != 0 {
				t.Fatal(r.Err)
			}
			commits := git(t, m, nested, "rev-list", "--count", "HEAD")
			if r := harness.Shell(t, m.Dir, script, nested); r.Code == 0 {
				t.Error("it went well")
			}
			if got := conversation(t, m, nested); got != before {
				t.Errorf("the session is %s, was %s", got, before)
			}
			if got := names(t, m.Repo(nested, "workdir")); !slices.Equal(got, []string{".gitkeep"}) && len(got) > 1 {
				t.Errorf("workdir/ holds %q", got)
			}
			for _, f := range []string{"attachments/d/1", "attachments/d/20", "w/7"} {
				if got := git(t, m, nested, "show", "HEAD:workdir/"+f); !strings.HasSuffix(filepath.Base(f), strings.TrimPrefix(got, "w")) {
					t.Errorf("Git has %q for %s", got, f)
				}
			}
			if got := git(t, m, nested, "log", "-1", "--format=%s"); got != "sessionfs: before files are removed" {
				t.Errorf("the last commit is %q", got)
			}
			if got := git(t, m, nested, "rev-list", "--count", "HEAD~1"); got != commits {
				t.Errorf("before it were %s commits, and %s before the removal", got, commits)
			}
			if got := failed(t, m); len(got) > 0 {
				t.Errorf("failed/ holds %q", got)
			}
		})
	}
}

// TestOwnFilesCostNoCommit: a program that makes and removes files of its own
// makes no commit.
func TestOwnFilesCostNoCommit(t *testing.T) {
	m := start(t, harness.Options{})
	dir := m.Session(nested, "attachments")
	commits := git(t, m, nested, "rev-list", "--count", "HEAD")
	for range 5 {
		f, err := os.CreateTemp(dir, "x")
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("text")
		if err = errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
			t.Fatal(err)
		}
	}
	if got := git(t, m, nested, "rev-list", "--count", "HEAD"); got != commits {
		t.Errorf("%s commits, were %s", got, commits)
	}
}

// TestRemoveAllSessions: `rmdir sessions/*` removes the sessions that hold
// nothing, and no other.
func TestRemoveAllSessions(t *testing.T) {
	m := start(t, harness.Options{})
	for _, id := range []string{"empty", "scratch"} {
		if err := os.Mkdir(m.Session(id), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(m.Session("scratch", "mine"), "text\n"); err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	for _, id := range names(t, m.Path("sessions")) {
		if id != "empty" {
			before[id] = conversation(t, m, id)
		}
	}
	r := harness.Shell(t, m.Dir, `rmdir sessions/*`)
	if r.Code == 0 || !strings.Contains(r.Err, "not empty") {
		t.Errorf("exit status %d, %s", r.Code, r.Err)
	}
	left := names(t, m.Path("sessions"))
	if want := slices.Sorted(maps.Keys(before)); !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
	for _, id := range left {
		if got := conversation(t, m, id); got != before[id] {
			t.Errorf("%s is %s, was %s", id, got, before[id])
		}
	}
	if got := failed(t, m); len(got) > 0 {
		t.Errorf("failed/ holds %q", got)
	}
	m.Stop()
	if got := failed(t, m); !maps.Equal(got, map[string]string{"scratch-mine": "text\n"}) {
		t.Errorf("after unmount failed/ holds %q", got)
	}
}

// TestSaveOffTheBranch: a text for a message that left the active branch while
// it was written, or before it was renamed into place, is ESTALE and kept.
func TestSaveOffTheBranch(t *testing.T) {
	m := start(t, harness.Options{})
	dir := m.Session(nested, "messages")
	name := lastUser(t, m, nested)
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.WriteString("a careful answer\n"); err != nil {
		t.Fatal(err)
	}
	if err := put(m.Session(nested, "head_id"), tipDetour+"\n"); err != nil {
		t.Fatal(err)
	}
	before := conversation(t, m, nested)
	refused(t, m, "close", f.Close(), syscall.ESTALE, "conflict")
	if err := put(filepath.Join(dir, "tmp"), "by a rename\n"); err != nil {
		t.Fatal(err)
	}
	refused(t, m, "rename", os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, name)), syscall.ESTALE, "conflict")
	refused(t, m, "open", put(filepath.Join(dir, name), "x\n"), syscall.ENOENT, "not_found")
	if got := conversation(t, m, nested); got != before {
		t.Errorf("the session is %s, was %s", got, before)
	}
	texts := []string{}
	for _, n := range names(t, m.Path(".sessionfs", "failed")) {
		if !strings.Contains(n, nested+"-messages-"+name) {
			t.Errorf("failed/ has %q", n)
		}
		texts = append(texts, read(t, m.Path(".sessionfs", "failed", n)))
	}
	if slices.Sort(texts); !slices.Equal(texts, []string{"a careful answer\n", "by a rename\n"}) {
		t.Errorf("failed/ holds %q", texts)
	}
	if got := read(t, dir, "tmp"); got != "by a rename\n" {
		t.Errorf("the scratch file is %q", got)
	}
}

// TestSaveOverANewerMeta: a saved meta.json changes the keys that were
// changed, and a key that has another value by now is a conflict.
func TestSaveOverANewerMeta(t *testing.T) {
	m := start(t, harness.Options{})
	path := m.Session(nested, "meta.json")
	foreign := harness.NewForeign(t)
	change := func(key, value string) {
		foreign.Do(harness.ForeignRequest{Store: m.Store, Session: nested, Op: "meta", Key: key, Value: value})
		if !soon(func() bool { return strings.Contains(read(t, path), `"`+key+`": `+value) }) {
			t.Fatalf("%s does not show", key)
		}
	}
	edit := func(old string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(old) }

	mine := read(t, path)
	title := text(t, m, nested, "title")
	r := harness.Command(t, t.TempDir(), nil, "sh", "-c", `sed "s/$2/Theirs/" "$1" > x; true`, "sh", path, title) // another reader
	if r.Code != 0 {
		t.Fatal(r.Err)
	}
	foreign.Do(harness.ForeignRequest{Store: m.Store, Session: nested, Op: "meta", Key: "model", Value: `"gpt-x"`})
	if err := put(path, edit(mine, title, "Mine")); err != nil {
		t.Errorf("a save beside another change: %v", err)
	}
	if got := meta(t, m, nested); got["title"] != "Mine" || got["model"] != "gpt-x" || got["_user_titled"] != true {
		t.Errorf("meta.json is %v", got)
	}

	mine = read(t, path)
	foreign.Do(harness.ForeignRequest{Store: m.Store, Session: nested, Op: "meta", Key: "title", Value: `"Theirs"`})
	raw := read(t, m.Repo(nested, "meta.json"))
	refused(t, m, "a save over a newer title", put(path, edit(mine, `"Mine"`, `"Again"`)), syscall.ESTALE, "conflict")
	if got := read(t, m.Repo(nested, "meta.json")); got != raw {
		t.Errorf("meta.json changed to %s", got)
	}
	if got := failed(t, m); len(got) != 1 || !strings.Contains(got[nested+"-meta.json"], `"Again"`) {
		t.Errorf("failed/ holds %q", got)
	}
	change("head_version", "7")
	for what, c := range map[string]struct {
		old, new string
		errno    syscall.Errno
		code     string
	}{
		"another id":        {`"id": "` + nested, `"id": "other`, syscall.EPERM, "immutable"},
		"another birth":     {`"created_at": 1`, `"created_at": 2`, syscall.EPERM, "immutable"},
		"another version":   {`"head_version": 7`, `"head_version": 8`, syscall.EPERM, "immutable"},
		"a head of nothing": {`"head_id": "` + tipTrunk, `"head_id": "nonsense`, syscall.ENOENT, "not_found"},
		"bad JSON":          {`"head_id"`, `head_id`, syscall.EINVAL, "invalid"},
		"a list":            {`{"id"`, `[{"id"`, syscall.EINVAL, "invalid"},
		"a bad title":       {`"title": "Theirs"`, `"title": 5`, syscall.EINVAL, "invalid"},
		"a bad status":      {`"title"`, `"status": "running", "title"`, syscall.EINVAL, "invalid"},
	} {
		raw, now := read(t, m.Repo(nested, "meta.json")), read(t, path)
		refused(t, m, what, put(path, edit(now, c.old, c.new)), c.errno, c.code)
		if got := read(t, m.Repo(nested, "meta.json")); got != raw {
			t.Errorf("%s changed meta.json to %s", what, got)
		}
		for _, n := range names(t, m.Path(".sessionfs", "failed")) {
			if err := os.Remove(m.Path(".sessionfs", "failed", n)); err != nil {
				t.Error(err)
			}
		}
	}
	if err := put(path, edit(read(t, path), tipTrunk+`", "model`, tipDetour+`", "model`)); err != nil {
		t.Errorf("a head: %v", err)
	}
	if got := read(t, m.Session(nested, "head_id")); got != tipDetour+"\n" {
		t.Errorf("head_id is %q", got)
	}
}

// TestFailingCommand: a command that fails behind > changes nothing, and
// leaves nothing in failed/.
func TestFailingCommand(t *testing.T) {
	m := start(t, harness.Options{})
	before, raw := conversation(t, m, nested), read(t, m.Repo(nested, "meta.json"))
	for _, path := range []string{"messages/" + lastUser(t, m, nested), "meta.json", "fields/title", "head_id"} {
		if r := harness.Shell(t, m.Session(nested), `false > "$1"; no-such-command > "$1"`, path); r.Code != 127 {
			t.Errorf("%s: exit status %d, %s", path, r.Code, r.Err)
		}
	}
	if got := conversation(t, m, nested); got != before || read(t, m.Repo(nested, "meta.json")) != raw {
		t.Errorf("the session is %s, was %s", got, before)
	}
	if got := failed(t, m); len(got) > 0 {
		t.Errorf("failed/ holds %q", got)
	}
}

// TestKilledEditor: an editor that is killed in the middle of a save has
// published nothing; what it had written is kept, and its scratch file stays
// until unmount.
func TestKilledEditor(t *testing.T) {
	m := start(t, harness.Options{})
	before, raw := conversation(t, m, nested), read(t, m.Repo(nested, "meta.json"))
	message := lastUser(t, m, nested)
	p := harness.Spawn(t, "open")
	for _, q := range []openRequest{
		{m.Session(nested, "messages", message), "half a mess", os.O_WRONLY | os.O_TRUNC},
		{m.Session(nested, "meta.json"), `{"id": "` + nested, os.O_WRONLY | os.O_TRUNC},
		{m.Session(nested, "messages", "."+message+".swp"), "swap", os.O_RDWR | os.O_CREATE | os.O_EXCL},
		{m.Session(nested, "fields", "title"), "half a ti", os.O_WRONLY | os.O_TRUNC},
		{m.Session(nested, "append", "user"), "half a question", os.O_WRONLY},
	} {
		openIn(t, p, q)
	}
	p.Kill()
	want := map[string]string{nested + "-messages-" + message: "half a mess", nested + "-meta.json": `{"id": "` + nested, nested + "-append-user": "half a question"}
	if !soon(func() bool { return maps.Equal(failed(t, m), want) }) {
		t.Errorf("failed/ holds %q, want %q", failed(t, m), want)
	}
	if got := read(t, m.Session(nested, "messages", "."+message+".swp")); got != "swap" {
		t.Errorf("the scratch file is %q", got)
	}
	m.Stop()
	want[nested+"-messages-."+message+".swp"] = "swap"
	if got := failed(t, m); !maps.Equal(got, want) {
		t.Errorf("after unmount failed/ holds %q, want %q", got, want)
	}
	if got := conversation(t, m, nested); got != before || read(t, m.Repo(nested, "meta.json")) != raw {
		t.Errorf("the session is %s, was %s", got, before)
	}
	pure(t, m, nested)
}

// tmpfs mounts a disk of a size.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a small disk")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+",mode=0700"); err != nil {
		t.Skipf("a small disk cannot be made: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFullDiskOfTheSpool: a text that has no room fails the write, the old
// text stays, and the mount goes on when there is room again.
func TestFullDiskOfTheSpool(t *testing.T) {
	state := tmpfs(t, "1m")
	m := start(t, harness.Options{State: state, Warnings: []string{"could not be kept"}})
	before := conversation(t, m, nested)
	message := m.Session(nested, "messages", lastUser(t, m, nested))
	big := strings.Repeat("a line of text\n", 200_000)
	if err := put(message, big); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a message that has no room: %v", err)
	}
	if err := put(m.Session(nested, "mine"), big); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a scratch file that has no room: %v", err)
	}
	if r := harness.Shell(t, m.Session(nested), `sed -i s/^/x/ "$1"`, message); r.Code == 0 {
		t.Error("sed -i went well without room")
	}
	if got := conversation(t, m, nested); got != before {
		t.Errorf("the session is %s, was %s", got, before)
	}
	for _, n := range names(t, m.Path(".sessionfs", "failed")) {
		if err := os.Remove(m.Path(".sessionfs", "failed", n)); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(os.Remove(m.Session(nested, "mine")), put(message, "a short one\n")); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if got := stored(t, m, nested)[text(t, m, nested, "head_id")].Output; got != "a short one" {
		t.Errorf("the message is %q", got)
	}
}

// TestFullDiskOfTheStore: an edit that the store has no room for is ENOSPC and
// its text is kept; nothing of the session changes.
func TestFullDiskOfTheStore(t *testing.T) {
	dir := tmpfs(t, "8m")
	if r := harness.Shell(t, dir, `cp -a "$1" "$2/sessions"`, harness.Golden(t, "chat_branches"), dir); r.Code != 0 {
		t.Fatal(r.Err)
	}
	m := start(t, harness.Options{Store: filepath.Join(dir, "sessions"), Warnings: []string{".*"}})
	before, raw := conversation(t, m, nested), read(t, m.Repo(nested, "meta.json"))
	message := lastUser(t, m, nested)
	read(t, m.Session(nested, "meta.json"))
	r := harness.Shell(t, dir, `dd if=/dev/zero of=fill bs=64k 2> /dev/null; dd if=/dev/zero of=fill2 bs=512 2> /dev/null; true`)
	if r.Code != 0 {
		t.Fatal(r.Err)
	}
	text := strings.Repeat("no room for this\n", 4000)
	refused(t, m, "an edit", put(m.Session(nested, "messages", message), text), syscall.ENOSPC, "no_space")
	meta := strings.Replace(raw, `"title": "`, `"title": "`+strings.Repeat("x", 10_000), 1)
	refused(t, m, "meta.json", put(m.Session(nested, "meta.json"), meta), syscall.ENOSPC, "no_space")
	refused(t, m, "an append", put(m.Session(nested, "append", "user"), text), syscall.ENOSPC, "no_space")
	want := map[string]string{nested + "-messages-" + message: text, nested + "-meta.json": meta, nested + "-append-user": text}
	if got := failed(t, m); !maps.Equal(got, want) {
		t.Errorf("failed/ holds %d texts: %q", len(got), slices.Collect(maps.Keys(got)))
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "fill")), os.Remove(filepath.Join(dir, "fill2"))); err != nil {
		t.Fatal(err)
	}
	if got := conversation(t, m, nested); got != before || read(t, m.Repo(nested, "meta.json")) != raw {
		t.Errorf("the session is %s, was %s", got, before)
	}
	if err := put(m.Session(nested, "messages", message), "with room again\n"); err != nil {
		t.Error(err)
	}
}
