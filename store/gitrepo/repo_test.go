package gitrepo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestInitAndCommit(t *testing.T) {
	needGit(t)
	for _, sync := range []SyncMode{SyncBatch, SyncOff} {
		opt := testOptions(t)
		opt.Sync = sync
		r, dir := newSession(t, opt)
		if got := git(t, dir, "log", "--format=%s|%an|%ae|%T"); got != "session init|OpenProgram|openprogram@local|"+emptyTree.String() {
			t.Errorf("first commit: %s", got)
		}
		if got := git(t, dir, "symbolic-ref", "HEAD"); got != "refs/heads/main" {
			t.Errorf("HEAD: %s", got)
		}
		if got := git(t, dir, "status", "--porcelain"); got != "?? workdir/" {
			t.Errorf("status after Init: %q", got)
		}
		checkFsck(t, dir)
		if empty, err := r.HeadTreeEmpty(context.Background()); err != nil || !empty {
			t.Errorf("HeadTreeEmpty = %v, %v", empty, err)
		}
		for i := range 5 {
			write(t, dir, fmt.Sprintf("history/%04d-u-x.json", i), fmt.Sprintf(`{"id": "%d"}`, i))
			write(t, dir, "meta.json", fmt.Sprint(i))
			c, changed := commitAll(t, r, fmt.Sprintf("turn: %d", i))
			if !changed || c.Hash != git(t, dir, "rev-parse", "HEAD") || c.Short != git(t, dir, "rev-parse", "--short", "HEAD") {
				t.Errorf("commit %d: %+v changed=%v", i, c, changed)
			}
			checkSound(t, dir)
		}
		if _, changed := commitAll(t, r, "nothing"); changed {
			t.Error("a commit without a change")
		}
		if err := Init(context.Background(), dir, opt); err != nil {
			t.Error(err)
		}
		log, err := r.Log(context.Background(), 2)
		if err != nil || len(log) != 2 || log[0].Message != "turn: 4" || log[1].Message != "turn: 3" {
			t.Errorf("Log: %+v, %v", log, err)
		}
		if ok, err := r.HeadHasPath(context.Background(), "history/0002-u-x.json"); err != nil || !ok {
			t.Errorf("HeadHasPath: %v, %v", ok, err)
		}
		must(t, os.RemoveAll(filepath.Join(dir, "history")))
		if n, err := r.Restore(context.Background(), "history"); err != nil || n != 5 {
			t.Errorf("Restore: %d, %v", n, err)
		}
		if _, changed := commitAll(t, r, "restored"); changed {
			t.Error("restoring changed something")
		}
		if p, err := r.ChangedPaths(context.Background(), log[0].Hash); err != nil || fmt.Sprint(p) != "[history/0004-u-x.json meta.json]" {
			t.Errorf("ChangedPaths: %v, %v", p, err)
		}
	}
}
