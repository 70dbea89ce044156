package vnode

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// needRoot skips what asks for other users' files.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// disk makes the directory "tree" below a new base.
func disk(t *testing.T) (base, tree string) {
	t.Helper()
	base = t.TempDir()
	tree = filepath.Join(base, "tree")
	mustDo(t, "mkdir", os.Mkdir(tree, 0o755))
	return base, tree
}

// TestPassForeign changes the disk behind the mount: everything shows at once,
// in an open file too.
func TestPassForeign(t *testing.T) {
	for _, v := range passVariants {
		t.Run(v.name, func(t *testing.T) {
			base, tree := disk(t)
			mnt := mountPass(t, time.Minute, passMount{RefuseOpendir: v.refuseOpendir, Trees: map[string]passTree{
				"w": {Base: base, Rel: "tree", NoPassthrough: v.noPassthrough},
			}})
			w := filepath.Join(mnt, "w")
			put(t, filepath.Join(tree, "f"), "one")
			wantText(t, filepath.Join(w, "f"), "one")
			fd := openAt(t, filepath.Join(w, "f"), unix.O_RDONLY)
			put(t, filepath.Join(tree, "f"), "two") // the same size
			wantText(t, filepath.Join(w, "f"), "two")
			buf := make([]byte, 9)
			if n, _ := unix.Pread(fd, buf, 0); string(buf[:n]) != "two" {
				t.Errorf("an open file still reads %q", buf[:n])
			}
			mustDo(t, "rename", os.Rename(filepath.Join(tree, "f"), filepath.Join(tree, "g")))
			_, err := os.Stat(filepath.Join(w, "f"))
			wantErr(t, "the old name", err, unix.ENOENT)
			wantText(t, filepath.Join(w, "g"), "two")
			mustDo(t, "remove", os.Remove(filepath.Join(tree, "g")))
			mustDo(t, "mkdir", os.Mkdir(filepath.Join(tree, "g"), 0o755))
			put(t, filepath.Join(tree, "g", "x"), "deep")
			wantText(t, filepath.Join(w, "g", "x"), "deep")
			names, _ := os.ReadDir(w)
			if len(names) != 1 || names[0].Name() != "g" || !names[0].IsDir() {
				t.Errorf("listing: %v", names)
			}
			// An appender on the disk and one in the mount lose nothing.
			log := filepath.Join(w, "log")
			in := openAt(t, log, unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND)
			out := openAt(t, filepath.Join(tree, "log"), unix.O_WRONLY|unix.O_APPEND)
			want := ""
			for i := range 10 {
				line := fmt.Sprintln("line", i)
				unix.Write([]int{in, out}[i%2], []byte(line))
				want += line
			}
			wantText(t, log, want)
			// What replaces a file that the kernel knows is another file.
			for i := range 50 {
				put(t, filepath.Join(tree, "tmp"), fmt.Sprint("v", i))
				mustDo(t, "rename", os.Rename(filepath.Join(tree, "tmp"), filepath.Join(tree, "log")))
				wantText(t, log, fmt.Sprint("v", i))
			}
		})
	}
}

// TestPassNumbers compares inode numbers: of a name, of the listing, of hard
// links in two trees, and after a remount.
func TestPassNumbers(t *testing.T) {
	base, tree := disk(t)
	other := filepath.Join(base, "other")
	mustDo(t, "mkdir", os.Mkdir(other, 0o755))
	for _, name := range []string{"a", "b", "c"} {
		put(t, filepath.Join(tree, name), name)
	}
	mustDo(t, "mkdir", os.Mkdir(filepath.Join(tree, "d"), 0o755))
	mustDo(t, "link", os.Link(filepath.Join(tree, "a"), filepath.Join(other, "a")))
	m := passMount{Trees: map[string]passTree{
		"w": {Base: base, Rel: "tree", Group: "g", Salt: 1},
		"o": {Base: base, Rel: "other", Group: "g", Salt: 1},
		"s": {Base: base, Rel: "tree", Salt: 2},
	}}
	var first map[string]uint64
	for range 2 {
		t.Run("mount", func(t *testing.T) {
			mnt := mountPass(t, time.Minute, m)
			got := map[string]uint64{}
			for _, name := range []string{"w/a", "w/b", "w/c", "w/d", "o/a", "s/a", "s/d"} {
				got[name] = lstat(t, filepath.Join(mnt, name)).Ino
			}
			if got["w/a"] != got["o/a"] {
				t.Errorf("a hard link has two numbers: %d, %d", got["w/a"], got["o/a"])
			}
			numbers := map[uint64]bool{}
			for _, ino := range got {
				numbers[ino] = true
			}
			if len(numbers) != len(got)-1 {
				t.Errorf("numbers are shared: %v", got)
			}
			if first != nil && !maps.Equal(first, got) {
				t.Errorf("after a remount: %v, want %v", got, first)
			}
			first = got
			for name, ino := range listedNumbers(t, filepath.Join(mnt, "w")) {
				if want := lstat(t, filepath.Join(mnt, "w", name)).Ino; name != ".." && ino != want {
					t.Errorf("listing gives %s the number %d, stat %d", name, ino, want)
				}
			}
		})
	}
}

