package registry

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/disktest"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// TestFlushFailsAtEachStep fails each disk call of a flush in turn, once alone
// and once with all that follow. The file is the old or the new one, the
// change stays pending, and the next flush makes it durable.
func TestFlushFailsAtEachStep(t *testing.T) {
	for _, down := range []bool{false, true} {
		for n := 1; ; n++ {
			path := filepath.Join(t.TempDir(), "index.json")
			write(t, path, sample)
			failing := disktest.New(disk.OS)
			r, _, err := Open(failing, path)
			if err != nil {
				t.Fatal(err)
			}
			r.Put("local_aaaa000001", raw("title", `"new"`))
			wanted := string(r.Bytes())
			failing.FailAt(n, down)
			err = r.Flush(context.Background(), nil)
			calls := failing.Calls()
			failing.FailAt(0, false)
			if calls < n {
				if err != nil || n < 5 {
					t.Fatalf("a flush made %d calls: %v", calls, err)
				}
				break
			}
			if err == nil || !r.Dirty() {
				t.Fatalf("call %d failed and the flush did not: %v, dirty %v", n, err, r.Dirty())
			}
			if got := read(t, path); got != sample && got != wanted {
				t.Fatalf("call %d: the file holds neither\n%s", n, got)
			}
			failing.FailAt(0, false)
			flush(t, r)
			if failing.Calls() == 0 {
				t.Fatalf("call %d: the second flush made nothing durable", n)
			}
			want(t, fmt.Sprintf("after call %d", n), read(t, path), wanted)
			checkLeftovers(t, path, down)
		}
	}
}

// hooked calls before at each rename.
type hooked struct {
	disk.FS
	before func()
}

func (h hooked) Rename(oldName, newName string) error {
	h.before()
	return h.FS.Rename(oldName, newName)
}

// TestPutDuringFlush: what comes while the file is being written is neither
// lost nor taken for written.
func TestPutDuringFlush(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.json")
	write(t, path, sample)
	var r *Registry
	hook := func() {}
	r, _, err := Open(hooked{disk.OS, func() { hook() }}, path)
	if err != nil {
		t.Fatal(err)
	}
	hook = func() {
		hook = func() {}
		r.Put("local_aaaa000001", raw("title", `"second"`))
		r.Put("late", nil)
		r.Delete("local_cccc000003")
	}
	r.Put("local_aaaa000001", raw("title", `"first"`, "pinned", "true"))
	r.Put("local_bbbb000002", raw("title", `"once"`))
	if err := r.Flush(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if !r.Dirty() || !strings.Contains(read(t, path), "first") {
		t.Error("what came late counts as written")
	}
	view := string(r.Bytes())
	flush(t, r)
	want(t, "the second flush", read(t, path), view)
	for _, part := range []string{`"title": "second"`, `"pinned": true`, `"title": "once"`, `"late"`} {
		if !strings.Contains(view, part) {
			t.Errorf("lost %s:\n%s", part, view)
		}
	}
	if strings.Contains(view, "local_cccc000003") {
		t.Error("a late deletion is lost")
	}
}

// TestOvertaken: the peer, which takes no lock, replaces the file after it was
// read and before the new one is in its place. Its rows stay, ours get into the
// file, and what it wrote of the same row is not replaced by something older.
func TestOvertaken(t *testing.T) {
	for _, times := range []int{1, 2, overtakings + 3} {
		path := filepath.Join(t.TempDir(), "index.json")
		write(t, path, sample)
		slow := &slowSync{FS: disk.OS}
		r, _, err := Open(slow, path)
		if err != nil {
			t.Fatal(err)
		}
		truth := `"old"`
		r.Put("local_aaaa000001", raw("title", truth, "pinned", "true"))
		n := 0
		slow.before = func() {
			if n++; n > times {
				return
			}
			truth = fmt.Sprintf(`"newer %d"`, n)
			theirs, _ := parse([]byte(sample))
			write(t, path, string(merge(theirs, map[string]*change{
				"local_aaaa000001": {row: newRow("local_aaaa000001"), fields: raw("title", truth)},
				"local_bbbb000002": {row: newRow("local_bbbb000002"), fields: raw("title", truth)},
			}).text))
		}
		if err := r.Flush(context.Background(), func() { r.Put("local_aaaa000001", raw("title", truth)) }); err != nil {
			t.Fatal(err)
		}
		if times > overtakings {
			if n != overtakings || !strings.Contains(read(t, path), `"pinned": true`) {
				t.Errorf("a peer that always writes: %d attempts, the file\n%s", n, read(t, path))
			}
			continue
		}
		got, _ := parse([]byte(read(t, path)))
		for _, id := range []string{"local_aaaa000001", "local_bbbb000002"} {
			if row, ok := rowOf(got, nil, id); !ok || row.Str("title") != fmt.Sprintf("newer %d", times) {
				t.Errorf("overtaken %d times: the row of %s is %s", times, id, row.Bytes())
			}
		}
		if row, _ := rowOf(got, nil, "local_aaaa000001"); !row.Truthy("pinned") || r.Dirty() {
			t.Errorf("overtaken %d times: our change is lost", times)
		}
		checkLeftovers(t, path, false)
	}
}

// slowSync calls before at the end of each file's fsync, while which others
// write.
type slowSync struct {
	disk.FS
	before func()
}

type slowFile struct {
	disk.File
	before func()
}

func (s *slowSync) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	return slowFile{f, s.before}, err
}

