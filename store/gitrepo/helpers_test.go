package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// home is an empty home directory for git and for us, so that the
// configuration of whoever runs the tests has no say.
func testEnv(t testing.TB) func(string) string {
	home := t.TempDir()
	return func(key string) string {
		switch key {
		case "HOME":
			return home
		case "GIT_CONFIG_NOSYSTEM", "GIT_ATTR_NOSYSTEM":
			return "1"
		}
		return ""
	}
}

// testOptions do not sync, so that the tests are quick; those about crashes ask
// for SyncBatch.
func testOptions(t testing.TB) Options {
	return Options{Env: testEnv(t), LockTimeout: 5 * time.Second, Sync: SyncOff}
}

// git runs the real git and fails the test when it fails.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := tryGit(t, dir, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func tryGit(t testing.TB, dir string, args ...string) (string, error) {
	cmd := gitCommand(dir, args...)
	var b, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &stderr
	err := cmd.Run()
	if err != nil {
		return stderr.String(), err
	}
	return strings.TrimRight(b.String(), "\n"), nil
}

func gitCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), "HOME=/nonexistent", "XDG_CONFIG_HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_ATTR_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C")
	return cmd
}

func needGit(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("the git binary is the oracle of this test and is not installed")
	}
}

// newSession makes a session's repository.
func newSession(t testing.TB, opt Options) (*Repo, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "s1")
	if err := Init(context.Background(), dir, opt); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r, dir
}

func commitAll(t testing.TB, r *Repo, msg string) (Commit, bool) {
	t.Helper()
	c, changed, err := r.CommitAll(context.Background(), msg)
	if err != nil {
		t.Fatalf("CommitAll(%q): %v", msg, err)
	}
	return c, changed
}

// checkSound asks git whether anything is left to commit or broken.
func checkSound(t testing.TB, dir string) {
	t.Helper()
	if out := git(t, dir, "status", "--porcelain", "--ignore-submodules=dirty"); out != "" {
		t.Errorf("git status is not clean:\n%s", out)
	}
	if out := git(t, dir, "add", "-A", "-n"); out != "" {
		t.Errorf("git add -A would still add:\n%s", out)
	}
	checkFsck(t, dir)
	if want, got := git(t, dir, "rev-parse", "HEAD^{tree}"), git(t, dir, "write-tree"); got != want {
		t.Errorf("git write-tree = %s, HEAD's tree is %s", got, want)
	}
}

func checkFsck(t testing.TB, dir string) {
	t.Helper()
	if out := git(t, dir, "fsck", "--strict", "--full", "--no-dangling"); out != "" {
		t.Errorf("git fsck:\n%s", out)
	}
	litter(t, dir)
}

// litter fails the test when a lock or a temporary file is left.
func litter(t testing.TB, dir string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, ".git"), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if strings.HasSuffix(name, ".lock") && name != recordName || strings.HasPrefix(name, tempLock) || strings.HasSuffix(name, ".tmp") || strings.HasPrefix(name, "tmp_") {
			t.Errorf("left behind: %s", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, ".git", recordName)); err == nil && len(b) > 0 {
		t.Errorf("the lock record is not empty:\n%s", b)
	}
}

func write(t testing.TB, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
