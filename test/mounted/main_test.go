package mounted

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, map[string]harness.Role{"look": lookRole, "read": readRole, "write": writeRole}))
}

// The session that most tests move about in: forks inside forks, nineteen
// nodes, two branches with one name, one archived branch (chat_branches).
const (
	nested    = "local_nested_dd1d18bf"
	tipTrunk  = "07eb635e4d17" // the branch trunk, and the head
	tipDetour = "3de090a0e4a7" // the branch "détour ☂"
	tipSame   = "68915d1391a7" // one of two branches called "same name"
	otherID   = "local_retry_ef355ff3"
)

// start mounts a copy of a golden store.
func start(t *testing.T, golden string) *harness.Mount {
	t.Helper()
	return harness.Start(t, harness.Options{Store: harness.Golden(t, golden)})
}

func put(path, text string) error { return harness.Put(path, text) }

func read(t testing.TB, path ...string) string {
	t.Helper()
	return harness.Read(t, path...)
}

func names(t testing.TB, path ...string) []string {
	t.Helper()
	return harness.Names(t, path...)
}

// refused fails the test unless err is exactly the errno, and the mount's
// list of refusals says why with the code.
func refused(t testing.TB, m *harness.Mount, what string, err error, errno syscall.Errno, code string) {
	t.Helper()
	if !errors.Is(err, errno) {
		t.Errorf("%s: %v; want %s", what, err, errnoName(errno))
	}
	if code == "" {
		return
	}
	if last := lastError(t, m); !strings.Contains(last, code) {
		t.Errorf("%s: the last line of .sessionfs/errors is %q; want the code %s", what, last, code)
	}
}

func errnoName(e syscall.Errno) string { return fmt.Sprintf("errno %d (%s)", int(e), e) }

// lastError is the newest line of .sessionfs/errors.
func lastError(t testing.TB, m *harness.Mount) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(read(t, m.Path(".sessionfs", "errors"))), "\n")
	return lines[len(lines)-1]
}

// failed lists the kept texts of .sessionfs/failed.
func failed(t testing.TB, m *harness.Mount) []string {
	t.Helper()
	var out []string
	for _, name := range names(t, m.Path(".sessionfs", "failed")) {
		out = append(out, read(t, m.Path(".sessionfs", "failed", name)))
	}
	return out
}

func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	return harness.Tree(t, dir)
}

var difference = harness.Difference

// readRole walks a tree again and again until its stdin ends, as `ls -lR` and
// `grep -r` do, and reads every file. What it meets is not judged: its work
// is to keep the kernel's caches warm and requests in flight.
func readRole(args []string) int {
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(done)
	}()
	for {
		_ = filepath.WalkDir(args[0], func(path string, e os.DirEntry, err error) error {
			select {
			case <-done:
				return filepath.SkipAll
			default:
			}
			if err != nil {
				return nil
			}
			_, _ = os.Lstat(path)
			if e.Type()&os.ModeSymlink != 0 {
				_, _ = os.Readlink(path)
			} else if e.Type().IsRegular() {
				_, _ = os.ReadFile(path)
			}
			return nil
		})
		select {
		case <-done:
			return 0
		default:
		}
	}
}

// writeRequest is a step of a writer whose process a test wants to kill.
type writeRequest struct{ Path, Text string }

// writeRole writes without closing, so that only its end closes the file.
func writeRole([]string) int {
	var open []*os.File
	code := harness.Serve(func(q writeRequest) string {
		f, err := os.OpenFile(q.Path, os.O_WRONLY, 0)
		if err != nil {
			return err.Error()
		}
		open = append(open, f)
		if _, err := f.WriteString(q.Text); err != nil {
			return err.Error()
		}
		return ""
	})
	for _, f := range open {
		_ = f.Close()
	}
	return code
}
