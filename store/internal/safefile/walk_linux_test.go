package safefile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWalk: what stands in for openat2 where there is none refuses the same.
func TestWalk(t *testing.T) {
	dir := root(t)
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "a/f"), nil, 0o600))
	must(t, os.Symlink("b", filepath.Join(dir, "a/l")))
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	for rel, want := range map[string]error{"a": nil, "a/b": nil, "a/l": unix.ELOOP, "a/l/x": unix.ELOOP, "a/f": unix.ENOTDIR, "a/f/x": unix.ENOTDIR, "x/y": unix.ENOENT} {
		got, err := walk(fd, rel)
		beneath, berr := lookup(fd, rel)
		if !errors.Is(err, want) || (err == nil) != (berr == nil) {
			t.Errorf("%s: %v and %v, want %v", rel, err, berr, want)
		}
		if err == nil {
			unix.Close(got)
		}
		if berr == nil {
			unix.Close(beneath)
		}
	}
}
