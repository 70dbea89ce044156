package life

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/test/harness"
)

// unserved mounts on dir what a server leaves that was killed while it told the
// kernel of a name: a connection that nobody answers and nobody can close. Its
// descriptor is on the way through a socket, in no process. It returns a
// process that waits for the mount's answer.
func unserved(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dev)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev)
	if err := unix.Mount("sessionfs", dir, "fuse.sessionfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatal(err)
	}
	harness.AbortAfter(t, dir, time.Minute)
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(dev), nil, 0); err != nil {
		t.Fatal(err)
	}
	waits := exec.Command("stat", dir)
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH)
		_ = unix.Close(pair[0])
		_ = unix.Close(pair[1])
		if err := waits.Wait(); err == nil {
			t.Error("the process that waited got an answer")
		}
	})
	return waits
}

// TestUnservedMount: a mount that nobody serves any more, and that has not
// ended, is taken away by umount and replaced by mount, and releases those who
// wait for it; neither command asks it anything.
func TestUnservedMount(t *testing.T) {
	store, state := harness.Golden(t, "chat_branches"), t.TempDir()
	for _, args := range [][]string{{"umount"}, {"umount", "--lazy"}} {
		dir := t.TempDir()
		waits := unserved(t, dir)
		if r := harness.CLI(t, store, state, append(args, dir)...); r.Code != 0 {
			t.Errorf("%q: %s", args, r.Err)
		}
		if n := harness.Mounts(dir); n != 0 {
			t.Errorf("%q leaves %d mounts", args, n)
		}
		released(t, waits)
	}
	dir := t.TempDir()
	waits := unserved(t, dir)
	if r := harness.CLI(t, store, state, "mount", "--background", dir); r.Code != 0 {
		t.Fatal(r.Err)
	}
	if n := harness.Mounts(dir); n != 1 {
		t.Errorf("%d mounts are on %s", n, dir)
	}
	read(t, dir, "sessions", nested, "head_id")
	released(t, waits)
	if r := harness.CLI(t, store, state, "umount", dir); r.Code != 0 {
		t.Error(r.Err)
	}
}

// released waits until a process has ended, which its parent has not reaped.
func released(t *testing.T, p *exec.Cmd) {
	t.Helper()
	eventually(t, "the end of who waited for the mount", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
		var pid int
		var name, state string
		_, scanErr := fmt.Sscan(string(stat), &pid, &name, &state)
		return err == nil && scanErr == nil && state == "Z"
	})
}
