package safefile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/disktest"
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	dir := root(t)
	must(t, os.MkdirAll(filepath.Join(dir, "r/a/b"), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "out"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "r/f"), nil, 0o600))
	must(t, os.Symlink("a", filepath.Join(dir, "r/in")))
	must(t, os.Symlink("../out", filepath.Join(dir, "r/out")))
	r := filepath.Join(dir, "r")
	for rel, want := range map[string]error{
		".": nil, "a": nil, "a/b": nil, "a//b/": nil, "in": ErrEscapes, "in/b": ErrEscapes, "out": ErrEscapes, "..": ErrEscapes, "a/../..": ErrEscapes,
		"/etc": ErrEscapes, "": ErrEscapes, "none": fs.ErrNotExist, "none/x": fs.ErrNotExist, "f": syscall.ENOTDIR, "f/x": syscall.ENOTDIR,
	} {
		d, err := Open(r, rel)
		if !errors.Is(err, want) || (d != nil) != (want == nil) {
			t.Errorf("%q: %v, want %v", rel, err, want)
		}
		if d == nil {
			continue
		}
		got, gerr := os.Stat(d.Path(""))
		exp, eerr := os.Stat(filepath.Join(r, rel))
		if gerr != nil || eerr != nil || !os.SameFile(got, exp) {
			t.Errorf("%q: another directory, %v %v", rel, gerr, eerr)
		}
		must(t, d.Close())
	}
	if _, err := Open("relative", "."); !errors.Is(err, ErrEscapes) {
		t.Error(err)
	}
}

// TestOpenRacing: while a directory and a symlink change places, no look-up
// ends outside, and a directory that was found stays what it is.
func TestOpenRacing(t *testing.T) {
	dir := root(t)
	r := filepath.Join(dir, "r")
	must(t, os.MkdirAll(filepath.Join(r, "d/x"), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "out/x"), 0o755))
	outside, err := os.Stat(filepath.Join(dir, "out/x"))
	must(t, err)
	must(t, os.Symlink("../out", filepath.Join(r, "l")))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(filepath.Join(r, "d"), filepath.Join(r, "t"))
			_ = os.Rename(filepath.Join(r, "l"), filepath.Join(r, "d"))
			_ = os.Rename(filepath.Join(r, "d"), filepath.Join(r, "l"))
			_ = os.Rename(filepath.Join(r, "t"), filepath.Join(r, "d"))
		}
	})
	found := 0
	for range 3000 {
		d, err := Open(r, "d/x")
		if err != nil {
			continue
		}
		found++
		if fi, err := os.Stat(d.Path("")); err != nil || os.SameFile(fi, outside) {
			t.Errorf("found the directory outside, or none: %v", err)
		}
		must(t, d.Close())
	}
	close(stop)
	wg.Wait()
	t.Logf("%d found", found)
}

func TestMkdir(t *testing.T) {
	dir := root(t)
	d, made, err := Mkdir(disk.OS, dir, "a/b/c", 0o750)
	must(t, err)
	must(t, d.Close())
	if strings.Join(made, " ") != "a a/b a/b/c" {
		t.Error(made)
	}
	if d, made, err = Mkdir(disk.OS, dir, "a/b", 0o750); err != nil || made != nil {
		t.Errorf("%v %v", made, err)
	}
	must(t, d.Close())
	must(t, os.Symlink("/tmp", filepath.Join(dir, "a/l")))
	must(t, os.Symlink("gone", filepath.Join(dir, "a/dangling")))
	for _, rel := range []string{"a/l", "a/l/x", "a/dangling", "a/dangling/x", "../x"} {
		if _, _, err := Mkdir(disk.OS, dir, rel, 0o750); !errors.Is(err, ErrEscapes) {
			t.Errorf("%s: %v", rel, err)
		}
	}
}

func TestResolve(t *testing.T) {
	dir := root(t)
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	for name, target := range map[string]string{"l": "a/b", "abs": filepath.Join(dir, "a"), "up": "a/b/..", "loop": "loop2", "loop2": "loop", "gone": "none/x"} {
		must(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	for path, want := range map[string]string{
		"": "", "/a/./b/": "/a/b", "/l/..": "/a", "/up/x": "/a/x", "/abs/b/../none/../y": "/a/y", "/gone/y": "/none/x/y", "/f/x": "/f/x", "/none/../../..": "-",
	} {
		got, err := Resolve(disk.OS, dir+path)
		if want == "-" {
			continue
		}
		if got != dir+want || err != nil {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
	for _, path := range []string{dir + "/loop", "relative", dir + "/\x00", ""} {
		if got, err := Resolve(disk.OS, path); err == nil {
			t.Errorf("%q resolves to %s", path, got)
		}
	}
	for _, c := range []struct {
		root, path string
		want       bool
	}{{"/a", "/a", true}, {"/a", "/a/b", true}, {"/a", "/ab", false}, {"/", "/x", true}, {"/a/b", "/a", false}} {
		if Within(c.root, c.path) != c.want {
			t.Errorf("Within(%s, %s) is not %v", c.root, c.path, c.want)
		}
	}
}

type broken struct{ n int }

func (b *broken) Read(p []byte) (int, error) {
	if b.n--; b.n < 0 {
		return 0, io.ErrUnexpectedEOF
	}
	return copy(p, "text"), nil
}

func TestCreate(t *testing.T) {
	dir := root(t)
	path := filepath.Join(dir, "f")
	w, err := Create(disk.OS, path, strings.NewReader("x"), Attr{Mode: 0o751})
	if err != nil || w.Size != 1 || w.SHA256 != "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" {
		t.Errorf("%+v %v", w, err)
	}
	if fi, _ := os.Stat(path); fi.Mode() != 0o751 {
		t.Error(fi.Mode())
	}
	if _, err := Create(disk.OS, path, strings.NewReader("y"), Attr{}); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if _, err := Create(disk.OS, path+"2", &broken{3}, Attr{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	d := disktest.New(disk.OS)
	for n := 1; ; n++ {
		d.FailAt(n, false)
		_, err := Create(d, path+"3", strings.NewReader("x"), Attr{})
		if d.Calls() < n {
			must(t, err)
			break
		}
		if _, serr := os.Stat(path + "3"); err == nil || !errors.Is(serr, fs.ErrNotExist) {
			t.Errorf("call %d: %v, %v", n, err, serr)
		}
	}
}

func TestOpenRegular(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("makes a FIFO")
	}
	dir := root(t)
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	for _, name := range []string{"fifo", "link", "."} {
		if _, _, err := OpenRegular(disk.OS, filepath.Join(dir, name)); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