func listedNumbers(t *testing.T, dir string) map[string]uint64 {
	t.Helper()
	buf := make([]byte, 8192)
	n, err := unix.Getdents(openAt(t, dir, unix.O_RDONLY|unix.O_DIRECTORY), buf)
	mustDo(t, "getdents", err)
	out := map[string]uint64{}
	for b := buf[:n]; len(b) > 0; {
		var ino uint64
		for i := 7; i >= 0; i-- {
			ino = ino<<8 | uint64(b[i])
		}
		reclen := int(b[16]) | int(b[17])<<8
		name, _, _ := strings.Cut(string(b[19:reclen]), "\x00")
		out[name] = ino
		b = b[reclen:]
	}
	return out
}

// TestPassOwner has a root daemon create everything that can be created in a
// tree of another user.
func TestPassOwner(t *testing.T) {
	needRoot(t)
	base, tree := disk(t)
	mustDo(t, "chown", os.Chown(tree, 12345, 23456))
	mnt := mountPass(t, time.Minute, passMount{Trees: map[string]passTree{"w": {Base: base, Rel: "tree"}}})
	w := filepath.Join(mnt, "w")
	put(t, filepath.Join(w, "file"), "x")
	mustDo(t, "mkdir", os.MkdirAll(filepath.Join(w, "dir", "sub"), 0o700))
	mustDo(t, "symlink", os.Symlink("x", filepath.Join(w, "link")))
	mustDo(t, "mkfifo", unix.Mkfifo(filepath.Join(w, "fifo"), 0o600))
	for _, name := range []string{"file", "dir", "dir/sub", "link", "fifo"} {
		for _, top := range []string{w, tree} {
			if st := lstat(t, filepath.Join(top, name)); st.Uid != 12345 || st.Gid != 23456 {
				t.Errorf("%s belongs to %d:%d", filepath.Join(filepath.Base(top), name), st.Uid, st.Gid)
			}
		}
	}
	put(t, filepath.Join(tree, "roots"), "root's own")
	mustDo(t, "open for writing", os.WriteFile(filepath.Join(w, "roots"), []byte("changed"), 0o600))
	if st := lstat(t, filepath.Join(tree, "roots")); st.Uid != 0 {
		t.Errorf("a file that was there went to %d", st.Uid)
	}
	wantErr(t, "mknod of a device", unix.Mknod(filepath.Join(w, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), unix.EPERM)
	// The owner works in its tree; another user is kept out by the modes.
	run := func(uid uint32, script string) error {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	for dir := w; dir != "/"; dir = filepath.Dir(dir) { // the way there
		if dir != w && dir != mnt {
			unix.Chmod(dir, lstat(t, dir).Mode&0o7777|0o011)
		}
	}
	if err := run(12345, fmt.Sprintf("cd %q && echo hi > mine && cat mine && rm mine && rmdir dir/sub", w)); err != nil {
		t.Errorf("the owner: %v", err)
	}
	if err := run(999, fmt.Sprintf("echo hi > %q/theirs", w)); err == nil {
		t.Error("another user created a file")
	}
}

func TestPassReadOnly(t *testing.T) {
	base, tree := disk(t)
	put(t, filepath.Join(tree, "f"), "text")
	mnt := mountPass(t, time.Minute, passMount{Trees: map[string]passTree{"w": {Base: base, Rel: "tree", ReadOnly: true}}})
	f, n := filepath.Join(mnt, "w", "f"), filepath.Join(mnt, "w", "new")
	wantText(t, f, "text")
	_, err := unix.Open(f, unix.O_WRONLY, 0)
	wantErr(t, "open for writing", err, unix.EROFS)
	_, err = unix.Open(n, unix.O_CREAT|unix.O_WRONLY, 0o600)
	wantErr(t, "create", err, unix.EROFS)
	for what, err := range map[string]error{
		"mkdir":    os.Mkdir(n, 0o700),
		"unlink":   os.Remove(f),
		"rename":   os.Rename(f, n),
		"symlink":  os.Symlink("x", n),
		"link":     os.Link(f, n),
		"mkfifo":   unix.Mkfifo(n, 0o600),
		"chmod":    os.Chmod(f, 0o600),
		"truncate": os.Truncate(f, 1),
		"utimes":   os.Chtimes(f, time.Now(), time.Now()),
	} {
		wantErr(t, what, err, unix.EROFS)
	}
	wantText(t, filepath.Join(tree, "f"), "text")
}

// TestPassMissing begins without a directory.
func TestPassMissing(t *testing.T) {
	base := t.TempDir()
	mnt := mountPass(t, time.Minute, passMount{Trees: map[string]passTree{
		"made":  {Base: base, Rel: "made", Ensure: true},
		"never": {Base: base, Rel: "never", Links: map[string]string{"link": "elsewhere"}},
	}})
	for _, name := range []string{"made", "never"} {
		dir := filepath.Join(mnt, name)
		st := lstat(t, dir)
		if st.Mode != unix.S_IFDIR|0o700 || st.Nlink != 2 || st.Uid != 77 || st.Mtim.Sec != 1e9 {
			t.Errorf("%s: mode %o, %d links, owner %d, mtime %d", name, st.Mode, st.Nlink, st.Uid, st.Mtim.Sec)
		}
		_, err := os.Stat(filepath.Join(dir, "x"))
		wantErr(t, "stat below "+name, err, unix.ENOENT)
		wantErr(t, "unlink below "+name, os.Remove(filepath.Join(dir, "x")), unix.ENOENT)
		mustDo(t, "fsync", unix.Fsync(openAt(t, dir, unix.O_RDONLY|unix.O_DIRECTORY)))
	}
	entries, err := os.ReadDir(filepath.Join(mnt, "never"))
	if err != nil || len(entries) != 1 || entries[0].Name() != "link" {
		t.Errorf("listing of what is not there: %v, %v", entries, err)
	}
	wantErr(t, "mkdir below never", os.Mkdir(filepath.Join(mnt, "never", "x"), 0o700), unix.ENOENT)
	if _, err := os.Lstat(filepath.Join(base, "made")); !os.IsNotExist(err) {
		t.Errorf("looking made the directory: %v", err)
	}
	put(t, filepath.Join(mnt, "made", "f"), "first")
	wantText(t, filepath.Join(base, "made", "f"), "first")
	mustDo(t, "rm", os.RemoveAll(filepath.Join(base, "made")))
	if entries, err := os.ReadDir(filepath.Join(mnt, "made")); len(entries) != 0 || err != nil {
		t.Errorf("after its removal: %v, %v", entries, err)
	}
}

// TestPassHidden has names at the top level that are not the disk's.
func TestPassHidden(t *testing.T) {
	for _, v := range passVariants {
		t.Run(v.name, func(t *testing.T) {
			base, tree := disk(t)
			for _, name := range []string{"attachments", "secret", "sub"} {
				mustDo(t, "mkdir", os.MkdirAll(filepath.Join(tree, name, "secret"), 0o755))
			}
			mnt := mountPass(t, time.Minute, passMount{RefuseOpendir: v.refuseOpendir, Trees: map[string]passTree{
				"w": {Base: base, Rel: "tree", Block: []string{"secret"}, Links: map[string]string{"attachments": "../attachments"}},
			}})
			w := filepath.Join(mnt, "w")
			names, _ := readNames(t, openAt(t, w, unix.O_RDONLY|unix.O_DIRECTORY))
			slices.Sort(names)
			if got := strings.Join(names, " "); got != ". .. attachments sub" {
				t.Errorf("listing: %s", got)
			}
			link, secret := filepath.Join(w, "attachments"), filepath.Join(w, "secret")
			if text, err := os.Readlink(link); text != "../attachments" || err != nil {
				t.Errorf("readlink: %q, %v", text, err)
			}
			if st := lstat(t, link); st.Size != 14 || st.Mode != unix.S_IFLNK|0o777 || st.Nlink != 1 {
				t.Errorf("link: size %d, mode %o, %d links", st.Size, st.Mode, st.Nlink)
			}
			_, err := os.Lstat(secret)
			wantErr(t, "stat of a hidden name", err, unix.ENOENT)
			wantErr(t, "rmdir of a hidden name", unix.Rmdir(secret), unix.ENOENT)
			wantErr(t, "mkdir of a hidden name", os.Mkdir(secret, 0o700), unix.EPERM)
			wantErr(t, "rename to a hidden name", os.Rename(filepath.Join(w, "sub"), secret), unix.EPERM)
			wantErr(t, "unlink of the link", os.Remove(link), unix.EPERM)
			wantErr(t, "rename of the link", os.Rename(link, filepath.Join(w, "x")), unix.EPERM)
			put(t, filepath.Join(w, "file"), "x")
			wantErr(t, "rename over the link", unix.Rename(filepath.Join(w, "file"), link), unix.EPERM)
			if _, err := os.Lstat(filepath.Join(w, "sub", "secret")); err != nil {
				t.Errorf("the name one level down: %v", err)
			}
		})
	}
}

// TestPassGroup renames and links between trees of one group, and cannot
// between others or out of a tree.
func TestPassGroup(t *testing.T) {
	base := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		mustDo(t, "mkdir", os.Mkdir(filepath.Join(base, name), 0o755))
	}
	mnt := mountPass(t, time.Minute, passMount{Trees: map[string]passTree{
		"a": {Base: base, Rel: "a", Group: "g", Salt: 5},
		"b": {Base: base, Rel: "b", Group: "g", Salt: 5},
		"c": {Base: base, Rel: "c", Salt: 5},
	}})
	at := func(name string) string { return filepath.Join(mnt, name) }
	mustDo(t, "mkdir", os.MkdirAll(at("a/d/e"), 0o755))
	put(t, at("a/d/e/f"), "moved")
	fd := openAt(t, at("a/d/e"), unix.O_PATH|unix.O_DIRECTORY)
	mustDo(t, "rename", os.Rename(at("a/d"), at("b/d")))
	wantText(t, at("b/d/e/f"), "moved")
	f, err := unix.Openat(fd, "g", unix.O_CREAT|unix.O_WRONLY, 0o600)
	mustDo(t, "create in the moved directory", err)
	unix.Close(f)
	wantText(t, filepath.Join(base, "b/d/e/g"), "")
	mustDo(t, "link", os.Link(at("b/d/e/f"), at("a/f")))
	if x, y := lstat(t, at("a/f")), lstat(t, at("b/d/e/f")); x.Ino != y.Ino || x.Nlink != 2 {
		t.Errorf("link between trees: %d, %d, %d links", x.Ino, y.Ino, x.Nlink)
	}
	wantErr(t, "rename to another group", unix.Rename(at("a/f"), at("c/f")), unix.EXDEV)
	wantErr(t, "link to another group", unix.Link(at("a/f"), at("c/f")), unix.EXDEV)
	if err := unix.Rename(at("a/f"), at("f")); err == nil {
		t.Error("renamed to a directory of another kind")
	}
	if err := unix.Rename(at("a"), at("b/a")); err == nil {
		t.Error("renamed a root")
	}
	wantText(t, at("a/f"), "moved")
}

// TestPassOnChange counts how often a change is told.
func TestPassOnChange(t *testing.T) {
	for _, v := range passVariants {
		t.Run(v.name, func(t *testing.T) {
			base, tree := disk(t)
			put(t, filepath.Join(tree, "f"), "x")
			count := filepath.Join(base, "count")
			mnt := mountPass(t, time.Minute, passMount{RefuseOpendir: v.refuseOpendir, Trees: map[string]passTree{
				"w": {Base: base, Rel: "tree", NoPassthrough: v.noPassthrough, Changes: count},
			}})
			f, n := filepath.Join(mnt, "w", "f"), filepath.Join(mnt, "w", "n")
			told := func() int {
				data, _ := os.ReadFile(count)
				return len(data)
			}
			quiet := func(what string, fn func()) {
				t.Helper()
				before := told()
				fn()
				if told() != before {
					t.Errorf("%s was told as a change", what)
				}
			}
			change := func(what string, fn func() error) {
				t.Helper()
				before := told()
				mustDo(t, what, fn())
				if told() == before {
					t.Errorf("%s was not told", what)
				}
			}
			quiet("reading", func() { wantText(t, f, "x"); os.ReadDir(filepath.Dir(f)) })
			quiet("an open for writing without a write", func() {
				fd, _ := unix.Open(f, unix.O_RDWR, 0)
				unix.Close(fd)
			})
			change("write", func() error { return os.WriteFile(f, []byte("y"), 0o600) })
			change("create", func() error { return os.WriteFile(n, nil, 0o600) })
			change("chmod", func() error { return os.Chmod(n, 0o640) })
			change("truncate", func() error { return os.Truncate(f, 0) })
			change("unlink", func() error { return os.Remove(n) })
			change("mkdir", func() error { return os.Mkdir(n, 0o700) })
			change("rename", func() error { return os.Rename(n, n+"2") })
			change("rmdir", func() error { return os.Remove(n + "2") })
			change("symlink", func() error { return os.Symlink("x", n) })
			change("link", func() error { return os.Link(f, n+"3") })
			change("mkfifo", func() error { return unix.Mkfifo(n+"4", 0o600) })
			change("overwriting with the same size", func() error {
				fd, err := unix.Open(f, unix.O_RDWR, 0)
				if err == nil {
					_, err = unix.Pwrite(fd, []byte("z"), 0)
					unix.Close(fd)
				}
				return err
			})
			before := told()
			fd := openAt(t, f, unix.O_WRONLY)
			for range 50 {
				unix.Write(fd, []byte("w"))
			}
			t.Logf("50 writes were told %d times", told()-before)
		})
	}
}

// TestPassStatfs gives the figures of the disk.
func TestPassStatfs(t *testing.T) {
	base, tree := disk(t)
	mnt := mountPass(t, time.Minute, passMount{Trees: map[string]passTree{"w": {Base: base, Rel: "tree"}}})
	var got, want unix.Statfs_t
	mustDo(t, "statfs", unix.Statfs(filepath.Join(mnt, "w"), &got))
	mustDo(t, "statfs", unix.Statfs(tree, &want))
	if got.Blocks != want.Blocks || got.Bsize != want.Bsize || got.Namelen != want.Namelen || got.Files != want.Files {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestPassTools has real tools work in a tree, and compares with the disk.
func TestPassTools(t *testing.T) {
	base, tree := disk(t)
	mnt := mountPass(t, time.Minute, passMount{Trees: map[string]passTree{"w": {Base: base, Rel: "tree"}}})
	script := `set -e
mkdir -p src/a/b && cd src
i=0; while [ $i -lt 30 ]; do echo "file $i" > a/f$i; i=$((i+1)); done
cp -a a/f1 a/b/copy; ln a/f2 a/b/hard; ln -s ../f3 a/b/soft
sed -i 's/file/line/' a/f4; mv a/f5 a/b/moved; tar cf ../t.tar . ; cd ..
mkdir out; tar xf t.tar -C out; diff -r src out; rm -r src
find out -type f | wc -l; du -s out > /dev/null; cat out/a/b/soft out/a/f4`
	outputs := map[string]string{}
	plain := filepath.Join(base, "plain")
	mustDo(t, "mkdir", os.Mkdir(plain, 0o755))
	for _, dir := range []string{plain, filepath.Join(mnt, "w")} {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Dir = "/"
		cmd.Args[2] = fmt.Sprintf("cd %q\n%s", dir, script)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", dir, err, out)
		}
		outputs[dir] = string(out)
	}
	if a, b := outputs[plain], outputs[filepath.Join(mnt, "w")]; a != b {
		t.Errorf("on the disk: %q, in the mount: %q", a, b)
	}
	diff := exec.Command("diff", "-r", filepath.Join(plain, "out"), filepath.Join(tree, "out"))
	if out, err := diff.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) != 0 {
		t.Errorf("the trees differ: %v\n%s", err, out)
	}
}
