package editors

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/test/harness"
)

// protocol is how a program saves a file, call by call. The save went well, or
// some call failed and the old text is there: never an end without an error
// and another text.
type protocol struct {
	name string
	save func(path string, text []byte) error
	must bool // it must go well
}

// whole writes a file from its start with the given flags.
func whole(path string, flags int, text []byte, after func(fd int) error) error {
	fd, err := unix.Open(path, flags, 0o644)
	if err != nil {
		return err
	}
	err = writeAll(fd, text)
	if err == nil && after != nil {
		err = after(fd)
	}
	return errors.Join(err, unix.Close(fd))
}

func writeAll(fd int, text []byte) error {
	for len(text) > 0 {
		n, err := unix.Write(fd, text)
		if err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

func inPlace(path string, text []byte) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT, 0o644)
	if err != nil {
		return err
	}
	err = unix.Ftruncate(fd, 0)
	if err == nil {
		err = writeAll(fd, text)
	}
	if err == nil {
		err = unix.Fsync(fd)
	}
	_ = unix.Fchmod(fd, 0o644)
	err = errors.Join(err, unix.Close(fd))
	_ = unix.Setxattr(path, "system.posix_acl_access", []byte("\x02\x00\x00\x00"), 0)
	return err
}

const truncating = unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC

// probe makes, in the way of vim and emacs, the files that stand beside a
// file while it is edited; the returned function takes them away.
func probe(path string) func() error {
	dir, base := filepath.Split(path)
	swap, lock := filepath.Join(dir, "."+base+".swp"), filepath.Join(dir, ".#"+base)
	var errs []error
	for _, name := range []string{swap, swap + "x", filepath.Join(dir, "4913")} {
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
		if err == nil {
			err = errors.Join(writeAll(fd, []byte("b0VIM 9.0"+strings.Repeat("\x00", 4000))), unix.Fsync(fd),
				unix.Fchown(fd, os.Getuid(), os.Getgid()), unix.Close(fd))
		}
		if _, twice := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600); !errors.Is(twice, unix.EEXIST) {
			err = errors.Join(err, errors.New("O_EXCL made "+name+" twice"))
		}
		errs = append(errs, err)
		if name != swap {
			errs = append(errs, unix.Unlink(name))
		}
	}
	errs = append(errs, unix.Symlink("me@host.123:456", lock))
	return func() error { return errors.Join(append(errs, unix.Unlink(swap), unix.Unlink(lock))...) }
}

func protocols() []protocol {
	return []protocol{
		{"in place", inPlace, true},
		{"in place, with swap file and lock", func(p string, b []byte) error {
			done := probe(p)
			return errors.Join(inPlace(p, b), done())
		}, true},
		{"emacs", func(p string, b []byte) error {
			fd, err := unix.Open(p, truncating, 0o666)
			if err != nil {
				return err
			}
			err = errors.Join(writeAll(fd, b[:6]), writeAll(fd, b[6:]))
			var st unix.Stat_t
			return errors.Join(err, unix.Fstat(fd, &st), unix.Close(fd))
		}, true},
		{"vscode", func(p string, b []byte) error { return whole(p, truncating, b, unix.Fdatasync) }, true},
		{"nano", func(p string, b []byte) error { return whole(p, truncating, b, nil) }, true},
		{"vim by rename", func(p string, b []byte) error {
			_ = unix.Unlink(p + "~")
			if err := unix.Rename(p, p+"~"); err != nil {
				return err
			}
			err := whole(p, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, b, unix.Fsync)
			if err != nil {
				return errors.Join(err, unix.Rename(p+"~", p))
			}
			return unix.Unlink(p + "~")
		}, false},
		{"vim by rename, not exclusive", func(p string, b []byte) error {
			if err := unix.Rename(p, p+"~"); err != nil {
				return err
			}
			return errors.Join(whole(p, truncating, b, unix.Fsync), unix.Unlink(p+"~"))
		}, true},
		{"sed -i", func(p string, b []byte) error {
			t := filepath.Join(filepath.Dir(p), "sedAbC123")
			err := whole(t, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, b, func(fd int) error { return unix.Fchmod(fd, 0o600) })
			return errors.Join(err, unix.Rename(t, p))
		}, true},
		{"rename while it is open", func(p string, b []byte) error {
			t := filepath.Join(filepath.Dir(p), ".tmpXYZ")
			return whole(t, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, b, func(fd int) error {
				return errors.Join(unix.Rename(t, p), unix.Fsync(fd))
			})
		}, true},
		{"jetbrains", func(p string, b []byte) error {
			t, old := p+"___jb_tmp___", p+"___jb_old___"
			return errors.Join(whole(t, truncating, b, unix.Fsync), unix.Rename(p, old), unix.Rename(t, p), unix.Unlink(old))
		}, true},
		{"gedit", func(p string, b []byte) error {
			t := filepath.Join(filepath.Dir(p), ".goutputstream-A1B2C3")
			err := whole(t, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, b, unix.Fsync)
			_ = unix.Link(p, p+"~")
			return errors.Join(err, unix.Rename(t, p))
		}, true},
		{"mv with RENAME_NOREPLACE", func(p string, b []byte) error {
			t := filepath.Join(filepath.Dir(p), "g.new")
			err := whole(t, truncating, b, nil)
			if no := unix.Renameat2(unix.AT_FDCWD, t, unix.AT_FDCWD, p, unix.RENAME_NOREPLACE); !errors.Is(no, unix.EEXIST) {
				err = errors.Join(err, errors.New("RENAME_NOREPLACE did not refuse"))
			}
			return errors.Join(err, unix.Rename(t, p))
		}, true},
		{"RENAME_EXCHANGE", func(p string, b []byte) error {
			t := filepath.Join(filepath.Dir(p), "x.new")
			old, err := os.ReadFile(p)
			err = errors.Join(err, whole(t, truncating, b, nil), unix.Renameat2(unix.AT_FDCWD, t, unix.AT_FDCWD, p, unix.RENAME_EXCHANGE))
			if got, _ := os.ReadFile(t); string(got) != string(old) {
				err = errors.Join(err, errors.New("the other name does not hold the old text"))
			}
			return errors.Join(err, unix.Unlink(t))
		}, true},
	}
}

