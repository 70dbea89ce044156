package gitrepo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// objectDirNames are the directories of loose objects that there are.
func objectDirNames(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, ".git/objects/[0-9a-f][0-9a-f]"))
	must(t, err)
	names := make([]string, len(found))
	for i, f := range found {
		names[i] = filepath.Base(f)
	}
	return names
}

func TestCompactRemovesEmptyDirectories(t *testing.T) {
	needGit(t)
	r, dir := newSession(t, testOptions(t))
	for i := range 20 {
		write(t, dir, "history/a", fmt.Sprint(i))
		commitAll(t, r, "x")
	}
	objects := filepath.Join(dir, ".git/objects")
	var free []string // names that no object's hash begins with yet
	for i := range 256 {
		if name := fmt.Sprintf("%02x", i); !slices.Contains(objectDirNames(t, dir), name) {
			free = append(free, filepath.Join(objects, name))
		}
	}
	if len(free) < 3 {
		t.Fatalf("only %d names free", len(free))
	}
	old, fresh, foreign := free[0], free[1], free[2]
	long := time.Now().Add(-time.Hour)
	must(t, os.Mkdir(old, 0o755), os.Chtimes(old, long, long), os.Mkdir(fresh, 0o755),
		os.Mkdir(foreign, 0o755), os.WriteFile(filepath.Join(foreign, "tmp_obj_x"), nil, 0o644))
	if _, err := r.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Base(fresh), filepath.Base(foreign)}
	if got := objectDirNames(t, dir); !slices.Equal(got, want) {
		t.Errorf("left: %v, want %v", got, want)
	}
	// With nothing to pack, what an earlier version left goes too.
	must(t, os.Chtimes(fresh, long, long))
	if n, err := r.Compact(context.Background()); n != 0 || err != nil {
		t.Errorf("Compact = %d, %v", n, err)
	}
	if got := objectDirNames(t, dir); !slices.Equal(got, want[1:]) {
		t.Errorf("left: %v, want %v", got, want[1:])
	}
	must(t, os.RemoveAll(foreign))
	write(t, dir, "history/a", "again")
	if _, changed := commitAll(t, r, "x"); !changed {
		t.Error("nothing to commit")
	}
	checkSound(t, dir)
}

// TestDirectoriesVanishBeside packs over and over, so that object directories
// come and go, while git and this program write objects. None may fail: git
// makes a directory that it finds missing, once.
func TestDirectoriesVanishBeside(t *testing.T) {
	needGit(t)
	opt := testOptions(t)
	opt.Sync = SyncOff
	opt.LockTimeout = time.Minute
	r, dir := newSession(t, opt)
	stop := make(chan struct{})
	var packing, writing sync.WaitGroup
	for range 2 {
		packing.Go(func() {
			own, err := Open(dir, opt)
			if err != nil {
				t.Error(err)
				return
			}
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := own.Compact(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var blobs [2][]string
	for i := range blobs {
		writing.Go(func() {
			for j := range 40 {
				cmd := exec.Command("git", "hash-object", "-w", "--stdin")
				cmd.Dir, cmd.Stdin = dir, strings.NewReader(fmt.Sprint(i, j))
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("git hash-object: %v\n%s", err, out)
				}
				blobs[i] = append(blobs[i], string(bytes.TrimSpace(out)))
			}
		})
	}
	writing.Go(func() {
		for i := range 150 {
			write(t, dir, "history/a", fmt.Sprint("ours", i))
			if _, changed, err := r.CommitAll(context.Background(), "x"); err != nil || !changed {
				t.Errorf("commit %d: %v, %v", i, changed, err)
			}
		}
	})
	writing.Wait()
	close(stop)
	packing.Wait()
	for _, hash := range slices.Concat(blobs[0], blobs[1]) {
		if got := git(t, dir, "cat-file", "-t", hash); got != "blob" {
			t.Errorf("object %s: %s", hash, got)
		}
	}
	if got := git(t, dir, "rev-list", "--count", "HEAD"); got != "151" {
		t.Errorf("%s commits", got)
	}
	checkSound(t, dir)
}

// TestPackWithoutIndex is what a writer leaves that is killed while it puts a
// pack in place: for git it does not exist.
func TestPackWithoutIndex(t *testing.T) {
	needGit(t)
	r, dir := newSession(t, testOptions(t))
	write(t, dir, "history/a", "a")
	commitAll(t, r, "x")
	if _, err := r.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	orphan := filepath.Join(dir, ".git/objects/pack/pack-"+strings.Repeat("a1", 20)+".pack")
	must(t, os.WriteFile(orphan, []byte("PACK"), 0o444))
	fresh, err := Open(dir, testOptions(t))
	must(t, err)
	if log, err := fresh.Log(context.Background(), 0); err != nil || len(log) != 2 {
		t.Errorf("%d commits, %v", len(log), err)
	}
	if ok, err := fresh.HeadHasPath(context.Background(), "history/a"); !ok || err != nil {
		t.Errorf("HeadHasPath: %v, %v", ok, err)
	}
}
