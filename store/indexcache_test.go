package store_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/internal/disk"
)

const cachedNodes = 700

// longSession makes a session of many messages, with everything in it that a
// cache could get wrong: nodes without a seq, an id, a time; ids that are not
// those of the names; duplicate ids; files that hold no node.
func longSession(t *testing.T, root string) {
	t.Helper()
	writeBare(t, root, "s", 1)
	for i := range cachedNodes {
		writeFile(t, longPath(root, i), longNode(i, 0))
	}
	writeFile(t, filepath.Join(root, "s", "meta.json"), fmt.Sprintf(`{"id": "s", "head_id": "n%04d"}`, cachedNodes-1))
}

func longPath(root string, i int) string {
	return filepath.Join(root, "s", "history", fmt.Sprintf("%04d-u-n%04d.json", i+1, i))
}

func longNode(i, version int) string {
	pred := "ROOT"
	if i > 0 {
		pred = fmt.Sprintf("n%04d", i-1)
	}
	head := fmt.Sprintf(`{"id": "n%04d", "created_at": %d.5, "seq": %d, "role": "user", "caller": %q, `, i, 1700000000+i, i+1, []string{"", "a", "n0001"}[i%3])
	switch i % 100 {
	case 11:
		head = fmt.Sprintf(`{"id": "n%04d", "role": "llm", "name": "model \ud83d", `, i)
	case 12:
		head = fmt.Sprintf(`{"created_at": 5, "seq": %d, "role": "odd", `, i+1)
	case 13:
		head = fmt.Sprintf(`{"id": "other%d", "seq": %d, "role": "code", `, i, i+1)
	case 14:
		head = fmt.Sprintf(`{"id": "n0003", "seq": %d, "role": "user", `, i+1)
	case 15:
		return fmt.Sprintf(`{"id": "n%04d", broken %04d`, i, version)
	}
	return head + fmt.Sprintf(`"output": "version %04d", "predecessor": %q, "metadata": {"status": "s%04d"}}`, version, pred, version)
}

// seen is what a fresh store shows of the session.
type seen struct {
	Head     string
	Nodes    []dag.Node
	Entries  []string
	Problems []store.Problem
	Texts    []string
	Reads    int64
}

func see(t *testing.T, root, cache string) seen {
	t.Helper()
	c := &counting{FS: disk.OS}
	s, err := store.Open(t.Context(), store.Options{Root: root, CacheDir: cache, ReadOnly: true, FS: c})
	check(t, err)
	defer s.Close()
	sn, err := s.Load(t.Context(), "s")
	check(t, err)
	v := seen{Head: sn.Head, Problems: sn.Problems, Reads: c.read.Load()}
	for n := range sn.Index.All() {
		v.Nodes = append(v.Nodes, n)
	}
	for _, e := range sn.Entries() {
		v.Entries = append(v.Entries, fmt.Sprintln(e.File, e.NodeID, e.Size, e.TextLen, e.MTime.UnixNano()))
	}
	if branch, err := sn.Branch(); err == nil {
		for _, n := range branch {
			v.Texts = append(v.Texts, n.ID)
		}
	}
	return v
}

// TestIndexCacheEqualsNone: whatever happens to a session and to the cache, a
// store with a cache shows what one without shows.
func TestIndexCacheEqualsNone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			root, cache := filepath.Join(t.TempDir(), "sessions"), t.TempDir()
			longSession(t, root)
			if seed > 0 { // of a session with such a file nothing is taken over as a whole
				for i := 15; i < cachedNodes; i += 100 {
					check(t, os.Remove(longPath(root, i)))
				}
			}
			r := rand.New(rand.NewPCG(seed, 5))
			saved := int64(0)
			for step := range 60 {
				if step%20 == 0 {
					settleAll()
					see(t, root, cache) // writes the cache
				}
				switch {
				case step%20 == 1: // and nothing else since the cache was written
					rewriteInPlace(t, longPath(root, step), longNode(step, step))
				case step%3 > 0:
					changeHistory(t, r, root, cache, step)
				}
				want, got := see(t, root, ""), see(t, root, cache)
				saved += want.Reads - got.Reads
				want.Reads, got.Reads = 0, 0
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("step %d: without the cache, with it:\n%s", step, diff)
				}
			}
			if saved < 10*cachedNodes {
				t.Errorf("the cache saved %d reads", saved)
			}
		})
	}
}

