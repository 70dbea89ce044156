package fsnode

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A server that is killed while it tells the kernel of a name may leave a thread
// behind that waits, in the kernel and out of a signal's reach, for a directory
// that is locked by a request to that same server. The mount is then neither
// served nor dead: whoever touches it waits, and cannot be killed. Aborting the
// connection ends all of that.

// releaseUnserved aborts the connection of a mount that no process serves any
// more, so that nobody waits for its answers, and reports whether it is such a
// mount. A mount of which that is not certain is left alone.
func releaseUnserved(point string) bool {
	if !unserved(point) {
		return false
	}
	if unix.Unmount(point, unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
		return true
	}
	dev, _ := connectionOf(point)
	// For whoever mounted it, where the kernel's files about FUSE are mounted.
	if f, err := os.OpenFile(filepath.Join("/sys/fs/fuse/connections", dev, "abort"), os.O_WRONLY, 0); err == nil {
		_, _ = f.Write([]byte("1"))
		_ = f.Close()
	}
	return true
}

// unserved reports whether it is certain that no process has the connection of
// a mount of ours open. Descriptors of others' processes are seen by root only,
// so that for another user a mount of somebody else's is never certain.
func unserved(point string) bool {
	at, ok, err := MountedAt(point)
	if err != nil || !ok || at.Type != FSType {
		return false
	}
	dev, ok := connectionOf(point)
	if !ok {
		return false
	}
	if uid := os.Geteuid(); uid != 0 && !strings.Contains(at.options, fmt.Sprintf("user_id=%d,", uid)) {
		return false
	}
	procs, err := filepath.Glob("/proc/[0-9]*/fd")
	if err != nil {
		return false
	}
	for _, dir := range procs {
		if mayServe(dir, dev) {
			return false
		}
	}
	return true
}

// mayServe reports whether a process has a connection open, or one that cannot
// be told from it.
func mayServe(fds, dev string) bool {
	names, err := os.ReadDir(fds)
	if err != nil {
		return false // it has ended, or is another user's
	}
	for _, name := range names {
		to, err := os.Readlink(filepath.Join(fds, name.Name()))
		if err != nil || !strings.HasPrefix(to, "/dev/fuse") {
			continue
		}
		info, err := os.ReadFile(filepath.Join(filepath.Dir(fds), "fdinfo", name.Name()))
		if err != nil {
			continue
		}
		if of, ok := fuseConnection(string(info)); !ok || of == dev {
			return true
		}
	}
	return false
}

// fuseConnection reads the number of a connection from what /proc/PID/fdinfo
// says of a descriptor of /dev/fuse; kernels before 6.9 do not say it.
func fuseConnection(info string) (dev string, ok bool) {
	for line := range strings.Lines(info) {
		if key, value, _ := strings.Cut(line, ":"); key == "fuse_connection" {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}
