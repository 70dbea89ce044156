package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/gitrepo"
)

// The benchmarks compare with what the disk itself costs: each iteration runs
// the bare calls and the store's work one after the other, and the medians'
// ratio is the metric "x-floor". ns/op, B/op and allocs/op are of the store's
// work. They run on the file system of TMPDIR; on a RAM disk the ratios mean
// nothing.

// versus measures work against floor; prepare, when not nil, runs before each,
// outside of any time.
func versus(b *testing.B, prepare, floor, work func()) {
	b.Helper()
	var floors, works, floorCPU, workCPU []time.Duration
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		if prepare != nil {
			prepare()
		}
		began, cpu := time.Now(), cpuTime()
		floor()
		floors, floorCPU = append(floors, time.Since(began)), append(floorCPU, cpuTime()-cpu)
		b.StartTimer()
		began, cpu = time.Now(), cpuTime()
		work()
		works, workCPU = append(works, time.Since(began)), append(workCPU, cpuTime()-cpu)
	}
	b.StopTimer()
	f, w := median(floors), median(works)
	b.ReportMetric(float64(f), "floor-ns")
	b.ReportMetric(float64(w), "work-ns")
	b.ReportMetric(float64(w)/float64(f), "x-floor")
	fc, wc := median(floorCPU), median(workCPU)
	b.ReportMetric(float64(wc), "work-cpu-ns")
	b.ReportMetric(float64(wc)/float64(max(fc, 1)), "x-floor-cpu")
}

// cpuTime is the processor time of this process, of all its threads: on a busy
// machine it says more than the clock.
func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// must stops a benchmark at an error.
func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// benchText is a message's text of about 1.4 kB, as the texts of real sessions
// are on average.
func benchText(i int) string {
	return fmt.Sprintf("message %d ", i) + strings.Repeat("It does not matter what is said here. ", 35)
}

// writeNodes writes the history of a session with n messages, and returns the
// last id.
func writeNodes(b *testing.B, dir string, n int) string {
	b.Helper()
	must(b, os.MkdirAll(filepath.Join(dir, "history"), 0o700))
	pred := "ROOT"
	for i := range n {
		role := []string{"user", "llm"}[i%2]
		id := fmt.Sprintf("%012x", 0xabc000000000+i)
		text := fmt.Sprintf(`{"id": %q, "created_at": %d.25, "seq": %d, "role": %q, "name": "", "input": null, "output": %q, `+
			`"caller": "", "predecessor": %q, "reads": [], "metadata": {"status": "done"}}`,
			id, 1700000000+i, i, role, benchText(i), pred)
		must(b, os.WriteFile(filepath.Join(dir, "history", fmt.Sprintf("%04d-%c-%s.json", i, role[0], id)), []byte(text), 0o600))
		pred = id
	}
	return pred
}

func writeBenchMeta(b *testing.B, dir, id, head string, i int) {
	b.Helper()
	text := fmt.Sprintf("{\n  \"id\": %q,\n  \"agent_id\": \"main\",\n  \"title\": \"Session number %d\",\n  \"source\": \"web\",\n"+
		"  \"created_at\": %d.5,\n  \"updated_at\": %d.5,\n  \"head_id\": %q\n}", id, i, 1700000000+i, 1700000000+i, head)
	must(b, os.WriteFile(filepath.Join(dir, "meta.json"), []byte(text), 0o600))
}

// benchSession makes a root with one session of n messages.
func benchSession(b *testing.B, n int) (root string) {
	b.Helper()
	root = filepath.Join(b.TempDir(), "sessions")
	dir := filepath.Join(root, "s")
	last := writeNodes(b, dir, n)
	writeBenchMeta(b, dir, "s", last, 0)
	must(b, gitrepo.Init(context.Background(), dir, gitrepo.Options{Sync: gitrepo.SyncOff, Env: noEnv}))
	must(b, benchOpen(b, store.Options{Root: root}).Close()) // makes index.json
	return root
}

func noEnv(string) string { return "" }

// benchSessions makes a root with many sessions of two messages. A repository
// is only what makes a session openable, but that of the first one is whole.
func benchSessions(b *testing.B, n int) (root string) {
	b.Helper()
	root = filepath.Join(b.TempDir(), "sessions")
	for i := range n {
		id := fmt.Sprintf("session-%06d", i)
		dir := filepath.Join(root, id)
		last := writeNodes(b, dir, 2)
		writeBenchMeta(b, dir, id, last, i)
		if i == 0 {
			must(b, gitrepo.Init(context.Background(), dir, gitrepo.Options{Sync: gitrepo.SyncOff, Env: noEnv}))
		} else {
			must(b, os.Mkdir(filepath.Join(dir, ".git"), 0o700))
		}
	}
	s := benchOpen(b, store.Options{Root: root})
	must(b, s.Close())
	return root
}

func benchOpen(b *testing.B, opt store.Options) *store.Store {
	b.Helper()
	s, err := store.Open(context.Background(), opt)
	must(b, err)
	return s
}

// readAllFiles is the floor of a cold open: the directory, and each of its
// files read into one buffer.
func readAllFiles(b *testing.B, dir string) {
	f, err := os.Open(dir)
	must(b, err)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	must(b, err)
	buf := make([]byte, 64<<10)
	for _, name := range names {
		fd, err := unix.Openat(int(f.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(b, err)
		for {
			n, err := unix.Read(fd, buf)
			must(b, err)
			if n < len(buf) {
				break
			}
		}
		must(b, unix.Close(fd))
	}
}

// BenchmarkColdOpen opens a store and reads a session's branch, against reading
// the same files. Bounds for 10,000 nodes: 1.6 without, 0.25 with a cache.
func BenchmarkColdOpen(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		root := benchSession(b, n)
		open := func(opt store.Options) {
			opt.Root, opt.ReadOnly = root, true
			s := benchOpen(b, opt)
			sn, err := s.Load(context.Background(), "s")
			must(b, err)
			branch, err := sn.Branch()
			must(b, err)
			if len(branch) != n {
				b.Fatalf("%d messages", len(branch))
			}
			must(b, s.Close())
		}
		floor := func() { readAllFiles(b, filepath.Join(root, "s", "history")) }
		b.Run(fmt.Sprintf("plain/%d", n), func(b *testing.B) {
			versus(b, runtime.GC, floor, func() { open(store.Options{}) })
		})
		time.Sleep(settled)
		cache := b.TempDir()
		open(store.Options{CacheDir: cache})
		b.Run(fmt.Sprintf("cached/%d", n), func(b *testing.B) {
			versus(b, runtime.GC, floor, func() { open(store.Options{CacheDir: cache}) })
		})
	}
}

// settled is how long a file must be left alone before a cache relies on it.
const settled = 2100 * time.Millisecond

// durable is the bare durable write of a file: temporary file, fsync, rename,
// fsync of the directory.
func durable(b *testing.B, path string, data []byte) {
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	must(b, err)
	_, err = f.Write(data)
	must(b, err)
	must(b, f.Sync())
	must(b, f.Close())
	must(b, os.Rename(path+".tmp", path))
	d, err := os.Open(filepath.Dir(path))
	must(b, err)
	must(b, d.Sync())
	must(b, d.Close())
}

// BenchmarkAppend appends a message, against the two durable writes that it
// needs: the node's file and meta.json. Bound: 1.15, and the time at 100,000
// nodes within twice that at 1,000.
func BenchmarkAppend(b *testing.B) {
	for _, n := range benchSizes() {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			root := benchSession(b, n)
			s := benchOpen(b, store.Options{Root: root})
			defer s.Close()
			bare := filepath.Join(filepath.Dir(root), "bare")
			must(b, os.MkdirAll(filepath.Join(bare, "history"), 0o700))
			meta, err := os.ReadFile(filepath.Join(root, "s", "meta.json"))
			must(b, err)
			node := []byte(strings.Repeat("x", 1600))
			_, err = s.AppendText(context.Background(), "s", "user", benchText(0))
			must(b, err)
			i := 0
			versus(b, nil, func() {
				i++
				durable(b, filepath.Join(bare, "history", fmt.Sprintf("%06d.json", i)), node)
				durable(b, filepath.Join(bare, "meta.json"), meta)
			}, func() {
				_, err := s.AppendText(context.Background(), "s", "user", benchText(i))
				must(b, err)
			})
		})
	}
}

// BenchmarkSetHead moves the head to and fro, against the durable write of
// meta.json that it needs. The bounds are BenchmarkAppend's.
func BenchmarkSetHead(b *testing.B) {
	for _, n := range benchSizes() {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			root := benchSession(b, n)
			s := benchOpen(b, store.Options{Root: root})
			defer s.Close()
			bare := filepath.Join(filepath.Dir(root), "bare")
			must(b, os.MkdirAll(bare, 0o700))
			meta, err := os.ReadFile(filepath.Join(root, "s", "meta.json"))
			must(b, err)
			heads := []string{fmt.Sprintf("%012x", 0xabc000000000+n-10), fmt.Sprintf("%012x", 0xabc000000000+n-1)}
			_, err = s.SetHead(context.Background(), "s", heads[0], store.HeadMove{})
			must(b, err)
			i := 0
			versus(b, nil, func() { durable(b, filepath.Join(bare, "meta.json"), meta) }, func() {
				i++
				_, err := s.SetHead(context.Background(), "s", heads[i%2], store.HeadMove{})
				must(b, err)
			})
		})
	}
}

