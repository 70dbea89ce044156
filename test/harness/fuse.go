package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// connections is where the kernel shows its FUSE connections.
const connections = "/sys/fs/fuse/connections"

// mountEntry is a line of /proc/self/mountinfo.
type mountEntry struct {
	minor       int
	dir, fstype string
	options     string
}

// mountpoints reads the mount table.
func mountpoints() []mountEntry {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var out []mountEntry
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		sep := 0
		for i, w := range f {
			if w == "-" {
				sep = i
			}
		}
		if sep < 6 || sep+1 >= len(f) {
			continue
		}
		_, minor, _ := strings.Cut(f[2], ":")
		n, _ := strconv.Atoi(minor)
		out = append(out, mountEntry{minor: n, dir: unescapeMount(f[4]), fstype: f[sep+1], options: f[len(f)-1]})
	}
	return out
}

// unescapeMount undoes the octal escapes of the mount table.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Mounts counts the mounts on dir.
func Mounts(dir string) int {
	n := 0
	for _, m := range mountpoints() {
		if m.dir == dir {
			n++
		}
	}
	return n
}

// FSType returns the file system type mounted on dir, "" for none.
func FSType(dir string) string {
	kind := ""
	for _, m := range mountpoints() {
		if m.dir == dir {
			kind = m.fstype
		}
	}
	return kind
}

// RequireFUSE skips the test where nothing can be mounted; with CI=true in
// the environment it fails, because there FUSE is required.
func RequireFUSE(t testing.TB) {
	t.Helper()
	reason := fuseMissing()
	if reason == "" {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("FUSE is required here: %s", reason)
	}
	t.Skipf("no FUSE: %s", reason)
}

func fuseMissing() string {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err.Error()
	}
	_ = f.Close()
	if os.Geteuid() == 0 {
		return ""
	}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/bin") {
		if _, err := os.Stat(filepath.Join(dir, "fusermount3")); err == nil {
			return ""
		}
	}
	return "neither root nor fusermount3"
}

// abortConnection ends the FUSE connection mounted on dir: every request in
// flight fails, and a process that hangs in one goes on. The control file
// system is mounted where it is missing, and stays: it belongs to the kernel,
// not to the test.
func abortConnection(dir string) error {
	for _, m := range mountpoints() {
		if m.dir != dir || !strings.HasPrefix(m.fstype, "fuse") {
			continue
		}
		path := filepath.Join(connections, strconv.Itoa(m.minor), "abort")
		if _, err := os.Stat(path); err != nil {
			_ = syscall.Mount("none", connections, "fusectl", 0, "")
		}
		return os.WriteFile(path, []byte("1"), 0o200)
	}
	return fmt.Errorf("no FUSE mount on %s", dir)
}

// AbortAfter aborts the FUSE connection on dir when a test that mounts by
// itself takes longer than limit, which is stretched under the race detector.
func AbortAfter(t testing.TB, dir string, limit time.Duration) {
	timer := time.AfterFunc(Slow(limit), func() {
		t.Errorf("mount on %s aborted: its time is over", dir)
		if err := abortConnection(dir); err != nil {
			t.Errorf("abort: %v", err)
		}
	})
	t.Cleanup(func() { timer.Stop() })
}

// detach takes a mount out of the tree whoever is inside.
func detach(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }
