package store

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// placesTold is an observer that passes on where sessions are.
type placesTold chan string

func (placesTold) Swapped(Change) {}
func (p placesTold) Published(_ context.Context, c Change) {
	if c.New != nil {
		p <- c.New.Dir
	}
}

// TestSessionMovedAtRest: a session in use of which nothing is new since long is
// moved, by itself and with its project's directory. Who uses it is told where it
// is, and it is watched there and nowhere else.
func TestSessionMovedAtRest(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	const id = "s0"
	first := filepath.Join(root, "projects", "p", id)
	for _, d := range []string{"history", ".git", "workdir/attachments"} {
		must(t, os.MkdirAll(filepath.Join(first, d), 0o700))
	}
	must(t, os.WriteFile(filepath.Join(first, "meta.json"), []byte(`{"id": "s0", "title": "x", "updated_at": 5.0}`), 0o600))
	time.Sleep(2100 * time.Millisecond) // so that the file's times tell whether it changed
	s, err := Open(t.Context(), Options{Root: root, State: t.TempDir(), ReadOnly: true, Watch: true})
	must(t, err)
	defer s.Close()
	told := make(placesTold, 100)
	defer s.Subscribe(told)()
	_, watched, release, err := s.Pin(t.Context(), id)
	must(t, err)
	defer release()
	if !watched || !s.FollowFiles(id, first, "workdir/attachments") {
		t.Skip("no watch is left")
	}
	for _, move := range [][2]string{
		{"projects/p/s0", "s0"}, {"s0", "projects/p/s0"}, {"projects/p", "projects/q"}, {"projects/q", "projects/p"},
	} {
		to := filepath.Join(root, move[1])
		must(t, os.Rename(filepath.Join(root, move[0]), to))
		if filepath.Base(to) != id {
			to = filepath.Join(to, id)
		}
		for limit := time.After(10 * time.Second); ; {
			select {
			case dir := <-told:
				if dir != to {
					continue
				}
			case <-limit:
				t.Fatalf("nobody is told that %s is at %s", move[0], move[1])
			}
			break
		}
		if sn, err := s.Load(t.Context(), id); err != nil || sn.Dir != to {
			t.Fatalf("it is at %v, %v; want %s", sn, err, to)
		}
		if !s.FollowFiles(id, to, "workdir/attachments") {
			t.Errorf("%s: its real files are not followed", move[1])
		}
		watches := s.watch.fw.WatchList()
		for _, d := range []string{"", "history", ".git", "workdir", "workdir/attachments"} {
			if !slices.Contains(watches, filepath.Join(to, d)) {
				t.Errorf("%s/%s is not watched", move[1], d)
			}
		}
		s.watch.mu.Lock()
		for dir := range s.watch.dirs {
			watches = append(watches, dir)
		}
		s.watch.mu.Unlock()
		for _, w := range watches {
			if strings.Contains(w, id) && w != to && !strings.HasPrefix(w, to+"/") {
				t.Errorf("after it was moved to %s, %s is watched", move[1], w)
			}
		}
	}
}
