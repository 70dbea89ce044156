package vnode

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSeekInARemovedDirectory: the second page of a listing, of a directory that
// was removed after the first, is its end. Ext4 refuses to seek there.
func TestSeekInARemovedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	d := &passDir{passHandle: passHandle{node: &Pass{}, fd: fd}}
	if errno := d.Seekdir(context.Background(), math.MaxInt64); errno != 0 {
		t.Fatalf("seek: %v", errno)
	}
	if de, errno := d.Readdirent(context.Background()); de != nil || errno != 0 {
		t.Errorf("after the end: %v, %v", de, errno)
	}
}
