package editors

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// subject is a file that tools edit: one word of it becomes another.
type subject struct {
	name string
	// path is the file as it is called now.
	path func(t *testing.T, m *harness.Mount) string
	// set gives it a text with a word.
	set func(t *testing.T, m *harness.Mount, word string)
	// holds tells what the store has in the place of the word.
	holds func(t *testing.T, m *harness.Mount) string
	// adds tells that each new text is a new message.
	adds bool
}

func subjects() []subject {
	title := func(t *testing.T, m *harness.Mount) string { return text(t, m, nested, "title") }
	setTitle := func(t *testing.T, m *harness.Mount, word string) {
		t.Helper()
		if err := put(m.Session(nested, "fields", "title"), word+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	return []subject{
		{name: "field", path: func(_ *testing.T, m *harness.Mount) string { return m.Session(nested, "fields", "title") }, set: setTitle, holds: title},
		{name: "meta.json", path: func(_ *testing.T, m *harness.Mount) string { return m.Session(nested, "meta.json") }, set: setTitle, holds: title},
		{name: "message", adds: true,
			path: func(t *testing.T, m *harness.Mount) string {
				return m.Session(nested, "messages", lastUser(t, m, nested))
			},
			set: func(t *testing.T, m *harness.Mount, word string) {
				t.Helper()
				if err := put(m.Session(nested, "messages", lastUser(t, m, nested)), "the word "+word+" here\nand another line\n"); err != nil {
					t.Fatal(err)
				}
			},
			holds: func(t *testing.T, m *harness.Mount) string {
				out, _ := stored(t, m, nested)[text(t, m, nested, "head_id")].Output.(string)
				out, _ = strings.CutPrefix(out, "the word ")
				out, _ = strings.CutSuffix(out, " here\nand another line")
				return out
			}},
		{name: "attachment", path: func(_ *testing.T, m *harness.Mount) string { return m.Session(nested, "attachments", "note.txt") },
			set: func(t *testing.T, m *harness.Mount, word string) {
				t.Helper()
				if err := put(m.Session(nested, "attachments", "note.txt"), word+"\n"); err != nil {
					t.Fatal(err)
				}
			},
			holds: func(t *testing.T, m *harness.Mount) string {
				return strings.TrimSuffix(read(t, m.Repo(nested, "workdir", "attachments", "note.txt")), "\n")
			}},
	}
}

// tool replaces the word $2 by $3 in the file $1. $4 is a directory outside
// the mount.
type tool struct {
	name, program, script string
	// left are the patterns of files that it leaves beside the file, as it
	// does everywhere.
	left []string
	// refused are the subjects on which it fails, with the old text intact.
	refused []string
}

const synthetic = "field meta.json message"

func tools() []tool {
	vim := func(name, opt string, left ...string) tool {
		return tool{name: "vim " + name, program: "vim", left: left,
			script: `vim -N -u DEFAULTS -i NONE -es -c "set backupskip= ` + opt + `" -c "%s/$2/$3/" -c wq "$1" > /dev/null`}
	}
	edit := `sed "s/$2/$3/" "$1" > "$4/new" && `
	all := strings.Fields(synthetic)
	return []tool{
		vim("default", ""), vim("backupcopy=yes", "backupcopy=yes"), vim("backupcopy=no", "backupcopy=no"), vim("backupcopy=auto", "backupcopy=auto"),
		vim("writebackup", "writebackup"), vim("nowritebackup", "nowritebackup"), vim("noswapfile", "noswapfile"), vim("backup", "backup", "~"),
		{name: "emacs", program: "emacs", left: []string{"~"}, script: `emacs -Q --batch --eval '(setq backup-enable-predicate (quote always))' "$1" --eval "(progn (while (search-forward \"$2\" nil t) (replace-match \"$3\")) (save-buffer))" 2> /dev/null`},
		{name: "sed -i", program: "sed", script: `sed -i "s/$2/$3/" "$1"`},
		{name: "sed -i.bak", program: "sed", script: `sed -i.bak "s/$2/$3/" "$1"`, left: []string{".bak"}},
		{name: "perl -i", program: "perl", script: `perl -pi -e "s/$2/$3/" "$1"`},
		{name: "perl -i.bak", program: "perl", script: `perl -pi.bak -e "s/$2/$3/" "$1"`, left: []string{".bak"}},
		{name: "busybox sed -i", program: "busybox", script: `busybox sed -i "s/$2/$3/" "$1"`},
		{name: "ed", program: "ed", script: `printf ",s/$2/$3/\nw\nq\n" | ed -s "$1" 2> /dev/null`},
		{name: "cp", program: "cp", script: edit + `cp "$4/new" "$1"`},
		{name: "cat >", program: "cat", script: edit + `cat "$4/new" > "$1"`},
		{name: "mv beside", program: "mv", script: `sed "s/$2/$3/" "$1" > "$(dirname "$1")/new.tmp" && mv "$(dirname "$1")/new.tmp" "$1"`},
		{name: "mv -T beside", program: "mv", script: `sed "s/$2/$3/" "$1" > "$(dirname "$1")/.new" && mv -fT "$(dirname "$1")/.new" "$1"`},
		{name: "tee", program: "tee", script: edit + `tee "$1" < "$4/new" > /dev/null`},
		{name: "truncate and append", program: "truncate", script: edit + `exec 3<> "$1" && truncate -s 0 /proc/self/fd/3 && cat "$4/new" >&3`},
		{name: "dd", program: "dd", script: edit + `dd if="$4/new" of="$1" status=none`},
		{name: "dd in the middle", program: "dd", script: `printf "%s" "$3" | dd of="$1" bs=1 seek="$(grep -obF "$2" "$1" | head -n 1 | cut -d: -f1)" conv=notrunc status=none`},
		{name: "patch", program: "patch", script: edit + `diff -u "$1" "$4/new" > "$4/diff"; patch -s "$1" < "$4/diff"`},
		{name: "rsync -a", program: "rsync", script: `mkdir -p "$4/d" && sed "s/$2/$3/" "$1" > "$4/d/$(basename "$1")" && rsync -aI "$4/d/$(basename "$1")" "$(dirname "$1")/"`},
		{name: "git diff --no-index", program: "git", script: edit + `git diff --no-index "$1" "$4/new" | grep -q "^+.*$3" && cp "$4/new" "$1"`},
		{name: "install", program: "install", refused: all, script: edit + `install -m 600 "$4/new" "$1"`},
		{name: "cp --remove-destination", program: "cp", refused: all, script: edit + `cp --remove-destination "$4/new" "$1"`},
		{name: "mv from outside", program: "mv", refused: all, script: edit + `mv -f "$4/new" "$1"`},
		{name: "tar x", program: "tar", refused: all, script: `mkdir -p "$4/t" && sed "s/$2/$3/" "$1" > "$4/t/$(basename "$1")" && tar -C "$4/t" -cf "$4/t.tar" "$(basename "$1")" && cd "$(dirname "$1")" && tar xf "$4/t.tar"`},
	}
}

// TestTools: each tool saves each kind of file, or fails with the old text
// intact; nothing of its own is left but the backups that it means to leave,
// and nothing of it reaches the store.
func TestTools(t *testing.T) {
	for _, sub := range subjects() {
		t.Run(sub.name, func(t *testing.T) {
			m := start(t, harness.Options{})
			for _, tl := range tools() {
				t.Run(tl.name, func(t *testing.T) {
					need(t, tl.program)
					tl.run(t, m, sub)
				})
			}
			if kept := failed(t, m); len(kept) > 0 {
				t.Errorf("failed/ holds %q", kept)
			}
		})
	}
}

func (tl tool) run(t *testing.T, m *harness.Mount, sub subject) {
	t.Helper()
	sub.set(t, m, "alpha")
	path, count := sub.path(t, m), len(stored(t, m, nested))
	r := harness.Shell(t, t.TempDir(), tl.script, path, "alpha", "gamma", t.TempDir())
	refused := slices.Contains(tl.refused, sub.name)
	want, added := "gamma", 1
	if refused {
		want, added = "alpha", 0
	}
	if (r.Code != 0) != refused {
		t.Errorf("exit status %d: %s %s", r.Code, r.Out, r.Err)
	}
	if got := sub.holds(t, m); got != want {
		t.Errorf("the store holds %q, want %q", got, want)
	}
	if sub.adds && len(stored(t, m, nested)) != count+added {
		t.Errorf("%d messages were added, want %d", len(stored(t, m, nested))-count, added)
	}
	tl.leaves(t, m, sub, path)
}

// leaves checks what is beside the file, and takes it away.
func (tl tool) leaves(t *testing.T, m *harness.Mount, sub subject, path string) {
	t.Helper()
	pure(t, m, nested)
	var want []string
	for _, end := range tl.left {
		want = append(want, filepath.Base(path)+end)
	}
	extra := foreign(t, m, nested)
	if sub.name == "attachment" {
		for _, n := range names(t, filepath.Dir(path)) {
			if n != "note.txt" {
				extra = append(extra, "attachments/"+n)
			}
		}
	}
	var got []string
	for _, n := range extra {
		got = append(got, filepath.Base(n))
		if err := os.Remove(m.Session(nested, n)); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("left beside the file: %q, want %q", got, want)
	}
}

// screen is a program on a terminal of its own.
type screen struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	mu   sync.Mutex
	out  bytes.Buffer
	done chan error
}

// onScreen starts a program on a terminal.
func onScreen(t *testing.T, argv ...string) *screen {
	t.Helper()
	need(t, "script")
	var quoted []string
	for _, a := range argv {
		quoted = append(quoted, "'"+a+"'")
	}
	s := &screen{t: t, done: make(chan error, 1)}
	s.cmd = exec.Command("script", "-qfec", "stty cols 100 rows 30; exec "+strings.Join(quoted, " "), "/dev/null")
	s.cmd.Env = append(harness.Environ(t.TempDir()), "TERM=xterm", "TMPDIR="+ownTemp(t))
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.Stdout, s.cmd.Stderr = s, s
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.done <- s.cmd.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) })
	return s
}

