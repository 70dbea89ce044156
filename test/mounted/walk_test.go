package mounted

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// walked is every store that the walks go over.
var walked = []string{"chat_branches", "chat_tools", "content_mix", "attachments"}

// TestSizes: every way to read a file sees as many bytes as stat says.
func TestSizes(t *testing.T) {
	for _, golden := range walked {
		m := start(t, golden)
		n := 0
		err := filepath.WalkDir(m.Dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || n > 400 || e.Name() == "metrics" {
				return err // metrics is another text at each open: see TestMetricsFile
			}
			n++
			checkSizes(t, path)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if n < 40 {
			t.Errorf("%s: only %d files", golden, n)
		}
		for _, tool := range []string{
			`find . -type f -exec sh -c 'for f; do [ "$(cat "$f" | wc -c)" = "$(stat -c %s "$f")" ] || echo "$f"; done' sh {} +`,
			`find nodes messages -type f -exec sh -c 'for f; do git hash-object "$f" > /dev/null && [ "$(git hash-object "$f")" = "$(cat "$f" | git hash-object --stdin)" ] || echo "$f"; done' sh {} +`,
			`tar -cf - . 2>&1 | tar -tvf - > /dev/null`,
		} {
			id := names(t, m.Path("sessions"))[0]
			if r := harness.Shell(t, m.Session(id), tool); r.Out != "" || r.Err != "" {
				t.Errorf("%s in %s: %s %s", tool, golden, r.Out, r.Err)
			}
		}
		m.Stop()
	}
}

func checkSizes(t *testing.T, path string) {
	t.Helper()
	want := read(t, path)
	f, err := os.Open(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() != int64(len(want)) {
		t.Errorf("%s: fstat says %d, %v; it has %d bytes", path, st.Size(), err, len(want))
	}
	if st, err := os.Lstat(path); err != nil || st.Size() != int64(len(want)) {
		t.Errorf("%s: lstat says %d, %v; it has %d bytes", path, st.Size(), err, len(want))
	}
	if len(want) > 0 {
		b, err := syscall.Mmap(int(f.Fd()), 0, len(want), syscall.PROT_READ, syscall.MAP_PRIVATE)
		if err != nil || string(b) != want {
			t.Errorf("%s: mmap: %v", path, err)
		}
		if err == nil {
			_ = syscall.Munmap(b)
		}
	}
	var copied bytes.Buffer
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.Copy(pw, f) // splice or sendfile, as the runtime likes
		_ = pw.Close()
	}()
	if _, err := io.Copy(&copied, pr); err != nil || copied.String() != want {
		t.Errorf("%s: copied to a pipe: %d bytes, %v", path, copied.Len(), err)
	}
	_ = pr.Close()
	half := make([]byte, len(want))
	if n, err := f.ReadAt(half[:len(want)/2], int64(len(want)/3)); err != nil || string(half[:n]) != want[len(want)/3:len(want)/3+len(want)/2] {
		t.Errorf("%s: pread in the middle: %d, %v", path, n, err)
	}
}

// TestWalk: find, ls -lR, grep -r, tar and cp -a go over a whole tree without
// an error, and what they make is what is there.
func TestWalk(t *testing.T) {
	for _, golden := range walked {
		m := start(t, golden)
		id := names(t, m.Path("sessions"))[0]
		s := m.Session(id)
		copies := t.TempDir()
		for _, script := range []string{
			`find . > /dev/null`, `find . -links 0`, `find . ! -newermt 1971-01-01; find . -newermt "+1 day" ! -path "./attachments*"`, `ls -lR . > /dev/null`, `grep -rc '' . > /dev/null || [ $? = 1 ]`,
			`tar -cf "$1/x.tar" . && mkdir "$1/tar" && tar -C "$1/tar" -xf "$1/x.tar" && diff -r --no-dereference . "$1/tar"`,
			`cp -a . "$1/cp" && diff -r --no-dereference . "$1/cp"`,
			`[ "$(find . | wc -l)" = "$(find . -noleaf | wc -l)" ] || echo differs`,
			`[ "$(find . | sort | md5sum)" = "$(find . | sort | md5sum)" ] || echo unstable`,
			`find . -type l ! -exec test -e {} \; -print | grep -v ^./attachments/`,
		} {
			if r := harness.Shell(t, s, script, copies); r.Out != "" || r.Err != "" {
				t.Errorf("%s in %s: %.500s %.500s", script, golden, r.Out, r.Err)
			}
		}
		checkAttributes(t, m)
		m.Stop()
	}
}

// checkAttributes: link counts, blocks, owners, modes, and times that stay.
func checkAttributes(t *testing.T, m *harness.Mount) {
	t.Helper()
	seen := map[uint64]string{}
	err := filepath.WalkDir(m.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		a, b := lstat(t, path), lstat(t, path)
		rel, _ := filepath.Rel(m.Dir, path)
		if (a.Mtim != b.Mtim || a.Ino != b.Ino) && e.Name() != "metrics" {
			t.Errorf("%s: two stats differ", rel)
		}
		if a.Nlink < 1 || a.Ino == 0 {
			t.Errorf("%s: %d links, inode %d", rel, a.Nlink, a.Ino)
		}
		if a.Size > 0 && !e.IsDir() && a.Mode&syscall.S_IFMT == syscall.S_IFREG && a.Blocks == 0 {
			t.Errorf("%s: %d bytes and no blocks", rel, a.Size)
		}
		real := false // a real directory has the modes of the disk
		for _, dir := range []string{"/attachments/", "/workdir/", "/context/"} {
			real = real || strings.Contains(path+"/", dir)
		}
		if !real && a.Mode&syscall.S_IFMT != syscall.S_IFLNK && a.Mode&0o077 != 0 {
			t.Errorf("%s: mode %o lets others in", rel, a.Mode&0o777)
		}
		if other, twice := seen[a.Ino]; twice && !real {
			t.Errorf("%s and %s have the same inode number", rel, other)
		}
		seen[a.Ino] = rel
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func lstat(t *testing.T, path string) syscall.Stat_t {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return st
}

// TestStableAcrossRemount: inode numbers and times are the same after a
// remount.
func TestStableAcrossRemount(t *testing.T) {
	store, dir := harness.Golden(t, "chat_branches"), filepath.Join(t.TempDir(), "mnt")
	snapshot := func() map[string]string {
		m := harness.Start(t, harness.Options{Store: store, Dir: dir})
		defer m.Stop()
		out := map[string]string{}
		err := filepath.WalkDir(m.Session(nested), func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				st := lstat(t, path)
				out[path] = fmt.Sprint(st.Ino, st.Mtim, st.Size, st.Mode)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return out
	}
	first := snapshot()
	if d := difference(first, snapshot()); len(d) > 0 {
		t.Errorf("after a remount: %q", d)
	}
}

// entry is one of getdents64.
type entry struct {
	name string
	ino  uint64
	next int64
	kind byte
}

// getdents reads what fits in a buffer of n bytes.
func getdents(fd, n int) ([]entry, error) {
	buf := make([]byte, n)
	got, err := syscall.Getdents(fd, buf)
	if err != nil {
		return nil, err
	}
	var out []entry
	for b := buf[:got]; len(b) > 19; {
		size := binary.LittleEndian.Uint16(b[16:])
		name, _, _ := bytes.Cut(b[19:size], []byte{0})
		out = append(out, entry{string(name), binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:])), b[18]})
		b = b[size:]
	}
	return out, nil
}

func listAll(t *testing.T, dir string, n int) []entry {
	t.Helper()
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	defer syscall.Close(fd)
	var out []entry
	for {
		some, err := getdents(fd, n)
		if err != nil {
			t.Fatalf("getdents of %s with %d bytes: %v", dir, n, err)
		}
		if len(some) == 0 {
			return out
		}
		out = append(out, some...)
	}
}

func entryNames(list []entry) []string {
	var out []string
	for _, e := range list {
		out = append(out, e.name)
	}
	return out
}

// TestReaddir: small buffers, seeks, parallel readers, and inode numbers that
// agree with stat, in directories of a few and of more than a thousand.
func TestReaddir(t *testing.T) {
	m := start(t, "big_1500")
	dirs := []string{m.Dir, m.Path("sessions"), m.Path(".sessionfs")}
	for _, id := range names(t, m.Path("sessions")) {
		for _, d := range []string{"", "nodes", "messages", "branch", "history", "fields", "append", "attachments"} {
			dirs = append(dirs, m.Session(id, d))
		}
	}
	for _, dir := range dirs {
		checkReaddir(t, dir)
	}
}

func checkReaddir(t *testing.T, dir string) {
	t.Helper()
	big := listAll(t, dir, 1<<16)
	all := entryNames(big)
	if sorted := slices.Compact(slices.Sorted(slices.Values(all))); len(sorted) != len(all) {
		t.Errorf("%s: a name is listed twice", dir)
	}
	if small := entryNames(listAll(t, dir, 1200)); !slices.Equal(small, all) {
		t.Errorf("%s: a listing in small pieces has %d names, in one %d", dir, len(small), len(all))
	}
	checkSeeks(t, dir, big)
	for i, e := range big {
		if e.name == "." || e.name == ".." || i > 300 {
			continue
		}
		st := lstat(t, filepath.Join(dir, e.name))
		if st.Ino != e.ino || e.kind != 0 && uint32(e.kind) != st.Mode>>12 {
			t.Errorf("%s/%s: listed as inode %d kind %d, stat says %d and %d", dir, e.name, e.ino, e.kind, st.Ino, st.Mode>>12)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != len(all)-dots(all) {
				t.Errorf("%s: a parallel reader sees %d names of %d, %v", dir, len(entries), len(all), err)
			}
		}()
	}
	wg.Wait()
}

func dots(names []string) int {
	n := 0
	for _, name := range names {
		if name == "." || name == ".." {
			n++
		}
	}
	return n
}

func checkSeeks(t *testing.T, dir string, big []entry) {
	t.Helper()
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	for i := 0; i < len(big)-1; i += max(1, len(big)/40) {
		if _, err := syscall.Seek(fd, big[i].next, io.SeekStart); err != nil {
			t.Errorf("%s: seek: %v", dir, err)
			return
		}
		some, err := getdents(fd, 1200)
		if err != nil || len(some) == 0 || some[0].name != big[i+1].name {
			t.Errorf("%s: after a seek to entry %d comes %v, %v; want %s", dir, i, entryNames(some), err, big[i+1].name)
			return
		}
	}
	if _, err := syscall.Seek(fd, 0, io.SeekStart); err != nil {
		t.Error(err)
	}
	if some, err := getdents(fd, 1<<16); err != nil || len(big) > 0 && (len(some) == 0 || some[0].name != big[0].name) {
		t.Errorf("%s: after a rewind comes %v, %v", dir, entryNames(some), err)
	}
}

// TestPhantoms: names that nothing lists are not there, whatever they are.
func TestPhantoms(t *testing.T) {
	m := start(t, "chat_branches")
	long := string(bytes.Repeat([]byte("x"), 256))
	for _, dir := range []string{m.Dir, m.Path("sessions"), m.Session(nested), m.Session(nested, "nodes"), m.Session(nested, "messages"), m.Session(nested, "branch"), m.Session(nested, "fields"), m.Session(nested, "history")} {
		for _, name := range []string{".git", "HEAD", ".hg", ".Trash", ".#x", "4913", "a", "x", long[:255], "0000-u-ROOT", "nodes.md", "\xff\xfe", "head~", "0001"} {
			if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
				t.Errorf("%s in %s: %v", name, dir, err)
			}
		}
		if _, err := os.Lstat(filepath.Join(dir, long)); err == nil {
			t.Errorf("a name of 256 bytes is found in %s", dir)
		}
	}
}

