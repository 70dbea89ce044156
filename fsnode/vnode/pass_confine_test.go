package vnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The layout of the confinement tests. The text "../../outside" in a symlink
// leads from store/session/tree/x to the victim for whoever resolves it on the
// disk, and nowhere for a process that resolves it in the mount: what reaches
// the victim is the daemon's doing.
//
//	<base>/store/outside/secret      the victim
//	<base>/store/session/tree/       the tree
//	<base>/…/mnt/w/                  the mount
type prison struct {
	base, victim, tree string
}

func newPrison(t *testing.T) prison {
	t.Helper()
	base := t.TempDir()
	p := prison{base, filepath.Join(base, "store", "outside"), filepath.Join(base, "store", "session", "tree")}
	mustDo(t, "mkdir", os.MkdirAll(p.victim, 0o755))
	mustDo(t, "mkdir", os.MkdirAll(p.tree, 0o755))
	put(t, filepath.Join(p.victim, "secret"), "victim")
	return p
}

func (p prison) mount(t *testing.T) string {
	t.Helper()
	mnt := mountPass(t, time.Minute, passMount{Trees: map[string]passTree{"w": {Base: filepath.Join(p.base, "store"), Rel: "session/tree"}}})
	return filepath.Join(mnt, "w")
}

// untouched sees that the victim is as it was.
func (p prison) untouched(t *testing.T) {
	t.Helper()
	wantText(t, filepath.Join(p.victim, "secret"), "victim")
	if st := lstat(t, filepath.Join(p.victim, "secret")); st.Mode != unix.S_IFREG|0o644 || st.Nlink != 1 {
		t.Errorf("the victim has mode %o, %d links", st.Mode, st.Nlink)
	}
	entries, err := os.ReadDir(p.victim)
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the victim: %v, %v", entries, err)
	}
}

// attack does everything below a directory of the mount that could touch the
// victim, and says whether it read it.
func attack(dir string) (leaked bool) {
	secret := filepath.Join(dir, "secret")
	data, _ := os.ReadFile(secret)
	leaked = string(data) == "victim"
	if f, err := os.OpenFile(secret, os.O_WRONLY|os.O_TRUNC, 0); err == nil {
		f.Write([]byte("attack"))
		f.Close()
	}
	os.WriteFile(filepath.Join(dir, "new"), []byte("attack"), 0o600)
	os.Mkdir(filepath.Join(dir, "dir"), 0o700)
	os.Symlink("x", filepath.Join(dir, "link"))
	os.Link(secret, filepath.Join(dir, "hard"))
	os.Rename(secret, filepath.Join(dir, "renamed"))
	os.Rename(filepath.Join(dir, "renamed"), secret)
	os.Chmod(secret, 0o777)
	os.Truncate(secret, 3)
	os.Chtimes(secret, time.Now(), time.Now())
	os.ReadDir(dir)
	for _, name := range []string{"new", "dir", "link", "hard"} {
		os.Remove(filepath.Join(dir, name))
	}
	return leaked
}

// TestPassSwappedParent exchanges a directory of the tree, on the disk, with a
// symlink that leads out, over and over, while the mount is used below it. An
// absolute symlink leads this process out as well, so then the directory is
// used through a descriptor only, for which nobody but the daemon walks a path.
func TestPassSwappedParent(t *testing.T) {
	for _, absolute := range []bool{false, true} {
		t.Run(map[bool]string{false: "relative", true: "absolute"}[absolute], func(t *testing.T) {
			p := newPrison(t)
			dir, link := filepath.Join(p.tree, "a"), filepath.Join(p.tree, "b")
			mustDo(t, "mkdir", os.MkdirAll(filepath.Join(dir, "deep"), 0o755))
			put(t, filepath.Join(dir, "secret"), "own")
			text := "../../outside"
			if absolute {
				text = p.victim
			}
			mustDo(t, "symlink", os.Symlink(text, link))
			w := p.mount(t)
			fd := openAt(t, filepath.Join(w, "a"), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
			stop := swapping(t, dir, link)
			defer stop()
			rounds := 0
			for deadline := time.Now().Add(1500 * time.Millisecond); time.Now().Before(deadline); rounds++ {
				if !absolute && attack(filepath.Join(w, "a")) {
					t.Fatal("read the victim by path")
				}
				if attack(fmt.Sprintf("/proc/self/fd/%d", fd)) {
					t.Fatal("read the victim by descriptor")
				}
			}
			stop()
			t.Logf("%d rounds", rounds)
			p.untouched(t)
		})
	}
}

// swapping exchanges two names on the disk until stop is called.
func swapping(t *testing.T, a, b string) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			err := unix.Renameat2(-1, a, -1, b, unix.RENAME_EXCHANGE)
			if err != nil && err != unix.ENOENT { // attack renames, too
				t.Error(err)
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		wg.Wait()
	})
}

// TestPassSwappedFile exchanges a file with a symlink to the victim.
func TestPassSwappedFile(t *testing.T) {
	p := newPrison(t)
	file, link := filepath.Join(p.tree, "secret"), filepath.Join(p.tree, "b")
	put(t, file, "own")
	mustDo(t, "symlink", os.Symlink("../../outside/secret", link))
	w := p.mount(t)
	stop := swapping(t, file, link)
	defer stop()
	for deadline := time.Now().Add(1500 * time.Millisecond); time.Now().Before(deadline); {
		if attack(w) {
			t.Fatal("read the victim")
		}
	}
	stop()
	p.untouched(t)
}