// ownTemp is a directory for temporary files of a program that may leave a
// process behind for a while, as emacs' background compiler is one.
func ownTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "editor-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var err error
		if !harness.Wait(harness.Slow(5*time.Second), func() bool { err = os.RemoveAll(dir); return err == nil }) {
			t.Error(err)
		}
	})
	return dir
}

// Write takes what the program shows.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *screen) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// after types keys once the program has shown a text since the last keys.
func (s *screen) after(show, keys string) {
	s.t.Helper()
	if !harness.Wait(harness.Slow(15*time.Second), func() bool { return strings.Contains(s.shown(), show) }) {
		s.t.Fatalf("%q is not shown:\n%q", show, s.shown())
	}
	s.mu.Lock()
	s.out.Reset()
	s.mu.Unlock()
	if _, err := io.WriteString(s.in, keys); err != nil {
		s.t.Fatal(err)
	}
}

// end waits for the program's end.
func (s *screen) end() {
	s.t.Helper()
	select {
	case err := <-s.done:
		if err != nil {
			s.t.Errorf("%v:\n%q", err, s.shown())
		}
	case <-time.After(harness.Slow(15 * time.Second)):
		s.t.Fatalf("the program does not end:\n%q", s.shown())
	}
}

// TestScreens: the full-screen editors with their keys, as a user has them.
func TestScreens(t *testing.T) {
	screens := map[string]func(t *testing.T, path string){
		"vim": func(t *testing.T, path string) {
			s := onScreen(t, "vim", "-u", "DEFAULTS", "-i", "NONE", "--cmd", "set backupskip=", path)
			s.after("alpha", ":%s/alpha/gamma/\r")
			s.after("gamma", ":wq\r")
			s.end()
		},
		"nano": func(t *testing.T, path string) {
			s := onScreen(t, "nano", "--ignorercfiles", "--nowrap", path)
			s.after("alpha", "\x1c") // replace
			s.after("Search (to replace)", "alpha\r")
			s.after("Replace with", "gamma\r")
			s.after("this instance?", "A")
			s.after("Replaced 1 occurrence", "\x0f") // write out
			s.after("File Name to Write", "\r")
			s.after("Wrote", "\x18")
			s.end()
		},
		"emacs": func(t *testing.T, path string) {
			s := onScreen(t, "emacs", "-Q", "-nw", "--eval", "(setq native-comp-deferred-compilation nil native-comp-jit-compilation nil backup-enable-predicate (quote always))", path)
			s.after("alpha", "\x1b%")
			s.after("Query replace", "alpha\r")
			s.after("with", "gamma\r")
			s.after("Query replacing", "!")
			s.after("Replaced 1 occurrence", "\x18\x13")
			s.after("Wrote", "\x18\x03")
			s.end()
		},
	}
	left := map[string][]string{"emacs": {"~"}}
	for _, sub := range subjects() {
		t.Run(sub.name, func(t *testing.T) {
			m := start(t, harness.Options{})
			for _, name := range slices.Sorted(maps.Keys(screens)) {
				t.Run(name, func(t *testing.T) {
					need(t, name)
					sub.set(t, m, "alpha")
					path, count := sub.path(t, m), len(stored(t, m, nested))
					screens[name](t, path)
					if got := sub.holds(t, m); got != "gamma" {
						t.Errorf("the store holds %q", got)
					}
					if n := len(stored(t, m, nested)) - count; sub.adds && n != 1 {
						t.Errorf("%d messages were added", n)
					}
					tool{left: left[name]}.leaves(t, m, sub, path)
				})
			}
			if kept := failed(t, m); len(kept) > 0 {
				t.Errorf("failed/ holds %q", kept)
			}
		})
	}
}

