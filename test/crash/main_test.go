package crash

import (
	"os"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, map[string]harness.Role{"load": loadRole, "lease": leaseRole}))
}

// envLong, set to anything, makes every suite of this package do many times
// more.
const envLong = "SESSIONFS_TEST_LONG"

func long() bool { return os.Getenv(envLong) != "" }

// memory is a file system without a disk, on Linux. Nothing here depends on
// what a real one keeps: the forgetting is storetest's.
const memory = "/dev/shm"

// scratch is a directory of the test's own, in memory where that is possible:
// the suites write some hundred thousand small files.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(memory, "sessionfs-crash-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
