package vnode

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// passSuite are operations that must do on a mounted tree what they do on a
// plain directory.
var passSuite = map[string]func(t *testing.T, dir string){
	"append":          suiteAppend,
	"copy range":      suiteCopyRange,
	"create":          suiteCreate,
	"deep":            suiteDeep,
	"exchange":        suiteExchange,
	"fallocate":       suiteFallocate,
	"fsync":           suiteFsync,
	"link":            suiteLink,
	"listing":         suiteListing,
	"mknod":           suiteMknod,
	"mmap":            suiteMmap,
	"modes":           suiteModes,
	"names":           suiteNames,
	"open unlinked":   suiteOpenUnlinked,
	"parallel rename": suiteParallelRename,
	"rename":          suiteRename,
	"seek holes":      suiteSeek,
	"setgid":          suiteSetgid,
	"symlink":         suiteSymlink,
	"times":           suiteTimes,
	"tmpfile":         suiteTmpfile,
	"truncate":        suiteTruncate,
}

func TestPassSuite(t *testing.T) {
	names := slices.Sorted(maps.Keys(passSuite))
	onEach(t, 2*time.Minute, func(t *testing.T, dir string) {
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				sub := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
				mustDo(t, "mkdir", os.Mkdir(sub, 0o755))
				passSuite[name](t, sub)
				mustDo(t, "rm -r", os.RemoveAll(sub))
			})
		}
	})
}

func mustDo(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func wantErr(t *testing.T, what string, got error, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantText(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s: got %q, %v, want %q", filepath.Base(path), got, err, want)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	mustDo(t, "write", os.WriteFile(path, []byte(text), 0o644))
}

func lstat(t *testing.T, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	mustDo(t, "lstat "+filepath.Base(path), unix.Lstat(path, &st))
	return st
}

func openAt(t *testing.T, path string, flags int) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	mustDo(t, "open "+filepath.Base(path), err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func FuzzPassIno(f *testing.F) {
	f.Add(uint64(2049), uint64(2), uint64(0))
	f.Add(uint64(0), uint64(0), ^uint64(0))
	f.Fuzz(func(t *testing.T, dev, ino, salt uint64) {
		x := passIno(dev, ino, salt)
		if x < 2 || x >= 1<<63 {
			t.Errorf("passIno(%d, %d, %d) = %d", dev, ino, salt, x)
		}
		if x != passIno(dev, ino, salt) {
			t.Error("not a function")
		}
		for _, y := range []uint64{passIno(dev+1, ino, salt), passIno(dev, ino+1, salt), passIno(dev, ino, salt+1), passIno(ino, dev, salt)} {
			if x == y && dev != ino {
				t.Errorf("passIno(%d, %d, %d) = %d, like a neighbour", dev, ino, salt, x)
			}
		}
	})
}

func TestPassInoSpread(t *testing.T) {
	seen := map[uint64]bool{}
	for salt := range uint64(10) {
		for ino := range uint64(20_000) {
			seen[passIno(2049, ino, salt)] = true
		}
	}
	if len(seen) != 200_000 {
		t.Errorf("%d different numbers of 200000", len(seen))
	}
}

func TestPassErrno(t *testing.T) {
	for _, c := range []struct {
		err  error
		want syscall.Errno
	}{
		{nil, 0},
		{unix.EMFILE, unix.EMFILE},
		{&os.PathError{Err: unix.ELOOP}, unix.ELOOP},
		{fmt.Errorf("open: %w", os.ErrNotExist), unix.ENOENT},
		{errors.New("something"), unix.EIO},
	} {
		if got := passErrno(c.err); got != c.want {
			t.Errorf("passErrno(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}
