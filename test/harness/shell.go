package harness

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Result is what a command did.
type Result struct {
	Out, Err string
	Code     int
}

// Shell runs a script with sh -c in dir; $1, $2, … are args. A script that
// takes longer than a minute is killed with its children and fails the test.
func Shell(t testing.TB, dir, script string, args ...string) Result {
	t.Helper()
	return Command(t, dir, nil, append([]string{"sh", "-c", script, "sh"}, args...)...)
}

// CLI runs the sessionfs binary against a store.
func CLI(t testing.TB, store, state string, args ...string) Result {
	t.Helper()
	env := Environ(state, "SESSIONFS_STORE="+store)
	return Command(t, t.TempDir(), env, append([]string{Binary(t)}, args...)...)
}

// Command runs a program in a process group of its own for at most a minute.
// A nil env is Environ with the test's temporary directory as state.
func Command(t testing.TB, dir string, env []string, argv ...string) Result {
	t.Helper()
	if env == nil {
		env = Environ(t.TempDir())
	}
	ctx, cancel := context.WithTimeout(context.Background(), Slow(time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Errorf("%q did not end in time; it said %q %q", argv, out.String(), errOut.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", argv, err)
	}
	return Result{Out: out.String(), Err: strings.TrimSpace(errOut.String()), Code: cmd.ProcessState.ExitCode()}
}
