package recovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// quick is the disk without waiting for it: what a sync is for shows only when
// the power fails, which no test here does.
type quick struct{ disk.FS }

func (q quick) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := q.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return quickFile{f}, nil
}

func (q quick) SyncDir(name string) error {
	_, err := q.FS.Stat(name)
	return err
}

type quickFile struct{ disk.File }

func (quickFile) Sync() error { return nil }

// faulty is a disk whose at-th call fails, reads included, and with down all
// that follow it, as when the process or the machine dies there. Before each
// call it tells hook.
type faulty struct {
	disk.FS
	at, calls int
	down      bool
	hook      func(op, name string)
}

var errFault = &fs.PathError{Op: "fault", Err: syscall.EIO}

func (f *faulty) call(op, name string) error {
	f.calls++
	if f.hook != nil {
		f.hook(op, name)
	}
	if f.at > 0 && (f.calls == f.at || f.down && f.calls > f.at) {
		return errFault
	}
	return nil
}

func (f *faulty) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	if err := f.call("open", name); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultyFile{file, f}, nil
}

func (f *faulty) ReadFile(name string) ([]byte, error) {
	if err := f.call("read", name); err != nil {
		return nil, err
	}
	return f.FS.ReadFile(name)
}

func (f *faulty) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.call("readdir", name); err != nil {
		return nil, err
	}
	return f.FS.ReadDir(name)
}

func (f *faulty) Lstat(name string) (fs.FileInfo, error) {
	if err := f.call("lstat", name); err != nil {
		return nil, err
	}
	return f.FS.Lstat(name)
}

func (f *faulty) Stat(name string) (fs.FileInfo, error) {
	if err := f.call("stat", name); err != nil {
		return nil, err
	}
	return f.FS.Stat(name)
}

func (f *faulty) Rename(a, b string) error {
	if err := f.call("rename", a); err != nil {
		return err
	}
	return f.FS.Rename(a, b)
}

func (f *faulty) RenameNoReplace(a, b string) error {
	if err := f.call("rename", a); err != nil {
		return err
	}
	return f.FS.RenameNoReplace(a, b)
}