// BenchmarkList lists all sessions in a fresh store, read-only. Bound for
// 10,000 sessions: 120 ms.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		root := benchSessions(b, n)
		list := func(opt store.Options) {
			opt.Root, opt.ReadOnly = root, true
			s := benchOpen(b, opt)
			rows, err := s.ListSessions(context.Background(), store.ListQuery{})
			must(b, err)
			if len(rows) != n {
				b.Fatalf("%d sessions", len(rows))
			}
			must(b, s.Close())
		}
		b.Run(fmt.Sprintf("plain/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				list(store.Options{})
			}
		})
		time.Sleep(settled)
		cache := b.TempDir()
		list(store.Options{CacheDir: cache})
		b.Run(fmt.Sprintf("cached/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				list(store.Options{CacheDir: cache})
			}
		})
	}
}

// benchSizes are the sizes of what single operations are tried on. The largest
// takes minutes to make: it needs SESSIONFS_BENCH_MANY in the environment.
func benchSizes() []int {
	if os.Getenv("SESSIONFS_BENCH_MANY") != "" {
		return []int{1000, 10000, 100000}
	}
	return []int{1000, 10000}
}

// BenchmarkManySessions is what single operations cost in roots of different
// sizes. Bound: at 100,000 sessions within 1.3 of 1,000.
func BenchmarkManySessions(b *testing.B) {
	for _, n := range benchSizes() {
		root := benchSessions(b, n)
		b.Run(fmt.Sprintf("open/%d", n), func(b *testing.B) {
			for b.Loop() {
				must(b, benchOpen(b, store.Options{Root: root}).Close())
			}
		})
		s := benchOpen(b, store.Options{Root: root})
		ctx := context.Background()
		b.Run(fmt.Sprintf("append/%d", n), func(b *testing.B) {
			for b.Loop() {
				_, err := s.AppendText(ctx, "session-000000", "user", "hello")
				must(b, err)
			}
		})
		b.Run(fmt.Sprintf("head/%d", n), func(b *testing.B) {
			heads, i := []string{"abc000000000", "abc000000001"}, 0
			for b.Loop() {
				i++
				_, err := s.SetHead(ctx, "session-000000", heads[i%2], store.HeadMove{})
				must(b, err)
			}
		})
		b.Run(fmt.Sprintf("load/%d", n), func(b *testing.B) {
			for b.Loop() {
				_, err := s.Load(ctx, "session-000000")
				must(b, err)
			}
		})
		b.Run(fmt.Sprintf("row/%d", n), func(b *testing.B) {
			for b.Loop() {
				_, err := s.Row(ctx, "session-000000")
				must(b, err)
			}
		})
		must(b, s.Close())
	}
}

// BenchmarkBranchAgain reads the branch of an open session of 10,000 messages.
// Bound: 5 ms. "moved" is the first reading after a head move.
func BenchmarkBranchAgain(b *testing.B) {
	root := benchSession(b, 10000)
	s := benchOpen(b, store.Options{Root: root})
	defer s.Close()
	ctx := context.Background()
	read := func(b *testing.B) {
		sn, err := s.Load(ctx, "s")
		must(b, err)
		_, err = sn.Branch()
		must(b, err)
	}
	read(b)
	b.Run("again", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			read(b)
		}
	})
	b.Run("other", func(b *testing.B) {
		b.ReportAllocs()
		sn, err := s.Load(ctx, "s")
		must(b, err)
		for b.Loop() {
			_, err := sn.BranchOf(sn.Head)
			must(b, err)
		}
	})
}

// BenchmarkOpenHeap tells what an open session of 10,000 nodes keeps in memory.
// Bound: 5 MB.
func BenchmarkOpenHeap(b *testing.B) {
	root := benchSession(b, 10000)
	var kept []float64
	for b.Loop() {
		s := benchOpen(b, store.Options{Root: root, ReadOnly: true})
		before := heap()
		sn, err := s.Load(context.Background(), "s")
		must(b, err)
		_, err = sn.Branch()
		must(b, err)
		kept = append(kept, float64(heap()-before))
		runtime.KeepAlive(sn)
		must(b, s.Close())
	}
	slices.Sort(kept)
	b.ReportMetric(kept[len(kept)/2]/1e6, "MB-kept")
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
