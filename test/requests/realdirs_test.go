package requests

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
)

// unfollowed is a store in which nobody tells of real files, as where there are
// not watches enough.
type unfollowed struct{ *store.Store }

// FollowFiles is fsnode.Store's.
func (unfollowed) FollowFiles(string, string, string) bool { return false }

// TestRealFilesWithoutWatches: where the directories of real files are not
// followed, the kernel asks for them at each use, and what another process does
// there shows in the very next system call.
func TestRealFilesWithoutWatches(t *testing.T) {
	root := build(t)
	m := mountOrder(t, order{Store: root, Unfollowed: true})
	for i, id := range []string{"s00", "s01"} { // without such directories, and with them
		dir, disk := filepath.Join(m.dir, "sessions", id), filepath.Join(root, id)
		warm := []string{"find", dir, "-printf", "%p %s %t"}
		for range 3 {
			run(t, warm...)
		}
		if n := m.count(func() { run(t, warm...) })["GETATTR"]; n < 6 {
			t.Errorf("%s: a walk asks for attributes %d times", id, n)
		}
		lists := func(what, name, entry string, want bool) {
			t.Helper()
			list, err := os.ReadDir(filepath.Join(dir, name))
			found := false
			for _, e := range list {
				found = found || e.Name() == entry
			}
			if err != nil || found != want {
				t.Errorf("%s: after %s, %s lists %v, %v", id, what, name, list, err)
			}
			of := map[string]string{"attachments": "workdir/attachments"}[name]
			if of == "" {
				of = name
			}
			there, err := os.Lstat(filepath.Join(disk, filepath.FromSlash(of)))
			if err != nil {
				return
			}
			if here, err := os.Lstat(filepath.Join(dir, name)); err != nil || !here.ModTime().Equal(there.ModTime()) || here.Mode() != there.Mode() {
				t.Errorf("%s: after %s, %s is %v, %v, want %v", id, what, name, here, err, there)
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		for round := range 3 {
			name := fmt.Sprintf("file %d", round)
			must(os.MkdirAll(filepath.Join(disk, "workdir", "attachments"), 0o750))
			must(os.WriteFile(filepath.Join(disk, "workdir", "attachments", name), nil, 0o600))
			lists("a file more", "attachments", name, true)
			must(os.WriteFile(filepath.Join(disk, "workdir", name), nil, 0o600))
			lists("a file in workdir", "workdir", name, true)
			must(os.Chmod(filepath.Join(disk, "workdir", "attachments"), 0o700))
			lists("another mode", "attachments", name, true)
			must(os.RemoveAll(filepath.Join(disk, "workdir", "attachments")))
			lists("its removal", "attachments", name, false)
			must(os.MkdirAll(filepath.Join(disk, "context"), 0o700))
			must(os.WriteFile(filepath.Join(disk, "context", name), nil, 0o600))
			lists("a file in context", "context", name, true)
			must(os.Chtimes(filepath.Join(disk, "context"), time.Now(), time.Unix(int64(1e9+round+i), 0)))
			lists("another time", "context", name, true)
		}
	}
}
