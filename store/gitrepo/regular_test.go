package gitrepo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNoFIFOIsWaitedFor puts a FIFO into the place of each file of a repository:
// nothing waits for its other end, and no history is cut off.
func TestNoFIFOIsWaitedFor(t *testing.T) {
	needGit(t)
	names := []string{
		"logs/HEAD", "logs/refs/heads/main", "config", "packed-refs", "HEAD", "index", "refs/heads/main", "sessionfs.lock",
		"info/exclude", "objects/info/alternates", "the commit", "the tree", "the file", "pack", "idx",
	}
	for _, name := range names {
		r, dir := newSession(t, testOptions(t))
		write(t, dir, "f", "one")
		commitAll(t, r, "x")
		must(t, r.Close())
		tip := git(t, dir, "rev-parse", "HEAD")
		object := func(rev string) string {
			hash := git(t, dir, "rev-parse", rev)
			return "objects/" + hash[:2] + "/" + hash[2:]
		}
		part := name
		switch {
		case name == "the tree":
			part = object("HEAD^{tree}")
		case name == "the file":
			part = object("HEAD:f")
		case name == "the commit":
			part = object("HEAD")
		case name == "pack" || name == "idx":
			git(t, dir, "gc", "-q")
			packs, err := filepath.Glob(filepath.Join(dir, ".git/objects/pack/*."+name))
			must(t, err)
			part = "objects/pack/" + filepath.Base(packs[0])
		case name == "packed-refs":
			git(t, dir, "pack-refs", "--all")
		}
		path := filepath.Join(dir, ".git", part)
		must(t, os.RemoveAll(path), unix.Mkfifo(path, 0o666))
		write(t, dir, "f", "two")
		done := make(chan struct{})
		go func() {
			defer close(done)
			useAll(t, dir)
		}()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s is waited for", name)
		}
		if strings.HasPrefix(part, "objects/") || name == "HEAD" || name == "config" {
			continue // git would wait
		}
		if name == "packed-refs" {
			continue // as it is there, nothing was committed
		}
		if name != "refs/heads/main" { // which a commit replaced
			must(t, os.RemoveAll(path))
		}
		if _, err := tryGit(t, dir, "merge-base", "--is-ancestor", tip, "HEAD"); err != nil {
			t.Errorf("%s: the history is cut off: %v", name, err)
		}
	}
}

// useAll does what there is to be done with a repository, whether it can or not.
func useAll(t *testing.T, dir string) {
	r, err := Open(dir, testOptions(t))
	if err != nil {
		return
	}
	ctx := t.Context()
	_, _ = r.RefFault()
	_ = r.CheckConfig()
	_, _ = r.Log(ctx, 2)
	_, _ = r.MissingObjects(ctx, 0)
	_ = r.DamagedPacks()
	_, _ = r.HeadHasPath(ctx, "f")
	_, _, _ = r.CommitAll(ctx, "y")
	_, _ = r.RestoreObjects(ctx, func(string) error { return nil })
	_, _ = r.Compact(ctx)
}

// TestFIFOsAreRefused: a FIFO is no empty file, and what it stands for is not
// guessed.
func TestFIFOsAreRefused(t *testing.T) {
	needGit(t)
	for _, name := range []string{"config", "packed-refs", "sessionfs.lock"} {
		r, dir := newSession(t, testOptions(t))
		git(t, dir, "pack-refs", "--all")
		path := filepath.Join(dir, ".git", name)
		must(t, os.RemoveAll(path), unix.Mkfifo(path, 0o666))
		write(t, dir, "f", "two")
		if c, _, err := r.CommitAll(t.Context(), "y"); err == nil {
			t.Errorf("%s: committed %v", name, c)
		}
	}
}
