package store_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// bareSessions makes n sessions of one message each; what makes them openable
// is an empty .git.
func bareSessions(t *testing.T, root string, n int) {
	t.Helper()
	for i := range n {
		writeBare(t, root, fmt.Sprintf("s%04d", i), i)
	}
}

func writeBare(t *testing.T, root, id string, i int) {
	t.Helper()
	dir := filepath.Join(root, id)
	for _, d := range []string{"history", ".git"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(dir, "meta.json"), bareMeta(id, i))
	writeFile(t, filepath.Join(dir, "history", "0000-u-a.json"), bareNode("a", i))
}

func bareMeta(id string, i int) string {
	return fmt.Sprintf("{\n  \"id\": %q,\n  \"title\": \"title %04d\",\n  \"updated_at\": %d.5\n}", id, i, 1700000000+i)
}

func bareNode(id string, i int) string {
	return fmt.Sprintf(`{"id": %q, "seq": 0, "role": "user", "output": "text %04d", "predecessor": "ROOT"}`, id, i)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// settleAll lets the clock leave behind what was written last: a file that has
// just been written is read again by every cache.
func settleAll() { time.Sleep(2100 * time.Millisecond) }

// rewriteInPlace changes a file within its inode, size and mtime: only its time
// of change tells.
func rewriteInPlace(t *testing.T, path, text string) {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if fi.Size() != int64(len(text)) {
		t.Fatalf("%s: %d bytes, not %d", path, fi.Size(), len(text))
	}
	writeFile(t, path, text)
	if err := os.Chtimes(path, fi.ModTime(), fi.ModTime()); err != nil {
		t.Fatal(err)
	}
}

// listing is what a fresh store lists.
func listing(t *testing.T, root, cache string, readOnly bool) []string {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Root: root, CacheDir: cache, ReadOnly: readOnly})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows, err := s.ListSessions(t.Context(), store.ListQuery{IncludeArchived: true})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = string(r.JSON)
	}
	return out
}

// counting counts the files that are read.
type counting struct {
	disk.FS
	opened, read atomic.Int64
}

func (c *counting) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	if filepath.Base(name) == "meta.json" {
		c.opened.Add(1)
	}
	return c.FS.OpenFile(name, flag, perm)
}

func (c *counting) OpenDir(name string) (disk.Dir, error) {
	d, err := c.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return countingDir{d, c}, nil
}

type countingDir struct {
	disk.Dir
	c *counting
}

func (d countingDir) ReadInto(name string, buf []byte) ([]byte, error) {
	if filepath.Base(name) == "meta.json" {
		d.c.opened.Add(1)
	} else {
		d.c.read.Add(1)
	}
	return d.Dir.ReadInto(name, buf)
}

func (d countingDir) ReadStat(name string, buf []byte) ([]byte, disk.Stat, error) {
	d.c.opened.Add(1)
	return d.Dir.ReadStat(name, buf)
}

// TestListCacheSavesReading: a second process reads no meta.json, except of
// sessions that changed.
func TestListCacheSavesReading(t *testing.T) {
	t.Parallel()
	root, cache := filepath.Join(t.TempDir(), "sessions"), t.TempDir()
	bareSessions(t, root, 300)
	listing(t, root, "", false)
	settleAll()
	opened := func() int64 {
		c := &counting{FS: disk.OS}
		s, err := store.Open(t.Context(), store.Options{Root: root, CacheDir: cache, ReadOnly: true, FS: c})
		check(t, err)
		defer s.Close()
		_, err = s.ListSessions(t.Context(), store.ListQuery{})
		check(t, err)
		return c.opened.Load()
	}
	if n := opened(); n != 300 {
		t.Errorf("%d read without a cache", n)
	}
	if n := opened(); n != 0 {
		t.Errorf("%d read with one", n)
	}
	rewriteInPlace(t, filepath.Join(root, "s0007", "meta.json"), bareMeta("s0007", 9999))
	if n := opened(); n != 1 {
		t.Errorf("%d read after a change of one", n)
	}
	entries, err := os.ReadDir(root)
	check(t, err)
	if len(entries) != 302 { // with index.json and .locks
		t.Errorf("%d names in the root", len(entries))
	}
}

// TestListCacheEqualsNone: whatever happens to the sessions and to the cache, a
// store with a cache lists what one without lists.
func TestListCacheEqualsNone(t *testing.T) {
	t.Parallel()
	root, cache := filepath.Join(t.TempDir(), "sessions"), t.TempDir()
	const n = 300
	bareSessions(t, root, n)
	settleAll()
	listing(t, root, "", false) // makes index.json
	r := rand.New(rand.NewPCG(3, 1))
	used := 0
	for step := range 60 {
		if step%20 == 0 {
			settleAll()
			listing(t, root, cache, step%40 == 0) // writes the cache
		}
		for range 1 + r.IntN(3) {
			changeSession(t, r, root, cache, fmt.Sprintf("s%04d", r.IntN(n)), step)
		}
		want := listing(t, root, "", true)
		if diff := cmp.Diff(want, listing(t, root, cache, true)); diff != "" {
			t.Fatalf("step %d: without the cache, with it:\n%s", step, diff)
		}
		if len(cacheFiles(t, cache)) > 0 {
			used++
		}
	}
	if used == 0 {
		t.Error("there never was a cache")
	}
}

func cacheFiles(t *testing.T, cache string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(cache, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// changeSession does something to a session behind the store's back, or to the
// cache.
func changeSession(t *testing.T, r *rand.Rand, root, cache, id string, step int) {
	t.Helper()
	dir := filepath.Join(root, id)
	meta := filepath.Join(dir, "meta.json")
	_, err := os.Stat(meta)
	there := err == nil
	switch r.IntN(9) {
	case 0:
		if there {
			rewriteInPlace(t, meta, bareMeta(id, step+5000))
		}
	case 1:
		if there {
			writeFile(t, meta+".new", bareMeta(id, step+6000))
			check(t, os.Rename(meta+".new", meta))
		}
	case 2:
		check(t, os.RemoveAll(dir))
	case 3:
		check(t, os.RemoveAll(dir))
		writeBare(t, root, id, step+7000)
	case 4:
		check(t, os.RemoveAll(filepath.Join(dir, ".git")))
	case 5:
		check(t, os.RemoveAll(filepath.Join(dir, "history")))
	case 6:
		check(t, os.RemoveAll(meta))
	case 7:
		check(t, os.RemoveAll(dir))
		check(t, os.Symlink("s0000", dir))
	case 8:
		damageCache(t, r, cache)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// damageCache changes a byte of a file of the cache, or cuts it, or takes it away.
func damageCache(t *testing.T, r *rand.Rand, cache string) {
	t.Helper()
	files := cacheFiles(t, cache)
	if len(files) == 0 {
		return
	}
	name := files[r.IntN(len(files))]
	b, err := os.ReadFile(name)
	check(t, err)
	switch r.IntN(4) {
	case 0:
		check(t, os.Remove(name))
	case 1:
		check(t, os.Truncate(name, r.Int64N(int64(len(b)))))
	default:
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		writeFile(t, name, string(b))
	}
}
