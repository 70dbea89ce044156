package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store"
)

// TestNothingIsMadeThroughASymlink: neither a lock file nor a delete intent is
// made where a symlink in the store leads, and no lease is emptied through one.
func TestNothingIsMadeThroughASymlink(t *testing.T) {
	for _, name := range []string{".locks", ".deleted", ".locks/x.lock", ".locks/.run-x.lock"} {
		root, out := t.TempDir(), t.TempDir()
		s := openStore(t, store.Options{Root: root})
		newSession(t, s, "x", "one")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		secret := filepath.Join(out, "secret")
		write(t, secret, "secret")
		target := out
		if filepath.Dir(name) != "." {
			target = secret
		}
		if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
		before := tree(t, out)
		s, err := store.Open(t.Context(), store.Options{Root: root})
		if err == nil {
			err = s.DeleteSession(t.Context(), "x")
			_ = s.Close()
		}
		if err == nil && name != ".locks/.run-x.lock" {
			t.Errorf("%s: deleted", name)
		}
		if raw, err := os.ReadFile(secret); string(raw) != "secret" || tree(t, out) != before {
			t.Errorf("%s: written through: %q %v", name, raw, err)
		}
	}
}

// TestLockFileErrors: a lock file that cannot be made is told by its cause.
func TestLockFileErrors(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, store.Options{Root: root})
	newSession(t, s, "x", "one")
	locks := filepath.Join(root, ".locks")
	if err := os.RemoveAll(locks); err != nil {
		t.Fatal(err)
	}
	set := func() error { return s.SetArchived(t.Context(), "x", true) }
	write(t, locks, "a file")
	wantCode(t, set(), store.Corrupt)
	if err := os.Remove(locks); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		return
	}
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	if err := unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	wantCode(t, set(), store.ReadOnly)
	if err := unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := set(); err != nil {
		t.Error(err)
	}
}
