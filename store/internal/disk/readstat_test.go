package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadStat(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("makes a FIFO")
	}
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	must(unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(os.Symlink("sub/0", filepath.Join(dir, "link")))
	d, err := OS.OpenDir(dir)
	must(err)
	defer d.Close()
	buf := make([]byte, 0, 10)
	for name, size := range map[string]int{"sub/0": 0, "sub/9": 9, "sub/10": 10, "sub/11": 11, "big": firstRead, "bigger": 3*firstRead + 1} {
		text := strings.Repeat("x", size)
		must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640))
		want, err := d.Lstat(name)
		must(err)
		got, st, err := d.ReadStat(name, buf)
		if err != nil || string(got) != text || st != want {
			t.Errorf("%s: %d bytes, %+v, %v; lstat says %+v", name, len(got), st, err, want)
		}
	}
	for name, want := range map[string]error{"sub": errNotRegular, "fifo": errNotRegular, "link": syscall.ELOOP, "none": fs.ErrNotExist, "big/x": syscall.ENOTDIR} {
		if got, _, err := d.ReadStat(name, nil); !errors.Is(err, want) || got != nil {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}
