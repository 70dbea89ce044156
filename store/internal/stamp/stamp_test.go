package stamp

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

func TestSame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	now := time.Now()
	take := func(at time.Time) Stamp {
		t.Helper()
		s, err := Take(disk.OS, path, at)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	write := func(text string, mtime time.Time) {
		t.Helper()
		if err := disk.WriteAtomic(disk.OS, path, []byte(text), disk.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, mtime, mtime); err != nil {
			t.Fatal(err)
		}
	}
	none := take(now)
	if !none.Missing() || !none.Same(take(now)) {
		t.Error("a missing file does not stay the same")
	}
	write("a", now.Add(-time.Hour))
	old := take(now)
	if old.Missing() || none.Same(old) || old.Same(none) {
		t.Error("coming and going is not seen")
	}
	if !old.Same(take(now)) {
		t.Error("an untouched file is not the same")
	}
	write("b", now.Add(-time.Hour)) // same size and time, another inode
	if old.Same(take(now)) {
		t.Error("a replaced file is the same")
	}
	write("c", now.Add(-time.Millisecond))
	if s := take(now); s.Same(take(now.Add(time.Hour))) {
		t.Error("a file written just now is trusted")
	}
	if _, err := Take(disk.OS, path+"/x", now); err == nil {
		t.Error("an error of stat is lost")
	}
}
