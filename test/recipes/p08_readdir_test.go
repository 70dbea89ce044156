package recipes

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// TestP08Readdir: listings repeated or skipped names after a seek, and listing
// and stat gave two inode numbers; here small buffers, seeks and parallel
// readers see the same, in directories of a few names and of more than a
// thousand.
func TestP08Readdir(t *testing.T) {
	m := start(t, "big_1500")
	dirs := []string{m.Dir, m.Path("sessions"), m.Path(".sessionfs")}
	for _, id := range names(t, m.Path("sessions")) {
		for _, d := range []string{"", "nodes", "messages", "branch", "history", "fields", "append", "attachments"} {
			dirs = append(dirs, m.Session(id, d))
		}
	}
	for _, dir := range dirs {
		checkReaddir(t, dir)
	}
}

func checkReaddir(t *testing.T, dir string) {
	t.Helper()
	big := listAll(t, dir, 1<<16)
	all := entryNames(big)
	if sorted := slices.Compact(slices.Sorted(slices.Values(all))); len(sorted) != len(all) {
		t.Errorf("%s: a name is listed twice", dir)
	}
	if small := entryNames(listAll(t, dir, 1200)); !slices.Equal(small, all) {
		t.Errorf("%s: a listing in small pieces has %d names, in one %d", dir, len(small), len(all))
	}
	checkSeeks(t, dir, big)
	for i, e := range big {
		if e.name == "." || e.name == ".." || i > 300 {
			continue
		}
		st := lstat(t, filepath.Join(dir, e.name))
		if st.Ino != e.ino || e.kind != 0 && uint32(e.kind) != st.Mode>>12 {
			t.Errorf("%s/%s: listed as inode %d kind %d, stat says %d and %d", dir, e.name, e.ino, e.kind, st.Ino, st.Mode>>12)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != len(all)-dots(all) {
				t.Errorf("%s: a parallel reader sees %d names of %d, %v", dir, len(entries), len(all), err)
			}
		}()
	}
	wg.Wait()
}

func dots(names []string) int {
	n := 0
	for _, name := range names {
		if name == "." || name == ".." {
			n++
		}
	}
	return n
}

func checkSeeks(t *testing.T, dir string, big []entry) {
	t.Helper()
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	for i := 0; i < len(big)-1; i += max(1, len(big)/40) {
		if _, err := syscall.Seek(fd, big[i].next, io.SeekStart); err != nil {
			t.Errorf("%s: seek: %v", dir, err)
			return
		}
		some, err := getdents(fd, 1200)
		if err != nil || len(some) == 0 || some[0].name != big[i+1].name {
			t.Errorf("%s: after a seek to entry %d comes %v, %v; want %s", dir, i, entryNames(some), err, big[i+1].name)
			return
		}
	}
	if _, err := syscall.Seek(fd, 0, io.SeekStart); err != nil {
		t.Error(err)
	}
	if some, err := getdents(fd, 1<<16); err != nil || len(big) > 0 && (len(some) == 0 || some[0].name != big[0].name) {
		t.Errorf("%s: after a rewind comes %v, %v", dir, entryNames(some), err)
	}
}

// entry is one of getdents64.
type entry struct {
	name string
	ino  uint64
	next int64
	kind byte
}

// getdents reads what fits in a buffer of n bytes.
func getdents(fd, n int) ([]entry, error) {
	buf := make([]byte, n)
	got, err := syscall.Getdents(fd, buf)
	if err != nil {
		return nil, err
	}
	var out []entry
	for b := buf[:got]; len(b) > 19; {
		size := binary.LittleEndian.Uint16(b[16:])
		name, _, _ := bytes.Cut(b[19:size], []byte{0})
		out = append(out, entry{string(name), binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:])), b[18]})
		b = b[size:]
	}
	return out, nil
}

func listAll(t *testing.T, dir string, n int) []entry {
	t.Helper()
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	defer syscall.Close(fd)
	var out []entry
	for {
		some, err := getdents(fd, n)
		if err != nil {
			t.Fatalf("getdents of %s with %d bytes: %v", dir, n, err)
		}
		if len(some) == 0 {
			return out
		}
		out = append(out, some...)
	}
}

func entryNames(list []entry) []string {
	var out []string
	for _, e := range list {
		out = append(out, e.name)
	}
	return out
}
