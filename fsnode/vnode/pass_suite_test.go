package vnode

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func suiteCreate(t *testing.T, dir string) {
	path := filepath.Join(dir, "f")
	fd := openAt(t, path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
	unix.Write(fd, []byte("hello"))
	_, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)
	wantErr(t, "O_EXCL of what is there", err, unix.EEXIST)
	openAt(t, path, unix.O_CREAT|unix.O_RDONLY)
	wantText(t, path, "hello")
	openAt(t, path, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC)
	wantText(t, path, "")
	_, err = unix.Open(filepath.Join(dir, "none"), unix.O_RDONLY, 0)
	wantErr(t, "open of what is not there", err, unix.ENOENT)
	_, err = unix.Open(filepath.Join(dir, "f", "x"), unix.O_CREAT|unix.O_WRONLY, 0o600)
	wantErr(t, "create below a file", err, unix.ENOTDIR)
	_, err = unix.Open(dir, unix.O_WRONLY, 0)
	wantErr(t, "open a directory for writing", err, unix.EISDIR)
	wantErr(t, "mkdir of what is there", unix.Mkdir(path, 0o700), unix.EEXIST)
	wantErr(t, "rmdir of a file", unix.Rmdir(path), unix.ENOTDIR)
	wantErr(t, "unlink of a directory", unix.Unlink(dir), unix.EISDIR)
	wantErr(t, "rmdir of a full directory", unix.Rmdir(dir), unix.ENOTEMPTY)
	wantErr(t, "unlink of nothing", unix.Unlink(filepath.Join(dir, "none")), unix.ENOENT)
}

func suiteAppend(t *testing.T, dir string) {
	path := filepath.Join(dir, "f")
	a := openAt(t, path, unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND)
	b := openAt(t, path, unix.O_WRONLY|unix.O_APPEND)
	want := ""
	for i := range 20 {
		s := fmt.Sprintf("line %d\n", i)
		unix.Write([]int{a, b}[i%2], []byte(s))
		want += s
	}
	wantText(t, path, want)
}

func suiteTruncate(t *testing.T, dir string) {
	path := filepath.Join(dir, "f")
	put(t, path, "hello world")
	mustDo(t, "truncate", unix.Truncate(path, 5))
	wantText(t, path, "hello")
	fd := openAt(t, path, unix.O_RDWR)
	mustDo(t, "ftruncate", unix.Ftruncate(fd, 8))
	wantText(t, path, "hello\x00\x00\x00")
	ro := openAt(t, path, unix.O_RDONLY)
	wantErr(t, "ftruncate read-only", unix.Ftruncate(ro, 1), unix.EINVAL)
	mustDo(t, "chmod", unix.Chmod(path, 0o400))
	mustDo(t, "ftruncate after chmod", unix.Ftruncate(fd, 1))
	wantErr(t, "truncate a directory", unix.Truncate(dir, 1), unix.EISDIR)
	wantErr(t, "truncate nothing", unix.Truncate(filepath.Join(dir, "x"), 1), unix.ENOENT)
}

func suiteModes(t *testing.T, dir string) {
	path := filepath.Join(dir, "f")
	put(t, path, "x")
	for _, mode := range []uint32{0, 0o400, 0o777, 0o4755, 0o1644} {
		mustDo(t, "chmod", unix.Chmod(path, mode))
		if got := lstat(t, path).Mode & 0o7777; got != mode {
			t.Errorf("mode after chmod %o: %o", mode, got)
		}
	}
	old := unix.Umask(0)
	defer unix.Umask(old)
	for _, mode := range []uint32{0o600, 0o666, 0o777, 0o640} {
		fd, err := unix.Open(fmt.Sprint(path, mode), unix.O_CREAT|unix.O_WRONLY, mode)
		mustDo(t, "create", err)
		unix.Close(fd)
		if got := lstat(t, fmt.Sprint(path, mode)).Mode & 0o7777; got != mode {
			t.Errorf("mode after create %o: %o", mode, got)
		}
		mustDo(t, "mkdir", unix.Mkdir(fmt.Sprint(dir, "/d", mode), mode))
		if got := lstat(t, fmt.Sprint(dir, "/d", mode)).Mode & 0o7777; got != mode {
			t.Errorf("mode after mkdir %o: %o", mode, got)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	mustDo(t, "chown", unix.Chown(path, 1234, 5678))
	if st := lstat(t, path); st.Uid != 1234 || st.Gid != 5678 {
		t.Errorf("owner after chown: %d:%d", st.Uid, st.Gid)
	}
	mustDo(t, "chgrp", unix.Chown(path, -1, 99))
	if st := lstat(t, path); st.Uid != 1234 || st.Gid != 99 {
		t.Errorf("owner after chgrp: %d:%d", st.Uid, st.Gid)
	}
}

func suiteSetgid(t *testing.T, dir string) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	top := filepath.Join(dir, "top")
	mustDo(t, "mkdir", os.Mkdir(top, 0o755))
	mustDo(t, "chown", unix.Chown(top, 0, 4321))
	mustDo(t, "chmod", unix.Chmod(top, 0o2775))
	mustDo(t, "mkdir", os.Mkdir(filepath.Join(top, "sub"), 0o755))
	put(t, filepath.Join(top, "f"), "x")
	if st := lstat(t, filepath.Join(top, "sub")); st.Gid != 4321 || st.Mode&0o7777 != 0o2755 {
		t.Errorf("directory below a setgid one: group %d, mode %o", st.Gid, st.Mode&0o7777)
	}
	if st := lstat(t, filepath.Join(top, "f")); st.Gid != 4321 || st.Mode&0o7777 != 0o644 {
		t.Errorf("file below a setgid one: group %d, mode %o", st.Gid, st.Mode&0o7777)
	}
}

func suiteTimes(t *testing.T, dir string) {
	path, link := filepath.Join(dir, "f"), filepath.Join(dir, "l")
	put(t, path, "x")
	mustDo(t, "symlink", os.Symlink("f", link))
	for _, p := range []string{path, link, dir} {
		ts := []unix.Timespec{{Sec: 1e9, Nsec: 123456789}, {Sec: 2e9, Nsec: 987654321}}
		mustDo(t, "utimens", unix.UtimesNanoAt(unix.AT_FDCWD, p, ts, unix.AT_SYMLINK_NOFOLLOW))
		if st := lstat(t, p); st.Mtim != ts[1] || p == path && st.Atim != ts[0] {
			t.Errorf("times of %s: %v, %v", filepath.Base(p), st.Atim, st.Mtim)
		}
		ts[0].Nsec, ts[1] = unix.UTIME_OMIT, unix.Timespec{Nsec: unix.UTIME_NOW}
		mustDo(t, "utimens now", unix.UtimesNanoAt(unix.AT_FDCWD, p, ts, unix.AT_SYMLINK_NOFOLLOW))
		if st := lstat(t, p); time.Since(time.Unix(st.Mtim.Unix())).Abs() > time.Minute || p == path && st.Atim.Sec != 1e9 {
			t.Errorf("times of %s after now: %v, %v", filepath.Base(p), st.Atim, st.Mtim)
		}
	}
}

func suiteOpenUnlinked(t *testing.T, dir string) {
	path := filepath.Join(dir, "f")
	put(t, path, "hello")
	fd := openAt(t, path, unix.O_RDWR)
	mustDo(t, "unlink", unix.Unlink(path))
	_, err := unix.Pwrite(fd, []byte("J"), 0)
	mustDo(t, "write", err)
	mustDo(t, "fchmod", unix.Fchmod(fd, 0o640))
	mustDo(t, "ftruncate", unix.Ftruncate(fd, 3))
	mustDo(t, "fsync", unix.Fsync(fd))
	ts := []unix.Timeval{{Sec: 5}, {Sec: 6}}
	mustDo(t, "futimes", unix.Futimes(fd, ts))
	var st unix.Stat_t
	mustDo(t, "fstat", unix.Fstat(fd, &st))
	if st.Nlink != 0 || st.Size != 3 || st.Mode&0o777 != 0o640 || st.Mtim.Sec != 6 {
		t.Errorf("fstat: %d links, %d bytes, mode %o, mtime %d", st.Nlink, st.Size, st.Mode, st.Mtim.Sec)
	}
	buf := make([]byte, 9)
	n, err := unix.Pread(fd, buf, 0)
	if string(buf[:n]) != "Jel" || err != nil {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY, 0)
	mustDo(t, "open through /proc", err)
	unix.Close(again)
	put(t, path, "another") // the same name is another file
	mustDo(t, "fstat", unix.Fstat(fd, &st))
	if st.Size != 3 {
		t.Errorf("the unlinked file has %d bytes now", st.Size)
	}
}

func suiteRename(t *testing.T, dir string) {
	a, b, d := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "d")
	put(t, a, "a")
	put(t, b, "b")
	mustDo(t, "mkdir", os.Mkdir(d, 0o755))
	wantErr(t, "RENAME_NOREPLACE", unix.Renameat2(-1, a, -1, b, unix.RENAME_NOREPLACE), unix.EEXIST)
	mustDo(t, "RENAME_NOREPLACE to a free name", unix.Renameat2(-1, a, -1, filepath.Join(d, "a"), unix.RENAME_NOREPLACE))
	mustDo(t, "rename over a file", os.Rename(filepath.Join(d, "a"), b))
	wantText(t, b, "a")
	wantErr(t, "rename of nothing", os.Rename(a, b), unix.ENOENT)
	wantErr(t, "rename a directory over a file", os.Rename(d, b), unix.ENOTDIR)
	wantErr(t, "rename a file over a directory", unix.Rename(b, d), unix.EISDIR)
	wantErr(t, "rename a directory into itself", os.Rename(d, filepath.Join(d, "e")), unix.EINVAL)
	e := filepath.Join(dir, "e")
	mustDo(t, "mkdir", os.MkdirAll(filepath.Join(e, "full"), 0o755))
	wantErr(t, "rename over a full directory", unix.Rename(d, e), unix.ENOTEMPTY)
	mustDo(t, "rename over an empty directory", unix.Rename(e, d))
	if _, err := os.Stat(filepath.Join(d, "full")); err != nil {
		t.Error(err)
	}
	fd := openAt(t, b, unix.O_RDONLY)
	mustDo(t, "rename while open", os.Rename(b, filepath.Join(d, "full", "c")))
	buf := make([]byte, 5)
	if n, err := unix.Pread(fd, buf, 0); n != 1 || err != nil {
		t.Errorf("read after rename: %d, %v", n, err)
	}
}

