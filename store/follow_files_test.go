package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// filesTold is an observer that counts the changes of real files, by session.
type filesTold chan string

func (filesTold) Swapped(Change) {}
func (f filesTold) Published(_ context.Context, c Change) {
	if c.Files {
		f <- c.ID
	}
}

// openFollowed opens a store with bare sessions s0, s1, … that are pinned.
func openFollowed(t *testing.T, sessions int) (s *Store, dirs []string, told filesTold, release func()) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for n := range sessions {
		id := fmt.Sprintf("s%d", n)
		dirs = append(dirs, filepath.Join(root, id))
		must(t, os.MkdirAll(filepath.Join(root, id, "history"), 0o700))
		must(t, os.MkdirAll(filepath.Join(root, id, ".git"), 0o700))
		must(t, os.WriteFile(filepath.Join(root, id, "meta.json"), fmt.Appendf(nil, `{"id": %q, "title": "x", "updated_at": 5.0}`, id), 0o600))
	}
	s, err = Open(t.Context(), Options{Root: root, State: t.TempDir(), ReadOnly: true, Watch: true})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	told = make(filesTold, 1000)
	t.Cleanup(s.Subscribe(told))
	var all []func()
	for n := range sessions {
		_, watched, r, err := s.Pin(t.Context(), fmt.Sprintf("s%d", n))
		must(t, err)
		if !watched {
			t.Skip("no watch is left")
		}
		all = append(all, r)
	}
	return s, dirs, told, func() {
		for _, r := range all {
			r()
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wait waits until a session is told of, and then until nothing is.
func (f filesTold) wait(t *testing.T, what, id string) {
	t.Helper()
	for seen := false; ; {
		select {
		case got := <-f:
			seen = seen || got == id
		case <-time.After(map[bool]time.Duration{false: 10 * time.Second, true: 30 * time.Millisecond}[seen]):
			if !seen {
				t.Fatalf("%s is not told of", what)
			}
			return
		}
	}
}

// TestFollowFiles: the observers are told of directories of real files that come,
// change and are replaced, as long as their session is pinned.
func TestFollowFiles(t *testing.T) {
	s, dirs, told, release := openFollowed(t, 2)
	follow := func() {
		t.Helper()
		for _, rel := range []string{"workdir", "workdir/attachments", "context"} {
			if !s.FollowFiles("s0", dirs[0], rel) {
				t.Fatalf("%s is not followed", rel)
			}
		}
	}
	in := func(path string) string { return filepath.Join(dirs[0], filepath.FromSlash(path)) }
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"workdir/", func() error { return os.Mkdir(in("workdir"), 0o700) }},
		{"a name in it", func() error { return os.WriteFile(in("workdir/x"), nil, 0o600) }},
		{"attachments/", func() error { return os.Mkdir(in("workdir/attachments"), 0o700) }},
		{"a temporary file", func() error { return os.WriteFile(in("workdir/attachments/x.tmp"), nil, 0o600) }},
		{"its mode", func() error { return os.Chmod(in("workdir/attachments"), 0o750) }},
		{"its time", func() error { return os.Chtimes(in("workdir"), time.Unix(1, 0), time.Unix(1e9, 0)) }},
		{"workdir/ moved", func() error { return os.Rename(in("workdir"), in("away")) }},
		{"another workdir/", func() error { return os.MkdirAll(in("workdir/attachments"), 0o700) }},
		{"a name in its attachments/", func() error { return os.WriteFile(in("workdir/attachments/x"), nil, 0o600) }},
		{"context/", func() error { return os.Mkdir(in("context"), 0o700) }},
		{"a name in that", func() error { return os.Mkdir(in("context/commits"), 0o700) }},
		{"its removal", func() error { return os.RemoveAll(in("context")) }},
		{"the session replaced", func() error {
			must(t, os.Rename(dirs[0], dirs[0]+".away"))
			return os.CopyFS(dirs[0], os.DirFS(dirs[0]+".away"))
		}},
	} {
		follow()
		must(t, step.do())
		told.wait(t, step.what, "s0")
	}
	if s.FollowFiles("other", dirs[0], "workdir") {
		t.Error("followed for a session that is not pinned")
	}
	must(t, os.RemoveAll(filepath.Join(dirs[1], "workdir")))
	must(t, os.Symlink(dirs[0], filepath.Join(dirs[1], "workdir")))
	if s.FollowFiles("s1", dirs[1], "workdir") || s.FollowFiles("s1", dirs[1], "workdir/attachments") {
		t.Error("a link is followed")
	}
	release()
	if s.FollowFiles("s0", dirs[0], "workdir") {
		t.Error("followed for a session that is pinned no more")
	}
	if s.watch.real.watched != 0 {
		t.Errorf("%d directories are still watched", s.watch.real.watched)
	}
}

// TestFollowFilesLimit: these directories take no more watches than they may,
// and what is given back can be had again.
func TestFollowFilesLimit(t *testing.T) {
	s, dirs, told, release := openFollowed(t, 2)
	defer release()
	for _, d := range dirs {
		must(t, os.MkdirAll(filepath.Join(d, "context"), 0o700))
	}
	s.watch.mu.Lock()
	s.watch.real.max = 1
	s.watch.mu.Unlock()
	followed := func() [2]bool {
		return [2]bool{s.FollowFiles("s0", dirs[0], "context"), s.FollowFiles("s1", dirs[1], "context")}
	}
	if got := followed(); got != [2]bool{true, false} {
		t.Errorf("with one watch %v are followed", got)
	}
	told.drain()
	must(t, os.Rename(filepath.Join(dirs[0], "context"), filepath.Join(dirs[0], "away")))
	told.wait(t, "context/ moved", "s0")
	if got := followed(); got != [2]bool{true, true} {
		t.Errorf("when it is not needed any more %v are followed", got)
	}
}

func (f filesTold) drain() {
	for {
		select {
		case <-f:
		case <-time.After(50 * time.Millisecond):
			return
		}
	}
}