// TestProtocols: the save protocols of programs, on each kind of file. The new
// text is readable at once, and nothing is left beside it.
func TestProtocols(t *testing.T) {
	for _, sub := range subjects() {
		t.Run(sub.name, func(t *testing.T) {
			m := start(t, harness.Options{})
			for _, p := range protocols() {
				t.Run(p.name, func(t *testing.T) {
					sub.set(t, m, "alpha")
					path, count := sub.path(t, m), len(stored(t, m, nested))
					old := read(t, path)
					err := p.save(path, []byte(strings.ReplaceAll(old, "alpha", "gamma")))
					if err != nil && p.must {
						t.Errorf("the save failed: %v", err)
					}
					want := "gamma"
					if err != nil {
						want = "alpha"
					}
					if got := sub.holds(t, m); got != want {
						t.Errorf("after %v the store holds %q, want %q", err, got, want)
					}
					if got := read(t, sub.path(t, m)); !strings.Contains(got, want) {
						t.Errorf("after %v the file holds %.60q", err, got)
					}
					if n := len(stored(t, m, nested)) - count; sub.adds && (n == 1) != (err == nil) {
						t.Errorf("after %v there are %d more messages", err, n)
					}
					var left []string
					if sub.name == "attachment" && p.name == "gedit" {
						left = []string{"~"} // a hard link, as on any disk
					}
					tool{left: left}.leaves(t, m, sub, path)
				})
			}
			if kept := failed(t, m); len(kept) > 0 {
				t.Errorf("failed/ holds %q", kept)
			}
		})
	}
}

