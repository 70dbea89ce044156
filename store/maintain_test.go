package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/disk"
)

func TestDiffCommits(t *testing.T) {
	s := openStore(t, store.Options{})
	newSession(t, s, "x", "q1", "a1", "q2", "a2")
	log, err := s.SessionCommits(t.Context(), "x", 0)
	if err != nil || len(log) < 3 {
		t.Fatalf("%d commits, %v", len(log), err)
	}
	changes, err := s.DiffCommits(t.Context(), "x", log[1].Short, "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, fmt.Sprintf("%.14s %v %v", c.Path, c.Old != nil, c.New != nil))
	}
	want := []string{"history/0003-u false true", "history/0004-l false true", "meta.json true true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	back, err := s.DiffCommits(t.Context(), "x", "HEAD", "HEAD~")
	if err != nil || len(back) != 3 || back[0].New != nil || back[0].Old == nil {
		t.Errorf("the other way: %v, %v", back, err)
	}
	same, err := s.DiffCommits(t.Context(), "x", "HEAD", log[0].Hash)
	if err != nil || len(same) != 0 {
		t.Errorf("a commit differs from itself: %v, %v", same, err)
	}
}

func TestFindCommitRefuses(t *testing.T) {
	s := openStore(t, store.Options{})
	newSession(t, s, "x", "q1", "a1")
	for name, want := range map[string]store.Code{
		"ffffffff": store.NotFound, "HEAD~99": store.NotFound, "HEAD~x": store.Invalid, "": store.NotFound, "ab": store.NotFound,
	} {
		if _, err := s.FindCommit(t.Context(), "x", name); store.CodeOf(err) != want {
			t.Errorf("FindCommit(%q) = %v, want %s", name, err, want)
		}
	}
}

func TestGrep(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "a", "one fish\ntwo fish", "red fish\n")
	newSession(t, s, "b", "no such animal")
	if _, err := s.SetHead(t.Context(), "a", ids[0], store.HeadMove{}); err != nil {
		t.Fatal(err)
	}
	if err := s.SetBranchName(t.Context(), "a", ids[0], "first"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		q    store.GrepQuery
		want []string
	}{
		{"all branches", store.GrepQuery{}, []string{"a user 1 one fish", "a user 2 two fish", "a assistant 1 red fish"}},
		{"one branch", store.GrepQuery{Branch: "first"}, []string{"a user 1 one fish", "a user 2 two fish"}},
		{"one role", store.GrepQuery{Role: "assistant"}, []string{"a assistant 1 red fish"}},
		{"other session", store.GrepQuery{Sessions: []string{"b"}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.q.Pattern = regexp.MustCompile("fish$")
			var got []string
			err := s.Grep(t.Context(), tt.q, func(m store.Match) error {
				got = append(got, fmt.Sprint(m.Session, " ", m.Node.Speaker(), " ", m.Line, " ", m.Text))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	stop := errors.New("stop")
	err := s.Grep(t.Context(), store.GrepQuery{Pattern: regexp.MustCompile("")}, func(store.Match) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("an error of report does not end the search: %v", err)
	}
	err = s.Grep(t.Context(), store.GrepQuery{Pattern: regexp.MustCompile(""), Sessions: []string{"nope"}}, nil)
	if store.CodeOf(err) != store.NotFound {
		t.Errorf("a session that was named and is not there: %v", err)
	}
}

func TestReindexAndCompact(t *testing.T) {
	s := openStore(t, store.Options{})
	newSession(t, s, "x", "q1", "a1")
	if err := os.RemoveAll(filepath.Join(s.Root(), "x", "nothing")); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Compact(t.Context(), "x"); err != nil || n == 0 {
		t.Errorf("compact packed %d objects, %v", n, err)
	}
	if log, err := s.SessionCommits(t.Context(), "x", 0); err != nil || len(log) < 2 {
		t.Errorf("after it: %d commits, %v", len(log), err)
	}
	calls := 0
	out, err := s.Reindex(t.Context(), func(done, total int) { calls++ })
	if err != nil || out.Sessions != 1 || calls != 1 {
		t.Errorf("reindex = %+v, %v, %d calls", out, err, calls)
	}
}

func TestExportTree(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "q1", "a1")
	if err := s.SetBranchName(t.Context(), "x", ids[1], "a/b"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "out")
	if err := s.ExportTree(t.Context(), "x", dir); err != nil {
		t.Fatal(err)
	}
	links, err := filepath.Glob(filepath.Join(dir, "branch", "a%2Fb", "*"))
	if err != nil || len(links) != 2 {
		t.Fatalf("the branch has %v", links)
	}
	if text, err := os.ReadFile(links[1]); err != nil || string(text) != "a1\n" {
		t.Errorf("the last message is %q, %v", text, err)
	}
	if err := s.ExportTree(t.Context(), "x", dir); store.CodeOf(err) != store.Exists {
		t.Errorf("over an existing directory: %v", err)
	}
}

// damage is one kind of damage: how it comes about, and whether Repair ends it.
type damage struct {
	kind  string
	plant func(t *testing.T, root string, ids []string)
	mends bool
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// edit replaces a text in a file.
func edit(t *testing.T, path, old, text string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), old) {
		t.Fatalf("%s does not hold %q:\n%s", path, old, raw)
	}
	write(t, path, strings.Replace(string(raw), old, text, 1))
}

// setMetadata puts a member into a node's metadata.
func setMetadata(t *testing.T, path, member string) {
	t.Helper()
	edit(t, path, `"metadata": {`, `"metadata": {`+member+`, `)
	if raw, err := os.ReadFile(path); err == nil && strings.Contains(string(raw), ", }") {
		edit(t, path, ", }", "}")
	}
}

// age makes a file look left behind.
func age(t *testing.T, path string) {
	t.Helper()
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
}

// node finds the history file of a node.
func node(t *testing.T, root, id string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "x", "history", "*-"+id+".json"))
	if err != nil || len(found) != 1 {
		t.Fatalf("files of %s: %v", id, found)
	}
	return found[0]
}

const tempName = ".0123456789abcdef0123456789abcdef.tmp"

// deadPID is a process id that no process has.
const deadPID = "4194305"

func damages() []damage {
	x := func(root string, names ...string) string {
		return filepath.Join(append([]string{root, "x"}, names...)...)
	}
	return []damage{
		{"index_missing", func(t *testing.T, root string, _ []string) { os.Remove(filepath.Join(root, "index.json")) }, true},
		{"index_empty", func(t *testing.T, root string, _ []string) { write(t, filepath.Join(root, "index.json"), "") }, true},
		{"index_corrupt", func(t *testing.T, root string, _ []string) { write(t, filepath.Join(root, "index.json"), `{"x": {`) }, true},
		{"stale_row", func(t *testing.T, root string, _ []string) {
			edit(t, filepath.Join(root, "index.json"), `"agent_id": "main"`, `"agent_id": "other"`)
		}, true},
		{"row_without_directory", func(t *testing.T, root string, _ []string) {
			edit(t, filepath.Join(root, "index.json"), "{", `{"ghost": {"id": "ghost", "title": "gone"}, `)
		}, true},
		{"directory_without_row", func(t *testing.T, root string, _ []string) { write(t, filepath.Join(root, "index.json"), "{}") }, true},
		{"temp_file", func(t *testing.T, root string, _ []string) {
			path := x(root, "meta.json"+tempName)
			write(t, path, "half")
			age(t, path)
		}, true},
		{"hidden_directory", func(t *testing.T, root string, _ []string) {
			write(t, filepath.Join(root, ".sessionfs-old-0011223344556677", "meta.json"), "{}")
		}, true},
		{"half_delete", func(t *testing.T, root string, _ []string) {
			write(t, filepath.Join(root, "gone", "meta.json"), `{"id": "gone"}`)
			time.Sleep(10 * time.Millisecond) // a tick of the file system
			write(t, filepath.Join(root, ".deleted", "gone"), "{}")
		}, true},
		{"restored_deleted", func(t *testing.T, root string, _ []string) {
			write(t, filepath.Join(root, ".deleted", "back"), "{}")
			time.Sleep(10 * time.Millisecond)
			write(t, filepath.Join(root, "back", "meta.json"), `{"id": "back"}`)
		}, true},
		{"history_only_in_git", func(t *testing.T, root string, _ []string) { os.RemoveAll(x(root, "history")) }, true},
		{"no_history", func(t *testing.T, root string, _ []string) {
			write(t, filepath.Join(root, "bare", "meta.json"), `{"id": "bare"}`)
		}, false},
		{"no_repository", func(t *testing.T, root string, _ []string) { os.RemoveAll(x(root, ".git")) }, false},
		{"meta_missing", func(t *testing.T, root string, _ []string) { os.Remove(x(root, "meta.json")) }, true},
		{"meta_invalid", func(t *testing.T, root string, _ []string) { write(t, x(root, "meta.json"), `{"id": "x", "ti`) }, true},
		{"meta_other_id", func(t *testing.T, root string, _ []string) { edit(t, x(root, "meta.json"), `"id": "x"`, `"id": "y"`) }, false},
		{"dangling_head", func(t *testing.T, root string, ids []string) {
			edit(t, x(root, "meta.json"), `"head_id": "`+ids[3]+`"`, `"head_id": "nowhere"`)
		}, false},
		{"unreadable_node", func(t *testing.T, root string, ids []string) { write(t, node(t, root, ids[1]), `{"id": "`) }, true},
		{"name_mismatch", func(t *testing.T, root string, ids []string) {
			path := node(t, root, ids[3])
			if err := os.Rename(path, filepath.Join(filepath.Dir(path), "0099-l-"+ids[3]+".json")); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"duplicate_seq", func(t *testing.T, root string, ids []string) { edit(t, node(t, root, ids[3]), `"seq": 4`, `"seq": 3`) }, false},
		{"duplicate_id", func(t *testing.T, root string, ids []string) {
			raw, err := os.ReadFile(node(t, root, ids[3]))
			if err != nil {
				t.Fatal(err)
			}
			write(t, x(root, "history", "0098-l-copy.json"), string(raw))
		}, false},
		{"stray_file", func(t *testing.T, root string, _ []string) { write(t, x(root, "history", "notes.txt"), "mine") }, false},
		{"dangling_predecessor", func(t *testing.T, root string, ids []string) {
			edit(t, node(t, root, ids[2]), `"predecessor": "`+ids[1]+`"`, `"predecessor": "nowhere"`)
		}, false},
		{"dangling_caller", func(t *testing.T, root string, ids []string) {
			edit(t, node(t, root, ids[3]), `"caller": ""`, `"caller": "nowhere"`)
		}, false},
		{"cycle", func(t *testing.T, root string, ids []string) {
			edit(t, node(t, root, ids[0]), `"predecessor": "ROOT"`, `"predecessor": "`+ids[3]+`"`)
		}, false},
		{"broken_chain", func(t *testing.T, root string, ids []string) {
			edit(t, node(t, root, ids[1]), `"predecessor": "`+ids[0]+`"`, `"predecessor": null`)
		}, false},
		{"branch_without_node", func(t *testing.T, root string, _ []string) {
			edit(t, x(root, "meta.json"), `"id": "x"`, `"id": "x", "branches": {"nowhere": {"name": "n"}}`)
		}, false},
		{"dead_lease", func(t *testing.T, root string, _ []string) {
			write(t, filepath.Join(root, ".locks", ".run-x.lock"), `{"pid": `+deadPID+`, "started": 1.0}`)
		}, true},
		{"running_without_run", func(t *testing.T, root string, _ []string) {
			edit(t, x(root, "meta.json"), `"id": "x"`, `"id": "x", "status": "running"`)
			age(t, x(root, "meta.json"))
			age(t, x(root, "history"))
		}, true},
		{"node_without_run", func(t *testing.T, root string, ids []string) {
			setMetadata(t, node(t, root, ids[3]), `"status": "running"`)
			age(t, node(t, root, ids[3]))
			age(t, x(root, "meta.json"))
			age(t, x(root, "history"))
		}, true},
		{"git_lock", func(t *testing.T, root string, _ []string) {
			write(t, x(root, ".git", "index.lock"), "")
			age(t, x(root, ".git", "index.lock"))
		}, true},
		{"git_broken", func(t *testing.T, root string, _ []string) {
			write(t, x(root, ".git", "HEAD"), "garbage\n")
		}, false},
		{"empty_ref", func(t *testing.T, root string, _ []string) { write(t, x(root, ".git", "refs", "heads", "main"), "") }, true},
		{"git_index_damaged", func(t *testing.T, root string, _ []string) {
			if err := os.Truncate(x(root, ".git", "index"), 40); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"locations_corrupt", func(t *testing.T, root string, _ []string) { write(t, filepath.Join(root, "locations.json"), "{") }, false},
		{"unfinished_change", func(t *testing.T, root string, _ []string) {
			write(t, x(root, ".git", "openprogram-append.json"), "{}")
		}, false},
		{"summary_head", func(t *testing.T, root string, ids []string) {
			setMetadata(t, node(t, root, ids[3]), `"covers_ids": ["`+ids[0]+`"]`)
		}, false},
		{"stale_hold", func(t *testing.T, root string, _ []string) {
			write(t, filepath.Join(root, ".migration", "holds", "x"), deadPID)
		}, true},
		{"symlinked_session", func(t *testing.T, root string, _ []string) {
			if err := os.Symlink(x(root), filepath.Join(root, "link")); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"journal_corrupt", func(t *testing.T, root string, _ []string) {
			write(t, filepath.Join(root, ".migration", "journal.json"), "{")
		}, false},
		{"half_migration", func(t *testing.T, root string, _ []string) {
			write(t, filepath.Join(root, ".migration", "journal.json"), `{"sessions": {"x": {"stage": "copy"}}}`)
		}, false},
		{"location_missing", func(t *testing.T, root string, _ []string) {
			write(t, filepath.Join(root, "locations.json"), `{"away": "`+filepath.Join(root, "projects", "p", "away")+`"}`)
		}, false},
	}
}

// findings checks a root and returns the kinds that it found, with how often.
func findings(t *testing.T, root string) map[string]int {
	t.Helper()
	return findingsAt(t, root, inAMinute)
}

// findingsAt is findings at another time.
func findingsAt(t *testing.T, root string, clock func() time.Time) map[string]int {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Root: root, ReadOnly: true, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out := map[string]int{}
	if err := s.Check(t.Context(), func(f store.Finding) { out[f.Kind]++ }); err != nil {
		t.Fatal(err)
	}
	return out
}

// soundRoot makes a root with the session x and returns its node ids.
func soundRoot(t *testing.T) (root string, ids []string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "sessions")
	s, err := store.Open(t.Context(), store.Options{Root: root, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	ids = newSession(t, s, "x", "q1", "a1", "q2", "a2")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if found := findings(t, root); len(found) > 0 {
		t.Fatalf("a sound root has findings: %v", found)
	}
	return root, ids
}

// contents returns what every file below root holds, without what a repair
// may write: the registry's rows, the times and states of runs, Git's own.
func contents(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.Contains(path, "/.git/") || strings.Contains(path, "/.locks/") {
			return err
		}
		raw, err := os.ReadFile(path)
		out[string(raw)] = path
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rewritten are the damages whose repair finishes a deletion, or removes what
// says nothing.
var rewritten = []string{"half_delete", "hidden_directory", "no_history", "symlinked_session", "stale_hold"}

func TestCheckFindsAndRepairMends(t *testing.T) {
	for _, d := range append(damages(), gitDamages()...) {
		t.Run(d.kind, func(t *testing.T) {
			root, ids := soundRoot(t)
			d.plant(t, root, ids)
			if found := findings(t, root); found[d.kind] == 0 {
				t.Fatalf("check does not find it: %v", found)
			}
			before := contents(t, root)
			out, err := store.Repair(t.Context(), store.Options{Root: root, Clock: inAMinute}, nil)
			if err != nil {
				t.Fatal(err)
			}
			has := func(list []store.Finding) bool {
				return slices.ContainsFunc(list, func(f store.Finding) bool { return f.Kind == d.kind })
			}
			if has(out.Mended) != d.mends || has(out.Left) == d.mends {
				t.Errorf("mended %v, left %v; want it mended: %v", out.Mended, out.Left, d.mends)
			}
			if slices.Contains(rewritten, d.kind) {
				return
			}
			after := contents(t, root)
			for text, path := range before {
				if _, ok := after[text]; !ok && text != "" {
					t.Errorf("the content of %s is nowhere any more:\n%s", path, text)
				}
			}
		})
	}
}

// TestCheckFindsAllInOneRun plants damage of many kinds in one root, each in a
// session of its own where it concerns one.
func TestCheckFindsAllInOneRun(t *testing.T) {
	root, ids := soundRoot(t)
	apart := []string{"cycle", "broken_chain", "index_", "meta_missing", "half_migration", "empty_ref", "git_index", "meta_invalid", "meta_other_id", "no_repository", "history_only_in_git",
		"unreadable_node", "directory_without_row", "summary_head", "journal_corrupt", "locations_corrupt", "git_broken", "dangling_predecessor", "duplicate_id", "name_mismatch"}
	want := 0
	for _, d := range damages() {
		if slices.ContainsFunc(apart, func(p string) bool { return strings.HasPrefix(d.kind, p) }) {
			continue // would hide another, or be hidden by it
		}
		d.plant(t, root, ids)
		want++
	}
	found := findings(t, root)
	if len(found) < want {
		t.Errorf("%d kinds planted, %d found: %v", want, len(found), found)
	}
}

// TestCheckWaitsForARow: a row that lags behind a session which changed just now
// is no finding, whatever was written into the registry since, and one that stays
// behind is. So is a row that is missing.
func TestCheckWaitsForARow(t *testing.T) {
	for kind, damage := range map[string]func(t *testing.T, root string){
		"stale_row": func(t *testing.T, root string) {
			edit(t, filepath.Join(root, "x", "meta.json"), `"agent_id": "main"`, `"agent_id": "other"`)
		},
		"directory_without_row": func(t *testing.T, root string) { write(t, filepath.Join(root, "index.json"), "{}") },
	} {
		root, _ := soundRoot(t)
		damage(t, root)
		for _, c := range []struct {
			index, meta time.Duration // how long ago each was written
			want        int
		}{
			{time.Minute, 0, 0},
			{0, 0, 0},
			{0, time.Second, 0},
			{0, 5 * time.Second, 0},
			{2 * time.Minute, time.Minute, 1},
			{0, 11 * time.Second, 1},
			{time.Minute, 11 * time.Second, 1},
			{0, -time.Hour, 1},
		} {
			now := time.Now()
			for name, ago := range map[string]time.Duration{"index.json": c.index, "x/meta.json": c.meta} {
				if err := os.Chtimes(filepath.Join(root, name), now.Add(-ago), now.Add(-ago)); err != nil {
					t.Fatal(err)
				}
			}
			if found := findingsAt(t, root, func() time.Time { return now }); found[kind] != c.want {
				t.Errorf("the registry %v old, meta.json %v: %v, want %s %d times", c.index, c.meta, found, kind, c.want)
			}
		}
	}
}

// TestCheckBesideAChange: what others change while the check looks is no finding:
// a session that comes or goes between two looks, and a row that is replaced
// with its session after the registry was read.
func TestCheckBesideAChange(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		before func(t *testing.T, root string)
		during func(t *testing.T, root string, s *store.Store)
	}{
		"a session comes": {nil, func(t *testing.T, root string, s *store.Store) { newSession(t, s, "late", "hello") }},
		"a session goes": {nil, func(t *testing.T, root string, s *store.Store) {
			noErr(t, s.DeleteSession(t.Context(), "y"))
		}},
		"a row changes": {nil, func(t *testing.T, root string, s *store.Store) {
			noErr(t, s.SetField(t.Context(), "y", "title", "another"))
			noErr(t, os.Chtimes(filepath.Join(root, "y", "meta.json"), long, long))
		}},
		"a row is mended": {func(t *testing.T, root string) {
			edit(t, filepath.Join(root, "index.json"), `"agent_id": "main"`, `"agent_id": "other"`)
		}, func(*testing.T, string, *store.Store) {}},
	} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s after the reading %v", name, after), func(t *testing.T) {
				root, _ := soundRoot(t)
				s := open2(t, store.Options{Root: root})
				newSession(t, s, "y", "question")
				closeNow(t, s)
				if c.before != nil {
					c.before(t, root)
				}
				hooked := &onRead{FS: disk.OS, path: filepath.Join(root, "index.json")}
				s = open2(t, store.Options{Root: root, ReadOnly: true, FS: hooked, Clock: inAMinute})
				defer closeNow(t, s)
				changed := false
				change := func() {
					changed = true
					other := open2(t, store.Options{Root: root})
					c.during(t, root, other)
					closeNow(t, other)
				}
				if hooked.before = change; after {
					hooked.before, hooked.after = nil, change
				}
				noErr(t, s.Check(t.Context(), func(f store.Finding) { t.Errorf("found: %s", f) }))
				if !changed {
					t.Error("nothing was changed")
				}
			})
		}
	}
}

// TestCheckLeavesADeletionAlone: who deletes a session holds its lock until the
// row is gone.
func TestCheckLeavesADeletionAlone(t *testing.T) {
	root, _ := soundRoot(t)
	write(t, filepath.Join(root, "gone", "meta.json"), `{"id": "gone"}`)
	time.Sleep(10 * time.Millisecond) // a tick of the file system
	write(t, filepath.Join(root, ".deleted", "gone"), "{}")
	edit(t, filepath.Join(root, "index.json"), "{", `{"gone2": {"id": "gone2"}, `)
	write(t, filepath.Join(root, ".sessionfs-old-0011223344556677", "meta.json"), "{}")
	var locks []*filelock.Lock
	for _, id := range []string{"gone", "gone2"} {
		lock, err := filelock.Acquire(t.Context(), filepath.Join(root, ".locks", id+".lock"), time.Second)
		noErr(t, err)
		locks = append(locks, lock)
	}
	if found := findings(t, root); len(found) > 0 {
		t.Errorf("deletions that go on: %v", found)
	}
	for _, l := range locks {
		noErr(t, l.Unlock())
	}
	if found := findings(t, root); found["half_delete"] != 1 || found["row_without_directory"] != 1 || found["hidden_directory"] != 1 {
		t.Errorf("deletions that were cut off: %v", found)
	}
}

// TestRepairBringsLostMessagesBack loses two messages in a row, and the head.
func TestRepairBringsLostMessagesBack(t *testing.T) {
	root, ids := soundRoot(t)
	for _, id := range []string{ids[1], ids[2], ids[3]} {
		if err := os.Remove(node(t, root, id)); err != nil {
			t.Fatal(err)
		}
	}
	if found := findings(t, root); found["dangling_head"] != 1 {
		t.Fatalf("found %v", found)
	}
	out, err := store.Repair(t.Context(), store.Options{Root: root, Clock: inAMinute}, nil)
	if err != nil || len(out.Left) != 0 {
		t.Fatalf("repair = %+v, %v", out, err)
	}
	s := openStore(t, store.Options{Root: root})
	if got := branchIDs(t, s, "x"); !slices.Equal(got, ids) {
		t.Errorf("the branch is %v, want %v", got, ids)
	}
}

func TestRepairOfOneSession(t *testing.T) {
	root, ids := soundRoot(t)
	write(t, node(t, root, ids[1]), "{")
	if _, err := store.Repair(t.Context(), store.Options{Root: root}, nil, "other"); err != nil {
		t.Fatal(err)
	}
	if found := findings(t, root); found["unreadable_node"] != 1 {
		t.Fatalf("another session's repair mended it: %v", found)
	}
	out, err := store.Repair(t.Context(), store.Options{Root: root}, nil, "x")
	if err != nil || len(out.Left) != 0 || out.Aside == "" {
		t.Errorf("repair = %+v, %v", out, err)
	}
}

// TestRepairLooksBackBeyondTheDamage damages files, then writes on, so that the
// newest commit has the damage as well.
func TestRepairLooksBackBeyondTheDamage(t *testing.T) {
	meta := func(root string) string { return filepath.Join(root, "x", "meta.json") }
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, root string, ids []string)
	}{
		{"unreadable node", func(t *testing.T, root string, ids []string) { write(t, node(t, root, ids[1]), "[]") }},
		{"lost node", func(t *testing.T, root string, ids []string) { os.Remove(node(t, root, ids[1])) }},
		{"lost nodes and the head", func(t *testing.T, root string, ids []string) {
			for _, id := range ids[1:] {
				os.Remove(node(t, root, id))
			}
		}},
		{"damaged, then lost", func(t *testing.T, root string, ids []string) {
			write(t, node(t, root, ids[1]), "[]")
			git(t, filepath.Join(root, "x"), "commit", "-qam", "damage")
			os.Remove(node(t, root, ids[1]))
		}},
		{"meta.json", func(t *testing.T, root string, _ []string) { write(t, meta(root), "[]") }},
		{"lost meta.json", func(t *testing.T, root string, _ []string) { os.Remove(meta(root)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, ids := soundRoot(t)
			tt.damage(t, root, ids)
			for range 3 { // whoever commits takes the damage in
				write(t, filepath.Join(root, "x", "workdir", "note"), time.Now().String())
				git(t, filepath.Join(root, "x"), "add", "-A")
				git(t, filepath.Join(root, "x"), "commit", "-qm", "turn: y")
			}
			out, err := store.Repair(t.Context(), store.Options{Root: root, Clock: inAMinute}, nil)
			if err != nil || len(out.Left) != 0 || len(out.Mended) == 0 {
				t.Fatalf("repair = %+v, %v", out, err)
			}
			s := openStore(t, store.Options{Root: root})
			if got := branchIDs(t, s, "x"); !slices.Equal(got, ids) {
				t.Errorf("the branch is %v, want %v", got, ids)
			}
		})
	}
}

