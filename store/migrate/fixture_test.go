package migrate

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/layout"
)

const (
	sid = "local_0123456789"
	pid = "proj_1"
)

// world is a state directory, and a working folder with one session.
type world struct {
	t                  testing.TB
	state, root, work  string
	source, dest, undo string
	fs                 disk.FS
	want               *tree // the source's inventory
	wantUndo           *tree
}

// lazy is the operating system's disk without the wait for the platter.
type lazy struct{ disk.FS }

func (lazy) SyncDir(string) error { return nil }

func (l lazy) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := l.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return lazyFile{f}, nil
}

type lazyFile struct{ disk.File }

func (lazyFile) Sync() error { return nil }

func newWorld(t testing.TB) *world {
	t.Helper()
	return worldAt(t, memoryDir(t))
}

// memoryDir is a temporary directory, in memory where the system has such a
// place: these tests make thousands of trees.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "sessionfs-migrate-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// worldAt makes the directories' names; build fills them.
func worldAt(t testing.TB, base string) *world {
	w := &world{t: t, state: filepath.Join(base, "state"), work: filepath.Join(base, "work"), fs: lazy{disk.OS}}
	w.root = filepath.Join(w.state, "sessions")
	w.source = filepath.Join(w.work, ".openprogram", "sessions", sid)
	w.undo = layout.RecoveryDir(w.source, sid)
	w.dest = filepath.Join(w.root, "projects", pid, sid)
	return w
}

func (w *world) layout() *layout.Layout { return layout.New(w.fs, w.root, w.state, nil) }

