package mounted

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestAttachments: a real directory: what is written is in the session's
// repository, what another process puts there is seen, and the usual
// operations of a file system work.
func TestAttachments(t *testing.T) {
	m := start(t, "attachments")
	const session = "local_files_1339cd17"
	dir, real := m.Session(session, "attachments"), m.Repo(session, "workdir", "attachments")
	if got, want := tree(t, dir), tree(t, real); len(difference(want, got)) > 0 {
		t.Errorf("attachments/ differs from the disk: %q", difference(want, got))
	}
	blob := make([]byte, 3<<20+17)
	for i := range blob {
		blob[i] = byte(rand.Uint32())
	}
	path := filepath.Join(dir, "new 图.bin")
	if err := os.WriteFile(path, blob, 0o640); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, filepath.Join(real, "new 图.bin")} {
		if got := []byte(read(t, p)); !bytes.Equal(got, blob) {
			t.Errorf("%s holds %d bytes, want %d", p, len(got), len(blob))
		}
	}
	r := harness.Shell(t, dir, `
set -e
mkdir -p sub/deeper; echo a > sub/deeper/a; mv sub/deeper/a sub/b; ln sub/b sub/hard; ln -s b sub/soft
[ "$(cat sub/soft)" = a ]; [ "$(readlink sub/soft)" = b ]; [ "$(stat -c %h sub/b)" = 2 ]
chmod 755 sub/b; [ -x sub/b ]; truncate -s 100 sub/b; [ "$(stat -c %s sub/hard)" = 100 ]
printf XX | dd of=sub/b bs=1 seek=4 conv=notrunc status=none; echo more >> sub/b; touch -d 2020-01-01 sub/b
[ "$(stat -c %Y sub/b)" = "$(date -d 2020-01-01 +%s)" ]
cp -a sub copy; diff -r --no-dereference sub copy; rm -r copy; rmdir sub/deeper; rm sub/soft
tar -cf - . | tar -tf - > /dev/null
`)
	if r.Code != 0 || r.Err != "" {
		t.Errorf("the usual operations: exit status %d, %s", r.Code, r.Err)
	}
	if err := os.WriteFile(filepath.Join(real, "from outside.txt"), []byte("outside\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dir, "from outside.txt"); got != "outside\n" {
		t.Errorf("a file from outside reads %q", got)
	}
	within(t, "a file from outside is listed", func() bool { return slices.Contains(names(t, dir), "from outside.txt") })
	if err := os.WriteFile(filepath.Join(real, "from outside.txt"), []byte("changed in place\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dir, "from outside.txt"); got != "changed in place\n" {
		t.Errorf("a file changed in place reads %q", got)
	}
	if got, want := tree(t, dir), tree(t, real); len(difference(want, got)) > 0 {
		t.Errorf("attachments/ differs from the disk: %q", difference(want, got))
	}
}

// TestAttachmentsConfined: the daemon follows no link and leaves the
// session's directory by no path and in no race.
func TestAttachmentsConfined(t *testing.T) {
	m := start(t, "attachments")
	const session = "local_tree_1d0e70d2"
	dir, real := m.Session(session, "attachments"), m.Repo(session, "workdir", "attachments")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A directory that another process swaps for a link to somewhere else.
	if err := os.MkdirAll(filepath.Join(real, "swap"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(real, "swap", "secret"), []byte("inside\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := read(t, secret)
	stop := make(chan struct{})
	swapped := make(chan struct{})
	go func() {
		defer close(swapped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(filepath.Join(real, "swap"), filepath.Join(real, "kept"))
			_ = os.Symlink(filepath.Dir(secret), filepath.Join(real, "swap"))
			_ = os.Remove(filepath.Join(real, "swap"))
			_ = os.Rename(filepath.Join(real, "kept"), filepath.Join(real, "swap"))
		}
	}()
	for range 300 {
		// O_NOFOLLOW alone does not help: the link is a directory on the way,
		// and the client's kernel resolves it outside the mount by itself.
		fd, err := syscall.Open(filepath.Join(dir, "swap"), syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		f, err := syscall.Openat(fd, "secret", syscall.O_RDWR, 0)
		if err == nil {
			b := make([]byte, 100)
			if n, _ := syscall.Read(f, b); string(b[:max(n, 0)]) == "a secret\n" {
				t.Error("read a file outside the session")
			}
			_ = syscall.Close(f)
		}
		if f, err := syscall.Openat(fd, "made", syscall.O_RDWR|syscall.O_CREAT, 0o600); err == nil {
			_ = syscall.Close(f)
		}
		_ = syscall.Close(fd)
	}
	close(stop)
	<-swapped
	if got := read(t, secret); got != before {
		t.Errorf("the secret is %q now", got)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(secret), "made")); err == nil {
		t.Error("a file was made outside the session")
	}
	// A link's text is served as it stands.
	if err := os.Symlink("../../../../../etc/passwd", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(filepath.Join(real, "out")); err != nil || to != "../../../../../etc/passwd" {
		t.Errorf("the link on disk is %q, %v", to, err)
	}
	// Nothing is renamed between the record and the attachments.
	err := os.Rename(m.Session(session, "head"), filepath.Join(dir, "head"))
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EXDEV) {
		t.Errorf("mv head attachments/: %v", err)
	}
	if names(t, m.Session(session, "messages")) == nil || strings.TrimSpace(read(t, m.Session(session, "head_id"))) == "" {
		t.Error("the session lost its head")
	}
}