func suiteExchange(t *testing.T, dir string) {
	f, d := filepath.Join(dir, "f"), filepath.Join(dir, "d")
	put(t, f, "file")
	mustDo(t, "mkdir", os.Mkdir(d, 0o755))
	put(t, filepath.Join(d, "inner"), "inner")
	for range 5 {
		mustDo(t, "exchange", unix.Renameat2(-1, f, -1, d, unix.RENAME_EXCHANGE))
		wantText(t, d, "file")
		wantText(t, filepath.Join(f, "inner"), "inner")
		mustDo(t, "exchange", unix.Renameat2(-1, f, -1, d, unix.RENAME_EXCHANGE))
		wantText(t, f, "file")
		wantText(t, filepath.Join(d, "inner"), "inner")
	}
	wantErr(t, "exchange with nothing", unix.Renameat2(-1, f, -1, filepath.Join(dir, "x"), unix.RENAME_EXCHANGE), unix.ENOENT)
}

// suiteParallelRename uses a directory through an O_PATH descriptor, of which
// the daemon knows nothing, while another thread renames it and one above it
// to and fro: no operation may fail or land elsewhere.
func suiteParallelRename(t *testing.T, dir string) {
	top, sub := filepath.Join(dir, "top"), "sub"
	mustDo(t, "mkdir", os.MkdirAll(filepath.Join(top, sub), 0o755))
	fd := openAt(t, filepath.Join(top, sub), unix.O_PATH|unix.O_DIRECTORY)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			var err error
			switch i % 4 {
			case 0:
				err = os.Rename(top, top+"2")
			case 1:
				err = os.Rename(filepath.Join(top+"2", sub), filepath.Join(dir, "else"))
			case 2:
				err = os.Rename(filepath.Join(dir, "else"), filepath.Join(top+"2", sub))
			case 3:
				err = os.Rename(top+"2", top)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 1500 {
		name := fmt.Sprint("f", i)
		f, err := unix.Openat(fd, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)
		if err == nil {
			unix.Close(f)
			var st unix.Stat_t
			err = unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err == nil {
			err = unix.Unlinkat(fd, name, 0)
		}
		if err != nil {
			t.Errorf("operation %d during renames: %v", i, err)
			break
		}
	}
	close(stop)
	wg.Wait()
}

func suiteLink(t *testing.T, dir string) {
	f, g, l := filepath.Join(dir, "f"), filepath.Join(dir, "g"), filepath.Join(dir, "l")
	put(t, f, "x")
	mustDo(t, "link", os.Link(f, g))
	if a, b := lstat(t, f), lstat(t, g); a.Ino != b.Ino || a.Nlink != 2 || b.Nlink != 2 {
		t.Errorf("hard links: inodes %d, %d, links %d, %d", a.Ino, b.Ino, a.Nlink, b.Nlink)
	}
	put(t, g, "changed")
	wantText(t, f, "changed")
	mustDo(t, "unlink", os.Remove(f))
	wantText(t, g, "changed")
	if st := lstat(t, g); st.Nlink != 1 {
		t.Errorf("%d links after unlink", st.Nlink)
	}
	mustDo(t, "symlink", os.Symlink("nowhere", l))
	mustDo(t, "link of a symlink", unix.Linkat(-1, l, -1, f, 0))
	if text, err := os.Readlink(f); text != "nowhere" || err != nil {
		t.Errorf("link of a symlink: %q, %v", text, err)
	}
	wantErr(t, "link over a name", unix.Link(g, f), unix.EEXIST)
	wantErr(t, "link of a directory", unix.Link(dir, filepath.Join(dir, "d")), unix.EPERM)
	wantErr(t, "link of nothing", unix.Link(filepath.Join(dir, "none"), filepath.Join(dir, "d")), unix.ENOENT)
}

func suiteSymlink(t *testing.T, dir string) {
	for i, text := range []string{"/etc/passwd", "../../../../x", ".", "a b\nc", strings.Repeat("x/", 1500) + "y", "\xff\xfe"} {
		path := filepath.Join(dir, fmt.Sprint("l", i))
		mustDo(t, "symlink", os.Symlink(text, path))
		if got, err := os.Readlink(path); got != text || err != nil {
			t.Errorf("readlink: got %q, %v, want %q", got, err, text)
		}
		if st := lstat(t, path); st.Size != int64(len(text)) || st.Mode != unix.S_IFLNK|0o777 {
			t.Errorf("lstat: size %d, mode %o", st.Size, st.Mode)
		}
	}
	put(t, filepath.Join(dir, "f"), "through")
	mustDo(t, "symlink", os.Symlink("f", filepath.Join(dir, "rel")))
	wantText(t, filepath.Join(dir, "rel"), "through")
	_, err := unix.Open(filepath.Join(dir, "rel"), unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	wantErr(t, "O_NOFOLLOW", err, unix.ELOOP)
}

func suiteMknod(t *testing.T, dir string) {
	fifo, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "file")
	mustDo(t, "mkfifo", unix.Mkfifo(fifo, 0o600))
	mustDo(t, "mknod of a file", unix.Mknod(file, unix.S_IFREG|0o640, 0))
	if st := lstat(t, fifo); st.Mode != unix.S_IFIFO|0o600 {
		t.Errorf("fifo has mode %o", st.Mode)
	}
	if st := lstat(t, file); st.Mode != unix.S_IFREG|0o640 || st.Size != 0 {
		t.Errorf("file has mode %o, size %d", st.Mode, st.Size)
	}
	r := openAt(t, fifo, unix.O_RDONLY|unix.O_NONBLOCK)
	w := openAt(t, fifo, unix.O_WRONLY)
	unix.Write(w, []byte("through"))
	buf := make([]byte, 10)
	if n, err := unix.Read(r, buf); string(buf[:max(n, 0)]) != "through" {
		t.Errorf("fifo: %q, %v", buf[:max(n, 0)], err)
	}
}

func suiteFallocate(t *testing.T, dir string) {
	path := filepath.Join(dir, "f")
	fd := openAt(t, path, unix.O_CREAT|unix.O_RDWR)
	mustDo(t, "fallocate", unix.Fallocate(fd, 0, 0, 8192))
	_, err := unix.Pwrite(fd, bytes.Repeat([]byte("x"), 8192), 0)
	mustDo(t, "write", err)
	mustDo(t, "punch", unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096))
	wantText(t, path, strings.Repeat("\x00", 4096)+strings.Repeat("x", 4096))
}

func suiteSeek(t *testing.T, dir string) {
	fd := openAt(t, filepath.Join(dir, "f"), unix.O_CREAT|unix.O_RDWR)
	_, err := unix.Pwrite(fd, bytes.Repeat([]byte("x"), 4096), 1<<20)
	mustDo(t, "write", err)
	mustDo(t, "fsync", unix.Fsync(fd))
	data, err := unix.Seek(fd, 0, unix.SEEK_DATA)
	if data != 1<<20 || err != nil {
		t.Errorf("SEEK_DATA: %d, %v", data, err)
	}
	hole, err := unix.Seek(fd, 1<<20, unix.SEEK_HOLE)
	if hole != 1<<20+4096 || err != nil {
		t.Errorf("SEEK_HOLE: %d, %v", hole, err)
	}
}

func suiteCopyRange(t *testing.T, dir string) {
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	text := strings.Repeat("0123456789", 50_000)
	put(t, src, text)
	in, out := openAt(t, src, unix.O_RDONLY), openAt(t, dst, unix.O_CREAT|unix.O_WRONLY)
	from, to, left := int64(0), int64(0), len(text)
	for left > 0 {
		n, err := unix.CopyFileRange(in, &from, out, &to, left, 0)
		mustDo(t, "copy_file_range", err)
		if n == 0 {
			t.Fatal("copy_file_range stopped")
		}
		left -= n
	}
	wantText(t, dst, text)
}

func suiteMmap(t *testing.T, dir string) {
	path := filepath.Join(dir, "f")
	put(t, path, strings.Repeat("a", 8192))
	fd := openAt(t, path, unix.O_RDWR)
	m, err := unix.Mmap(fd, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	mustDo(t, "mmap", err)
	copy(m[4096:], "changed")
	mustDo(t, "msync", unix.Msync(m, unix.MS_SYNC))
	mustDo(t, "munmap", unix.Munmap(m))
	wantText(t, path, strings.Repeat("a", 4096)+"changed"+strings.Repeat("a", 4096-7))
}

func suiteFsync(t *testing.T, dir string) {
	f := openAt(t, filepath.Join(dir, "f"), unix.O_CREAT|unix.O_WRONLY)
	unix.Write(f, []byte("x"))
	mustDo(t, "fsync", unix.Fsync(f))
	mustDo(t, "fdatasync", unix.Fdatasync(f))
	mustDo(t, "fsync of a directory", unix.Fsync(openAt(t, dir, unix.O_RDONLY|unix.O_DIRECTORY)))
}

func suiteNames(t *testing.T, dir string) {
	names := []string{strings.Repeat("n", 255), "\xff\xfe", "a\nb", " ", "-rf", "*", "ünï", ".hidden", "...", "a:b"}
	for _, name := range names {
		put(t, filepath.Join(dir, name), name)
	}
	entries, err := os.ReadDir(dir)
	mustDo(t, "readdir", err)
	if len(entries) != len(names) {
		t.Errorf("%d entries, want %d", len(entries), len(names))
	}
	for _, name := range names {
		wantText(t, filepath.Join(dir, name), name)
	}
	_, err = os.Stat(filepath.Join(dir, strings.Repeat("n", 256)))
	wantErr(t, "256 bytes", err, unix.ENAMETOOLONG)
	wantErr(t, "256 bytes", os.Mkdir(filepath.Join(dir, strings.Repeat("n", 256)), 0o700), unix.ENAMETOOLONG)
}

// suiteDeep goes deeper than any path can name.
func suiteDeep(t *testing.T, dir string) {
	name := strings.Repeat("d", 250)
	fd := openAt(t, dir, unix.O_PATH|unix.O_DIRECTORY)
	for range 40 {
		mustDo(t, "mkdirat", unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		mustDo(t, "openat", err)
		defer unix.Close(next)
		fd = next
	}
	f, err := unix.Openat(fd, "f", unix.O_CREAT|unix.O_RDWR, 0o600)
	mustDo(t, "create", err)
	defer unix.Close(f)
	if _, err := unix.Pwrite(f, []byte("deep"), 0); err != nil {
		t.Error(err)
	}
	var st unix.Stat_t
	mustDo(t, "stat", unix.Fstatat(fd, "f", &st, 0))
	if st.Size != 4 {
		t.Errorf("size %d", st.Size)
	}
}

// readNames reads a directory in small pages.
func readNames(t *testing.T, fd int) (names []string, offs []int64) {
	t.Helper()
	buf := make([]byte, 512)
	for {
		n, err := unix.Getdents(fd, buf)
		mustDo(t, "getdents", err)
		if n == 0 {
			return names, offs
		}
		for b := buf[:n]; len(b) > 0; {
			reclen := int(b[16]) | int(b[17])<<8
			off := int64(0)
			for i := 7; i >= 0; i-- {
				off = off<<8 | int64(b[8+i])
			}
			name, _, _ := strings.Cut(string(b[19:reclen]), "\x00")
			names, offs = append(names, name), append(offs, off)
			b = b[reclen:]
		}
	}
}

func suiteListing(t *testing.T, dir string) {
	want := map[string]bool{".": true, "..": true}
	for i := range 700 {
		name := fmt.Sprintf("entry-%04d", i)
		want[name] = true
		put(t, filepath.Join(dir, name), "")
	}
	fd := openAt(t, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	names, offs := readNames(t, fd)
	got := map[string]bool{}
	for _, name := range names {
		got[name] = true
	}
	if !maps.Equal(got, want) || len(names) != len(want) {
		t.Errorf("%d names, %d different, want %d", len(names), len(got), len(want))
	}
	for _, i := range []int{0, 1, 350, len(offs) - 2, len(offs) - 1} {
		_, err := unix.Seek(fd, offs[i], io.SeekStart)
		mustDo(t, "seekdir", err)
		rest, _ := readNames(t, fd)
		if !slices.Equal(rest, names[i+1:]) {
			t.Errorf("after a seek past entry %d: %d names, want %d", i, len(rest), len(names)-i-1)
		}
	}
	// Removing what was read so far loses nothing of the rest.
	unix.Seek(fd, 0, io.SeekStart)
	buf := make([]byte, 4096)
	seen := map[string]bool{}
	for {
		n, err := unix.Getdents(fd, buf)
		mustDo(t, "getdents", err)
		if n == 0 {
			break
		}
		for b := buf[:n]; len(b) > 0; {
			reclen := int(b[16]) | int(b[17])<<8
			name, _, _ := strings.Cut(string(b[19:reclen]), "\x00")
			seen[name] = true
			if name[0] != '.' {
				unix.Unlink(filepath.Join(dir, name))
			}
			b = b[reclen:]
		}
	}
	if len(seen) != len(want) {
		t.Errorf("saw %d names while removing, want %d", len(seen), len(want))
	}
}

func suiteTmpfile(t *testing.T, dir string) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o640)
	mustDo(t, "O_TMPFILE", err)
	defer unix.Close(fd)
	_, err = unix.Pwrite(fd, []byte("anonymous"), 0)
	mustDo(t, "write", err)
	path := filepath.Join(dir, "named")
	mustDo(t, "linkat", unix.Linkat(-1, fmt.Sprintf("/proc/self/fd/%d", fd), -1, path, unix.AT_SYMLINK_FOLLOW))
	wantText(t, path, "anonymous")
	if st := lstat(t, path); st.Nlink != 1 || st.Mode&0o777 != 0o640 {
		t.Errorf("%d links, mode %o", st.Nlink, st.Mode)
	}
}
