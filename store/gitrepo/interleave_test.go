package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestRandomOperations makes random changes to two work trees and compares the
// trees committed by CommitAll and by git, with foreign git commands in
// between on both.
func TestRandomOperations(t *testing.T) {
	needGit(t)
	const seeds, rounds = 4, 9
	for seed := range uint64(seeds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			opt := testOptions(t)
			opt.Sync = SyncMode(seed % 2)
			r, ours := newSession(t, opt)
			_, theirs := newSession(t, opt)
			for round := range rounds {
				for _, dir := range []string{ours, theirs} {
					rng := rand.New(rand.NewPCG(seed, uint64(round)))
					for range 1 + rng.IntN(12) {
						randomChange(t, rng, dir)
					}
				}
				commitAll(t, r, fmt.Sprintf("round %d", round))
				commitByGit(t, theirs, false)
				compareTrees(t, round, ours, theirs)
				checkSound(t, ours)
				if t.Failed() {
					return
				}
				foreign(t, rand.New(rand.NewPCG(seed, 1000+uint64(round))), r, ours, theirs)
			}
			if want, got := git(t, ours, "rev-list", "--count", "HEAD"), len(allCommits(t, r)); strconv.Itoa(got) != want {
				t.Errorf("Log has %d commits, git %s", got, want)
			}
		})
	}
}

func allCommits(t testing.TB, r *Repo) []Commit {
	t.Helper()
	log, err := r.Log(context.Background(), 0)
	must(t, err)
	return log
}

func randomChange(t *testing.T, rng *rand.Rand, dir string) {
	names := []string{"a", "b", "a-b", "a.x", "ab"}
	path := names[rng.IntN(len(names))]
	for rng.IntN(2) == 0 {
		path += "/" + names[rng.IntN(len(names))]
	}
	full := filepath.Join(dir, path)
	content := strings.Repeat(string(rune('a'+rng.IntN(3))), rng.IntN(3))
	kind := rng.IntN(10)
	// What is in the way goes, as somebody working there would do it.
	for p := filepath.Dir(full); p != dir; p = filepath.Dir(p) {
		if fi, err := os.Lstat(p); err == nil && !fi.IsDir() {
			must(t, os.Remove(p))
		}
	}
	must(t, os.MkdirAll(filepath.Dir(full), 0o755))
	switch {
	case kind < 5:
		if fi, err := os.Lstat(full); err == nil && !fi.Mode().IsRegular() {
			must(t, os.RemoveAll(full))
		}
		must(t, os.WriteFile(full, []byte(content), 0o644))
	case kind == 5:
		must(t, os.RemoveAll(full), os.Symlink(content+"x", full))
	case kind == 6:
		if fi, err := os.Lstat(full); err == nil && fi.Mode().IsRegular() {
			must(t, os.Chmod(full, fi.Mode().Perm()^0o111))
		}
	case kind == 7:
		must(t, os.RemoveAll(full))
	case kind == 8:
		rules := []string{"a.x\n", "/a/b\n", "*b\n!ab\n", "a*/\n", ""}
		must(t, os.WriteFile(filepath.Join(filepath.Dir(full), ".gitignore"), []byte(rules[rng.IntN(len(rules))]), 0o644))
	case kind == 9:
		must(t, os.RemoveAll(full), os.MkdirAll(full, 0o755), os.WriteFile(filepath.Join(full, "in"), []byte(content), 0o644))
	}
}

