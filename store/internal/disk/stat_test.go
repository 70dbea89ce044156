package disk

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStatsAgree: both ways to a Stat give the same, for every kind of file.
func TestStatsAgree(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.WriteFile(path("file"), []byte("12345"), 0o640),
		os.Chmod(path("file"), 0o640|fs.ModeSetuid|fs.ModeSetgid),
		os.Mkdir(path("dir"), 0o700), os.Chmod(path("dir"), 0o777|fs.ModeSticky),
		os.Symlink("nowhere", path("link")), unix.Mkfifo(path("fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	d, err := OS.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, name := range []string{"file", "dir", "link", "fifo"} {
		fi, err := OS.Lstat(path(name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Lstat(name)
		if want := StatOf(fi); err != nil || got != want || got.Ino == 0 || got.MTime == 0 {
			t.Errorf("%s: %+v, want %+v (%v)", name, got, want, err)
		}
	}
	if _, err := d.Lstat("none"); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestSettled: a file changed and given its old time back is another, and what
// changed just now is not settled.
func TestSettled(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	write := func(text string) Stat {
		t.Helper()
		old := time.Now().Add(-time.Hour).Truncate(time.Second)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
		fi, err := OS.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		return StatOf(fi)
	}
	one := write("one")
	if one.CTime == 0 {
		t.Skip("no ctime here")
	}
	if one.Settled(time.Now()) || !one.Settled(time.Now().Add(time.Minute)) {
		t.Error("settled by a time that anybody can set")
	}
	time.Sleep(20 * time.Millisecond) // a tick of the file system
	if two := write("two"); one == two || one.MTime != two.MTime || one.Size != two.Size || one.Ino != two.Ino {
		t.Errorf("%+v, then %+v", one, two)
	}
}
