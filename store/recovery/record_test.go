package recovery

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

func TestFileKey(t *testing.T) {
	for path, want := range map[string]string{
		"/home/user/a.txt":            "63dc246c45d2_a.txt",
		"/":                           "42099b4af021_file",
		"/" + strings.Repeat("图", 50): "24a31ed88214_" + strings.Repeat("图", 40),
	} {
		if got := FileKey(path); got != want {
			t.Errorf("FileKey(%q) = %q, want %q", path, got, want)
		}
	}
}

func TestRecord(t *testing.T) {
	w := newWorld(t)
	w.put("f", "one\ntwo\n")
	ctx := t.Context()
	must(t, w.tree.Before(ctx, "t", w.path("f")))
	e := w.entry("t", "f")
	if e.Status != Prepared || e.Operation != "" || e.Before.Mode != 0o644 || e.Before.Size != 8 || e.After != nil || e.DiffState != "pending" ||
		e.Added != -1 || e.Sequence != 1 || e.Locator == nil || e.Locator.Path != "f" || e.Locator.Root != w.project || e.PreparedAt != 1735000000 {
		t.Errorf("%+v", e)
	}
	w.put("f", "one\n2\nthree\n")
	must(t, w.tree.Before(ctx, "t", w.path("f"))) // the first counts
	must(t, w.tree.After(ctx, "t", w.path("f")))
	e = w.entry("t", "f")
	if e.Status != Committed || e.Operation != "modify" || e.Added != 2 || e.Removed != 1 || e.DiffState != "available" || e.Before.Size != 8 || e.After.Size != 12 {
		t.Errorf("%+v", e)
	}
	must(t, w.tree.Before(ctx, "t", w.path("f")))
	if e = w.entry("t", "f"); !e.Pending || e.Status != Committed || e.Sequence != 2 {
		t.Errorf("%+v", e)
	}
	must(t, w.tree.Abort(ctx, "t", w.path("f"), "refused"))
	if e = w.entry("t", "f"); e.Pending || e.Status != Committed || e.Error != "refused" {
		t.Errorf("%+v", e)
	}
	must(t, w.tree.Before(ctx, "t", w.path("f")))
	w.put("f", "-")
	must(t, w.tree.After(ctx, "t", w.path("f")))
	if e = w.entry("t", "f"); e.Operation != "delete" || e.Removed != 2 || e.Added != 0 || e.Before.Size != 8 || e.After.Kind != Absent || e.Error != "" {
		t.Errorf("%+v", e)
	}
	if n := blobs(t, w, "t"); n != 1 {
		t.Errorf("%d blobs, want the first before-image alone", n)
	}
	if b, _ := os.ReadFile(filepath.Join(w.base, "state/mutation-locks/workspace-sequence")); string(b) != "3" {
		t.Errorf("sequence %s", b)
	}
}

func blobs(t *testing.T, w *world, turn string) (n int) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.base, "root/.file-recovery/s", turn))
	must(t, err)
	for _, e := range entries {
		if e.Name() != manifestName {
			n++
		}
		if fi, _ := e.Info(); fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", e.Name(), fi.Mode())
		}
	}
	return n
}