// TestPermissions: other users are kept out, also of a mount that lets them
// in.
func TestPermissions(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	for _, args := range [][]string{nil, {"--allow-other"}} {
		// A mountpoint whose parents anybody may pass.
		base, err := os.MkdirTemp("", "open-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(base) })
		if err := os.Chmod(base, 0o755); err != nil {
			t.Fatal(err)
		}
		m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Dir: filepath.Join(base, "mnt"), Args: args})
		s := m.Session(nested)
		node := filepath.Join(s, "nodes", storedNodes(t, m, nested)[tipTrunk].Stem+".md")
		for what, script := range map[string]string{
			"list": `ls "$1"`, "read a field": `cat "$1/fields/title"`, "read a node": `cat "$2"`, "read the registry": `cat "$1/../../index.json"`,
			"write": `echo x > "$1/fields/title" && echo did`, "append": `echo x > "$1/append/user" && echo did`, "move": `echo trunk > "$1/head_id" && echo did`,
			"control": `echo begin > "$1/ctl" && echo did`, "delete": `rm -f "$1/head" && echo did`, "make": `mkdir "$1/../made" && echo did`,
		} {
			cmd := exec.Command("sh", "-c", script, "sh", s, node)
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			if out, err := cmd.Output(); err == nil || len(out) > 0 {
				t.Errorf("with %q nobody could %s: %.60q", args, what, out)
			}
		}
		m.Stop()
	}
}