func (f slowFile) Sync() error {
	err := f.File.Sync()
	if f.before != nil {
		f.before()
	}
	return err
}

// checkLeftovers: unless the disk went down, no temporary file stays.
func checkLeftovers(t *testing.T, path string, down bool) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "index.json" && !(down && disk.IsTemp(e.Name())) {
			t.Errorf("left over: %s", e.Name())
		}
	}
}

// big returns a registry of n rows as the peer writes it.
func big(n int) string {
	var b strings.Builder
	b.WriteString("{\n")
	for i := range n {
		row := newRow(fmt.Sprintf("local_%010x", i))
		row = apply(row, raw("agent_id", `"main"`, "title", fmt.Sprintf(`"Conversation number %d"`, i),
			"source", `"tui"`, "created_at", "1735000000.123456", "updated_at", "1735000000.654321",
			"channel", "null", "peer_display", "null", "peer_id", "null",
			"preview", `"Could you compare the rain barrel and the label maker for me, please?"`))
		fmt.Fprintf(&b, "  %q: %s", fmt.Sprintf("local_%010x", i), row.Bytes())
		if i < n-1 {
			b.WriteString(",\n")
		}
	}
	b.WriteString("\n}")
	return b.String()
}

func benchRegistry(b *testing.B) (*Registry, string) {
	b.Helper()
	path := filepath.Join(b.TempDir(), "index.json")
	if err := os.WriteFile(path, []byte(big(10_000)), 0o600); err != nil {
		b.Fatal(err)
	}
	r, state, err := Open(disk.OS, path)
	if err != nil || state != Loaded {
		b.Fatal(state, err)
	}
	return r, path
}

func BenchmarkOpen10000(b *testing.B) {
	_, path := benchRegistry(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Open(disk.OS, path); err != nil {
			b.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r, _, _ := Open(disk.OS, path)
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/1e6, "heapMB")
	runtime.KeepAlive(r)
}

func BenchmarkRows10000(b *testing.B) {
	r, _ := benchRegistry(b)
	b.ReportAllocs()
	for b.Loop() {
		for _, row := range r.Rows() {
			_ = row.Str("title")
		}
	}
}

func BenchmarkPutFlush10000(b *testing.B) {
	r, _ := benchRegistry(b)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		r.Put(fmt.Sprintf("local_%010x", i%10_000), raw("updated_at", string(jsonedit.EncodeFloat(float64(i)+0.5))))
		if err := r.Flush(context.Background(), nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReloadUnchanged10000(b *testing.B) {
	r, _ := benchRegistry(b)
	for b.Loop() {
		if _, err := r.Reload(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRebuild10000 puts all rows anew, as a rebuild does.
func BenchmarkRebuild10000(b *testing.B) {
	path := filepath.Join(b.TempDir(), "index.json")
	for b.Loop() {
		os.Remove(path)
		r, _, err := Open(disk.OS, path)
		if err != nil {
			b.Fatal(err)
		}
		for i := range 10_000 {
			id := fmt.Sprintf("local_%010x", i)
			r.SetRow(id, RowFromMeta(id, nil, 1))
		}
		if err := r.Flush(context.Background(), nil); err != nil {
			b.Fatal(err)
		}
	}
}
