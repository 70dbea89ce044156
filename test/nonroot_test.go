package test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// nobody is the user id that owns nothing.
const nobody = 65534

// TestMountWithoutRootAndHelper checks that an ordinary user on a machine
// without fusermount3 is told in one line what to install.
func TestMountWithoutRootAndHelper(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir, binary := publicBinary(t)
	cmd := exec.Command(binary, "mount", "mnt")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/nonexistent", "HOME=" + dir, "SESSIONFS_STORE=" + filepath.Join(dir, "store")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 9 {
		t.Errorf("exit status %d (%v), want 9", code, err)
	}
	want := "sessionfs: mount: fusermount3 is not installed, and only root can mount without it\nhint: install the package fuse3\n"
	if string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// publicBinary copies the binary to a directory that every user can enter,
// with an empty store and a mountpoint beside it.
func publicBinary(t *testing.T) (dir, binary string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sessionfs-public-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, d := range []string{dir, filepath.Join(dir, "store"), filepath.Join(dir, "mnt")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(d, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	for parent := filepath.Dir(dir); parent != "/"; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			t.Skipf("other users cannot enter %s", parent)
		}
	}
	binary = filepath.Join(dir, "sessionfs")
	copyFile(t, harness.Binary(t), binary)
	return dir, binary
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