// TestVimSavesTwice: a second save of meta.json from one buffer writes what
// was changed since the first; one of a message that the first save has taken
// off the branch is refused, and says so.
func TestVimSavesTwice(t *testing.T) {
	need(t, "vim")
	m := start(t, harness.Options{})
	vim := func(path, first, second string) harness.Result {
		return harness.Command(t, t.TempDir(), nil, "vim", "-N", "-u", "DEFAULTS", "-i", "NONE", "-es", "-c", "set backupskip=", "-c", first, "-c", "w", "-c", second, "-c", "w", "-c", "qa!", path)
	}
	title := text(t, m, nested, "title")
	if r := vim(m.Session(nested, "meta.json"), fmt.Sprintf("%%s/%s/one/", title), `%s/"title": "one"/"title": "two"/`); r.Code != 0 {
		t.Errorf("exit status %d: %s%s", r.Code, r.Out, r.Err)
	}
	if got := text(t, m, nested, "title"); got != "two" {
		t.Errorf("title is %q", got)
	}
	count := len(stored(t, m, nested))
	r := vim(m.Session(nested, "messages", lastUser(t, m, nested)), "normal ggccfirst", "normal ggccsecond")
	if r.Code == 0 {
		t.Errorf("the second save was not refused: %s%s", r.Out, r.Err)
	}
	if n := len(stored(t, m, nested)) - count; n != 1 {
		t.Errorf("%d messages were added", n)
	}
	if last := lastError(t, m); !strings.Contains(last, "ENOENT") {
		t.Errorf("the last error is %q", last)
	}
	pure(t, m, nested)
}
