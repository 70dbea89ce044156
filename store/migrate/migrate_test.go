package migrate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
)

func TestRelocate(t *testing.T) {
	w := newWorld(t).build()
	if p := w.place(); p.Dir != w.source || !p.Legacy {
		t.Fatalf("before: %+v", p)
	}
	cfg := w.config()
	var stages, marks []string
	var copied, total int64
	cfg.Progress = func(_, stage string, done, all int64) {
		if len(stages) == 0 || stages[len(stages)-1] != stage {
			stages = append(stages, stage)
		}
		if stage == StageCopy {
			copied, total = max(copied, done), all
		}
	}
	cfg.MarkProject = func(pid, state, _ string) { marks = append(marks, pid+" "+state) }
	res, err := Run(context.Background(), cfg, sid)
	if err != nil || res.Stage != StageDone || res.Destination != w.dest || len(res.Kept) > 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	w.wantDone()
	if got := strings.Join(stages, " "); got != "inventory copy verify publish cleanup done" {
		t.Errorf("stages: %s", got)
	}
	if want := w.want.bytes + w.wantUndo.bytes; copied != want || total != want {
		t.Errorf("progress %d of %d, want %d", copied, total, want)
	}
	if len(marks) != 1 || marks[0] != pid+" available" {
		t.Errorf("marks: %q", marks)
	}
	if fi, err := os.Stat(filepath.Join(w.dest, "workdir", "run.sh")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("mode: %v, %v", fi.Mode(), err)
	}
	if fi, err := os.Stat(filepath.Join(w.dest, "context")); err != nil || !fi.IsDir() {
		t.Errorf("the empty directory is gone: %v", err)
	}
	git(t, w.dest, "fsck", "--strict")
	if res, err := w.run(); err != nil || res.Stage != StageDone {
		t.Errorf("again: %+v, %v", res, err)
	}
	if rows, err := Pending(cfg); err != nil || len(rows) > 0 {
		t.Errorf("pending: %v, %v", rows, err)
	}
}

// TestJournalText: the journal is in the peer's layout, and what is not ours
// in it stays.
func TestJournalText(t *testing.T) {
	w := newWorld(t).build()
	w.write(w.layout().JournalPath(), "{\n  \"version\": 1,\n  \"extra\": 1e400,\n  \"sessions\": {\n    \"other\": {\n      \"stage\": \"done\",\n      \"x\": [\n        1.50\n      ]\n    },\n    \""+sid+"\": {\n      \"session_id\": \""+sid+"\",\n      \"project_id\": \""+pid+"\",\n      \"source\": \"/old\",\n      \"source_unavailable\": true,\n      \"stage\": \"pending\",\n      \"odd\": NaN\n    }\n  }\n}")
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(w.layout().JournalPath())
	w.must(err)
	for _, want := range []string{
		"\n  \"extra\": 1e400,", "\n      \"x\": [\n        1.50\n      ]\n    },", "\n      \"odd\": NaN,",
		"\n      \"source_unavailable\": false,", "\n      \"stage\": \"done\",", "\n      \"inventory\": [],",
		"\n      \"source\": " + string(jsonedit.EncodeString(w.source)), "\n      \"error\": \"\"",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the journal lacks %q:\n%s", want, text)
		}
	}
	w.wantDone()
}

func TestDamagedJournal(t *testing.T) {
	w := newWorld(t).build()
	w.write(w.layout().JournalPath(), "{half")
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.wantDone()
	if got, _ := os.ReadFile(filepath.Join(w.root, ".migration", ".journal.json.damaged")); string(got) != "{half" {
		t.Errorf("the damaged text is %q", got)
	}
}

// TestJournalWithoutVersion: the peer accepts it, and so does this side.
func TestJournalWithoutVersion(t *testing.T) {
	w := newWorld(t).build()
	w.write(w.layout().JournalPath(), `{"sessions": {}}`)
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.wantDone()
	text, _ := os.ReadFile(w.layout().JournalPath())
	if !strings.HasPrefix(string(text), "{\n  \"sessions\": {\n    \""+sid+"\": {\n") || strings.HasSuffix(string(text), "\n") {
		t.Errorf("journal:\n%s", text)
	}
}

