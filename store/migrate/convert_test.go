package migrate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/layout"
)

// buildFirst makes a session of the first layout at dir, with one commit more
// than "session init" and one history file that is not committed.
func (w *world) buildFirst(dir string) *world {
	w.t.Helper()
	w.must(os.MkdirAll(w.root, 0o755))
	w.fill(dir)
	temp := filepath.Join(filepath.Dir(w.state), "temp")
	w.must(gitrepo.Init(context.Background(), temp, gitrepo.Options{FS: w.fs, Env: noEnv}))
	w.must(os.Rename(filepath.Join(temp, ".git"), filepath.Join(dir, "history", ".git")))
	w.must(os.RemoveAll(temp))
	w.commit(filepath.Join(dir, "history"), "turn: one")
	w.write(filepath.Join(dir, "history", "0002-u-c.json"), node("c", 2))
	w.source, w.dest = dir, dir
	return w.measure()
}

func (w *world) firstDir() string { return filepath.Join(w.root, sid) }

// files is a session's tree without its repository, the one place or the other.
func (w *world) files(dir string) *tree {
	_, rest := w.tree(dir).below(".git")
	_, rest = rest.below(oldRepo)
	out := newTree()
	for _, e := range rest.entries {
		// A crash may leave the temporary file of the new .gitkeep for a while.
		if e.rel != "workdir/.gitkeep" && !(strings.HasPrefix(e.rel, "workdir/.gitkeep.") && disk.IsTemp(e.rel)) {
			out.add(e)
		}
	}
	return out
}

func (w *world) wantFiles(dir string, want *tree) {
	w.t.Helper()
	if rel, differ := want.difference(w.files(dir)); differ {
		w.t.Errorf("%s differs in %q", dir, rel)
	}
}

// wantConverted checks a session that was of the first layout.
func (w *world) wantConverted(dir string, files *tree, old []gitrepo.Commit) {
	w.t.Helper()
	p := w.place()
	if p.Dir != dir || !p.Openable || p.HistoryRepo {
		w.t.Errorf("served: %+v", p)
	}
	w.wantFiles(dir, files)
	for _, name := range []string{oldRepo, retiredRepo} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			w.t.Errorf("%s is left: %v", name, err)
		}
	}
	w.wantClean()
	w.wantStage(StageDone)
	repo, err := gitrepo.Open(dir, gitrepo.Options{Env: noEnv})
	w.must(err)
	log, err := repo.Log(context.Background(), 0)
	w.must(err)
	if len(log) != len(old)+1 || log[0].Message != convertMessage {
		w.t.Fatalf("log %+v", log)
	}
	for i, c := range old {
		if log[i+1] != c {
			w.t.Errorf("commit %+v, want %+v", log[i+1], c)
		}
	}
	for _, rel := range []string{"history/0000-u-a.json", "history/0002-u-c.json", "meta.json", "workdir/run.sh"} {
		if _, err := repo.Stat(context.Background(), log[0].Hash, rel); err != nil {
			w.t.Errorf("%s is not in the commit: %v", rel, err)
		}
	}
	if _, changed, err := repo.CommitAll(context.Background(), "nothing"); err != nil || changed {
		w.t.Errorf("the work tree is not clean: %t, %v", changed, err)
	}
}

func (w *world) log(dir string) []gitrepo.Commit {
	w.t.Helper()
	repo, err := gitrepo.Open(dir, gitrepo.Options{Env: noEnv})
	w.must(err)
	log, err := repo.Log(context.Background(), 0)
	w.must(err)
	return log
}

func TestConvert(t *testing.T) {
	w := newWorld(t)
	w.buildFirst(w.firstDir())
	if p := w.place(); !p.HistoryRepo {
		t.Fatalf("before: %+v", p)
	}
	files, old := w.files(w.source), w.log(filepath.Join(w.source, "history"))
	got, err := Candidates(context.Background(), w.config())
	if err != nil || len(got) != 1 || !got[0].Conversion || got[0].Source != w.source {
		t.Fatalf("%+v, %v", got, err)
	}
	res, err := RunAll(context.Background(), w.config())
	if err != nil || len(res) != 1 || res[0].Err != nil || !res[0].Converted || len(res[0].Kept) > 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	w.wantConverted(w.source, files, old)
	git(t, w.source, "fsck", "--strict")
	if out := git(t, w.source, "status", "--porcelain"); out != "" {
		t.Errorf("status: %s", out)
	}
	if _, err := os.Stat(w.layout().JournalPath()); !os.IsNotExist(err) {
		t.Errorf("the peer's journal was touched: %v", err)
	}
	if res, err := RunAll(context.Background(), w.config()); err != nil || len(res) > 0 {
		t.Errorf("again: %+v, %v", res, err)
	}
}

