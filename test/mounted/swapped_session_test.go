package mounted

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestSessionSwappedForALink: a session's directory, in use and in the mount's
// caches, is replaced by a symlink to somewhere else, as the directory above it
// is. Nothing there is read, written or removed, neither by path nor by a
// directory that was open before.
func TestSessionSwappedForALink(t *testing.T) {
	for name, args := range map[string][]string{"read-write": nil, "read-only": {"--read-only"}} {
		t.Run(name, func(t *testing.T) {
			m := harness.Start(t, harness.Options{Store: harness.Golden(t, "nested_projects"), State: t.TempDir(), Args: args, Warnings: []string{"symbolic link", "files are removed", "symlink"}})
			var top, inner string // sessions right below the root, and in a project
			for _, id := range names(t, m.Path("sessions")) {
				if fi, err := os.Lstat(filepath.Join(m.Store, id)); err == nil && fi.IsDir() {
					top = filepath.Join(m.Store, id)
				}
				if at, _ := filepath.Glob(filepath.Join(m.Store, "projects", "*", id)); len(at) == 1 {
					inner = at[0]
				}
			}
			if top == "" || inner == "" {
				t.Fatalf("sessions %q, %q", top, inner)
			}
			for _, c := range []struct{ id, swapped, inside string }{
				{filepath.Base(top), top, ""},
				{filepath.Base(inner), inner, ""},
				{filepath.Base(inner), filepath.Dir(inner), filepath.Base(inner)},
			} {
				swapForALink(t, m, c.id, c.swapped, c.inside)
			}
		})
	}
}

func swapForALink(t *testing.T, m *harness.Mount, id, dir, inside string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"workdir/attachments", "context"} {
		must(os.MkdirAll(filepath.Join(out, inside, d), 0o700))
		must(os.MkdirAll(filepath.Join(dir, inside, d), 0o700))
		must(os.WriteFile(filepath.Join(out, inside, d, "f"), []byte("outside"), 0o600))
		must(os.WriteFile(filepath.Join(dir, inside, d, "f"), []byte("inside"), 0o600))
	}
	link := filepath.Join(filepath.Dir(dir), ".link")
	must(os.Symlink(out, link))
	defer os.Remove(link)
	exchange := func() {
		t.Helper()
		must(unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE))
	}
	var fd int
	var err error
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // the swaps before may still be noticed
		fd, err = unix.Open(m.Session(id, "attachments"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == nil || time.Now().After(end) {
			break
		}
	}
	must(err)
	defer unix.Close(fd)
	for range 60 {
		for _, real := range []string{"attachments", "context"} {
			if got, err := os.ReadFile(m.Session(id, real, "f")); err == nil && string(got) != "inside" {
				t.Errorf("before the swap %s holds %q", real, got)
			}
		}
		exchange()
		for _, real := range []string{"attachments", "workdir/attachments", "context"} {
			if got, _ := os.ReadFile(m.Session(id, real, "f")); strings.Contains(string(got), "outside") {
				t.Fatalf("%s/f is what the link leads to", real)
			}
		}
		if f, err := unix.Openat(fd, "f", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			var buf [16]byte
			n, _ := unix.Read(f, buf[:])
			_ = unix.Close(f)
			if strings.Contains(string(buf[:max(n, 0)]), "outside") {
				t.Fatal("the open directory leads outside")
			}
		}
		_ = os.WriteFile(m.Session(id, "attachments", "new"), []byte("x"), 0o600)
		_ = os.Mkdir(m.Session(id, "workdir", "made"), 0o700)
		_ = os.Remove(m.Session(id, "attachments", "f"))
		exchange()
		for _, f := range []string{"workdir/attachments/new", "workdir/made"} {
			if _, err := os.Lstat(filepath.Join(out, inside, f)); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("%s was made outside: %v", f, err)
			}
		}
		if got, err := os.ReadFile(filepath.Join(out, inside, "workdir/attachments/f")); err != nil || string(got) != "outside" {
			t.Fatalf("the file outside is %q, %v", got, err)
		}
		_ = os.WriteFile(filepath.Join(dir, inside, "workdir/attachments/f"), []byte("inside"), 0o600)
	}
}
