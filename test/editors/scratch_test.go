package editors

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestNamesOfOurForm: what has the form of a name of the session's own is not
// made by opening it, and not removed; any other name may come and go.
func TestNamesOfOurForm(t *testing.T) {
	m := start(t, harness.Options{})
	s := m.Session(nested)
	for _, name := range []string{"messages/000099-user-deadbeef.md", "messages/1234567-x.md", "problems.txt"} {
		refused(t, m, "create "+name, put(filepath.Join(s, name), "x\n"), syscall.ENOENT, "not_found")
		refused(t, m, "symlink "+name, os.Symlink("x", filepath.Join(s, name)), syscall.ENOENT, "not_found")
		if err := put(filepath.Join(s, "mine"), "x\n"); err != nil {
			t.Fatal(err)
		}
		refused(t, m, "rename to "+name, os.Rename(filepath.Join(s, "mine"), filepath.Join(s, name)), syscall.ENOENT, "not_found")
	}
	for _, name := range []string{"head", "head_id", "meta.json", "ctl", "transcript.md", "fields/title", "fields/id", "messages/" + lastUser(t, m, nested)} {
		refused(t, m, "unlink "+name, syscall.Unlink(filepath.Join(s, name)), syscall.EPERM, "immutable")
	}
	for _, name := range []string{"transcript.md", "ctl", "fields/id", "messages/" + names(t, s, "messages")[1]} {
		refused(t, m, "rename over "+name, os.Rename(filepath.Join(s, "mine"), filepath.Join(s, name)), syscall.EPERM, "immutable")
		refused(t, m, "rename of "+name, os.Rename(filepath.Join(s, name), filepath.Join(s, "copy")), syscall.EPERM, "immutable")
	}
	for _, c := range [][2]string{{"meta.json", "head_id"}, {"fields/title", "fields/group"}, {"meta.json", "head"}} {
		refused(t, m, "rename of "+c[0]+" to "+c[1], os.Rename(filepath.Join(s, c[0]), filepath.Join(s, c[1])), syscall.EPERM, "immutable")
	}
	for _, dir := range []string{"nodes", "history", "branch", "append", "dag", "commits"} {
		if err := put(filepath.Join(s, dir, "mine"), "x\n"); !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) {
			t.Errorf("create in %s: %v", dir, err)
		}
	}
	if err := os.Remove(filepath.Join(s, "mine")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"4913", ".x.swp", "000007-user-x.md~", "messages/" + lastUser(t, m, nested) + "~", "messages/000001-x.bak", "fields/title.orig", "fields/.#title"} {
		path := filepath.Join(s, name)
		if err := put(path, "text\n"); err != nil || read(t, path) != "text\n" {
			t.Errorf("create %s: %v", name, err)
		}
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		if !errors.Is(err, syscall.EEXIST) {
			t.Errorf("create %s again: %d %v", name, fd, err)
		}
		if !slices.Contains(foreign(t, m, nested), name) && !strings.HasPrefix(name, "fields/") && !strings.Contains(name, "x.md") {
			t.Errorf("%s is not listed: %q", name, foreign(t, m, nested))
		}
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("after unlink of %s: %v", name, err)
		}
	}
	pure(t, m, nested)
}

// TestCopiesStay: a writable file that is renamed away is copied and stays,
// and every name shows at once what it should, in the directory's listing too.
func TestCopiesStay(t *testing.T) {
	m := start(t, harness.Options{})
	s := m.Session(nested)
	for _, name := range []string{"meta.json", "head_id", "fields/title", "messages/" + lastUser(t, m, nested)} {
		path := filepath.Join(s, name)
		was := read(t, path)
		var st, after unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := os.Rename(path, path+"~"); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := read(t, path); got != was {
				t.Fatalf("%s is %q, was %q", name, got, was)
			}
			if got := read(t, path+"~"); got != was {
				t.Fatalf("the copy of %s is %q", name, got)
			}
			if err := unix.Stat(path, &after); err != nil || after.Ino != st.Ino {
				t.Fatalf("%s: inode %d, was %d, %v", name, after.Ino, st.Ino, err)
			}
			list := names(t, filepath.Dir(path))
			if !slices.Contains(list, filepath.Base(path)) || !slices.Contains(list, filepath.Base(path)+"~") {
				t.Fatalf("the listing is %q", list)
			}
			// And back: what is there already is no change.
			if err := os.Rename(path+"~", path); err != nil {
				t.Fatalf("%s back: %v", name, err)
			}
			if slices.Contains(names(t, filepath.Dir(path)), filepath.Base(path)+"~") {
				t.Fatalf("the copy of %s is still listed", name)
			}
			if got := read(t, path); got != was {
				t.Fatalf("%s is %q, was %q", name, got, was)
			}
		}
	}
	if got := failed(t, m); len(got) > 0 {
		t.Errorf("failed/ holds %q", got)
	}
}

