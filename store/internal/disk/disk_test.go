package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWriteAtomic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meta.json")
	for _, data := range []string{"one", "", strings.Repeat("x", 1<<20)} {
		if err := WriteAtomic(OS, path, []byte(data), WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := OS.ReadFile(path)
		if err != nil || string(got) != data {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		wantMode(t, path, 0o600)
	}
	wantNames(t, filepath.Dir(path), "meta.json")
}

func TestWriteAtomicModes(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(kept, 0o664); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("kept", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"kept": 0o664, "new": 0o640, "link": 0o640} {
		if err := WriteAtomic(OS, filepath.Join(dir, name), []byte(name), WriteOptions{Mode: 0o640}); err != nil {
			t.Fatal(err)
		}
		wantMode(t, filepath.Join(dir, name), want)
	}
	if got, _ := os.ReadFile(kept); string(got) != "kept" {
		t.Errorf("a write through a symlink changed its target to %q", got)
	}
}

func TestWriteAtomicOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 1234, 2345); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(old, 3456, 4567); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]int{"old": {3456, 4567}, "new": {1234, 2345}} {
		if err := WriteAtomic(OS, filepath.Join(dir, name), []byte("x"), WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		wantOwner(t, filepath.Join(dir, name), want)
	}
	wantMode(t, old, 0o640)
	if err := MkdirOwned(OS, filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	wantOwner(t, filepath.Join(dir, "a"), [2]int{1234, 2345})
	wantOwner(t, filepath.Join(dir, "a", "b"), [2]int{1234, 2345})
}

func TestNoReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	opt := WriteOptions{NoReplace: true}
	if err := WriteAtomic(OS, path, []byte("first"), opt); err != nil {
		t.Fatal(err)
	}
	if err := WriteAtomic(OS, path, []byte("second"), opt); !errors.Is(err, fs.ErrExist) {
		t.Errorf("err = %v", err)
	}
	// Somebody makes the file after we looked.
	late := &faultFS{FS: OS, hook: func(op string) {
		if op == "rename" {
			os.WriteFile(path+"2", []byte("theirs"), 0o600)
		}
	}}
	if err := WriteAtomic(late, path+"2", []byte("ours"), opt); !errors.Is(err, fs.ErrExist) {
		t.Errorf("err = %v", err)
	}
	for name, want := range map[string]string{path: "first", path + "2": "theirs"} {
		if got, _ := os.ReadFile(name); string(got) != want {
			t.Errorf("%s = %q", name, got)
		}
	}
	wantNames(t, filepath.Dir(path), "f", "f2")
}

