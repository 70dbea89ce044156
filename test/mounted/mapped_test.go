package mounted

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestMappedFileIsFresh: a read-only mount shows what another process writes to
// a real file through a mapping, which moves neither its size nor its time.
func TestMappedFileIsFresh(t *testing.T) {
	store := harness.Golden(t, "chat_branches")
	dir := filepath.Join(store, nested, "workdir", "attachments")
	path := filepath.Join(dir, "mapped")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(path, []byte("first"), 0o600)); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, 5, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	copy(mem, "FIRST") // the first write to a page moves the time
	m := harness.Start(t, harness.Options{Store: store, Args: []string{"--read-only"}})
	for _, text := range []string{"one__", "two__", "three"} {
		copy(mem, text)
		var got string
		for deadline := time.Now().Add(10 * time.Second); got != text && time.Now().Before(deadline); {
			got = read(t, m.Session(nested), "attachments", "mapped")
		}
		if got != text {
			t.Errorf("the mount shows %q, the file is %q", got, text)
		}
	}
}