func TestAbortedIsRecordedAgain(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.put("f", "0")
	must(t, w.tree.Before(ctx, "t", w.path("f")))
	must(t, w.tree.Abort(ctx, "t", w.path("f"), "x"))
	if e := w.entry("t", "f"); e.Status != Aborted {
		t.Errorf("%+v", e)
	}
	if p := w.plan("t"); !p.Ready() || len(p.Changes) != 0 {
		t.Errorf("%+v", p)
	}
	w.put("f", "by hand")
	w.edit("t", "f", "1")
	if e := w.entry("t", "f"); e.Before.Size != 7 || e.Status != Committed {
		t.Errorf("%+v", e)
	}
	for _, path := range []string{"f", "never"} {
		if err := w.tree.After(ctx, "t", w.path(path)); !errors.Is(err, ErrNotPrepared) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestNotRecordable(t *testing.T) {
	w := newWorld(t)
	w.put("f", "x")
	w.put("d/f", "x")
	must(t, os.Symlink("f", w.path("link")))
	must(t, os.Link(w.path("f"), w.path("hard")))
	for _, path := range []string{w.path("link"), w.path("hard"), w.path("f"), w.path("d"), "/dev/null", "relative", "/", w.path("a\xff"), w.path("d") + "/", ""} {
		if err := w.tree.Before(t.Context(), "t", path); !errors.Is(err, ErrNotRecordable) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, turn := range []string{"", ".", "..", "a/b", "intents", "intent-locks", ".hidden", "a\x00", strings.Repeat("x", 201)} {
		if err := w.tree.Before(t.Context(), turn, w.path("d/f")); !errors.Is(err, ErrBadTurn) {
			t.Errorf("%q: %v", turn, err)
		}
	}
	// Through a symlink above it, a file is recorded where it is.
	must(t, os.Symlink("d", w.path("dl")))
	must(t, w.tree.Before(t.Context(), "t", w.path("dl/f")))
	w.entry("t", "d/f")
}

func TestManifestErrors(t *testing.T) {
	for _, text := range []string{
		"", "{", "[]", `{"version": 3, "files": {}}`, `{"version": 2.0, "files": {}}`, `{"version": "2", "files": {}}`, `{"version": 2}`, `{"version": 2, "files": []}`,
		`{"version": 2, "files": {"k": 1}}`, `{"version": 2, "files": {"k": {"path": "rel", "status": "committed"}}}`,
		`{"version": 2, "files": {"k": {"path": "/a", "status": "odd"}}}`, `{"version": 2, "files": {"k": {"path": "/a/../b", "status": "prepared"}}}`,
		`{"version": 2, "files": {"k": {"path": "/a", "status": "prepared", "before": {"kind": "odd"}}}}`,
		`{"version": 2, "files": {"k": {"path": "/a", "status": "prepared", "before": {"kind": "regular", "mode": "0644", "blob_ref": "../x"}}}}`,
		`{"files": {"../k": {"path": "/a", "pre_existing": true}}}`,
	} {
		w := newWorld(t)
		path := filepath.Join(w.base, "root/.file-recovery/s/t/manifest.json")
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o600))
		_, perr := w.tree.Plan([]string{"t"}, w.project)
		berr := w.tree.Before(t.Context(), "t", w.path("f"))
		aerr := w.tree.After(t.Context(), "t", w.path("f"))
		for _, err := range []error{perr, berr, aerr} {
			if !errors.Is(err, ErrManifest) {
				t.Errorf("%s: %v", text, err)
			}
		}
		if b, _ := os.ReadFile(path); string(b) != text {
			t.Errorf("%s was overwritten by %s", text, b)
		}
	}
	w := newWorld(t)
	must(t, os.MkdirAll(filepath.Join(w.base, "root/.file-recovery/s"), 0o755))
	must(t, os.Symlink(w.base, filepath.Join(w.base, "root/.file-recovery/s/t")))
	if err := w.tree.Before(t.Context(), "t", w.path("f")); !errors.Is(err, ErrManifest) {
		t.Errorf("a symlinked turn: %v", err)
	}
}

// TestManifestBytes: what is not changed keeps its bytes, and what is written
// is laid out as the peer does.
func TestManifestBytes(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.base, "root/.file-recovery/s/t")
	must(t, os.MkdirAll(dir, 0o755))
	text := `{
  "version": 2,
  "odd": {"b": 1e400,   "a": [NaN, 12345678901234567890123]},
  "backed_at": 1735000000,
  "files": {
    "other": {
      "path": "/x/\u00e9<图>",
      "status": "committed", "extra": -0.0
    }
  },
  "last": "\ud800"
}`
	path := filepath.Join(dir, "manifest.json")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	w.edit("t", "new", "x")
	got, err := os.ReadFile(path)
	must(t, err)
	i := bytes.Index(got, []byte("    }\n  },\n  \"last\""))
	head := strings.Index(text, "\n    }\n  },")
	if i < 0 || !strings.HasPrefix(string(got), text[:head]+"\n    },\n    \""+FileKey(w.path("new"))+"\": {\n      \"path\": ") || !strings.HasSuffix(string(got), text[head+6:]) {
		t.Errorf("%s", got)
	}

	w.edit("u", "f", "1\n")
	w.edit("u", "f", "-")
	w.edit("u", "g", "1\n")
	got, err = os.ReadFile(filepath.Join(w.base, "root/.file-recovery/s/u/manifest.json"))
	must(t, err)
	if diff := cmp.Diff(string(jsonedit.Indent(got, "")), string(got)); diff != "" {
		t.Errorf("not the peer's layout (-want +got):\n%s", diff)
	}
	o, err := jsonedit.ParseObject(got)
	must(t, err)
	if got := strings.Join(o.Keys(), " "); got != "version backed_at files" {
		t.Error(got)
	}
}

