package gitrepo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAlternates(t *testing.T) {
	needGit(t)
	opt := testOptions(t)
	r, dir := newSession(t, opt)
	write(t, dir, "a", "1")
	commitAll(t, r, "x")
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, dir, "clone", "-q", "--shared", dir, clone)
	c, err := Open(clone, opt)
	must(t, err)
	write(t, clone, "a", "2")
	commitAll(t, c, "in the clone")
	checkSound(t, clone)
	if log := allCommits(t, c); len(log) != 3 {
		t.Errorf("log: %v", log)
	}
	must(t, os.WriteFile(filepath.Join(clone, ".git/objects/info/alternates"), []byte("# c\n../../../../002/s1/.git/objects\n"), 0o600))
	rel, err := filepath.Rel(filepath.Join(clone, ".git/objects"), filepath.Join(dir, ".git/objects"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(clone, ".git/objects/info/alternates"), []byte(rel+"\n"), 0o600))
	if c, err = Open(clone, opt); err != nil {
		t.Fatal(err)
	}
	if log := allCommits(t, c); len(log) != 3 {
		t.Errorf("log: %v", log)
	}
}

func TestLinkedWorkTree(t *testing.T) {
	needGit(t)
	opt := testOptions(t)
	r, dir := newSession(t, opt)
	write(t, dir, "a", "1")
	commitAll(t, r, "x")
	wt := filepath.Join(t.TempDir(), "wt")
	git(t, dir, "worktree", "add", "-q", "-b", "other", wt)
	c, err := Open(wt, opt)
	must(t, err)
	write(t, wt, "a", "2")
	commitAll(t, c, "there")
	checkFsck(t, dir)
	if out := git(t, wt, "status", "--porcelain"); out != "" {
		t.Error(out)
	}
	if got := git(t, dir, "log", "-1", "--format=%s", "other"); got != "there" {
		t.Error(got)
	}
}

func TestDamage(t *testing.T) {
	needGit(t)
	for name, damage := range map[string]func(*testing.T, string){
		"index cut short": func(t *testing.T, dir string) { must(t, os.Truncate(filepath.Join(dir, ".git/index"), 100)) },
		"index empty":     func(t *testing.T, dir string) { must(t, os.Truncate(filepath.Join(dir, ".git/index"), 0)) },
		"ref empty":       func(t *testing.T, dir string) { must(t, os.Truncate(filepath.Join(dir, ".git/refs/heads/main"), 0)) },
		"object empty":    emptyNewestBlob,
		"HEAD is a link": func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, ".git/HEAD")), os.Symlink("refs/heads/main", filepath.Join(dir, ".git/HEAD")))
		},
		"lock record junk": func(t *testing.T, dir string) { write(t, dir, ".git/sessionfs.lock", "\x00\x00lock\nlock x") },
	} {
		t.Run(name, func(t *testing.T) {
			r, dir := newSession(t, testOptions(t))
			write(t, dir, "a", "1")
			commitAll(t, r, "one")
			write(t, dir, "a", "22")
			commitAll(t, r, "two")
			damage(t, dir)
			write(t, dir, "b", "3")
			commitAll(t, r, "three")
			if got := git(t, dir, "log", "--format=%s"); got != "three\ntwo\none\nsession init" {
				t.Errorf("log:\n%s", got)
			}
			checkSound(t, dir)
		})
	}
}

// TestLostCommit takes the objects of the newest commits away, as a power cut
// does to commits that nobody synced.
func TestLostCommit(t *testing.T) {
	needGit(t)
	for _, keep := range []int{2, 0} { // commits that survive
		opt := testOptions(t)
		opt.Sync = SyncOff
		r, dir := newSession(t, opt)
		for i := range 3 {
			write(t, dir, fmt.Sprintf("history/%d", i), fmt.Sprint(i))
			commitAll(t, r, fmt.Sprint(i))
		}
		lost := []string{"rev-list", "--objects", "--no-object-names", "HEAD"}
		if keep > 0 {
			lost = append(lost, "^HEAD~2")
		}
		for _, h := range strings.Fields(git(t, dir, lost...)) {
			path := filepath.Join(dir, ".git/objects", h[:2], h[2:])
			must(t, os.Chmod(path, 0o600), os.Truncate(path, 0))
		}
		r, err := Open(dir, opt)
		must(t, err)
		if log := allCommits(t, r); len(log) != keep {
			t.Errorf("%d commits are left: %v", len(log), log)
		}
		commitAll(t, r, "again")
		commitAll(t, r, "nothing")
		if log := allCommits(t, r); len(log) != keep+1 || log[0].Message != "again" {
			t.Errorf("log: %v", log)
		}
		if got := git(t, dir, "ls-tree", "-r", "--name-only", "HEAD"); got != "history/0\nhistory/1\nhistory/2\nworkdir/.gitkeep" {
			t.Errorf("HEAD has:\n%s", got)
		}
		if out := git(t, dir, "status", "--porcelain"); out != "" {
			t.Error(out)
		}
		git(t, dir, "rev-list", "--objects", "HEAD")
	}
}

