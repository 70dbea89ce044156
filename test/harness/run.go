package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Environment variables of the processes that a test starts.
const (
	// envRun tags every process of one test run, so that those left over are
	// found by it and no process of anybody else is.
	envRun = "SESSIONFS_TEST_RUN"
	// envRole makes a copy of the test binary play a part instead of running
	// tests, see Spawn.
	envRole = "SESSIONFS_TEST_ROLE"
)

// Role is a part that a copy of the test binary plays in a process of its
// own. It reads requests from stdin and answers on stdout, one line each, and
// returns the exit status.
type Role func(args []string) int

// testRun is what one test process shares: the directory of the binary and
// the binary itself. It is the only state of the package, written once.
type testRun struct {
	base   string
	build  [2]sync.Once // with and without the race detector
	bin    [2]string
	failed [2]error
}

var run testRun

// Main runs the tests of a package that mounts and returns the exit status
// for os.Exit. It plays a role instead when the process was started by Spawn.
// After the tests it fails when a mount, a process or a file of this run is
// left.
func Main(m *testing.M, roles map[string]Role) int {
	if name := os.Getenv(envRole); name != "" {
		return play(name, roles)
	}
	base, err := os.MkdirTemp("", "sessionfs-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		return 1
	}
	run.base = base
	code := m.Run()
	for _, left := range leftovers(base) {
		fmt.Fprintln(os.Stderr, "harness: left over:", left)
		code = max(code, 1)
	}
	if err := os.RemoveAll(base); err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		code = max(code, 1)
	}
	return code
}

func play(name string, roles map[string]Role) int {
	if name == "foreign" {
		return foreignRole(os.Args[1:])
	}
	role := roles[name]
	if role == nil {
		fmt.Fprintln(os.Stderr, "harness: no such role:", name)
		return 2
	}
	return role(os.Args[1:])
}

// leftovers names what of this run is still there.
func leftovers(base string) []string {
	var out []string
	for _, pid := range taggedProcesses(base) {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		out = append(out, fmt.Sprintf("process %d %q", pid, bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
	for _, mp := range mountpoints() {
		if strings.HasPrefix(mp.dir, os.TempDir()+"/") && strings.HasPrefix(mp.fstype, "fuse") && taggedMount(base, mp.dir) {
			out = append(out, "mount "+mp.dir)
		}
	}
	return out
}

// taggedMount reports whether this run mounted dir: Start leaves a mark in
// base for each of its mountpoints.
func taggedMount(base, dir string) bool {
	marks, _ := os.ReadDir(filepath.Join(base, "mounts"))
	for _, m := range marks {
		b, err := os.ReadFile(filepath.Join(base, "mounts", m.Name()))
		if err == nil && string(b) == dir {
			return true
		}
	}
	return false
}

// taggedProcesses lists the processes that carry this run's tag, this process
// not included. Zombies have an empty environment and are not seen: their
// parent, the test, has ended them.
func taggedProcesses(base string) []int {
	tag := []byte(envRun + "=" + base + "\x00")
	procs, _ := filepath.Glob("/proc/[0-9]*/environ")
	var out []int
	for _, p := range procs {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(p)
		if err == nil && bytes.Contains(append(env, 0), tag) {
			out = append(out, pid)
		}
	}
	return out
}

// Environ is the environment for a process of this run: the caller's own
// without any setting of sessionfs or OpenProgram, state and home in the
// given directory, and the run's tag.
func Environ(state string, more ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		key, _, _ := strings.Cut(kv, "=")
		if key == "HOME" || strings.HasPrefix(key, "XDG_") || strings.HasPrefix(key, "SESSIONFS_") || strings.HasPrefix(key, "OPENPROGRAM_") || strings.HasPrefix(key, "GIT_") {
			continue
		}
		env = append(env, kv)
	}
	env = append(env,
		"HOME="+filepath.Join(state, "home"), "XDG_STATE_HOME="+state, "LC_ALL=C.UTF-8",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		"GORACE=halt_on_error=0 exitcode=66 atexit_sleep_ms=0", envRun+"="+run.base)
	return append(env, more...)
}

// ModuleDir returns the directory of go.mod above the working directory.
func ModuleDir(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the working directory")
		}
	}
}

// Binary builds cmd/sessionfs, once per test process and with the race
// detector when the test has it, and returns the path of the binary.
func Binary(t testing.TB) string {
	t.Helper()
	return binary(t, raceEnabled)
}

func binary(t testing.TB, race bool) string {
	t.Helper()
	mod, i := ModuleDir(t), 0
	if race {
		i = 1
	}
	run.build[i].Do(func() { run.bin[i], run.failed[i] = buildBinary(mod, race) })
	if run.failed[i] != nil {
		t.Fatalf("build sessionfs: %v", run.failed[i])
	}
	return run.bin[i]
}

func buildBinary(mod string, race bool) (string, error) {
	if run.base == "" {
		return "", errors.New("TestMain does not call harness.Main")
	}
	out, args := filepath.Join(run.base, "plain", "sessionfs"), []string{"build"}
	if race {
		out, args = filepath.Join(run.base, "race", "sessionfs"), append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "-o", out, "./cmd/sessionfs")...)
	cmd.Dir = mod
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, text)
	}
	return out, nil
}

// Slow stretches a limit of time where the race detector slows everything.
func Slow(d time.Duration) time.Duration {
	if raceEnabled {
		return 5 * d
	}
	return d
}

// Race reports whether the test and the binary run under the race detector.
func Race() bool { return raceEnabled }