// TestPassStandingLinks has symlinks that lead out and stay.
func TestPassStandingLinks(t *testing.T) {
	p := newPrison(t)
	texts := map[string]string{"up": "../../outside", "abs": p.victim, "self": "self", "file": "../../outside/secret"}
	for name, text := range texts {
		mustDo(t, "symlink", os.Symlink(text, filepath.Join(p.tree, name)))
	}
	w := p.mount(t)
	for name, text := range texts {
		if got, err := os.Readlink(filepath.Join(w, name)); got != text || err != nil {
			t.Errorf("readlink %s: %q, %v", name, got, err)
		}
		if st := lstat(t, filepath.Join(w, name)); st.Mode&unix.S_IFMT != unix.S_IFLNK {
			t.Errorf("%s has mode %o", name, st.Mode)
		}
	}
	if attack(filepath.Join(w, "up")) {
		t.Error("read the victim through up")
	}
	if _, err := os.ReadFile(filepath.Join(w, "file")); err == nil {
		t.Error("read the victim through file")
	}
	p.untouched(t)
}

// TestPassMovedRoot moves the root away, puts a symlink in its place, then
// another directory.
func TestPassMovedRoot(t *testing.T) {
	p := newPrison(t)
	put(t, filepath.Join(p.tree, "secret"), "own")
	mustDo(t, "mkdir", os.Mkdir(filepath.Join(p.tree, "sub"), 0o755))
	w := p.mount(t)
	fd := openAt(t, filepath.Join(w, "secret"), unix.O_RDWR)
	sub := openAt(t, filepath.Join(w, "sub"), unix.O_PATH|unix.O_DIRECTORY)
	mustDo(t, "rename", os.Rename(p.tree, p.tree+"-moved"))
	if entries, err := os.ReadDir(w); len(entries) != 0 || err != nil {
		t.Errorf("without a root: %v, %v", entries, err)
	}
	if _, err := unix.Pwrite(fd, []byte("OWN"), 0); err != nil {
		t.Errorf("an open file: %v", err)
	}
	wantText(t, filepath.Join(p.tree+"-moved", "secret"), "OWN")
	mustDo(t, "symlink", os.Symlink("../outside", p.tree))
	if attack(w) {
		t.Error("read the victim")
	}
	_, err := os.ReadDir(w)
	if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("listing a root that is a symlink: %v", err)
	}
	p.untouched(t)
	mustDo(t, "remove", os.Remove(p.tree))
	mustDo(t, "mkdir", os.MkdirAll(filepath.Join(p.tree, "sub"), 0o755))
	if _, err := unix.Openat(sub, "f", unix.O_CREAT|unix.O_WRONLY, 0o600); !errors.Is(err, unix.ESTALE) {
		t.Errorf("in a directory of the old root: %v, want ESTALE", err)
	}
	if entries, _ := os.ReadDir(filepath.Join(p.tree, "sub")); len(entries) != 0 {
		t.Errorf("a node of the old root reached the new one: %v", entries)
	}
	put(t, filepath.Join(w, "sub", "f"), "new root")
	wantText(t, filepath.Join(p.tree, "sub", "f"), "new root")
}

// TestOpenBeneath refuses every way out.
func TestOpenBeneath(t *testing.T) {
	p := newPrison(t)
	store := filepath.Join(p.base, "store")
	mustDo(t, "symlink", os.Symlink("../outside", filepath.Join(store, "session", "link")))
	mustDo(t, "symlink", os.Symlink("session", filepath.Join(store, "inner")))
	for rel, want := range map[string]error{
		"session/tree":    nil,
		"session":         nil,
		".":               nil,
		"session/link":    unix.ELOOP,
		"inner/tree":      unix.ELOOP,
		"../store":        unix.EXDEV,
		"session/../..":   unix.EXDEV,
		"/etc":            unix.EXDEV,
		"none":            unix.ENOENT,
		"outside/secret":  unix.ENOTDIR,
		"session/tree/..": nil,
	} {
		fd, err := OpenBeneath(store, store, rel)
		if err == nil {
			unix.Close(fd)
		}
		if rel == "session/link" && errors.Is(err, unix.ENOTDIR) {
			continue // some kernels look at O_DIRECTORY first
		}
		if !errors.Is(err, want) {
			t.Errorf("OpenBeneath(%q) = %v, want %v", rel, err, want)
		}
	}
}

// TestPassMountPoint does not enter another file system below the root.
func TestPassMountPoint(t *testing.T) {
	needRoot(t)
	p := newPrison(t)
	inner := filepath.Join(p.tree, "inner")
	mustDo(t, "mkdir", os.Mkdir(inner, 0o755))
	if err := unix.Mount(p.victim, inner, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("bind mount: %v", err)
	}
	defer unix.Unmount(inner, unix.MNT_DETACH)
	w := p.mount(t)
	if attack(filepath.Join(w, "inner")) {
		t.Error("read the victim")
	}
	_, err := os.Stat(filepath.Join(w, "inner"))
	wantErr(t, "stat of a mount point", err, unix.EXDEV)
	p.untouched(t)
}