func TestLinkNoReplace(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := os.WriteFile(a, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := linkNoReplace(a, b); err != nil {
		t.Fatal(err)
	}
	wantNames(t, dir, "b")
	if err := os.WriteFile(a, []byte("2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := linkNoReplace(a, b); !errors.Is(err, fs.ErrExist) {
		t.Errorf("err = %v", err)
	}
	wantNames(t, dir, "a", "b")
}

// TestFaults fails every call that a write makes, one run each.
func TestFaults(t *testing.T) {
	oldData, newData := []byte("the old content"), bytes.Repeat([]byte("the new "), 5000)
	for _, replace := range []bool{true, false} {
		for _, noReplace := range []bool{false, true} {
			if replace && noReplace {
				continue
			}
			count := 0
			for n := 1; ; n++ {
				dir := t.TempDir()
				path := filepath.Join(dir, "meta.json")
				if replace {
					if err := os.WriteFile(path, oldData, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				f := &faultFS{FS: OS, failAt: n}
				err := WriteAtomic(f, path, newData, WriteOptions{Mode: 0o640, NoReplace: noReplace})
				if f.failed == "" { // fewer calls than n
					if err != nil {
						t.Fatal(err)
					}
					count = n - 1
					break
				}
				checkFault(t, f, err, dir, path, replace, oldData, newData)
			}
			if count < 8 {
				t.Errorf("a write makes %d calls that can fail: not all are counted", count)
			}
		}
	}
}

func checkFault(t *testing.T, f *faultFS, err error, dir, path string, replace bool, oldData, newData []byte) {
	t.Helper()
	if !errors.Is(err, errInjected) {
		t.Errorf("%s failed, the write returned %v", f.failed, err)
	}
	got, rerr := os.ReadFile(path)
	published := f.failed == "syncdir"
	switch {
	case published && !bytes.Equal(got, newData):
		t.Errorf("%s failed: new content is not there", f.failed)
	case !published && replace && !bytes.Equal(got, oldData):
		t.Errorf("%s failed: old content is %q", f.failed, got)
	case !published && !replace && !errors.Is(rerr, fs.ErrNotExist):
		t.Errorf("%s failed: %q, %v", f.failed, got, rerr)
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != "meta.json" {
			t.Errorf("%s failed: %s is left", f.failed, e.Name())
		}
	}
}

// TestFailedRemoval: when the clean-up fails too, both errors are told and the
// name of what is left is one that IsTemp knows.
func TestFailedRemoval(t *testing.T) {
	dir := t.TempDir()
	f := &faultFS{FS: OS, failOps: map[string]bool{"rename": true, "remove": true}}
	err := WriteAtomic(f, filepath.Join(dir, "a.json"), []byte("x"), WriteOptions{})
	if !errors.Is(err, errInjected) || !strings.Contains(err.Error(), "remove") || !strings.Contains(err.Error(), "rename") {
		t.Errorf("err = %v", err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 || !IsTemp(entries[0].Name()) || !strings.HasPrefix(entries[0].Name(), "a.json.") {
		t.Errorf("left: %v", entries)
	}
}

// TestSyncOrder: the data is synced before the rename, the directory after it,
// and the owner and mode are set before anybody can see the file.
func TestSyncOrder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var ops []string
	f := &faultFS{FS: OS, hook: func(op string) { ops = append(ops, op) }}
	if err := WriteAtomic(f, path, []byte("x"), WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(ops, " "); got != "lstat open write fstat chmod fsync close rename syncdir" {
		t.Error(got)
	}
}

// TestUnprivilegedOwner: an owner that cannot be given leaves the write whole,
// but never shows the file to a group it was not meant for.
func TestUnprivilegedOwner(t *testing.T) {
	file := &fakeFile{mode: 0o600}
	if err := dress(file, owned{uid: 1, gid: 1, mode: 0o664}); err != nil || file.mode != 0o604 {
		t.Errorf("mode %v, %v", file.mode, err)
	}
	if err := giveAway(file, 1, 1); err != nil {
		t.Error(err)
	}
}

type fakeFile struct {
	File
	mode fs.FileMode
}

func (f *fakeFile) Stat() (fs.FileInfo, error)   { return fakeInfo{f.mode}, nil }
func (f *fakeFile) Chown(int, int) error         { return &fs.PathError{Op: "chown", Err: syscall.EPERM} }
func (f *fakeFile) Chmod(mode fs.FileMode) error { f.mode = mode; return nil }

type fakeInfo struct{ mode fs.FileMode }

func (i fakeInfo) Name() string       { return "fake" }
func (i fakeInfo) Size() int64        { return 0 }
func (i fakeInfo) Mode() fs.FileMode  { return i.mode }
func (i fakeInfo) ModTime() time.Time { return time.Time{} }
func (i fakeInfo) IsDir() bool        { return false }
func (i fakeInfo) Sys() any           { return &syscall.Stat_t{Uid: 70000, Gid: 70000} }

func TestMkdirOwned(t *testing.T) {
	dir := t.TempDir()
	if err := MkdirOwned(OS, filepath.Join(dir, "a", "b", "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := MkdirOwned(OS, filepath.Join(dir, "a", "b", "c"), 0o700); err != nil {
		t.Fatal("again:", err)
	}
	wantMode(t, filepath.Join(dir, "a", "b"), 0o700)
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"file", "file/x"} {
		if err := MkdirOwned(OS, filepath.Join(dir, bad), 0o700); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for n := 1; ; n++ {
		f := &faultFS{FS: OS, failAt: n}
		err := MkdirOwned(f, filepath.Join(dir, fmt.Sprint("n", n), "x"), 0o700)
		if f.failed == "" {
			if err != nil || n < 8 {
				t.Errorf("%d calls, %v", n, err)
			}
			break
		}
		if !errors.Is(err, errInjected) {
			t.Errorf("%s failed: %v", f.failed, err)
		}
	}
}

func TestReading(t *testing.T) {
	dir := t.TempDir()
	sizes := []int{0, 1, firstRead - 1, firstRead, firstRead + 1, 3*firstRead + 7}
	for _, n := range sizes {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%06d", n)), bytes.Repeat([]byte{'a'}, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "zero")); err != nil {
		t.Fatal(err)
	}
	d, err := OS.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for range 2 { // a second listing is whole again
		names, err := d.Names()
		if err != nil || len(names) != len(sizes)+2 || names[0] != "000000" || names[len(names)-1] != "zero" {
			t.Fatalf("%v %v", names, err)
		}
	}
	buf := make([]byte, 100)
	for _, n := range sizes {
		name := fmt.Sprintf("%06d", n)
		whole, err := OS.ReadFile(filepath.Join(dir, name))
		into, ierr := d.ReadInto(name, buf)
		if err != nil || ierr != nil || len(whole) != n || len(into) != n {
			t.Errorf("%d: %d %v, %d %v", n, len(whole), err, len(into), ierr)
		}
	}
	if got, err := d.ReadInto("fifo", buf); err != nil || len(got) != 0 {
		t.Errorf("fifo: %d bytes, %v", len(got), err)
	}
	if _, err := d.ReadInto("zero", buf); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("symlink: %v", err)
	}
	if _, err := OS.ReadFile(filepath.Join(dir, "zero")); !errors.Is(err, errNotRegular) {
		t.Errorf("device: %v", err)
	}
	if _, err := d.ReadInto("none", buf); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := OS.ReadFile(dir); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("directory: %v", err)
	}
	if _, err := OS.OpenDir(filepath.Join(dir, "000000")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("OpenDir of a file: %v", err)
	}
	if f, err := OS.OpenFile(filepath.Join(dir, "none"), os.O_RDONLY, 0); err == nil || f != nil {
		t.Error("a failed open must return a nil File")
	}
}

func TestIsTemp(t *testing.T) {
	hex := "0123456789abcdef0123456789abcdef"
	for name, want := range map[string]bool{"a.json." + hex + ".tmp": true, "." + hex + ".tmp": false, "a.json.tmp": false, "a.json": false, "": false,
		"a." + strings.ToUpper(hex) + ".tmp": false, "a" + hex + ".tmp": false, "a." + hex: false} {
		if IsTemp(name) != want {
			t.Errorf("IsTemp(%q) is not %v", name, want)
		}
	}
}

func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	fi, err := os.Lstat(path)
	if err != nil || fi.Mode().Perm() != want {
		t.Errorf("%s: mode %v, want %v (%v)", path, fi.Mode(), want, err)
	}
}

func wantOwner(t *testing.T, path string, want [2]int) {
	t.Helper()
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if uid, gid := ownerOf(fi); uid != want[0] || gid != want[1] {
		t.Errorf("%s belongs to %d:%d, want %v", path, uid, gid, want)
	}
}

func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %v, want %v", dir, got, want)
	}
}

func TestReadLeavesNoDescriptor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("counts /proc/self/fd")
	}
	path := filepath.Join(t.TempDir(), "f")
	if err := WriteAtomic(OS, path, []byte("x"), WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	count := func() int { l, _ := os.ReadDir("/proc/self/fd"); return len(l) }
	before := count()
	for range 50 {
		OS.ReadFile(path)
		WriteAtomic(&faultFS{FS: OS, failOps: map[string]bool{"fsync": true}}, path, []byte("y"), WriteOptions{})
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}
