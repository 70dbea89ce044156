package recovery

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a session's undo data beside a project.
type world struct {
	t       *testing.T
	fs      disk.FS
	base    string
	project string
	tree    *Tree
}

func newWorld(t *testing.T) *world {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, fs: quick{disk.OS}, base: base, project: filepath.Join(base, "project")}
	if err := os.MkdirAll(filepath.Join(base, "root", "s"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.reopen(quick{disk.OS})
	w.put("keep", "untouched")
	return w
}

func (w *world) reopen(f disk.FS) *Tree {
	w.fs = f
	w.tree = Open(Options{
		FS: f, Dir: filepath.Join(w.base, "root", ".file-recovery", "s"), Legacy: filepath.Join(w.base, "root", "s", "file_backups"),
		State: filepath.Join(w.base, "state"), Now: func() time.Time { return time.Unix(1735000000, 0) },
		Project: &Locator{ProjectID: "p", Root: w.project},
	})
	return w.tree
}

func (w *world) path(rel string) string { return filepath.Join(w.project, rel) }

// put makes a file of a text; "-" removes it.
func (w *world) put(rel, text string) {
	w.t.Helper()
	var err error
	if text == "-" {
		err = os.Remove(w.path(rel))
	} else {
		err = errors.Join(os.MkdirAll(filepath.Dir(w.path(rel)), 0o755), os.WriteFile(w.path(rel), []byte(text), 0o644))
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// edit lets a turn change a file.
func (w *world) edit(turn, rel, text string) {
	w.t.Helper()
	if err := w.tree.Before(w.t.Context(), turn, w.path(rel)); err != nil {
		w.t.Fatal(err)
	}
	w.put(rel, text)
	if err := w.tree.After(w.t.Context(), turn, w.path(rel)); err != nil {
		w.t.Fatal(err)
	}
}

// files is what the project holds: names, modes, texts.
func (w *world) files() string {
	w.t.Helper()
	var out []string
	err := filepath.WalkDir(w.project, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(w.project, path)
		if d.Type()&fs.ModeSymlink != 0 {
			out = append(out, rel+" -> symlink")
			return nil
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		out = append(out, rel+" "+fi.Mode().String()+" "+string(b))
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

func (w *world) plan(turns ...string) *Plan {
	w.t.Helper()
	p, err := w.tree.Plan(turns, w.project)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) entry(turn, rel string) Entry {
	w.t.Helper()
	entries, err := w.tree.Manifest(turn)
	if err != nil {
		w.t.Fatal(err)
	}
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.Path == w.path(rel) })
	if i < 0 {
		w.t.Fatalf("%s: no entry of %s", turn, rel)
	}
	return entries[i]
}

// threeTurns changes files in every way. It returns the files before and after.
func (w *world) threeTurns() (before, after string) {
	w.t.Helper()
	w.put("mod", "mod 0\n")
	w.put("dir/deep/gone", "gone 0\n")
	w.put("twice", "twice 0\n")
	w.put("run.sh", "#!/bin/sh\n")
	if err := os.Chmod(w.path("run.sh"), 0o755); err != nil {
		w.t.Fatal(err)
	}
	before = w.files()
	w.edit("t1", "mod", "mod 1\n")
	w.edit("t1", "twice", "twice 1\n")
	w.edit("t1", "new/file", "new 1\n")
	w.edit("t1", "run.sh", "#!/bin/bash\n")
	w.edit("t2", "twice", "twice 2\n")
	w.edit("t2", "dir/deep/gone", "-")
	w.edit("t2", "fleeting", "x")
	w.edit("t3", "fleeting", "-")
	w.edit("t3", "new/file", "new 3\n")
	if err := os.RemoveAll(w.path("dir")); err != nil {
		w.t.Fatal(err)
	}
	return before, w.files()
}

func TestRewind(t *testing.T) {
	w := newWorld(t)
	before, after := w.threeTurns()
	p := w.plan("t3", "t2", "t1")
	if !p.Ready() || len(p.Changes) != 5 {
		t.Fatalf("%+v", p)
	}
	called := false
	res, err := w.tree.Apply(t.Context(), p, p.Hash, ApplyOptions{Payload: []byte(`{"head": 1}`), Commit: func(context.Context) error {
		called = true
		return nil
	}})
	if err != nil || !called || len(res.Files) != 5 || res.Repeated {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := w.files(); got != before {
		t.Errorf("got\n%s\nwant\n%s", got, before)
	}
	res, err = w.tree.Apply(t.Context(), p, p.Hash, ApplyOptions{Commit: func(context.Context) error { return errors.New("again") }})
	if err != nil || !res.Repeated || len(res.Files) != 5 {
		t.Errorf("applied twice: %+v, %v", res, err)
	}
	if out, err := w.reopen(quick{disk.OS}).Replay(t.Context(), w.project, nil); err != nil || len(out) != 0 {
		t.Errorf("replay of what is done: %+v, %v", out, err)
	}
	if p := w.plan("t3", "t2", "t1"); p.Ready() || after == before {
		t.Error("a second plan is ready though the files are not what the turns left")
	}
}

func TestPlanOfOneTurn(t *testing.T) {
	w := newWorld(t)
	w.threeTurns()
	p := w.plan("t3")
	var got []string
	for _, c := range p.Changes {
		got = append(got, c.Rel+" "+string(c.Target.Kind))
	}
	if want := "fleeting regular, new/file regular"; strings.Join(got, ", ") != want || !p.Ready() {
		t.Errorf("%q, want %q", got, want)
	}
	again := w.plan("t3")
	if again.Hash != p.Hash || again.Key == p.Key {
		t.Error("the hash of a plan is not that of the same plan, or two plans share a key")
	}
	if other := w.plan("t3", "t2"); other.Hash == p.Hash {
		t.Error("two plans have the same hash")
	}
	if empty, err := w.tree.Plan([]string{"none"}, ""); err != nil || !empty.Ready() || len(empty.Changes) != 0 {
		t.Errorf("a turn without undo data: %+v, %v", empty, err)
	}
}

func TestConflicts(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(w *world)
		want  Reason
	}{
		"changed":     {func(w *world) { w.put("mod", "by hand") }, Changed},
		"removed":     {func(w *world) { w.put("mod", "-") }, Changed},
		"made":        {func(w *world) { w.put("dir/deep/gone", "by hand") }, Changed},
		"in the way":  {func(w *world) { w.put("dir", "a file now") }, Changed},
		"a directory": {func(w *world) { w.put("dir/deep/gone/x", "x") }, Changed},
		"hard link":   {func(w *world) { must(t, os.Link(w.path("mod"), w.path("mod2"))) }, Changed},
		"symlink":     {func(w *world) { w.put("mod", "-"); must(t, os.Symlink("keep", w.path("mod"))) }, Changed},
		"parent is a symlink": {func(w *world) {
			must(t, os.Rename(w.path("new"), filepath.Join(w.base, "elsewhere")))
			must(t, os.Symlink(filepath.Join(w.base, "elsewhere"), w.path("new")))
		}, OutsideProject},
		"unfinished": {func(w *world) { must(t, w.tree.Before(t.Context(), "t3", w.path("keep"))) }, UnknownOutcome},
		"pending":    {func(w *world) { must(t, w.tree.Before(t.Context(), "t3", w.path("new/file"))) }, UnknownOutcome},
		"blob gone": {func(w *world) {
			e := w.entry("t1", "mod")
			must(t, os.Remove(filepath.Join(w.base, "root/.file-recovery/s/t1", e.Before.Blob)))
		}, MissingBlob},
		"blob damaged": {func(w *world) {
			e := w.entry("t1", "mod")
			must(t, os.WriteFile(filepath.Join(w.base, "root/.file-recovery/s/t1", e.Before.Blob), []byte("mod x\n"), 0o600))
		}, MissingBlob},
		"outside": {func(w *world) {
			path := filepath.Join(w.base, "outside")
			must(t, w.tree.Before(t.Context(), "t3", path))
			must(t, os.WriteFile(path, nil, 0o600))
			must(t, w.tree.After(t.Context(), "t3", path))
		}, OutsideProject},
		"became a link": {func(w *world) {
			must(t, w.tree.Before(t.Context(), "t3", w.path("keep")))
			w.put("keep", "-")
			must(t, os.Symlink("mod", w.path("keep")))
			must(t, w.tree.After(t.Context(), "t3", w.path("keep")))
		}, NotRecorded},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.threeTurns()
			old := w.plan("t3", "t2", "t1")
			c.spoil(w)
			before := w.files()
			p := w.plan("t3", "t2", "t1")
			if p.Ready() || p.Conflicts[0].Reason != c.want || p.Hash == old.Hash {
				t.Errorf("%+v", p.Conflicts)
			}
			var conflict *ConflictError
			for _, plan := range []*Plan{p, old} {
				if _, err := w.tree.Apply(t.Context(), plan, plan.Hash, ApplyOptions{}); !errors.As(err, &conflict) {
					t.Errorf("%v", err)
				}
			}
			if got := w.files(); got != before {
				t.Errorf("a refused plan changed files:\n%s\nwant\n%s", got, before)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestStale(t *testing.T) {
	w := newWorld(t)
	w.threeTurns()
	p := w.plan("t3", "t2")
	for _, confirmed := range []string{"", w.plan("t3").Hash} {
		if _, err := w.tree.Apply(t.Context(), p, confirmed, ApplyOptions{}); !errors.Is(err, ErrStale) {
			t.Errorf("%v", err)
		}
	}
	w.edit("t3", "mod", "mod 3\n")
	if _, err := w.tree.Apply(t.Context(), p, p.Hash, ApplyOptions{}); !errors.Is(err, ErrStale) {
		t.Errorf("%v", err)
	}
	if _, err := w.tree.Plan([]string{"t3"}, ""); !errors.Is(err, ErrNoProject) {
		t.Errorf("%v", err)
	}
	if _, err := w.tree.Plan([]string{"t3", "t3"}, w.project); !errors.Is(err, ErrBadTurn) {
		t.Errorf("%v", err)
	}
}

func TestCommitFails(t *testing.T) {
	w := newWorld(t)
	before, after := w.threeTurns()
	p := w.plan("t3", "t2", "t1")
	refused := errors.New("head moved")
	_, err := w.tree.Apply(t.Context(), p, p.Hash, ApplyOptions{Commit: func(context.Context) error {
		if got := strings.ReplaceAll(w.files(), ".sessionfs", ""); !strings.Contains(got, "mod 0") {
			t.Error("commit before the files")
		}
		return refused
	}})
	if !errors.Is(err, refused) || errors.Is(err, ErrUnfinished) || w.files() != after {
		t.Errorf("%v\n%s\nwant\n%s", err, w.files(), after)
	}
	if _, err := os.Stat(w.path("dir")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory made for the files is left: %v", err)
	}
	// The same plan may be tried again.
	if _, err := w.tree.Apply(t.Context(), p, p.Hash, ApplyOptions{}); err != nil || w.files() != before {
		t.Errorf("%v\n%s", err, w.files())
	}
}

func TestProjectMoved(t *testing.T) {
	w := newWorld(t)
	before, _ := w.threeTurns()
	moved := filepath.Join(w.base, "moved")
	must(t, os.Rename(w.project, moved))
	w.project = moved
	p := w.plan("t3", "t2", "t1")
	if _, err := w.tree.Apply(t.Context(), p, p.Hash, ApplyOptions{}); err != nil || w.files() != before {
		t.Errorf("%v %+v\n%s", err, p.Conflicts, w.files())
	}
}

func TestGap(t *testing.T) {
	w := newWorld(t)
	w.edit("t1", "f", "1")
	w.put("f", "by hand")
	w.edit("t2", "f", "2")
	p := w.plan("t2", "t1")
	if !p.Ready() || len(p.Changes) != 1 || !p.Changes[0].Gap || p.Changes[0].Target.Kind != Absent {
		t.Errorf("%+v", p)
	}
	if p := w.plan("t2"); p.Changes[0].Gap || p.Changes[0].Target.Size != 7 {
		t.Errorf("%+v", p)
	}
}

func TestVersion1(t *testing.T) {
	w := newWorld(t)
	old := filepath.Join(w.base, "root/s/file_backups/t0")
	w.put("changed", "now")
	w.put("made", "now")
	must(t, os.MkdirAll(old, 0o755))
	must(t, os.WriteFile(filepath.Join(old, "k1"), []byte("then"), 0o640))
	text := `{"backed_at": 1.5, "files": {"k1": {"path": "` + w.path("changed") + `", "pre_existing": true}, "k2": {"path": "` + w.path("made") + `", "pre_existing": false}}}`
	must(t, os.WriteFile(filepath.Join(old, "manifest.json"), []byte(text), 0o644))
	p := w.plan("t0")
	w.put("changed", "later")
	if _, err := w.tree.Apply(t.Context(), p, p.Hash, ApplyOptions{}); !errors.Is(err, ErrStale) {
		t.Errorf("the file changed after the plan: %v", err)
	}
	p = w.plan("t0")
	if _, err := w.tree.Apply(t.Context(), p, p.Hash, ApplyOptions{}); err != nil || w.files() != "changed -rw-r----- then\nkeep -rw-r--r-- untouched" {
		t.Errorf("%v\n%s", err, w.files())
	}
	if err := w.tree.Before(t.Context(), "t0", w.path("keep")); !errors.Is(err, ErrManifest) {
		t.Errorf("recorded into old undo data: %v", err)
	}
	if b, _ := os.ReadFile(filepath.Join(old, "manifest.json")); string(b) != text {
		t.Errorf("old undo data changed: %s", b)
	}
}

func TestRetain(t *testing.T) {
	w := newWorld(t)
	for i, turn := range []string{"a", "b", "c", "d"} {
		w.edit(turn, "f", turn)
		when := time.Unix(1700000000+int64(i), 0)
		must(t, os.Chtimes(filepath.Join(w.base, "root/.file-recovery/s", turn), when, when))
	}
	p := w.plan("d")
	if _, err := w.tree.Apply(t.Context(), p, p.Hash, ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	removed, err := w.tree.Retain(4) // with intents and intent-locks
	if err != nil || strings.Join(removed, " ") != "b a" {
		t.Errorf("%q, %v", removed, err)
	}
	if res, err := w.tree.Apply(t.Context(), p, p.Hash, ApplyOptions{}); err != nil || !res.Repeated {
		t.Errorf("%+v, %v", res, err)
	}
	if removed, err := w.tree.Retain(Keep); err != nil || removed != nil {
		t.Errorf("%q, %v", removed, err)
	}
}