// TestRenamesOfOnesOwn: scratch files and links are renamed among the three
// directories as on any disk, and not out of the session.
func TestRenamesOfOnesOwn(t *testing.T) {
	m := start(t, harness.Options{})
	s := m.Session(nested)
	p := func(name string) string { return filepath.Join(s, name) }
	err := errors.Join(put(p("a"), "a"), put(p("fields/b"), "b"), os.Symlink("to", p("messages/l")))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, p("a"), unix.AT_FDCWD, p("fields/b"), unix.RENAME_NOREPLACE); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("RENAME_NOREPLACE: %v", err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, p("a"), unix.AT_FDCWD, p("fields/b"), unix.RENAME_EXCHANGE); err != nil || read(t, p("a")) != "b" || read(t, p("fields/b")) != "a" {
		t.Errorf("RENAME_EXCHANGE: %v, %q and %q", err, read(t, p("a")), read(t, p("fields/b")))
	}
	if err := os.Rename(p("a"), p("messages/c")); err != nil || read(t, p("messages/c")) != "b" {
		t.Errorf("rename to another directory: %v", err)
	}
	if err := os.Rename(p("messages/c"), p("fields/b")); err != nil || read(t, p("fields/b")) != "b" {
		t.Errorf("rename over a file: %v", err)
	}
	if err := os.Rename(p("messages/l"), p("k")); err != nil {
		t.Errorf("rename of a link: %v", err)
	}
	if to, err := os.Readlink(p("k")); err != nil || to != "to" {
		t.Errorf("the link says %q, %v", to, err)
	}
	if err := os.Rename(p("k"), p("fields/title")); !errors.Is(err, syscall.EPERM) {
		t.Errorf("a link over a field: %v", err)
	}
	if err := os.Rename(p("fields/b"), m.Session(retry, "b")); !errors.Is(err, syscall.EXDEV) {
		t.Errorf("rename to another session: %v", err)
	}
	if r := harness.Shell(t, s, `mv fields/b "$1" && cat "$1" && rm "$1" && rm k`, m.Session(retry, "b")); r.Code != 0 || r.Out != "b" {
		t.Errorf("mv to another session: exit status %d, %q, %s", r.Code, r.Out, r.Err)
	}
	if left := foreign(t, m, nested); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestUnlinkedWhileOpen: a scratch file without a name lives as long as it is