func TestCandidates(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		want   error // of the only candidate
		none   bool
	}{
		"legacy":       {change: func(*world) {}},
		"unidentified": {change: func(w *world) { w.projects("") }, want: ErrUnidentified},
		"gone":         {change: func(w *world) { w.must(os.RemoveAll(w.source)) }, want: ErrUnavailable},
		"folder gone":  {change: func(w *world) { w.must(os.RemoveAll(w.work)) }, want: ErrUnavailable},
		"deleted": {change: func(w *world) {
			w.must(os.MkdirAll(filepath.Join(w.root, ".deleted"), 0o755))
			w.must(w.layout().WriteTombstone(sid, 1))
		}, none: true},
		"nested":  {change: func(w *world) { w.fill(w.dest) }, none: true},
		"default": {change: func(w *world) { w.fill(filepath.Join(w.root, sid)) }, none: true},
		"through a symlink into the root": {change: func(w *world) {
			w.must(os.RemoveAll(filepath.Dir(w.source)))
			w.fill(filepath.Join(w.root, "projects", "other", sid))
			w.must(os.Symlink(filepath.Join(w.root, "projects", "other"), filepath.Dir(w.source)))
		}, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).build()
			c.change(w)
			got, err := Candidates(context.Background(), w.config())
			w.must(err)
			if c.none {
				if len(got) > 0 {
					t.Errorf("%+v", got)
				}
				if _, err := w.run(); !errors.Is(err, ErrNotCandidate) {
					t.Errorf("run: %v", err)
				}
				return
			}
			if len(got) != 1 || !errors.Is(got[0].Err, c.want) || got[0].Source != w.source || got[0].Destination != w.dest {
				t.Errorf("%+v", got)
			}
			if _, err := w.run(); !errors.Is(err, c.want) {
				t.Errorf("run: %v", err)
			}
		})
	}
}

// TestPending: a source that cannot be reached waits, and is migrated when it
// is back.
func TestPending(t *testing.T) {
	w := newWorld(t).build()
	away := w.work + ".away"
	w.must(os.Rename(w.work, away))
	var marks []string
	cfg := w.config()
	cfg.MarkProject = func(pid, state, _ string) { marks = append(marks, pid+" "+state) }
	res, err := RunAll(context.Background(), cfg)
	if err != nil || len(res) != 1 || !errors.Is(res[0].Err, ErrUnavailable) || res[0].Stage != StagePending {
		t.Fatalf("%+v, %v", res, err)
	}
	rows, err := Pending(cfg)
	if row := rows[sid]; err != nil || row.Stage != StagePending || !row.SourceUnavailable || row.ProjectID != pid {
		t.Errorf("%+v, %v", rows, err)
	}
	w.must(os.Rename(away, w.work))
	if res, err = RunAll(context.Background(), cfg); err != nil || len(res) != 1 || res[0].Err != nil {
		t.Fatalf("%+v, %v", res, err)
	}
	w.wantDone()
	if got := strings.Join(marks, ", "); got != pid+" pending, "+pid+" available" {
		t.Errorf("marks: %s", got)
	}
}

func TestDeferred(t *testing.T) {
	for name, hold := range map[string]func(*world, *Config) func(){
		"run live":    func(_ *world, cfg *Config) func() { cfg.Alive = func(string) bool { return true }; return func() {} },
		"not known":   func(_ *world, cfg *Config) func() { cfg.Alive = nil; return func() {} },
		"run lease":   func(w *world, _ *Config) func() { return w.lock(w.layout().RunLockPath(sid)) },
		"locked":      func(w *world, _ *Config) func() { return w.lock(w.layout().LockPath(sid)) },
		"run appears": func(_ *world, cfg *Config) func() { cfg.Alive = alternating(); return func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).build()
			cfg := w.config()
			release := hold(w, &cfg)
			res, err := Run(context.Background(), cfg, sid)
			if !errors.Is(err, ErrDeferred) || res.Stage != StageDeferred {
				t.Errorf("%+v, %v", res, err)
			}
			w.wantStage(StageDeferred)
			w.wantClean()
			w.wantTree(w.source, w.want)
			release()
			if _, err := w.run(); err != nil {
				t.Fatal(err)
			}
			w.wantDone()
		})
	}
}

// alternating answers as if a run began each time just before the lock was had.
func alternating() func(string) bool {
	n := 0
	return func(string) bool { n++; return n%2 == 0 }
}

func (w *world) lock(path string) func() {
	w.t.Helper()
	l, err := filelock.Acquire(context.Background(), path, 0)
	w.must(err)
	return func() { w.must(l.Unlock()) }
}

func TestBusy(t *testing.T) {
	w := newWorld(t).build()
	release := w.lock(w.layout().RegistryLockPath("migration-" + sid))
	w.write(w.layout().HoldPath(sid), "1")
	if _, err := w.run(); !errors.Is(err, ErrBusy) {
		t.Errorf("%v", err)
	}
	w.must(ClearStaleHolds(context.Background(), w.config()))
	if _, err := os.Stat(w.layout().HoldPath(sid)); err != nil {
		t.Errorf("the hold of a running migration was removed: %v", err)
	}
	release()
	w.must(ClearStaleHolds(context.Background(), w.config()))
	w.wantClean()
}

func TestStaleHold(t *testing.T) {
	w := newWorld(t).build()
	w.write(w.layout().HoldPath(sid), "999999999")
	w.write(w.layout().HoldPath("done-long-ago"), "not a pid")
	if _, err := RunAll(context.Background(), w.config()); err != nil {
		t.Fatal(err)
	}
	w.wantDone()
}

