package recipes

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestP15Errnos: fsync, locks, times and statfs failed where programs need
// them, and what cannot be was answered with an errno that made cp -a fail;
// here the first work, on what the mount makes up and on scratch files, and
// the rest is refused with an errno that programs know to do without.
func TestP15Errnos(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	title := filepath.Join(s, "fields", "title")
	scratch := filepath.Join(s, "mine")
	if err := os.WriteFile(scratch, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	real := filepath.Join(s, "attachments", "real")
	if err := os.WriteFile(real, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{title, scratch, real, filepath.Dir(real)} {
		mustWork(t, path)
	}
	var here, there unix.Statfs_t
	if err := unix.Statfs(s, &here); err != nil {
		t.Fatal(err)
	}
	if err := unix.Statfs(m.Store, &there); err != nil {
		t.Fatal(err)
	}
	if here.Blocks != there.Blocks || here.Bsize == 0 || here.Namelen != 255 {
		t.Errorf("statfs: %+v, the store's file system has %+v", here, there)
	}
	mayRefuse(t, s, title)
	// What a chmod says is so.
	refused(t, "chmod to another mode", os.Chmod(title, 0o644), unix.EPERM)
	if err := os.Chmod(title, 0o600); err != nil {
		t.Errorf("chmod to the same mode: %v", err)
	}
	if got := read(t, title); got == "" {
		t.Error("the title is gone")
	}
}

// mustWork does what editors, databases and file managers rely on.
func mustWork(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		f, err = os.Open(path) // a directory
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	for what, err := range map[string]error{
		"fsync": unix.Fsync(fd), "fdatasync": unix.Fdatasync(fd),
		"flock": unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB), "unlock": unix.Flock(fd, unix.LOCK_UN),
		"fcntl lock": unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock),
		"access":     unix.Access(path, unix.W_OK), "utimens": os.Chtimes(path, time.Now(), time.Unix(1, 0)),
		"chown to the owner": os.Chown(path, os.Getuid(), os.Getgid()),
	} {
		if err != nil {
			t.Errorf("%s of %s: %v", what, filepath.Base(path), err)
		}
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		t.Errorf("fsync of the directory of %s: %v", filepath.Base(path), err)
	}
}

// mayRefuse does what a file system need not have. What is refused is refused
// in a way that programs know.
func mayRefuse(t *testing.T, s, file string) {
	t.Helper()
	fd, err := unix.Open(file, unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	unsupported := []unix.Errno{unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL, unix.EPERM, unix.EROFS, unix.EACCES}
	may := func(what string, err error, also ...unix.Errno) {
		t.Helper()
		if err != nil {
			refused(t, what, err, append(also, unsupported...)...)
		}
	}
	tmp, err := unix.Open(s, unix.O_TMPFILE|unix.O_RDWR, 0o600)
	may("O_TMPFILE", err, unix.EISDIR)
	if err == nil {
		_ = unix.Close(tmp)
	}
	gone := filepath.Join(s, "fields", "no such target")
	for what, flag := range map[string]uint{"NOREPLACE": unix.RENAME_NOREPLACE, "EXCHANGE": unix.RENAME_EXCHANGE, "WHITEOUT": unix.RENAME_WHITEOUT} {
		may("renameat2 "+what, unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, gone, flag), unix.ENOENT)
		_ = os.Remove(gone)
	}
	may("fallocate", unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, 10))
	may("a hole", unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, 0, 1))
	_, err = unix.Seek(fd, 0, unix.SEEK_HOLE)
	may("SEEK_HOLE", err, unix.ENXIO)
	may("mkfifo", unix.Mkfifo(filepath.Join(s, "ff"), 0o600))
	may("a hard link", os.Link(file, filepath.Join(s, "hl")), unix.EMLINK)
	direct, err := unix.Open(file, unix.O_RDONLY|unix.O_DIRECT, 0)
	may("O_DIRECT", err)
	if err == nil {
		_ = unix.Close(direct)
	}
	// Extended attributes: cp -a and rsync -X take these for an answer, and
	// none other.
	_, err = unix.Getxattr(file, "security.capability", nil)
	refused(t, "getxattr", err, unix.ENODATA, unix.EOPNOTSUPP)
	refused(t, "setxattr", unix.Setxattr(file, "user.t", []byte("1"), 0), unix.EOPNOTSUPP, unix.EPERM)
	if n, err := unix.Listxattr(file, nil); err != nil || n != 0 {
		refused(t, "listxattr", err, unix.EOPNOTSUPP)
	}
}