// emptyNewestBlob takes the content of the blob of b away before it is
// committed, as a power cut during an earlier attempt does.
func emptyNewestBlob(t *testing.T, dir string) {
	write(t, dir, "b", "3")
	h := git(t, dir, "hash-object", "-w", "b")
	path := filepath.Join(dir, ".git/objects", h[:2], h[2:])
	must(t, os.Chmod(path, 0o600), os.Truncate(path, 0))
}

func TestHalfMadeRepositories(t *testing.T) {
	needGit(t)
	for name, begin := range map[string]func(*testing.T, string){
		"git init only": func(t *testing.T, dir string) { git(t, dir, "init", "-q", "-b", "main") },
		"empty .git":    func(t *testing.T, dir string) { must(t, os.Mkdir(filepath.Join(dir, ".git"), 0o755)) },
		"no HEAD": func(t *testing.T, dir string) {
			git(t, dir, "init", "-q")
			must(t, os.Remove(filepath.Join(dir, ".git/HEAD")))
		},
		"empty config": func(t *testing.T, dir string) {
			git(t, dir, "init", "-q", "-b", "main")
			must(t, os.Truncate(filepath.Join(dir, ".git/config"), 0))
		},
		"files are there": func(t *testing.T, dir string) { write(t, dir, "history/0001-u-a.json", "{}") },
	} {
		t.Run(name, func(t *testing.T) {
			opt := testOptions(t)
			dir := t.TempDir()
			begin(t, dir)
			must(t, Init(context.Background(), dir, opt), Init(context.Background(), dir, opt))
			if got := git(t, dir, "log", "--format=%s|%ae|%T", "main"); got != "session init|openprogram@local|"+emptyTree.String() {
				t.Errorf("log: %q", got)
			}
			r, err := Open(dir, opt)
			must(t, err)
			commitAll(t, r, "x")
			checkSound(t, dir)
		})
	}
}

func TestOwnerOfNewFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const owner = 12345
	opt := testOptions(t)
	dir := t.TempDir()
	must(t, os.Chown(dir, owner, owner))
	must(t, Init(context.Background(), dir, opt))
	r, err := Open(dir, opt)
	must(t, err)
	write(t, dir, "a", "1")
	commitAll(t, r, "x")
	if _, err := r.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a", "2")
	commitAll(t, r, "y")
	must(t, filepath.WalkDir(filepath.Join(dir, ".git"), func(path string, d os.DirEntry, err error) error {
		must(t, err)
		fi, err := d.Info()
		must(t, err)
		if uid, gid, _ := ownerOf(fi); uid != owner || gid != owner {
			t.Errorf("%s belongs to %d:%d", path, uid, gid)
		}
		return nil
	}))
}

func TestViewOfACommit(t *testing.T) {
	needGit(t)
	ctx := context.Background()
	r, dir := newSession(t, testOptions(t))
	write(t, dir, "d/e/f", "content")
	must(t, os.Symlink("e/f", filepath.Join(dir, "d/l")))
	c, _ := commitAll(t, r, "x")
	write(t, dir, "d/e/f", "later")
	commitAll(t, r, "y")
	list, err := r.List(ctx, c.Hash, "/d/")
	if err != nil || len(list) != 2 || list[0].Name != "e" || !list[0].IsDir() || list[1].FileMode()&os.ModeSymlink == 0 {
		t.Fatalf("List: %+v, %v", list, err)
	}
	e, err := r.Stat(ctx, c.Hash, "d/e/f")
	must(t, err)
	b, err := r.Blob(ctx, e.Hash)
	n, serr := r.BlobSize(ctx, e.Hash)
	if string(b) != "content" || err != nil || n != 7 || serr != nil {
		t.Errorf("Blob: %q, %d, %v, %v", b, n, err, serr)
	}
	for _, p := range []string{"d/x", "d/e/f/g", "../x"} {
		if _, err := r.Stat(ctx, c.Hash, p); err == nil {
			t.Errorf("Stat(%q) found something", p)
		}
	}
	if _, err := r.List(ctx, strings.Repeat("1", 40), ""); err == nil {
		t.Error("an unknown commit was listed")
	}
}
