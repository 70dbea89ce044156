package store_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
)

// TestRepairBesideAGitThatHasEnded: a git that has ended, and waits for whoever
// started it to ask how, holds no lock; one at work in the session may.
func TestRepairBesideAGitThatHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		git  func(root string) *exec.Cmd
		done bool
	}{
		"ended":   {func(string) *exec.Cmd { return exec.Command("git", "version") }, true},
		"at work": {func(root string) *exec.Cmd { return waitingGit(root) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			root, _ := soundRoot(t)
			root, err := filepath.EvalSymlinks(root)
			check(t, err)
			lock := filepath.Join(root, "x", ".git", "index.lock")
			write(t, lock, "")
			age(t, lock)
			cmd := c.git(root)
			hold, err := cmd.StdinPipe()
			check(t, err)
			check(t, cmd.Start())
			defer func() { _ = hold.Close(); _ = cmd.Wait() }()
			awaitGit(t, cmd.Process.Pid, c.done)
			if _, err := store.Repair(t.Context(), store.Options{Root: root, Clock: inAMinute}, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(lock); errors.Is(err, os.ErrNotExist) != c.done {
				t.Errorf("the lock: %v", err)
			}
		})
	}
}

// waitingGit reads from its standard input, in the session.
func waitingGit(root string) *exec.Cmd {
	cmd := exec.Command("git", "hash-object", "--stdin")
	cmd.Dir = filepath.Join(root, "x")
	return cmd
}

// awaitGit waits until a git that was started runs as such, or has ended.
func awaitGit(t *testing.T, pid int, ended bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		_, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if string(comm) == "git\n" && (err != nil) == ended {
			return
		}
	}
	t.Fatal("git is not there")
}