func TestDeletedMeanwhile(t *testing.T) {
	w := newWorld(t).build()
	w.crashAt(StageVerify)
	w.must(os.MkdirAll(filepath.Join(w.root, ".deleted"), 0o755))
	w.must(w.layout().WriteTombstone(sid, 1))
	if res, err := w.run(); !errors.Is(err, ErrDeleted) || res.Stage != StageDeleted {
		t.Errorf("%+v, %v", res, err)
	}
	w.wantClean()
	w.wantTree(w.source, w.want)
	if rows, err := Pending(w.config()); err != nil || len(rows) > 0 {
		t.Errorf("pending: %v, %v", rows, err)
	}
}

func TestCanceled(t *testing.T) {
	w := newWorld(t).build()
	ctx, cancel := context.WithCancel(context.Background())
	cfg := w.config()
	cfg.Progress = func(_, stage string, done, _ int64) {
		if stage == StageCopy && done > 0 {
			cancel()
		}
	}
	res, err := Run(ctx, cfg, sid)
	if !errors.Is(err, context.Canceled) || res.Stage != StageCopy {
		t.Errorf("%+v, %v", res, err)
	}
	w.wantStage(StageCopy)
	w.wantTree(w.source, w.want)
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.wantDone()
}

// TestConflict: what is at the destination and was not published by a
// migration stays, and so does the source.
func TestConflict(t *testing.T) {
	w := newWorld(t).build()
	w.must(os.MkdirAll(w.root, 0o755))
	w.must(w.layout().RecordLocation(sid, w.source))
	w.write(filepath.Join(w.dest, "foreign"), "x")
	res, err := w.run()
	if !errors.Is(err, ErrConflict) || res.Stage != StageFailed {
		t.Errorf("%+v, %v", res, err)
	}
	if row := w.row(false); !strings.HasPrefix(row.Error, "Conflict: ") {
		t.Errorf("error %q", row.Error)
	}
	w.wantTree(w.source, w.want)
	if got, _ := os.ReadFile(filepath.Join(w.dest, "foreign")); string(got) != "x" {
		t.Errorf("the destination was touched: %q", got)
	}
	w.must(os.RemoveAll(w.dest))
	w.must(os.MkdirAll(w.dest, 0o755)) // an empty one is in nobody's way
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.wantDone()
}

func TestUnsupportedSource(t *testing.T) {
	w := newWorld(t).build()
	w.must(os.Rename(w.source, w.source+".real"))
	w.must(os.Symlink(w.source+".real", w.source))
	if _, err := w.run(); !errors.Is(err, ErrUnsupported) {
		t.Errorf("%v", err)
	}
	w.wantTree(w.source+".real", w.want)
}

// TestInternalUndo: undo data in the session itself, the oldest form, is also
// published where it belongs.
func TestInternalUndo(t *testing.T) {
	w := newWorld(t).build()
	w.must(os.Rename(w.undo, filepath.Join(w.source, "file_backups")))
	w.want = w.tree(w.source)
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.wantDone()
}

func TestUnreadableSource(t *testing.T) {
	w := newWorld(t).build()
	name := filepath.Join(w.source, "workdir", "run.sh")
	w.fs = denying{lazy{disk.OS}, name}
	if res, err := w.run(); !errors.Is(err, os.ErrPermission) || res.Stage != StageFailed {
		t.Errorf("%+v, %v", res, err)
	}
	w.fs = lazy{disk.OS}
	w.wantTree(w.source, w.want)
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.wantDone()
}

// denying refuses to open one file, as another user's is refused.
type denying struct {
	disk.FS
	name string
}

func (d denying) OpenFile(name string, flag int, perm os.FileMode) (disk.File, error) {
	if name == d.name {
		return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrPermission}
	}
	return d.FS.OpenFile(name, flag, perm)
}

// fixed refuses to rename or remove in one directory.
type fixed struct {
	disk.FS
	dir string
}

func (d fixed) RenameNoReplace(from, to string) error {
	if filepath.Dir(from) == d.dir {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: os.ErrPermission}
	}
	return d.FS.RenameNoReplace(from, to)
}

// TestReadOnlyFolder: a working folder that cannot be changed does not keep a
// session from being done.
func TestReadOnlyFolder(t *testing.T) {
	w := newWorld(t).build()
	w.fs = fixed{lazy{disk.OS}, filepath.Dir(w.source)}
	res, err := w.run()
	if err != nil || res.Stage != StageDone || len(res.Kept) != 1 || res.Kept[0] != w.source {
		t.Errorf("%+v, %v", res, err)
	}
	w.wantTree(w.source, w.want)
	w.wantTree(w.dest, w.want)
	if p := w.place(); p.Dir != w.dest {
		t.Errorf("served from %s", p.Dir)
	}
	if res, err := RunAll(context.Background(), w.config()); err != nil || len(res) != 0 {
		t.Errorf("tried again: %+v, %v", res, err)
	}
}

func TestConfigErrors(t *testing.T) {
	if _, err := Run(context.Background(), Config{}, sid); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	w := newWorld(t)
	if _, err := Run(context.Background(), w.config(), ".."); !errors.Is(err, layout.ErrInvalidID) {
		t.Error(err)
	}
	if res, err := RunAll(context.Background(), w.config()); err != nil || len(res) != 0 {
		t.Errorf("a root that is not there: %v, %v", res, err)
	}
}
