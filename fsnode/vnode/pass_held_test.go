package vnode

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eachVariant mounts a tree in all ways.
func eachVariant(t *testing.T, fn func(t *testing.T, base, tree, mnt string)) {
	for _, v := range passVariants {
		t.Run(v.name, func(t *testing.T) {
			base, tree := disk(t)
			mnt := mountPass(t, time.Minute, passMount{RefuseOpendir: v.refuseOpendir, Trees: map[string]passTree{
				"w": {Base: base, Rel: "tree", NoPassthrough: v.noPassthrough},
			}})
			fn(t, base, tree, filepath.Join(mnt, "w"))
		})
	}
}

// TestPassReplacedDirectory: a directory that another process replaces all the
// time is there or not, and hardly ever stale: so many directories come that one
// may be held no longer.
func TestPassReplacedDirectory(t *testing.T) {
	eachVariant(t, func(t *testing.T, _, tree, w string) {
		d, fresh, old := filepath.Join(tree, "d"), filepath.Join(tree, "new"), filepath.Join(tree, "old")
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := os.MkdirAll(filepath.Join(fresh, "sub"), 0o700)
				if err == nil {
					err = os.WriteFile(filepath.Join(fresh, "f"), nil, 0o600)
				}
				if _, there := os.Lstat(d); err == nil && there == nil {
					err = os.Rename(d, old)
				}
				if err == nil {
					err = os.Rename(fresh, d)
				}
				if err == nil {
					err = os.RemoveAll(old)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
		defer wg.Wait()
		defer close(stop)
		var st unix.Stat_t
		uses := map[string]func() error{
			"list":         func() error { _, err := os.ReadDir(filepath.Join(w, "d")); return err },
			"lstat":        func() error { return unix.Lstat(filepath.Join(w, "d"), &st) },
			"lstat a file": func() error { return unix.Lstat(filepath.Join(w, "d", "f"), &st) },
			"list deeper":  func() error { _, err := os.ReadDir(filepath.Join(w, "d", "sub")); return err },
		}
		all, stale := 0, 0
		for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
			for what, use := range uses {
				err := use()
				all++
				switch {
				case errors.Is(err, unix.ESTALE):
					stale++
				case err != nil && !errors.Is(err, unix.ENOENT):
					t.Fatalf("%s: %v", what, err)
				}
			}
		}
		if stale > all/50 {
			t.Errorf("stale %d times of %d", stale, all)
		}
	})
}

// lately runs fn, which uses a directory, until it took so little time that the
// directory was held all the while.
func lately(t *testing.T, what string, want error, fn func() error) {
	t.Helper()
	for range 5 {
		began := time.Now()
		err := fn()
		if errors.Is(err, want) || err == nil && want == nil {
			return
		}
		if time.Since(began) < passHeldRest/2 {
			t.Errorf("%s: %v, want %v", what, err, want)
			return
		}
	}
	t.Skip("the machine is too slow")
}

// TestPassMovedDirectory: a directory that is in use and that another process
// moves with the one above it is used where it is now.
func TestPassMovedDirectory(t *testing.T) {
	eachVariant(t, func(t *testing.T, base, tree, w string) {
		mustDo(t, "mkdir", os.MkdirAll(filepath.Join(tree, "p", "q", "sub"), 0o755))
		put(t, filepath.Join(tree, "p", "q", "x"), "x")
		var st unix.Stat_t
		move := func(use func(fd int) error) func() error {
			return func() error {
				from, to := filepath.Join(tree, "p"), filepath.Join(tree, "p2")
				fd := openAt(t, filepath.Join(w, "p", "q"), unix.O_RDONLY|unix.O_DIRECTORY)
				mustDo(t, "rename", os.Rename(from, to))
				defer func() { mustDo(t, "rename back", os.Rename(to, from)) }()
				return use(fd)
			}
		}
		lately(t, "fstat", nil, move(func(fd int) error { return unix.Fstat(fd, &st) }))
		lately(t, "stat of a file", nil, move(func(fd int) error { return unix.Fstatat(fd, "x", &st, 0) }))
		lately(t, "listing", nil, move(func(fd int) error {
			names, _ := readNames(t, fd)
			slices.Sort(names)
			if !slices.Equal(names, []string{".", "..", "sub", "x"}) {
				t.Errorf("it lists %q", names)
			}
			return nil
		}))
		lately(t, "reading", nil, move(func(fd int) error {
			f, err := unix.Openat(fd, "x", unix.O_RDONLY, 0)
			if err == nil {
				unix.Close(f)
			}
			return err
		}))
		lately(t, "mkdir", nil, move(func(fd int) error { return unix.Mkdirat(fd, "sub/made", 0o700) }))
		lstat(t, filepath.Join(tree, "p", "q", "sub", "made"))

		// Out of the tree nothing is reached.
		out := filepath.Join(base, "out")
		fd := openAt(t, filepath.Join(w, "p", "q"), unix.O_RDONLY|unix.O_DIRECTORY)
		mustDo(t, "rename", os.Rename(filepath.Join(tree, "p"), out))
		wantErr(t, "mkdir out of the tree", unix.Mkdirat(fd, "escaped", 0o700), unix.ESTALE)
		wantErr(t, "stat out of the tree", unix.Fstatat(fd, "sub", &st, 0), unix.ESTALE)
		if _, err := os.Lstat(filepath.Join(out, "q", "escaped")); err == nil {
			t.Error("something was made out of the tree")
		}
		// Nor through a link to where it went.
		mustDo(t, "symlink", os.Symlink("../out", filepath.Join(tree, "p")))
		wantErr(t, "mkdir through a link", unix.Mkdirat(fd, "escaped", 0o700), unix.ESTALE)
	})
}

// TestPassRemovedDirectory: a directory that is in use and that another process
// removes is empty.
func TestPassRemovedDirectory(t *testing.T) {
	eachVariant(t, func(t *testing.T, _, tree, w string) {
		remove := func(use func(fd int) error) func() error {
			return func() error {
				mustDo(t, "mkdir", os.MkdirAll(filepath.Join(tree, "p", "q"), 0o755))
				fd := openAt(t, filepath.Join(w, "p", "q"), unix.O_RDONLY|unix.O_DIRECTORY)
				mustDo(t, "rm -r", os.RemoveAll(filepath.Join(tree, "p")))
				return use(fd)
			}
		}
		var st unix.Stat_t
		lately(t, "fstat", nil, remove(func(fd int) error { return unix.Fstat(fd, &st) }))
		lately(t, "listing", nil, remove(func(fd int) error {
			names, _ := readNames(t, fd)
			if len(slices.DeleteFunc(names, func(n string) bool { return n == "." || n == ".." })) > 0 {
				t.Errorf("it lists %q", names)
			}
			return nil
		}))
		lately(t, "mkdir", unix.ENOENT, remove(func(fd int) error { return unix.Mkdirat(fd, "sub", 0o700) }))
		lately(t, "lookup", unix.ENOENT, remove(func(fd int) error { return unix.Fstatat(fd, "x", &st, 0) }))
	})
}
