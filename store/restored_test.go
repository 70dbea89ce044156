package store_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
)

// TestRestoredUnderBurntID: a deleted session that was put back, as a copy or by
// a rename, is set aside by the next writer and by Repair, and never removed.
func TestRestoredUnderBurntID(t *testing.T) {
	for name, back := range map[string][]string{"copied": {"cp", "-a"}, "moved": {"mv"}} {
		for _, repair := range []bool{false, true} {
			root := t.TempDir()
			s := openStore(t, store.Options{Root: root})
			newSession(t, s, "x", "one", "two")
			backup := filepath.Join(t.TempDir(), "x")
			run := func(args ...string) {
				t.Helper()
				if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %v %s", args, err, out)
				}
			}
			run("cp", "-a", filepath.Join(root, "x"), backup)
			want := filepath.Join(t.TempDir(), "x")
			run("cp", "-a", backup, want)
			time.Sleep(10 * time.Millisecond) // a tick of the file system
			if err := s.DeleteSession(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
			run(append(back, backup, filepath.Join(root, "x"))...)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if repair {
				out, err := store.Repair(t.Context(), store.Options{Root: root}, nil)
				if err != nil || len(out.Mended) != 1 || out.Mended[0].Kind != "restored_deleted" || out.Aside == "" {
					t.Errorf("%s: %+v, %v", name, out, err)
				}
			} else {
				s := openStore(t, store.Options{Root: root})
				_, err := s.Load(t.Context(), "x")
				wantCode(t, err, store.NotFound)
			}
			kept, _ := filepath.Glob(filepath.Join(root, ".repaired", "*", "x"))
			if len(kept) != 1 {
				t.Fatalf("%s, repair %v: kept %v", name, repair, kept)
			}
			run("diff", "-r", want, kept[0])
			if _, err := os.Lstat(filepath.Join(root, "x")); !os.IsNotExist(err) {
				t.Errorf("%s: still there (%v)", name, err)
			}
		}
	}
}
