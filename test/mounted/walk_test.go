package mounted

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

func lstat(t *testing.T, path string) syscall.Stat_t {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return st
}

// TestStableAcrossRemount: inode numbers and times are the same after a
// remount.
func TestStableAcrossRemount(t *testing.T) {
	store, dir := harness.Golden(t, "chat_branches"), filepath.Join(t.TempDir(), "mnt")
	snapshot := func() map[string]string {
		m := harness.Start(t, harness.Options{Store: store, Dir: dir})
		defer m.Stop()
		out := map[string]string{}
		err := filepath.WalkDir(m.Session(nested), func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				st := lstat(t, path)
				out[path] = fmt.Sprint(st.Ino, st.Mtim, st.Size, st.Mode)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return out
	}
	first := snapshot()
	if d := difference(first, snapshot()); len(d) > 0 {
		t.Errorf("after a remount: %q", d)
	}
}

// TestPhantoms: names that nothing lists are not there, whatever they are.
func TestPhantoms(t *testing.T) {
	m := start(t, "chat_branches")
	long := string(bytes.Repeat([]byte("x"), 256))
	for _, dir := range []string{m.Dir, m.Path("sessions"), m.Session(nested), m.Session(nested, "nodes"), m.Session(nested, "messages"), m.Session(nested, "branch"), m.Session(nested, "fields"), m.Session(nested, "history")} {
		for _, name := range []string{".git", "HEAD", ".hg", ".Trash", ".#x", "4913", "a", "x", long[:255], "0000-u-ROOT", "nodes.md", "\xff\xfe", "head~", "0001"} {
			if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
				t.Errorf("%s in %s: %v", name, dir, err)
			}
		}
		if _, err := os.Lstat(filepath.Join(dir, long)); err == nil {
			t.Errorf("a name of 256 bytes is found in %s", dir)
		}
	}
}
