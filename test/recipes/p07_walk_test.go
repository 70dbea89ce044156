package recipes

import (
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestP07Walk: backup and search tools met wrong sizes, no links, loops and
// times of now; here find, ls, grep, tar, rsync and cp go over a session
// without a word, and what they make is what is there.
func TestP07Walk(t *testing.T) {
	need(t, "rsync", "tar", "find", "grep")
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
			`rsync -a ./ "$1/r/" && rsync -aic ./ "$1/r/"`,
			`find -L . -maxdepth 12 2>&1 > /dev/null | grep -v -e 'File system loop' -e ./attachments/ -e ./workdir/`,
			`find . -type f -printf '%b %s %p\n' | awk '$1 > int(($2+4095)/512)+8 || ($2 > 0 && $1 == 0)'`,
			`find . -printf '%T@ %p\n' > "$1/t"; sleep 1; find . -printf '%T@ %p\n' | cmp - "$1/t"`,
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
