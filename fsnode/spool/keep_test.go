package spool

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKeepFile: a file in failed/ outlives the one that it was, also where it
// must be copied; nothing but a regular file is kept, and not beyond half of
// the limit.
func TestKeepFile(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(filepath.Join(dir, "spool"), Limits{Failed: 40})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	from := filepath.Join(dir, "from")
	err = errors.Join(os.Mkdir(from, 0o700), os.WriteFile(filepath.Join(from, "f"), []byte("a text"), 0o644), os.Symlink("f", filepath.Join(from, "link")))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(from, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	kept, err := s.KeepFile("a/f", fd, "f")
	if err != nil || !strings.Contains(kept, "-a.f-") {
		t.Fatalf("%s, %v", kept, err)
	}
	if err := os.Remove(filepath.Join(from, "f")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(kept); err != nil || string(b) != "a text" {
		t.Errorf("kept is %q, %v", b, err)
	}
	for _, name := range []string{"link", ".", "missing"} {
		if kept, err := s.KeepFile("x", fd, name); err == nil {
			t.Errorf("%s is kept as %s", name, kept)
		}
	}
	if err := os.WriteFile(filepath.Join(from, "large"), make([]byte, 15), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.KeepFile("x", fd, "large"); !errors.Is(err, ErrNoSpace) {
		t.Errorf("beyond half of the limit: %v", err)
	}
	if left, err := os.ReadDir(s.live); err != nil || len(left) > 1 { // its lock
		t.Errorf("left: %v, %v", left, err)
	}
	// A directory of procfs has files that cannot be linked.
	proc, err := unix.Open("/proc/sys/kernel", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(proc)
	kept, err = s.KeepFile("copy", proc, "ostype")
	if b, _ := os.ReadFile(kept); err != nil || string(b) != "Linux\n" {
		t.Errorf("copied is %q, %v", b, err)
	}
}