// TestWritesAfterTheRename: what is written through a descriptor of a
// temporary file after it was renamed over a file belongs to that file.
func TestWritesAfterTheRename(t *testing.T) {
	m := start(t, harness.Options{})
	dir := m.Session(nested, "messages")
	path, count := filepath.Join(dir, lastUser(t, m, nested)), len(stored(t, m, nested))
	f, err := os.Create(filepath.Join(dir, "tmp"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("one\n")
	err = errors.Join(err, os.Rename(filepath.Join(dir, "tmp"), path))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("two\n")
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	n := stored(t, m, nested)
	if got := n[text(t, m, nested, "head_id")].Output; got != "one\ntwo" || len(n) != count+1 {
		t.Errorf("the message is %q, one of %d new", got, len(n)-count)
	}
	if left := foreign(t, m, nested); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestValueRedirections: a field is one value. What would change a part of it
// is refused with an errno, and what starts or continues one is applied.
func TestValueRedirections(t *testing.T) {
	m := start(t, harness.Options{})
	for _, c := range []struct {
		script string
		code   bool // it goes well
		want   string
	}{
		{`printf 'one\n' > "$1"`, true, "one"},
		{`printf 'two\n' >> "$1"`, true, "two"},
		{`{ printf thr; printf 'ee\n'; } > "$1"`, true, "three"},
		{`exec 3> "$1"; printf fo >&3; (printf ur >&3); printf '\n' >&3; exec 3>&-`, true, "four"},
		{`printf XX | dd of="$1" bs=1 seek=4 conv=notrunc status=none`, false, "four"},
		{`truncate -s 2 "$1"`, false, "four"},
		{`: > "$1"`, true, "four"},
		{`false > "$1"`, false, "four"},
		{`head -c 300000 /dev/zero | tr '\0' q > "$1"`, false, "four"},
		{`printf 'a\nb\n' | cat > "$1"`, false, "four"},
		{`printf 'five' > "$1"`, true, "five"},
		{`(echo one; echo two) > "$1"`, false, "one"},
		{`echo more; exec 3> "$1"; echo three >&3; echo four >> /dev/fd/3; echo five >&3`, false, "four"},
		{`exec 3>> "$1"; echo one >&3; printf '\n' >&3`, false, "one"},
		{`printf 'five' > "$1"`, true, "five"},
		{`printf 'six\n' > "$1.tmp" && mv "$1.tmp" "$1"`, true, "six"},
		{`printf 'a\nb\n' > "$1.tmp"; mv "$1.tmp" "$1"; e=$?; rm "$1.tmp"; exit $e`, false, "six"},
	} {
		r := harness.Command(t, t.TempDir(), nil, "bash", "-c", c.script, "bash", m.Session(nested, "fields", "title"))
		if (r.Code == 0) != c.code {
			t.Errorf("%s: exit status %d, %s", c.script, r.Code, r.Err)
		}
		if got := text(t, m, nested, "title"); got != c.want {
			t.Errorf("%s: title is %q, want %q", c.script, got, c.want)
		}
	}
}

// TestMessageRedirections: a message is a document. Each new text is one edit,
// an append and a write in the middle keep the rest of the text, and what ends
// as it began is no edit.
func TestMessageRedirections(t *testing.T) {
	m := start(t, harness.Options{})
	const big = 300_000
	for _, c := range []struct {
		script string
		edits  int
		want   string
	}{
		{`printf 'one\n' > "$1"`, 1, "one"},
		{`printf 'two\n' >> "$1"`, 1, "one\ntwo"},
		{`echo three | tee -a "$1" > /dev/null`, 1, "one\ntwo\nthree"},
		{`{ echo a; /bin/echo b; cat /dev/null; echo c; } > "$1"`, 1, "a\nb\nc"},
		{`exec 3>> "$1"; echo d >&3; (echo e >&3); /bin/echo f >&3; exec 3>&-`, 1, "a\nb\nc\nd\ne\nf"},
		{`printf 0123456789 > "$1"`, 1, "0123456789"},
		{`printf XX | dd of="$1" bs=1 seek=4 conv=notrunc status=none`, 1, "0123XX6789"},
		{`truncate -s 4 "$1"`, 1, "0123"},
		{`: > "$1"`, 0, "0123"},
		{`false > "$1"`, 0, "0123"},
		{`printf 0123 > "$1"`, 0, "0123"},
		{`cat "$1" > "$2/x" && cp "$2/x" "$1"`, 0, "0123"},
		{`perl -e 'truncate($ARGV[0], 2) or die' "$1"`, 1, "01"},
		{`head -c 300000 /dev/zero | tr '\0' q > "$1"`, 1, strings.Repeat("q", big)},
	} {
		count := len(stored(t, m, nested))
		r := harness.Command(t, t.TempDir(), nil, "bash", "-c", c.script, "bash", m.Session(nested, "messages", lastUser(t, m, nested)), t.TempDir())
		if r.Code != 0 && !strings.HasPrefix(c.script, "false") {
			t.Errorf("%s: exit status %d, %s", c.script, r.Code, r.Err)
		}
		n := stored(t, m, nested)
		head := text(t, m, nested, "head_id")
		if c.edits == 0 {
			head = headOfLast(t, m)
		}
		if got := n[head].Output; got != c.want || len(n) != count+c.edits {
			t.Errorf("%s: the message is %.40q, want %.40q; %d edits, want %d", c.script, got, c.want, len(n)-count, c.edits)
		}
	}
	if kept := failed(t, m); len(kept) > 0 {
		t.Errorf("failed/ holds %q", kept)
	}
}

// headOfLast is the node of the last user's message.
func headOfLast(t *testing.T, m *harness.Mount) string {
	t.Helper()
	name := lastUser(t, m, nested)
	short := strings.TrimSuffix(name[strings.LastIndexByte(name, '-')+1:], ".md")
	for id := range stored(t, m, nested) {
		if strings.HasPrefix(id, short) {
			return id
		}
	}
	t.Fatalf("no node is %s", name)
	return ""
}

// TestMetaInParts: meta.json that comes from several programs, one after the
// other on one descriptor, is whole at the end: what was kept of its first
// parts is taken back.
func TestMetaInParts(t *testing.T) {
	m := start(t, harness.Options{})
	r := harness.Shell(t, t.TempDir(), `sed "s/$2/In Parts/" "$1" > all; head -c 40 all > a; tail -c +41 all > b; (cat a; sleep 0.05; cat b) > "$1"`,
		m.Session(nested, "meta.json"), text(t, m, nested, "title"))
	if got := text(t, m, nested, "title"); got != "In Parts" {
		t.Errorf("title is %q; exit status %d, %s", got, r.Code, r.Err)
	}
	if got := failed(t, m); len(got) > 0 {
		t.Errorf("failed/ holds %q", got)
	}
}

// TestBuildsCostFewCommits: files that live for a moment, made and removed by
// different programs, do not each make a commit.
func TestBuildsCostFewCommits(t *testing.T) {
	m := start(t, harness.Options{})
	count := git(t, m, nested, "rev-list", "--count", "HEAD")
	if r := harness.Shell(t, m.Session(nested, "workdir"), `for i in 1 2 3 4 5 6; do echo $i > conftest.c; cp conftest.c conftest.o; rm -f conftest.c conftest.o; done`); r.Code != 0 {
		t.Error(r.Err)
	}
	if got := git(t, m, nested, "rev-list", "--count", "HEAD~1"); got != count {
		t.Errorf("more than one commit: %s before the last, %s at first", got, count)
	}
}