// TestRepairAfterAnAppend is the ordinary way there: the store's own commit takes
// the damage in.
func TestRepairAfterAnAppend(t *testing.T) {
	for _, lost := range []bool{false, true} {
		root, ids := soundRoot(t)
		path := node(t, root, ids[2])
		if write(t, path, "[]"); lost {
			os.Remove(path)
		}
		s, err := store.Open(t.Context(), store.Options{Root: root, CommitAfter: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.AppendText(t.Context(), "x", "user", "y")
		if err = errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		out, err := store.Repair(t.Context(), store.Options{Root: root, Clock: inAMinute}, nil)
		if err != nil || len(out.Left) != 0 || len(out.Mended) == 0 {
			t.Fatalf("lost %v: repair = %+v, %v", lost, out, err)
		}
		s = openStore(t, store.Options{Root: root})
		if got := branchIDs(t, s, "x"); !slices.Equal(got, append(slices.Clone(ids), res.ID)) {
			t.Errorf("lost %v: the branch is %v, want %v and %s", lost, got, ids, res.ID)
		}
	}
}

// TestRepairLeavesTheDeletedDeleted deletes on purpose, and then has the head
// name what is gone.
func TestRepairLeavesTheDeletedDeleted(t *testing.T) {
	for _, committed := range []bool{false, true} {
		root, ids := soundRoot(t)
		s, err := store.Open(t.Context(), store.Options{Root: root})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetBranchName(t.Context(), "x", ids[3], "doomed"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.DeleteSubtree(t.Context(), "x", ids[2]); err != nil {
			t.Fatal(err)
		}
		if committed {
			if _, _, err := s.CommitTurn(t.Context(), "x", "after"); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		edit(t, filepath.Join(root, "x", "meta.json"), `"head_id": "`+ids[1]+`"`, `"head_id": "`+ids[3]+`"`)
		// Another one is lost by accident, and is in the same commit.
		if err := os.Remove(node(t, root, ids[0])); err != nil {
			t.Fatal(err)
		}
		out, err := store.Repair(t.Context(), store.Options{Root: root, Clock: inAMinute}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Left) != 1 || out.Left[0].Kind != "dangling_head" {
			t.Errorf("committed %v: mended %v, left %v; want the dangling head left", committed, out.Mended, out.Left)
		}
		node(t, root, ids[0])
		for _, id := range ids[2:] {
			if found, _ := filepath.Glob(filepath.Join(root, "x", "history", "*-"+id+".json")); len(found) > 0 {
				t.Errorf("committed %v: the deleted node came back: %v", committed, found)
			}
		}
	}
}