// changeHistory does something to the history behind the store's back, or to
// the cache.
func changeHistory(t *testing.T, r *rand.Rand, root, cache string, step int) {
	t.Helper()
	i := r.IntN(cachedNodes)
	if i%100 == 15 {
		i++
	}
	path := longPath(root, i)
	fi, err := os.Lstat(path)
	there := err == nil && fi.Mode().IsRegular()
	switch r.IntN(10) {
	case 0, 1:
		if there {
			rewriteInPlace(t, path, longNode(i, step))
		}
	case 2:
		if there {
			writeFile(t, path+".new", longNode(i, step))
			check(t, os.Rename(path+".new", path))
		}
	case 3:
		check(t, os.RemoveAll(path))
	case 4:
		check(t, os.RemoveAll(path))
		writeFile(t, path, longNode(i, step))
	case 5:
		writeFile(t, longPath(root, cachedNodes+step), longNode(cachedNodes+step, step))
	case 6:
		check(t, os.RemoveAll(path))
		check(t, os.Symlink("0001-u-n0000.json", path))
	case 7:
		if there { // a name for another: the order changes
			check(t, os.Rename(path, filepath.Join(filepath.Dir(path), fmt.Sprintf("%04d-x-%d.json", r.IntN(2000), step))))
		}
	case 8:
		damageCache(t, r, cache)
	case 9: // the whole directory, with the same names and times
		swapHistory(t, root)
	}
}

// swapHistory puts a copy in the place of history/ that nothing but the inodes
// and the times of change tells from it, with other texts of the same length.
func swapHistory(t *testing.T, root string) {
	t.Helper()
	history := filepath.Join(root, "s", "history")
	entries, err := os.ReadDir(history)
	check(t, err)
	di, err := os.Stat(history)
	check(t, err)
	check(t, os.Mkdir(history+".new", 0o700))
	for _, e := range entries {
		fi, err := e.Info()
		check(t, err)
		if !fi.Mode().IsRegular() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(history, e.Name()))
		check(t, err)
		for i, c := range b {
			if c == 'v' {
				b[i] = 'w'
			}
		}
		path := filepath.Join(history+".new", e.Name())
		writeFile(t, path, string(b))
		check(t, os.Chtimes(path, fi.ModTime(), fi.ModTime()))
	}
	check(t, os.RemoveAll(history))
	check(t, os.Rename(history+".new", history))
	check(t, os.Chtimes(history, di.ModTime(), di.ModTime()))
}

// TestIndexCacheSavesReading: a second process reads no history file, and after
// a change that one alone; a file changed within a tick of the clock is read
// again, however equal its times.
func TestIndexCacheSavesReading(t *testing.T) {
	t.Parallel()
	root, cache := filepath.Join(t.TempDir(), "sessions"), t.TempDir()
	longSession(t, root)
	listing(t, root, "", false) // makes index.json, which reads a message
	for i := 15; i < cachedNodes; i += 100 {
		check(t, os.Remove(longPath(root, i)))
	}
	see(t, root, cache)
	if n := see(t, root, cache).Reads; n < cachedNodes-7 {
		t.Errorf("%d files read: the others were believed too early", n)
	}
	settleAll()
	see(t, root, cache)
	if n := see(t, root, cache).Reads; n != 0 {
		t.Errorf("%d files read with a cache", n)
	}
	rewriteInPlace(t, longPath(root, 5), longNode(5, 77))
	if n := see(t, root, cache).Reads; n != 1 {
		t.Errorf("%d files read after a change of one", n)
	}
	for _, name := range cacheFiles(t, cache) {
		check(t, os.Chmod(name, 0o666))
	}
	if n := see(t, root, cache).Reads; n < cachedNodes-7 {
		t.Error("a cache that others can write to is used")
	}
}

// TestIndexCacheInProcess: a change within a tick of the clock is seen by the
// process that has read the file just before.
func TestIndexCacheInProcess(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "sessions")
	writeBare(t, root, "s", 1)
	node := filepath.Join(root, "s", "history", "0000-u-a.json")
	at := time.Now()
	write := func(text string) {
		writeFile(t, node, fmt.Sprintf(`{"id": "a", "seq": 0, "role": "user", "name": %q, "output": "x", "predecessor": "ROOT"}`, text))
		check(t, os.Chtimes(node, at, at))
	}
	write("one")
	s := openStore(t, store.Options{Root: root, ReadOnly: true})
	for i := range 20 {
		text := fmt.Sprintf("%03d", i)
		write(text)
		writeFile(t, filepath.Join(root, "s", "meta.json"), fmt.Sprintf(`{"id": "s", "n": "%s"}`, text[:i%3+1]))
		sn, err := s.Load(t.Context(), "s")
		check(t, err)
		if n, _ := sn.Index.Get("a"); n.Name != text {
			t.Fatalf("%s: shows %q", text, n.Name)
		}
	}
}
