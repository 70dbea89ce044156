package harness

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// FreeAddr is a loopback address with a port that nobody listens on, for
// --metrics-addr.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Profile reads a number of a daemon that was started with --metrics-addr and
// --pprof: the one after a prefix in a profile's text. A heap is collected
// before.
func Profile(t testing.TB, addr, name, prefix string) int {
	t.Helper()
	client := http.Client{Timeout: Slow(time.Minute)}
	resp, err := client.Get("http://" + addr + "/debug/pprof/" + name + "?debug=1&gc=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, prefix))); strings.HasPrefix(line, prefix) && err == nil {
			return n
		}
	}
	t.Fatalf("the profile %s has no line with %q", name, prefix)
	return 0
}

// DropCaches makes the kernel let go of every name and inode that nobody uses.
// Where /proc/sys is read-only, as in containers, it mounts a proc of its own.
func DropCaches(t testing.TB) {
	t.Helper()
	const file = "sys/vm/drop_caches"
	if os.WriteFile(filepath.Join("/proc", file), []byte("2"), 0o200) == nil {
		return
	}
	dir := t.TempDir()
	err := syscall.Mount("proc", dir, "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, "")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, file), []byte("2"), 0o200)
		_ = detach(dir)
	}
	if err != nil {
		Missing(t, "leave to drop the kernel's caches: "+err.Error())
	}
}

// Missing skips a test for what this machine lacks; with CI=true in the
// environment it fails, because there everything is required.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("missing: %s", what)
	}
	t.Skipf("missing: %s", what)
}