func TestCountLines(t *testing.T) {
	for _, c := range []struct {
		a, b           string
		added, removed int
	}{
		{"", "", 0, 0}, {"", "a\nb", 2, 0}, {"a\nb\n", "", 0, 2}, {"a\nb\nc\n", "a\nx\nc\n", 1, 1}, {"a\nb", "a\nb\n", 1, 1}, {"a\nb\nc\nd\n", "d\na\nb\nc\n", 1, 1},
	} {
		if added, removed := countLines([]byte(c.a), []byte(c.b)); added != c.added || removed != c.removed {
			t.Errorf("%q to %q: +%d -%d", c.a, c.b, added, removed)
		}
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		a, b := randomLines(rnd, 12), randomLines(rnd, 12)
		added, removed := countLines([]byte(strings.Join(a, "")), []byte(strings.Join(b, "")))
		common := lcs(a, b)
		if added != len(b)-common || removed != len(a)-common {
			t.Fatalf("%q to %q: +%d -%d, %d common", a, b, added, removed, common)
		}
	}
	long := strings.Repeat("a\n", 50000)
	other := strings.Repeat("b\n", 40000)
	if added, removed := countLines([]byte(long), []byte(other)); added != 40000 || removed != 50000 {
		t.Errorf("+%d -%d", added, removed)
	}
}

func randomLines(rnd *rand.Rand, most int) []string {
	var out []string
	for range rnd.IntN(most) {
		out = append(out, string(rune('a'+rnd.IntN(4)))+"\n")
	}
	return out
}

func lcs(a, b []string) int {
	row := make([]int, len(b)+1)
	for i := range a {
		prev := 0
		for j := range b {
			next := row[j+1]
			if a[i] == b[j] {
				row[j+1] = prev + 1
			} else {
				row[j+1] = max(row[j+1], row[j])
			}
			prev = next
		}
	}
	return row[len(b)]
}

func TestDiffStates(t *testing.T) {
	w := newWorld(t)
	w.edit("t", "bin", "a\x00b")
	w.edit("t", "large", strings.Repeat("x\n", maxDiff/2+1))
	for rel, want := range map[string]string{"bin": "binary", "large": "large"} {
		if e := w.entry("t", rel); e.DiffState != want || e.Added != -1 || e.Operation != "create" {
			t.Errorf("%s: %+v", rel, e)
		}
	}
}

func TestConcurrently(t *testing.T) {
	w := newWorld(t)
	other := Open(Options{FS: quick{disk.OS}, Dir: filepath.Join(w.base, "root/.file-recovery/s2"), State: filepath.Join(w.base, "state")})
	var wg sync.WaitGroup
	for i := range 12 {
		tree := w.tree
		if i%2 == 0 {
			tree = other
		}
		wg.Go(func() {
			path := w.path(fmt.Sprint("f", i))
			err := tree.Before(t.Context(), "t", path)
			err = errors.Join(err, os.WriteFile(path, []byte("x"), 0o600), tree.After(t.Context(), "t", path))
			_, perr := tree.Manifest("t")
			if err := errors.Join(err, perr); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := map[int64]bool{}
	for _, tree := range []*Tree{w.tree, other} {
		entries, err := tree.Manifest("t")
		if err != nil || len(entries) != 6 {
			t.Fatalf("%d entries, %v", len(entries), err)
		}
		for _, e := range entries {
			if seen[e.Sequence] || e.Sequence < 1 || e.Sequence > 12 || e.Status != Committed {
				t.Errorf("%+v", e)
			}
			seen[e.Sequence] = true
		}
	}
}

// TestRandomTurns: whatever a few turns do to a few files, rewinding all of
// them brings back what was, and rewinding some what was between.
func TestRandomTurns(t *testing.T) {
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		w := newWorld(t)
		names := []string{"a", "b", "d/c", "d/e/f"}
		for _, n := range names[:2] {
			w.put(n, "start "+n)
		}
		var turns, states []string
		for i := range 3 {
			states = append(states, w.files())
			turn := fmt.Sprint("t", i)
			for range 1 + rnd.IntN(4) {
				name := names[rnd.IntN(len(names))]
				text := fmt.Sprint(turn, rnd.IntN(3))
				if _, err := os.Stat(w.path(name)); err == nil && rnd.IntN(3) == 0 {
					text = "-"
				}
				w.edit(turn, name, text)
			}
			turns = append([]string{turn}, turns...)
		}
		some := 1 + rnd.IntN(3)
		p := w.plan(turns[:some]...)
		if _, err := w.tree.Apply(t.Context(), p, p.Hash, ApplyOptions{}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(states[3-some], w.files()); diff != "" {
			t.Fatalf("seed %d, %d turns (-want +got):\n%s", seed, some, diff)
		}
	}
}