// open, and then leaves nothing.
func TestUnlinkedWhileOpen(t *testing.T) {
	m := start(t, harness.Options{})
	f, err := os.Create(m.Session(nested, "gone"))
	if err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("x", 200_000)
	_, err = f.WriteString(big)
	err = errors.Join(err, os.Remove(f.Name()))
	b := make([]byte, len(big))
	_, bad := f.ReadAt(b, 0)
	if err = errors.Join(err, bad); err != nil || string(b) != big {
		t.Errorf("a file without a name: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	m.Stop()
	if got := failed(t, m); len(got) > 0 {
		t.Errorf("failed/ holds %d texts", len(got))
	}
}

// TestScratchRoom: one scratch file takes 64 MiB and all of a mount 256 MiB;
// beyond that is no space, and what is removed gives its room back.
func TestScratchRoom(t *testing.T) {
	m := start(t, harness.Options{})
	const mib = 1 << 20
	fill := func(name string, size int64) error {
		f, err := os.Create(m.Session(nested, name))
		if err != nil {
			return err
		}
		return errors.Join(f.Truncate(size), f.Close())
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := fill(name, 64*mib); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	refused(t, m, "a fifth file", fill("e", mib), syscall.ENOSPC, "no_space")
	if err := os.Remove(m.Session(nested, "a")); err != nil {
		t.Fatal(err)
	}
	refused(t, m, "too large a file", fill("e", 64*mib+1), syscall.ENOSPC, "no_space")
	if err := fill("e", mib); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := put(m.Session(nested, "messages", lastUser(t, m, nested)), "an edit has room\n"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"b", "c", "d", "e"} {
		if err := os.Remove(m.Session(nested, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestHeadByFiles: a reference in a file of one's own, renamed over head_id or
// head, moves the head, and so does what is written to a head that is not
// there.
func TestHeadByFiles(t *testing.T) {
	m := start(t, harness.Options{})
	s := m.Session(nested)
	for i, name := range []string{"head_id", "head", "head_id", "head"} {
		to := []string{tipDetour, tipTrunk}[i%2]
		if err := errors.Join(put(filepath.Join(s, "new"), to+"\n"), os.Rename(filepath.Join(s, "new"), filepath.Join(s, name))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := read(t, s, "head_id"); got != to+"\n" || text(t, m, nested, "head_id") != to {
			t.Errorf("head_id is %q, want %q", got, to)
		}
		if link, err := os.Readlink(filepath.Join(s, "head")); err != nil || !strings.Contains(link, to) {
			t.Errorf("head is %q, %v", link, err)
		}
	}
	if err := put(filepath.Join(s, "new"), "some words\n"); err != nil {
		t.Fatal(err)
	}
	refused(t, m, "a text over head", os.Rename(filepath.Join(s, "new"), filepath.Join(s, "head")), syscall.EPERM, "immutable")
	refused(t, m, "a text over head_id", os.Rename(filepath.Join(s, "new"), filepath.Join(s, "head_id")), syscall.ENOENT, "not_found")
	if err := os.Mkdir(m.Session("fresh"), 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, m, "head of an empty session", put(m.Session("fresh", "head"), "nothing\n"), syscall.EPERM, "immutable")
	if _, err := os.Lstat(m.Session("fresh", "head")); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("head of an empty session: %v", err)
	}
}

// TestEditsDuringARun: while a run is active no edit begins, and one that had
// begun is refused and kept.
func TestEditsDuringARun(t *testing.T) {
	m := start(t, harness.Options{})
	path := m.Session(nested, "messages", lastUser(t, m, nested))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("begun before\n"); err != nil {
		t.Fatal(err)
	}
	ctl, err := os.OpenFile(m.Session(nested, "ctl"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ctl.WriteString("begin\n"); err != nil {
		t.Fatal(err)
	}
	before := conversation(t, m, nested)
	refused(t, m, "close", f.Close(), syscall.EBUSY, "run_active")
	refused(t, m, "open", put(path, "x\n"), syscall.EBUSY, "run_active")
	if err := put(path+".new", "by a rename\n"); err != nil {
		t.Fatal(err)
	}
	refused(t, m, "rename", os.Rename(path+".new", path), syscall.EBUSY, "run_active")
	if got := conversation(t, m, nested); got != before {
		t.Errorf("the session is %s, was %s", got, before)
	}
	if _, err := ctl.WriteString("end\n"); err != nil {
		t.Error(err)
	}
	if err := errors.Join(ctl.Close(), os.Rename(path+".new", path)); err != nil {
		t.Errorf("after the run: %v", err)
	}
	if got := stored(t, m, nested)[text(t, m, nested, "head_id")].Output; got != "by a rename" {
		t.Errorf("the message is %q", got)
	}
	n := 0
	for _, name := range names(t, m.Path(".sessionfs", "failed")) {
		if !strings.Contains(name, "-messages-") {
			t.Errorf("failed/ has %q", name)
		}
		n++
	}
	if n != 2 {
		t.Errorf("failed/ holds %d texts, want 2", n)
	}
}

// TestOtherSpeakers: only a user's message can be edited, and nothing can be
// written on a read-only mount.
func TestOtherSpeakers(t *testing.T) {
	store := harness.Golden(t, "chat_branches")
	t.Run("writable", func(t *testing.T) {
		m := start(t, harness.Options{Store: store})
		for _, name := range names(t, m.Session(nested, "messages")) {
			path := m.Session(nested, "messages", name)
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if user := strings.Contains(name, "-user-"); user != (st.Mode().Perm() == 0o600) || !user && st.Mode().Perm() != 0o400 {
				t.Errorf("%s has mode %o", name, st.Mode().Perm())
			} else if !user {
				refused(t, m, "a write to "+name, put(path, "x\n"), syscall.EPERM, "immutable")
			}
		}
	})
	t.Run("read-only", func(t *testing.T) {
		m := start(t, harness.Options{Store: store, Args: []string{"--read-only"}, Warnings: []string{"registry is rebuilt"}})
		for _, path := range []string{"meta.json", "mine", "fields/mine", "messages/" + lastUser(t, m, nested), "messages/mine"} {
			if err := put(m.Session(nested, path), "x\n"); !errors.Is(err, syscall.EROFS) {
				t.Errorf("%s: %v", path, err)
			}
		}
	})
}
