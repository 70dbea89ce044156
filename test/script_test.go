// Package test runs the command line, with and without a mount, as a shell
// user sees it: the scripts in testdata/script.
package test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, nil)) }

// stepLimit is how many seconds one command of a script may take; a hang on a
// mount must end as a failure.
const stepLimit = "60"

// TestScript runs testdata/script/*.txtar. Beside testscript's own commands a
// script has
//
//	status N COMMAND…   run a command, which must end with exit status N
//	sh SCRIPT           run sh -c SCRIPT
//	waitfor SCRIPT      run sh -c SCRIPT until it succeeds: a mount shows what
//	                    another process wrote within a tenth of a second
//	mount ARG…          sessionfs mount --background ARG…, undone at the end
//	fixture NAME DIR    extract a golden store
//	turn SESSION REPLY FILE SCRIPT
//	                    run sh -c SCRIPT, which changes FILE, as the turn of a
//	                    reply: what FILE held is recorded, for rewind
//
// and the conditions [fuse] and [root]. Each script has its own home and
// state directory, and SESSIONFS_STORE=$WORK/store.
func TestScript(t *testing.T) {
	binary := harness.Binary(t)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(env *testscript.Env) error { return setupScript(env, binary) },
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "fuse":
				return fuseUsable(), nil
			case "root":
				return os.Geteuid() == 0, nil
			}
			return false, errors.New("unknown condition " + cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status":  cmdStatus,
			"sh":      cmdSh,
			"waitfor": cmdWaitfor,
			"turn":    cmdTurn,
			"mount":   func(ts *testscript.TestScript, neg bool, args []string) { cmdMount(t, ts, neg, args) },
			"fixture": func(ts *testscript.TestScript, neg bool, args []string) { cmdFixture(t, ts, neg, args) },
		},
	})
}

func setupScript(env *testscript.Env, binary string) error {
	state := filepath.Join(env.WorkDir, ".state")
	for _, kv := range harness.Environ(state) {
		if key, value, _ := strings.Cut(kv, "="); key != "PATH" && key != "TMPDIR" {
			env.Setenv(key, value)
		}
	}
	env.Setenv("PATH", filepath.Dir(binary)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	env.Setenv("TZ", "UTC")
	env.Setenv("SESSIONFS_STORE", filepath.Join(env.WorkDir, "store"))
	return os.MkdirAll(env.Getenv("HOME"), 0o700)
}

// fuseUsable reports whether a mount can be tried. Where FUSE is required
// (CI=true) the answer is yes, so that its absence fails.
func fuseUsable() bool {
	if os.Getenv("CI") == "true" {
		return true
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	f.Close()
	_, err = exec.LookPath("fusermount3")
	return os.Geteuid() == 0 || err == nil
}

// limited runs a command that may not hang.
func limited(ts *testscript.TestScript, args ...string) error {
	return ts.Exec("timeout", append([]string{"-k", "5", stepLimit}, args...)...)
}

func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	switch err := limited(ts, args[1:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func cmdSh(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] sh SCRIPT")
	}
	switch err := limited(ts, "sh", "-c", args[0]); {
	case err != nil && !neg:
		ts.Fatalf("the script failed: %v", err)
	case err == nil && neg:
		ts.Fatalf("the script succeeded")
	}
}

// patience is how long waitfor tries.
const patience = 15 * time.Second

func cmdWaitfor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfor SCRIPT")
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := limited(ts, "sh", "-c", args[0])
		if err == nil {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("it never succeeds: %v", err)
		}
	}
}

func cmdMount(t *testing.T, ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: mount ARG... MOUNTPOINT")
	}
	point := ts.MkAbs(args[len(args)-1])
	ts.Check(os.MkdirAll(point, 0o700))
	state := "XDG_STATE_HOME=" + ts.Getenv("XDG_STATE_HOME")
	binary := filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "sessionfs")
	ts.Defer(func() {
		defer reportRaces(t, ts.Getenv("XDG_STATE_HOME"))
		for harness.Mounts(point) > 0 {
			umount := exec.Command(binary, "umount", point) // waits for the server's end
			umount.Env = append(os.Environ(), state)
			if umount.Run() != nil && exec.Command("umount", "-l", point).Run() != nil {
				return
			}
		}
	})
	args = append(append([]string{"sessionfs", "mount", "--background"}, args[:len(args)-1]...), point)
	if err := limited(ts, args...); err != nil {
		ts.Fatalf("mount: %v", err)
	}
}

// cmdTurn does what a worker's tools do around each file that they write.
func cmdTurn(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: turn SESSION REPLY FILE SCRIPT")
	}
	ctx, root := context.Background(), ts.Getenv("SESSIONFS_STORE")
	st, err := store.Open(ctx, store.Options{Root: root, State: filepath.Dir(root)})
	ts.Check(err)
	defer st.Close()
	file := ts.MkAbs(args[2])
	ts.Check(st.BeforeWrite(ctx, args[0], args[1], file))
	ts.Check(limited(ts, "sh", "-c", args[3]))
	ts.Check(st.AfterWrite(ctx, args[0], args[1], file))
}

// reportRaces fails the test when the race detector has spoken in the log of a
// background mount.
func reportRaces(t *testing.T, state string) {
	logs, _ := filepath.Glob(filepath.Join(state, "sessionfs", "log", "*"))
	for _, name := range logs {
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), "DATA RACE") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

func cmdFixture(t *testing.T, ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fixture NAME DIR")
	}
	ts.Check(os.Rename(harness.Golden(t, args[0]), ts.MkAbs(args[1])))
}
