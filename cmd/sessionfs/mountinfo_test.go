package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestParseMountinfo(t *testing.T) {
	text := `22 28 0:21 / /proc rw,nosuid - proc proc rw
95 28 0:50 / /home/u/my\040chats rw,nosuid,nodev shared:3 master:1 - fuse.sessionfs /store\134x rw,user_id=0
not a line
96 28 0:51 / /x rw -
`
	got := parseMountinfo(text)
	want := []mountEntry{
		{point: "/proc", fsType: "proc", source: "proc"},
		{point: "/home/u/my chats", fsType: "fuse.sessionfs", source: `/store\x`},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestMountedAtRoot(t *testing.T) {
	entry, ok, err := mountedAt("/")
	if err != nil || !ok || entry.point != "/" {
		t.Errorf("got %+v, %v, %v; want the root's mount", entry, ok, err)
	}
	if _, ok, _ := mountedAt(t.TempDir()); ok {
		t.Error("a fresh directory is no mountpoint")
	}
}

func TestResolveMountpoint(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ in, want string }{
		{dir + "/real/", dir + "/real"},
		{dir + "/link", dir + "/real"},
		{dir + "/real/../link", dir + "/real"},
		{dir + "/link/missing", dir + "/real/missing"},
	} {
		if got, err := resolveMountpoint(tt.in); err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
	if _, err := resolveMountpoint(dir + "/no/such"); err == nil {
		t.Error("a path without a parent resolves")
	}
}

func TestCheckApart(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"store/s1", "stores", "mnt"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		point string
		ok    bool
	}{
		{"mnt", true}, {"stores", true}, {"store", false}, {"store/s1", false}, {"", false},
	} {
		err := checkApart(filepath.Join(dir, "store"), filepath.Join(dir, tt.point))
		if (err == nil) != tt.ok {
			t.Errorf("mountpoint %q: got %v, want ok %v", tt.point, err, tt.ok)
		}
	}
}