// TestStat: what a statfs and a chmod say.
func TestStat(t *testing.T) {
	m := start(t, "chat_branches")
	var here, there syscall.Statfs_t
	if err := syscall.Statfs(m.Session(nested), &here); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Statfs(m.Store, &there); err != nil {
		t.Fatal(err)
	}
	if here.Blocks != there.Blocks || here.Bsize == 0 || here.Namelen != 255 {
		t.Errorf("statfs: %+v, the store's file system has %+v", here, there)
	}
	title := m.Session(nested, "fields", "title")
	refused(t, m, "chmod to another mode", os.Chmod(title, 0o644), syscall.EPERM, "")
	if err := os.Chmod(title, 0o600); err != nil {
		t.Errorf("chmod to the same mode: %v", err)
	}
	if err := os.Chtimes(title, time.Now(), time.Unix(1, 0)); err != nil {
		t.Errorf("utimens: %v", err)
	}
	if err := os.Chown(title, os.Getuid(), os.Getgid()); err != nil {
		t.Errorf("chown to the owner: %v", err)
	}
	f, err := os.OpenFile(title, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Errorf("fsync: %v", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Errorf("flock: %v", err)
	}
	d, err := os.Open(m.Session(nested))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		t.Errorf("fsync of a directory: %v", err)
	}
}