func (w *world) config() Config {
	return Config{
		FS: w.fs, Layout: w.layout(), DrainTimeout: 200 * time.Millisecond,
		Now:   func() time.Time { return time.Unix(1735000000, 0).UTC() },
		Alive: func(string) bool { return false },
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) write(path, text string) {
	w.t.Helper()
	w.must(os.MkdirAll(filepath.Dir(path), 0o755))
	w.must(os.WriteFile(path, []byte(text), 0o600))
}

func (w *world) projects(identity string) {
	w.write(filepath.Join(w.state, "projects", "projects.json"), fmt.Sprintf(
		`{"default": {"id": "default", "is_default": true, "session_ids": []}, %q: {"id": %q, "path": %q, "session_ids": [%q], "directory_identity": %q}}`,
		pid, pid, w.work, sid, identity))
}

// build makes a legacy session: a repository with a commit and something
// uncommitted, links, modes, an empty directory, and undo data.
func (w *world) build() *world {
	w.t.Helper()
	w.projects("dev:1")
	w.must(os.MkdirAll(w.root, 0o755))
	w.fill(w.source)
	w.must(gitrepo.Init(context.Background(), w.source, gitrepo.Options{FS: w.fs, Env: noEnv}))
	w.commit(w.source, "turn: one")
	w.write(filepath.Join(w.source, "history", "0002-u-c.json"), node("c", 2))
	w.write(filepath.Join(w.undo, "b", "manifest.json"), `{"version": 2}`)
	w.write(filepath.Join(w.undo, "b", "blob"), "before")
	return w.measure()
}

func noEnv(string) string { return "" }

func node(id string, seq int) string {
	return fmt.Sprintf(`{"id": %q, "seq": %d, "role": "user", "output": "text %s"}`, id, seq, id)
}

func (w *world) fill(dir string) {
	w.t.Helper()
	w.write(filepath.Join(dir, "meta.json"), `{"id": "`+sid+`", "head_id": "b"}`)
	w.write(filepath.Join(dir, "history", "0000-u-a.json"), node("a", 0))
	w.write(filepath.Join(dir, "history", "0001-l-b.json"), node("b", 1))
	w.write(filepath.Join(dir, "workdir", "run.sh"), "#!/bin/sh\n")
	w.write(filepath.Join(dir, "workdir", "ünï code"), strings.Repeat("x", 300))
	w.must(os.Chmod(filepath.Join(dir, "workdir", "run.sh"), 0o755))
	w.must(os.Symlink("/nowhere/at all", filepath.Join(dir, "workdir", "link")))
	w.must(os.MkdirAll(filepath.Join(dir, "context"), 0o755))
}

func (w *world) commit(dir, message string) gitrepo.Commit {
	w.t.Helper()
	repo, err := gitrepo.Open(dir, gitrepo.Options{FS: w.fs, Env: noEnv})
	w.must(err)
	c, _, err := repo.CommitAll(context.Background(), message)
	w.must(err)
	return c
}

func (w *world) measure() *world {
	w.t.Helper()
	w.want, w.wantUndo = w.tree(w.source), w.tree(w.undo)
	return w
}

func (w *world) tree(dir string) *tree {
	w.t.Helper()
	r, err := newRunner(Config{Layout: w.layout()})
	w.must(err)
	t, err := r.inventory(context.Background(), dir, nil)
	w.must(err)
	return t
}

func (w *world) place() layout.Place {
	w.t.Helper()
	p, err := w.layout().Resolve(sid)
	w.must(err)
	return p
}

// run is Run with a healthy disk, in a fresh process as it were.
func (w *world) run() (Result, error) { return Run(context.Background(), w.config(), sid) }

// wantDone checks that the session is served from its destination alone, byte
// for byte, that the journal is done and that nothing is left over.
func (w *world) wantDone() {
	w.t.Helper()
	p := w.place()
	if p.Dir != w.dest || !p.Present || !p.Recorded || !p.Openable {
		w.t.Errorf("served from %+v, want %s", p, w.dest)
	}
	w.wantTree(w.dest, w.want)
	w.wantTree(layout.RecoveryDir(w.dest, sid), w.wantUndo)
	w.wantClean()
	for _, dir := range []string{filepath.Dir(w.source), filepath.Dir(w.undo)} {
		for _, name := range w.names(dir) {
			if strings.Contains(name, sid) {
				w.t.Errorf("%s is left in %s", name, dir)
			}
		}
	}
	w.wantStage(StageDone)
}

func (w *world) wantStage(want string) {
	w.t.Helper()
	if stage, err := Stage(w.config(), sid); err != nil || stage != want {
		w.t.Errorf("stage %q, %v, want %q", stage, err, want)
	}
}

func (w *world) wantTree(dir string, want *tree) {
	w.t.Helper()
	if rel, differ := want.difference(w.tree(dir)); differ {
		w.t.Errorf("%s differs in %q", dir, rel)
	}
}

// wantClean checks that no staging and no hold is left.
func (w *world) wantClean() {
	w.t.Helper()
	for _, dir := range []string{filepath.Dir(w.layout().StagingDir(sid)), filepath.Dir(w.layout().HoldPath(sid))} {
		for _, name := range w.names(dir) {
			if !disk.IsTemp(name) {
				w.t.Errorf("%s is left in %s", name, dir)
			}
		}
	}
}

func (w *world) names(dir string) []string {
	w.t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (w *world) row(conversions bool) Row {
	w.t.Helper()
	r, err := newRunner(w.config())
	w.must(err)
	row, _, err := r.row(sid, conversions)
	w.must(err)
	return row
}

// git runs the real program, where there is one.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git program")
	}
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// snapshot copies a whole world, so that a case starts from a prepared state.
func (w *world) snapshot(t testing.TB) *world {
	t.Helper()
	base := memoryDir(t)
	n := worldAt(t, base)
	old := filepath.Dir(w.state)
	w.must(filepath.WalkDir(old, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(old, path)
		to := filepath.Join(base, rel)
		fi, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.MkdirAll(to, 0o755)
		case fi.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, to)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Ext(path) == ".json" && !strings.Contains(rel, sid) {
			text = []byte(strings.ReplaceAll(string(text), old, base))
		}
		return os.WriteFile(to, text, fi.Mode().Perm())
	}))
	n.want, n.wantUndo = w.want, w.wantUndo
	return n
}