// TestConvertGit converts repositories that git made and packed.
func TestConvertGit(t *testing.T) {
	for name, c := range map[string]struct {
		setup  []string // git commands in history/
		branch string
	}{
		"master":       {[]string{"init -q -b master", "add -A", "commit -q -m one"}, "main"},
		"packed":       {[]string{"init -q -b master", "add -A", "commit -q -m one", "pack-refs --all", "gc -q"}, "main"},
		"detached":     {[]string{"init -q -b trunk", "add -A", "commit -q -m one", "checkout -q --detach"}, "main"},
		"main besides": {[]string{"init -q -b main", "commit -q --allow-empty -m zero", "checkout -q -b other", "add -A", "commit -q -m one"}, "other"},
		"tags":         {[]string{"init -q -b main", "add -A", "commit -q -m one", "tag -a -m t v1"}, "main"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.must(os.MkdirAll(w.root, 0o755))
			w.source = w.firstDir()
			w.fill(w.source)
			history := filepath.Join(w.source, "history")
			for _, line := range c.setup {
				git(t, history, append([]string{"-c", "user.name=A", "-c", "user.email=a@b"}, strings.Fields(line)...)...)
			}
			w.write(filepath.Join(history, "0002-u-c.json"), node("c", 2))
			files, old := w.files(w.source), w.log(history)
			refs := git(t, history, "for-each-ref")
			if _, err := w.run(); err != nil {
				t.Fatal(err)
			}
			w.wantConverted(w.source, files, old)
			git(t, w.source, "fsck", "--strict")
			if out := git(t, w.source, "status", "--porcelain"); out != "" {
				t.Errorf("status: %s", out)
			}
			if out := strings.TrimSpace(git(t, w.source, "symbolic-ref", "--short", "HEAD")); out != c.branch {
				t.Errorf("on %s, want %s", out, c.branch)
			}
			for _, line := range strings.Split(strings.TrimSpace(refs), "\n") {
				if now := git(t, w.source, "for-each-ref"); !strings.Contains(now, line) && !strings.HasSuffix(line, "refs/heads/"+c.branch) {
					t.Errorf("ref %q is lost:\n%s", line, now)
				}
			}
		})
	}
}

// TestConvertRefused: what is not understood stays as it is, readable.
func TestConvertRefused(t *testing.T) {
	for name, change := range map[string]func(*world){
		"file": func(w *world) {
			w.must(os.Rename(filepath.Join(w.source, oldRepo), filepath.Join(w.work+"-git")))
			w.write(filepath.Join(w.source, oldRepo), "gitdir: "+w.work+"-git\n")
		},
		"work tree": func(w *world) {
			w.write(filepath.Join(w.source, oldRepo, "config"), "[core]\n\trepositoryformatversion = 0\n\tworktree = /tmp\n")
		},
		"alternates": func(w *world) { w.write(filepath.Join(w.source, oldRepo, "objects/info/alternates"), "/x\n") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.buildFirst(w.firstDir())
			change(w)
			w.measure()
			res, err := w.run()
			if !errors.Is(err, ErrUnsupported) || res.Stage != StageFailed {
				t.Errorf("%+v, %v", res, err)
			}
			w.wantTree(w.source, w.want)
			w.wantStage(StageFailed)
			if rows, err := Pending(w.config()); err != nil || !rows[sid].Conversion {
				t.Errorf("pending: %+v, %v", rows, err)
			}
		})
	}
}

// TestConvertForeignGit: a repository that somebody made meanwhile is not
// replaced.
func TestConvertForeignGit(t *testing.T) {
	w := newWorld(t)
	w.buildFirst(w.firstDir())
	w.crashAt(StageCopy)
	w.must(gitrepo.Init(context.Background(), w.source, gitrepo.Options{FS: w.fs, Env: noEnv}))
	w.measure()
	if _, err := w.run(); !errors.Is(err, ErrConflict) {
		t.Errorf("%v", err)
	}
	w.wantTree(w.source, w.want)
}

// TestConvertLateCommit: a commit to the old repository after the new one was
// published is kept.
func TestConvertLateCommit(t *testing.T) {
	w := newWorld(t)
	w.buildFirst(w.firstDir())
	w.crashAt(StagePublish)
	late := w.commit(filepath.Join(w.source, "history"), "late")
	res, err := w.run()
	if err != nil || len(res.Kept) != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, err := os.Stat(filepath.Join(res.Kept[0], "objects", late.Hash[:2], late.Hash[2:])); err != nil {
		t.Errorf("the commit is lost: %v", err)
	}
	git(t, w.source, "fsck", "--strict")
}

// TestRelocateAndConvert takes a session of the first layout out of a working
// folder.
func TestRelocateAndConvert(t *testing.T) {
	w := newWorld(t)
	w.projects("dev:1")
	nested := w.dest
	w.buildFirst(w.source)
	files, old := w.files(w.source), w.log(filepath.Join(w.source, "history"))
	res, err := w.run()
	if err != nil || !res.Converted {
		t.Fatalf("%+v, %v", res, err)
	}
	w.wantConverted(nested, files, old)
	if _, err := os.Lstat(w.source); !os.IsNotExist(err) {
		t.Errorf("the source is left: %v", err)
	}
}

func TestConvertEveryFault(t *testing.T) {
	w := newWorld(t)
	w.buildFirst(w.firstDir())
	files, old := w.files(w.source), w.log(filepath.Join(w.source, "history"))
	served := func(w *world, p layout.Place) {
		w.t.Helper()
		if p.Dir != w.firstDir() || !p.HistoryRepo && !p.Openable {
			w.t.Errorf("served: %+v", p)
		}
		w.wantFiles(p.Dir, files)
	}
	testFaults(t, w, served, func(w *world) { w.wantConverted(w.firstDir(), files, old) })
}
