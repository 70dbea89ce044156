package gitrepo

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// lateLink is a disk on which a file gets the name of a lock and that is reported
// as failed, as a network file system does when the answer gets lost.
type lateLink struct{ disk.FS }

func (l lateLink) Link(oldName, newName string) error {
	if err := l.FS.Link(oldName, newName); err != nil {
		return err
	}
	return &os.LinkError{Op: "link", Old: oldName, New: newName, Err: syscall.EIO}
}

func (l lateLink) RenameNoReplace(oldName, newName string) error {
	if err := l.FS.RenameNoReplace(oldName, newName); err != nil || !strings.HasSuffix(newName, lockSuffix) {
		return err
	}
	return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: syscall.EIO}
}

// TestALinkThatWasMadeIsOurs: the lock that such a link makes is taken, and
// stands in nobody's way.
func TestALinkThatWasMadeIsOurs(t *testing.T) {
	dir := t.TempDir()
	opt := testOptions(t)
	opt.FS = lateLink{disk.OS}
	if err := Init(t.Context(), dir, opt); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, text := range []string{"one", "two"} {
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, changed, err := r.CommitAll(t.Context(), text); err != nil || !changed {
			t.Fatalf("commit %s: %t, %v", text, changed, err)
		}
	}
	for _, name := range []string{"index.lock", "HEAD.lock", "refs/heads/main.lock"} {
		if _, err := os.Lstat(filepath.Join(dir, ".git", name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	git(t, dir, "fsck", "--strict")
}
