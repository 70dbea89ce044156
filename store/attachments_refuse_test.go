package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

func TestAttachRefusesWhatIsNoRegularFile(t *testing.T) {
	s := openStore(t, store.Options{})
	newSession(t, s, "x")
	dir := t.TempDir()
	fifo, link, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	write(t, file, "text")
	for path, want := range map[string]store.Code{
		dir: store.Invalid, link: store.Invalid, fifo: store.Invalid, os.DevNull: store.Invalid,
		filepath.Join(dir, "nothing"): store.NotFound, filepath.Join(file, "below"): store.NotFound,
	} {
		_, err := s.AppendWithFiles(t.Context(), "x", "user", "look", []string{path})
		if store.CodeOf(err) != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if got := branchIDs(t, s, "x"); len(got) != 0 {
		t.Errorf("a message was written: %v", got)
	}
}

func TestAttachBehindASymlinkIsOneLine(t *testing.T) {
	s := openStore(t, store.Options{})
	newSession(t, s, "x")
	if err := os.MkdirAll(filepath.Join(s.Root(), "x", "workdir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(s.Root(), "x", "workdir", "attachments")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "text")
	_, err := s.AppendWithFiles(t.Context(), "x", "user", "look", []string{file})
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q, want an error of one line", err)
	}
}