// foreign runs what other programs do to a repository between our commits.
func foreign(t *testing.T, rng *rand.Rand, r *Repo, dirs ...string) {
	action, value := rng.IntN(9), fmt.Sprint(rng.Int())
	for _, dir := range dirs {
		switch action {
		case 0:
			git(t, dir, "gc", "-q")
		case 1:
			git(t, dir, "pack-refs", "--all")
		case 2:
			write(t, dir, "foreign", value)
			git(t, dir, "add", "-A")
			git(t, dir, "commit", "-q", "--allow-empty", "-m", "foreign")
		case 3:
			git(t, dir, "repack", "-q", "-d")
		case 4:
			git(t, dir, "update-index", "--index-version", "4")
		case 5:
			git(t, dir, "update-index", "--split-index")
		case 6:
			git(t, dir, "checkout", "-q", "-b", "br/"+value)
		case 7:
			git(t, dir, "checkout", "-q", "--detach")
		}
	}
	if action == 8 {
		if _, err := r.Compact(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func TestForeignCommitsBetween(t *testing.T) {
	needGit(t)
	r, dir := newSession(t, testOptions(t))
	want := []string{"session init"}
	steps := []func(){
		func() { git(t, dir, "gc", "-q") },
		func() { git(t, dir, "pack-refs", "--all") },
		func() {
			write(t, dir, "f", fmt.Sprint(len(want)))
			git(t, dir, "add", "-A")
			git(t, dir, "commit", "-qm", "foreign")
			want = append(want, "foreign")
		},
		func() { git(t, dir, "repack", "-adq"); git(t, dir, "prune-packed") },
		func() { git(t, dir, "commit-graph", "write", "--reachable"); git(t, dir, "multi-pack-index", "write") },
	}
	for i := range 10 {
		steps[i%len(steps)]()
		write(t, dir, "meta.json", fmt.Sprint(i))
		commitAll(t, r, fmt.Sprint("ours ", i))
		want = append(want, fmt.Sprint("ours ", i))
		checkSound(t, dir)
	}
	log := allCommits(t, r)
	if len(log) != len(want) {
		t.Fatalf("%d commits, want %d", len(log), len(want))
	}
	for i, c := range log {
		if c.Message != want[len(want)-1-i] {
			t.Errorf("commit %d is %q, want %q", i, c.Message, want[len(want)-1-i])
		}
	}
	if got := git(t, dir, "reflog", "-1", "--format=%gs"); got != "commit: ours 9" {
		t.Errorf("reflog: %q", got)
	}
}

func TestLogAsGits(t *testing.T) {
	needGit(t)
	opt := testOptions(t)
	at := time.Date(2024, 2, 29, 23, 59, 59, 0, time.FixedZone("", -5*3600-1800))
	opt.Now = func() time.Time { at = at.Add(time.Second); return at }
	r, dir := newSession(t, opt)
	for _, msg := range []string{"one line", "  two\nlines  \n\n\n\nbody\n\n", "ünïcode 中文", "bad \xff utf", "# not a comment", "x\ty"} {
		write(t, dir, "f", msg)
		commitAll(t, r, msg)
	}
	git(t, dir, "checkout", "-q", "-b", "side", "HEAD~2")
	write(t, dir, "g", "1")
	git(t, dir, "add", "g")
	git(t, dir, "commit", "-qm", "side")
	git(t, dir, "checkout", "-qf", "main")
	git(t, dir, "merge", "-q", "--no-ff", "-m", "merge: A + B", "side")
	var got []string
	for _, c := range allCommits(t, r) {
		got = append(got, fmt.Sprintf("%s %s %d %s", c.Hash, c.Short, c.Time.Unix(), c.Message))
	}
	if want := git(t, dir, "log", "--format=%H %h %at %s"); strings.Join(got, "\n") != want {
		t.Errorf("Log:\n%s\ngit log:\n%s", strings.Join(got, "\n"), want)
	}
	if body := git(t, dir, "log", "-1", "--format=%B", "main~5"); body != "two\nlines\n\nbody" && !strings.Contains(body, "lines") {
		t.Errorf("message tidied to %q", body)
	}
	for _, c := range allCommits(t, r) {
		paths, err := r.ChangedPaths(context.Background(), c.Hash)
		want := git(t, dir, "log", "-1", "--first-parent", "-m", "--name-only", "--no-renames", "--format=", c.Hash)
		if err != nil || strings.Join(paths, "\n") != want {
			t.Errorf("ChangedPaths(%s) = %v, %v, git: %s", c.Short, paths, err, want)
		}
	}
	if _, _, err := r.CommitAll(context.Background(), " \n\x00"); err == nil {
		write(t, dir, "h", "1")
		if _, _, err := r.CommitAll(context.Background(), " \n\x00"); !errors.Is(err, ErrEmptyMessage) {
			t.Errorf("empty message: %v", err)
		}
	}
}

// TestGarbageCollectionBeside runs git gc over and over while commits are made
// and read.
func TestGarbageCollectionBeside(t *testing.T) {
	needGit(t)
	r, dir := newSession(t, testOptions(t))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				// git itself gives up when it meets one of our locks.
				tryGit(t, dir, "gc", "-q")
				if _, err := r.Compact(context.Background()); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for i := range 25 {
		write(t, dir, fmt.Sprintf("history/%04d", i), fmt.Sprint(i))
		if _, _, err := r.CommitAll(context.Background(), "x"); err != nil {
			t.Error(err)
		}
		if log, err := r.Log(context.Background(), 0); err != nil || len(log) != i+2 {
			t.Errorf("%d commits after %d, %v", len(log), i+1, err)
		}
		if ok, err := r.HeadHasPath(context.Background(), "history/0000"); !ok || err != nil {
			t.Errorf("HeadHasPath: %v, %v", ok, err)
		}
	}
	close(stop)
	wg.Wait()
	checkSound(t, dir)
}

// childEnv makes the test binary commit in a repository instead of testing.
const childEnv = "GITREPO_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

// child commits files of its own until its standard input closes or it has made
// thirty.
func child(dir string) int {
	env := func(key string) string {
		if key == "GIT_CONFIG_NOSYSTEM" {
			return "1"
		}
		return ""
	}
	r, err := Open(dir, Options{Env: env, LockTimeout: time.Minute})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for i := range 30 {
		name := fmt.Sprintf("history/%d-%d.json", os.Getpid(), i)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			fmt.Println(err)
			return 1
		}
		if _, _, err := r.CommitAll(context.Background(), "child "+name); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	return 0
}

func childCommand(dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=NONE")
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	return cmd
}

func TestConcurrentCommits(t *testing.T) {
	needGit(t)
	opt := testOptions(t)
	opt.Sync = SyncBatch
	opt.LockTimeout = time.Minute
	r, dir := newSession(t, opt)
	other, err := Open(dir, opt)
	must(t, err)
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			if out, err := childCommand(dir).CombinedOutput(); err != nil {
				t.Errorf("child: %v\n%s", err, out)
			}
		})
		wg.Go(func() {
			for j := range 20 {
				write(t, dir, fmt.Sprintf("history/g%d-%d.json", i, j), "x")
				repo := r
				if i == 1 {
					repo = other
				}
				if _, _, err := repo.CommitAll(context.Background(), "goroutine"); err != nil {
					t.Error(err)
				}
				if j%7 == 0 {
					if _, err := repo.Compact(context.Background()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	commitAll(t, r, "last")
	checkSound(t, dir)
	if got := len(strings.Split(git(t, dir, "ls-files", "history"), "\n")); got != 3*30+3*20 {
		t.Errorf("%d files committed", got)
	}
	// One line of commits, none lost: every one but the first has the one before
	// it as its parent, and the log of HEAD names them all.
	n := git(t, dir, "rev-list", "--count", "HEAD")
	if logged := len(strings.Split(git(t, dir, "reflog", "HEAD"), "\n")); strconv.Itoa(logged) != n {
		t.Errorf("%s commits, %d in the reflog", n, logged)
	}
}

// TestKilled kills a committing process again and again; the next holder of the
// lock clears up, and nothing is broken.
func TestKilled(t *testing.T) {
	needGit(t)
	opt := testOptions(t)
	r, dir := newSession(t, opt)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 12 {
		cmd := childCommand(dir)
		must(t, cmd.Start())
		time.Sleep(10*time.Millisecond + time.Duration(rng.IntN(60))*time.Millisecond)
		must(t, cmd.Process.Kill())
		cmd.Wait()
		write(t, dir, "history/after.json", fmt.Sprint(i))
		if _, changed := commitAll(t, r, "after the kill"); !changed {
			t.Error("nothing to commit")
		}
		if i%4 == 0 {
			if out := git(t, dir, "fsck", "--strict", "--no-dangling"); out != "" {
				t.Error(out)
			}
		}
	}
	checkSound(t, dir)
}
