package mounted

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// nestedSession lies in a project's directory of the store nested_projects.
const nestedSession = "local_p1_4ab27eea"

// movedSession is a session that another program moves about in a store.
type movedSession struct {
	t        *testing.T
	m        *harness.Mount
	dir      string // where it is now
	readOnly bool
}

// at joins names to its directory in the mount.
func (s *movedSession) at(names ...string) string { return s.m.Session(nestedSession, names...) }

// sessionMoves are what other programs do, P being the session's project: from
// one path below the root to another.
var sessionMoves = [][2]string{
	{"projects/P/ID", "ID"},
	{"ID", "projects/P/ID"},
	{"projects/P/ID", "projects/proj_empty000/ID"},
	{"projects/proj_empty000/ID", "projects/P/ID"},
	{"projects/P", "projects/Q"}, // with the other sessions of the project
	{"projects/Q", "projects/P"},
	{"projects/P", "projects/R"},
	{"projects/R/ID", "ID"},
	{"ID", "projects/R/ID"},
	{"projects/R", "projects/P"},
}

// TestMovedSession: another program moves a session of which the kernel keeps
// everything and in which nothing has changed for a while. Its real files are
// those of the new place at once, and what is done there is followed.
func TestMovedSession(t *testing.T) {
	for name, args := range map[string][]string{"mount": nil, "read-only": {"--read-only"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := harness.Golden(t, "nested_projects")
			// What is recorded nowhere may lie anywhere.
			for _, name := range []string{"locations.json", ".migration"} {
				if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
					t.Fatal(err)
				}
			}
			found, err := filepath.Glob(filepath.Join(root, "projects", "*", nestedSession))
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			path := func(p string) string {
				p = strings.NewReplacer("/P", "/"+filepath.Base(filepath.Dir(found[0])), "ID", nestedSession).Replace(p)
				return filepath.Join(root, filepath.FromSlash(p))
			}
			s := &movedSession{t, harness.Start(t, harness.Options{Store: root, Args: args}), found[0], args != nil}
			s.warm()
			time.Sleep(2500 * time.Millisecond) // now the times of its files tell whether they changed
			for _, move := range sessionMoves {
				from, to := path(move[0]), path(move[1])
				s.warm()
				if err := os.Rename(from, to); err != nil {
					t.Fatal(err)
				}
				s.dir = to + strings.TrimPrefix(s.dir, from)
				s.check(move[0] + " to " + move[1])
			}
			s.retitle()
		})
	}
}

// warm has the kernel keep what it may.
func (s *movedSession) warm() {
	s.t.Helper()
	for range 2 {
		if sh := harness.Shell(s.t, s.at(), `find . -printf '%p %s %T@\n' > /dev/null; cat meta.json history/* > /dev/null; ls -l attachments workdir context commits > /dev/null`); sh.Code != 0 {
			s.t.Fatal(sh.Err)
		}
	}
}

// check looks whether the mount shows the session where it is now.
func (s *movedSession) check(what string) {
	s.t.Helper()
	attachments := filepath.Join(s.dir, "workdir", "attachments")
	n := len(names(s.t, s.dir, "workdir"))
	if !s.readOnly { // at once, perhaps before anybody has been told of the move
		name := fmt.Sprint("mine", n)
		if err := os.WriteFile(s.at("attachments", name), []byte(what), 0o600); err != nil {
			s.t.Fatalf("%s: %v", what, err)
		}
		if got := read(s.t, attachments, name); got != what {
			s.t.Errorf("%s: the store has %q", what, got)
		}
	}
	if err := os.MkdirAll(attachments, 0o700); err != nil {
		s.t.Fatal(err)
	}
	for round := range 2 { // the second while the kernel keeps the listing
		s.foreign(what, fmt.Sprint("theirs", n, round))
		s.warm()
	}
	for _, name := range names(s.t, s.dir, "history") {
		if got, want := read(s.t, s.at("history", name)), read(s.t, s.dir, "history", name); got != want {
			s.t.Errorf("%s: history/%s reads %q, want %q", what, name, got, want)
		}
	}
}

// foreign makes files in the store, and waits until the mount lists them.
func (s *movedSession) foreign(what, name string) {
	s.t.Helper()
	for d, place := range realDirs {
		if err := os.WriteFile(filepath.Join(s.dir, filepath.FromSlash(place), name), []byte(what), 0o600); err != nil {
			s.t.Fatal(err)
		}
		within(s.t, what+": "+d+" lists a new file", func() bool {
			list, err := os.ReadDir(s.at(d))
			return err == nil && slices.ContainsFunc(list, func(e os.DirEntry) bool { return e.Name() == name })
		})
		if got := read(s.t, s.at(d, name)); got != what {
			s.t.Errorf("%s: a file in %s reads %q", what, d, got)
		}
	}
}

// retitle has another program change the title.
func (s *movedSession) retitle() {
	s.t.Helper()
	meta := filepath.Join(s.dir, "meta.json")
	if err := os.WriteFile(meta+".new", fmt.Appendf(nil, `{"id": %q, "title": "another"}`, nestedSession), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(meta+".new", meta); err != nil {
		s.t.Fatal(err)
	}
	within(s.t, "its title", func() bool {
		title, err := os.ReadFile(s.at("fields", "title"))
		return err == nil && string(title) == "another\n"
	})
}