func (f *faulty) Remove(name string) error {
	if err := f.call("remove", name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *faulty) RemoveAll(name string) error {
	if err := f.call("removeall", name); err != nil {
		return err
	}
	return f.FS.RemoveAll(name)
}

func (f *faulty) Mkdir(name string, perm fs.FileMode) error {
	if err := f.call("mkdir", name); err != nil {
		return err
	}
	return f.FS.Mkdir(name, perm)
}

func (f *faulty) Link(a, b string) error {
	if err := f.call("link", b); err != nil {
		return err
	}
	return f.FS.Link(a, b)
}

func (f *faulty) SyncDir(name string) error {
	if err := f.call("syncdir", name); err != nil {
		return err
	}
	return f.FS.SyncDir(name)
}

type faultyFile struct {
	disk.File
	fs *faulty
}

func (f *faultyFile) Read(p []byte) (int, error) {
	if err := f.fs.call("fread", f.Name()); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

// Write leaves half of the data when it fails.
func (f *faultyFile) Write(p []byte) (int, error) {
	if err := f.fs.call("write", f.Name()); err != nil {
		n, _ := f.File.Write(p[:len(p)/2])
		return n, err
	}
	return f.File.Write(p)
}

func (f *faultyFile) Sync() error {
	if err := f.fs.call("fsync", f.Name()); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) Stat() (fs.FileInfo, error) {
	if err := f.fs.call("fstat", f.Name()); err != nil {
		return nil, err
	}
	return f.File.Stat()
}

func (f *faultyFile) Chmod(mode fs.FileMode) error {
	if err := f.fs.call("chmod", f.Name()); err != nil {
		return err
	}
	return f.File.Chmod(mode)
}

func (f *faultyFile) Close() error {
	err := f.fs.call("close", f.Name())
	return errors.Join(f.File.Close(), err)
}

// stride is how many calls there are from one that fails to the next.
func stride() int {
	if testing.Short() {
		return 7
	}
	return 1
}

// small is a world whose plan modifies, makes and removes a file.
func small(t *testing.T) (w *world, before, after string) {
	w = newWorld(t)
	w.put("a", "a 0")
	w.put("d/b", "b 0")
	before = w.files()
	w.edit("t", "a", "a 1")
	w.edit("t", "c", "c 1")
	w.edit("t", "d/b", "-")
	must(t, os.Remove(w.path("d")))
	return w, before, w.files()
}

// TestApplyFaults fails each call that Apply makes, alone and with all that
// follow. After Replay the files are all old or all new, a success means new,
// and nothing is left beside them.
func TestApplyFaults(t *testing.T) {
	for _, down := range []bool{false, true} {
		points := 0
		for n := 1; ; n += stride() {
			w, before, after := small(t)
			p := w.plan("t")
			f := &faulty{FS: quick{disk.OS}, at: n, down: down}
			head := "new"
			_, err := w.reopen(f).Apply(t.Context(), p, p.Hash, ApplyOptions{Commit: func(context.Context) error {
				if f.down && f.calls >= f.at {
					return errFault
				}
				head = "old"
				return nil
			}})
			reached := f.calls >= n
			if err == nil && w.files() != before && !strings.Contains(w.files(), ".sessionfs-") {
				t.Errorf("call %d: success, and the files are\n%s", n, w.files())
			}
			if err != nil && !errors.Is(err, ErrUnfinished) && w.files() != after {
				t.Errorf("call %d (down %v): an error that is said to be undone, %v, and the files are\n%s", n, down, err, w.files())
			}
			w.settled(fmt.Sprintf("call %d (down %v), %v", n, down, err), err == nil, head == "old", before, after)
			if !reached {
				points = n - 1
				break
			}
		}
		t.Logf("%d points, down %v", points, down)
		if points < 140 {
			t.Errorf("only %d calls can fail", points)
		}
	}
}

// settled replays and compares the files with what they have to be.
func (w *world) settled(what string, success, moved bool, before, after string) {
	w.t.Helper()
	decide := func(in Intent) (bool, error) { return moved, nil }
	out, err := w.reopen(quick{disk.OS}).Replay(w.t.Context(), w.project, decide)
	if err != nil {
		w.t.Fatalf("%s: replay: %v", what, err)
	}
	for _, in := range out {
		if !in.Phase.final() {
			w.t.Errorf("%s: replayed to %s", what, in.Phase)
		}
	}
	want := after
	if success || moved {
		want = before
	}
	if got := w.files(); got != want {
		w.t.Errorf("%s: moved %v, files\n%s\nwant\n%s", what, moved, got, want)
	}
	_, err = os.Stat(w.path("d"))
	if there := err == nil; there != (want == before) {
		w.t.Errorf("%s: the directory is there: %v", what, there)
	}
	if out, err := w.tree.Replay(w.t.Context(), w.project, decide); err != nil || len(out) != 0 {
		w.t.Errorf("%s: a second replay: %+v, %v", what, out, err)
	}
}

// TestReplayFaults dies in the middle of Apply, and fails each call of the
// Replay that follows, before another Replay.
func TestReplayFaults(t *testing.T) {
	for _, moved := range []bool{false, true} {
		for n := 1; ; n += stride() {
			w, before, after := small(t)
			p := w.plan("t")
			f := &faulty{FS: quick{disk.OS}, down: true}
			_, err := w.reopen(f).Apply(t.Context(), p, p.Hash, ApplyOptions{Commit: func(context.Context) error {
				f.at = f.calls // the machine dies here
				if moved {
					return nil
				}
				return errFault
			}})
			if !errors.Is(err, ErrUnfinished) {
				t.Fatal(err)
			}
			again := &faulty{FS: quick{disk.OS}, at: n, down: n%2 == 0}
			_, err = w.reopen(again).Replay(t.Context(), w.project, func(Intent) (bool, error) { return moved, nil })
			if again.calls < n && err != nil {
				t.Fatal(err)
			}
			w.settled(fmt.Sprintf("replay call %d, %v", n, err), false, moved, before, after)
			if again.calls < n {
				t.Logf("%d points, moved %v", n-1, moved)
				break
			}
		}
	}
}

// TestRecordFaults fails each call of Before and After. What was recorded
// before stays readable, and a Before that succeeded can be undone.
func TestRecordFaults(t *testing.T) {
	for _, down := range []bool{false, true} {
		for n := 1; ; n += stride() {
			w := newWorld(t)
			w.put("f", "0")
			w.edit("t", "other", "x")
			f := &faulty{FS: quick{disk.OS}, at: n, down: down}
			tree := w.reopen(f)
			berr := tree.Before(t.Context(), "t", w.path("f"))
			aerr := error(nil)
			if berr == nil {
				w.put("f", "1")
				aerr = tree.After(t.Context(), "t", w.path("f"))
			}
			done := f.calls < n
			w.reopen(quick{disk.OS})
			if e := w.entry("t", "other"); e.Status != Committed {
				t.Errorf("call %d: %+v", n, e)
			}
			if berr == nil {
				e := w.entry("t", "f")
				if e.Before == nil || e.Before.Kind != Regular {
					t.Errorf("call %d: prepared without a before-image: %+v", n, e)
				}
				if aerr != nil && e.Status == Prepared {
					aerr = w.tree.After(t.Context(), "t", w.path("f"))
				}
				if p := w.plan("t"); !p.Ready() || len(p.Changes) != 2 {
					t.Errorf("call %d, %v, %v: %+v", n, berr, aerr, p)
				}
			} else if err := w.tree.Before(t.Context(), "t", w.path("f")); err != nil {
				t.Errorf("call %d: Before fails for good after %v: %v", n, berr, err)
			}
			if done {
				if berr != nil || aerr != nil || n < 55 {
					t.Errorf("%d calls, %v, %v", n, berr, aerr)
				}
				break
			}
		}
	}
}

// TestRaces lets somebody else change a name at each call of Apply. Whatever
// Apply says, what they wrote is there, and nothing outside is touched.
func TestRaces(t *testing.T) {
	outside := func(w *world) string {
		b, _ := os.ReadFile(filepath.Join(w.base, "outside", "b"))
		return string(b)
	}
	for name, c := range map[string]struct {
		act  func(w *world)
		kept func(w *world) bool
	}{
		"make": {
			func(w *world) { _ = os.MkdirAll(w.path("d"), 0o755); _ = writeNew(w.path("d/b"), "theirs") },
			nil,
		},
		"replace": {
			func(w *world) {
				must(t, os.WriteFile(w.path("tmp"), []byte("theirs"), 0o644))
				must(t, os.Rename(w.path("tmp"), w.path("a")))
			},
			func(w *world) bool { return strings.Contains(w.files(), "theirs") },
		},
		"symlink": {
			func(w *world) {
				_ = os.Rename(w.path("d"), w.path("d.moved"))
				_ = os.Symlink(filepath.Join(w.base, "outside"), w.path("d"))
			},
			func(w *world) bool { return outside(w) == "outside" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n += 5 {
				w, _, _ := small(t)
				must(t, os.MkdirAll(filepath.Join(w.base, "outside"), 0o755))
				must(t, os.WriteFile(filepath.Join(w.base, "outside", "b"), []byte("outside"), 0o644))
				p := w.plan("t")
				f := &faulty{FS: quick{disk.OS}}
				f.hook = func(string, string) {
					if f.calls == n {
						c.act(w)
					}
				}
				_, err := w.reopen(f).Apply(t.Context(), p, p.Hash, ApplyOptions{})
				if f.calls < n {
					if err != nil {
						t.Error(err)
					}
					break
				}
				if _, rerr := w.reopen(quick{disk.OS}).Replay(t.Context(), w.project, nil); rerr != nil {
					t.Errorf("call %d: %v", n, rerr)
				}
				if outside(w) != "outside" {
					t.Errorf("call %d: a file outside of the project was changed", n)
				}
				if entries, _ := os.ReadDir(filepath.Join(w.base, "outside")); len(entries) != 1 {
					t.Errorf("call %d: files were made outside of the project: %v", n, entries)
				}
				if c.kept != nil && !c.kept(w) {
					t.Errorf("call %d (%v): lost\n%s", n, err, w.files())
				}
			}
		})
	}
}

func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// TestRecoveryRequired: a roll back that somebody stands in the way of keeps
// both files, blocks plans, and goes on when the way is free.
func TestRecoveryRequired(t *testing.T) {
	w, _, after := small(t)
	p := w.plan("t")
	_, err := w.tree.Apply(t.Context(), p, p.Hash, ApplyOptions{Commit: func(context.Context) error {
		must(t, os.WriteFile(w.path("tmp"), []byte("theirs"), 0o644))
		must(t, os.Rename(w.path("tmp"), w.path("a")))
		return errors.New("no")
	}})
	if !errors.Is(err, ErrRecoveryRequired) || !strings.Contains(w.files(), "theirs") || !strings.Contains(w.files(), "a 1") {
		t.Fatalf("%v\n%s", err, w.files())
	}
	if _, err := w.tree.Plan([]string{"t"}, w.project); !errors.Is(err, ErrUnfinished) {
		t.Errorf("%v", err)
	}
	out, err := w.tree.Replay(t.Context(), w.project, nil)
	if err != nil || len(out) != 1 || out[0].Phase != PhaseRecoveryRequired || out[0].Key != p.Key {
		t.Errorf("%+v, %v", out, err)
	}
	must(t, os.Remove(w.path("a")))
	out, err = w.tree.Replay(t.Context(), w.project, nil)
	if err != nil || len(out) != 1 || out[0].Phase != PhaseRolledBack || w.files() != after {
		t.Errorf("%+v, %v\n%s", out, err, w.files())
	}
	if err := w.tree.Dismiss(t.Context(), p.Key); err == nil {
		t.Error("a settled restoration was dismissed")
	}
}

func TestReplayWithoutProject(t *testing.T) {
	w, _, after := small(t)
	p := w.plan("t")
	f := &faulty{FS: quick{disk.OS}, down: true}
	_, err := w.reopen(f).Apply(t.Context(), p, p.Hash, ApplyOptions{Commit: func(context.Context) error { f.at = f.calls; return errFault }})
	if !errors.Is(err, ErrUnfinished) {
		t.Fatal(err)
	}
	if _, err := w.reopen(quick{disk.OS}).Replay(t.Context(), "", nil); !errors.Is(err, ErrNoProject) {
		t.Errorf("%v", err)
	}
	moved := filepath.Join(w.base, "moved")
	must(t, os.Rename(w.project, moved))
	out, err := w.tree.Replay(t.Context(), w.project, nil)
	if err != nil || len(out) != 1 || out[0].Phase != PhaseRecoveryRequired {
		t.Errorf("without the directory: %+v, %v", out, err)
	}
	w.project = moved
	out, err = w.tree.Replay(t.Context(), moved, nil)
	if err != nil || len(out) != 1 || out[0].Phase != PhaseRolledBack || w.files() != after {
		t.Errorf("%+v, %v\n%s", out, err, w.files())
	}
}

func TestForeignIntent(t *testing.T) {
	w, _, _ := small(t)
	dir := filepath.Join(w.base, "root/.file-recovery/s/intents")
	must(t, os.MkdirAll(dir, 0o755))
	for text, pending := range map[string]bool{
		`{"status": "applying", "files": 3}`: true, `{"status": "committed"}`: false, `{torn`: true,
		`{"version":1,"writer":"sessionfs","key":"k","status":"applying","files":[{"path":"../../x"}]}`: true,
	} {
		path := filepath.Join(dir, intentID("k")+".json")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		out, err := w.tree.Replay(t.Context(), w.project, nil)
		if err != nil || (len(out) == 1) != pending || pending && !out[0].Foreign {
			t.Errorf("%s: %+v, %v", text, out, err)
		}
		if _, err := w.tree.Plan([]string{"t"}, w.project); errors.Is(err, ErrUnfinished) != pending {
			t.Errorf("%s: %v", text, err)
		}
		if b, _ := os.ReadFile(path); string(b) != text {
			t.Errorf("another program's intent was changed: %s", b)
		}
	}
}

// TestSyncOrder: each phase is on the disk before what follows it, and every
// name that was changed in the project is synced before the intent is committed.
func TestSyncOrder(t *testing.T) {
	w, _, _ := small(t)
	p := w.plan("t")
	var ops []string
	f := &faulty{FS: quick{disk.OS}}
	f.hook = func(op, name string) {
		switch {
		case strings.Contains(name, "/.file-recovery/s/intents") && (op == "rename" || op == "syncdir"):
			ops = append(ops, "intent "+op)
		case strings.HasPrefix(name, "/proc/self/fd/") && (op == "rename" || op == "link" || op == "syncdir" || op == "fsync" || op == "remove" || op == "mkdir"):
			ops = append(ops, op)
		}
	}
	if _, err := w.reopen(f).Apply(t.Context(), p, p.Hash, ApplyOptions{Commit: func(context.Context) error { ops = append(ops, "commit"); return nil }}); err != nil {
		t.Fatal(err)
	}
	want := "intent rename, intent syncdir, " + // prepared
		"mkdir, syncdir, fsync, syncdir, fsync, syncdir, " + // staged: a, d/b
		"intent rename, intent syncdir, " + // applying
		"rename, link, syncdir, rename, syncdir, link, syncdir, " + // a, c, d/b
		"commit, intent rename, intent syncdir, " +
		"remove, remove, syncdir, remove, syncdir, remove, syncdir, intent rename, intent syncdir"
	if runtime.GOOS != "linux" {
		t.Skip("paths are not those of descriptors")
	}
	if got := strings.Join(ops, ", "); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
