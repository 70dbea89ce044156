package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
)

// gitDamages are more ways in which a session's repository comes to harm.
func gitDamages() []damage {
	x := func(root string, names ...string) string {
		return filepath.Join(append([]string{root, "x"}, names...)...)
	}
	ref := func(text string) func(t *testing.T, root string, _ []string) {
		return func(t *testing.T, root string, _ []string) { write(t, x(root, ".git", "refs", "heads", "main"), text) }
	}
	config := func(text string) func(t *testing.T, root string, _ []string) {
		return func(t *testing.T, root string, _ []string) { write(t, x(root, ".git", "config"), text) }
	}
	// The object of a path becomes what text is, "-" removes it.
	object := func(path, text string) func(t *testing.T, root string, _ []string) {
		return func(t *testing.T, root string, _ []string) {
			hash := strings.TrimSpace(git(t, x(root), "rev-parse", path))
			file := x(root, ".git", "objects", hash[:2], hash[2:])
			noErr(t, os.Remove(file))
			if text != "-" {
				write(t, file, text)
			}
		}
	}
	return []damage{
		{"missing_ref", func(t *testing.T, root string, _ []string) {
			noErr(t, os.Remove(x(root, ".git", "refs", "heads", "main")))
		}, true},
		{"missing_ref", func(t *testing.T, root string, _ []string) { // and its directories
			noErr(t, os.RemoveAll(x(root, ".git", "refs", "heads")))
		}, true},
		{"missing_ref", func(t *testing.T, root string, _ []string) { // and the logs
			noErr(t, os.Remove(x(root, ".git", "refs", "heads", "main")))
			noErr(t, os.RemoveAll(x(root, ".git", "logs")))
		}, true},
		{"missing_ref", func(t *testing.T, root string, _ []string) { // HEAD's log is there
			noErr(t, os.Remove(x(root, ".git", "refs", "heads", "main")))
			noErr(t, os.Remove(x(root, ".git", "logs", "refs", "heads", "main")))
		}, true},
		{"empty_ref", ref(strings.Repeat("\x00", 41)), true},
		{"damaged_ref", ref("garbage\n"), true},
		{"damaged_ref", ref("0123456789abcdef"), true},
		{"damaged_ref", ref(strings.Repeat("1", 40) + "\n"), true},
		{"damaged_ref", func(t *testing.T, root string, _ []string) { // a power cut soon after a commit of git's
			git(t, x(root), "commit", "-q", "--allow-empty", "-m", "lost")
			object("HEAD", "")(t, root, nil)
		}, true},
		{"damaged_ref", func(t *testing.T, root string, _ []string) { // nothing says what it was
			ref("garbage\n")(t, root, nil)
			noErr(t, os.RemoveAll(x(root, ".git", "logs")))
		}, false},
		{"head_astray", func(t *testing.T, root string, _ []string) {
			write(t, x(root, ".git", "HEAD"), "ref: refs/heads/nope\n")
		}, true},
		{"git_config_damaged", config(strings.Repeat("\x00", 92)), true},
		{"git_config_damaged", config("[core"), true},
		{"git_config_damaged", config("[core\nmine = 1\n"), false},           // a hand's mistake
		{"git_config_damaged", config("[extensions]\nobjectf[ormat"), false}, // of which format is it?
		{"git_object_missing", object("HEAD:meta.json", ""), true},
		{"git_object_missing", object("HEAD:meta.json", strings.Repeat("\x00", 200)), true},
		{"git_object_missing", object("HEAD:history", ""), true},
		{"git_object_missing", object("HEAD:history", "garbage"), true},
		{"git_object_missing", object("HEAD:", "-"), true},
		{"git_object_missing", func(t *testing.T, root string, ids []string) { // a tree and what is in it
			object("HEAD:", "-")(t, root, nil)
			for _, id := range ids {
				raw := strings.TrimSpace(git(t, x(root), "hash-object", node(t, root, id)))
				noErr(t, os.Remove(x(root, ".git", "objects", raw[:2], raw[2:])))
			}
		}, true},
		{"git_object_missing", func(t *testing.T, root string, ids []string) { // its bytes are nowhere
			object("HEAD:meta.json", "-")(t, root, nil)
			edit(t, x(root, "meta.json"), `"agent_id": "main"`, `"agent_id": "other"`)
		}, false},
		{"git_pack_damaged", func(t *testing.T, root string, _ []string) {
			git(t, x(root), "gc", "-q")
			packs, err := filepath.Glob(x(root, ".git", "objects", "pack", "*.pack"))
			noErr(t, err)
			fi, err := os.Stat(packs[0])
			noErr(t, err)
			noErr(t, os.Chmod(packs[0], 0o600))
			noErr(t, os.Truncate(packs[0], fi.Size()-10))
		}, false},
		{"git_broken", config("[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\n"), false},
	}
}

// TestRepairOfWhatIsNoFile puts a directory, a symlink or a file into the place
// of something else: it is set aside whole, never followed, and Git's put there.
func TestRepairOfWhatIsNoFile(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, "not ours")
	plants := map[string]func(t *testing.T, path string){
		"directory": func(t *testing.T, path string) { write(t, filepath.Join(path, "deep", "in"), "kept") },
		"symlink":   func(t *testing.T, path string) { noErr(t, os.Symlink(outside, path)) },
		"file":      func(t *testing.T, path string) { write(t, path, "kept") },
	}
	for _, c := range []struct{ what, plant string }{
		{"meta.json", "directory"}, {"meta.json", "symlink"}, {"node", "directory"}, {"node", "symlink"}, {"history", "file"},
	} {
		t.Run(c.plant+" as "+c.what, func(t *testing.T) {
			root, ids := soundRoot(t)
			path := filepath.Join(root, "x", c.what)
			if c.what == "node" {
				path = node(t, root, ids[1])
			}
			noErr(t, os.RemoveAll(path))
			plants[c.plant](t, path)
			out, err := store.Repair(t.Context(), store.Options{Root: root, Clock: inAMinute}, nil)
			noErr(t, err)
			if len(out.Left) > 0 || len(out.Mended) == 0 {
				t.Fatalf("mended %v, left %v", out.Mended, out.Left)
			}
			if text := git(t, filepath.Join(root, "x"), "status", "--porcelain"); text != "" {
				t.Errorf("git status:\n%s", text)
			}
			rel, err := filepath.Rel(root, path)
			noErr(t, err)
			kept := filepath.Join(root, out.Aside, rel)
			if raw, err := os.ReadFile(outside); err != nil || string(raw) != "not ours" {
				t.Errorf("what the symlink led to: %q, %v", raw, err)
			}
			switch c.plant {
			case "directory":
				_, err = os.Stat(filepath.Join(kept, "deep", "in"))
			case "symlink":
				_, err = os.Readlink(kept)
			case "file":
				_, err = os.ReadFile(kept)
			}
			noErr(t, err)
		})
	}
}

// branchedRoot is soundRoot with a second branch, which has no name and is not
// the active one. It returns the ids of both branches' own nodes.
func branchedRoot(t *testing.T) (root string, active, other []string) {
	t.Helper()
	root, ids := soundRoot(t)
	s := open2(t, store.Options{Root: root})
	_, err := s.SetHead(t.Context(), "x", ids[1], store.HeadMove{})
	noErr(t, err)
	for _, text := range []string{"another q2", "another a2"} {
		res, err := s.AppendText(t.Context(), "x", "user", text)
		noErr(t, err)
		other = append(other, res.ID)
	}
	_, err = s.SetHead(t.Context(), "x", ids[3], store.HeadMove{})
	noErr(t, err)
	_, _, err = s.CommitTurn(t.Context(), "x", "turn: two branches")
	noErr(t, err)
	closeNow(t, s)
	return root, ids[2:], other
}

// TestLostMessages takes messages away in many ways: what nobody deleted is
// found and comes back, what OpenProgram or sessionfs deleted does not.
func TestLostMessages(t *testing.T) {
	remove := func(t *testing.T, root string, ids ...string) {
		for _, id := range ids {
			noErr(t, os.Remove(node(t, root, id)))
		}
	}
	rewriteMeta := func(t *testing.T, root string) { // as the peer's deletion does
		path := filepath.Join(root, "x", "meta.json")
		raw, err := os.ReadFile(path)
		noErr(t, err)
		time.Sleep(10 * time.Millisecond) // a tick of the file system
		write(t, path+".new", string(raw))
		noErr(t, os.Rename(path+".new", path))
	}
	for name, c := range map[string]struct {
		lose func(t *testing.T, root string, active, other []string)
		want int
	}{
		"a branch": {func(t *testing.T, root string, _, other []string) { remove(t, root, other...) }, 2},
		"everything": {func(t *testing.T, root string, _, _ []string) {
			files, err := filepath.Glob(filepath.Join(root, "x", "history", "*"))
			noErr(t, err)
			for _, f := range files {
				noErr(t, os.Remove(f))
			}
		}, 7},
		"all but Git's": {func(t *testing.T, root string, _, _ []string) {
			files, err := filepath.Glob(filepath.Join(root, "x", "history", "*"))
			noErr(t, err)
			for _, f := range append(files, filepath.Join(root, "x", "meta.json")) {
				noErr(t, os.Remove(f))
			}
		}, 7},
		"a branch with a name, and meta.json was written since": {func(t *testing.T, root string, _, other []string) {
			s := open2(t, store.Options{Root: root})
			noErr(t, s.SetBranchName(t.Context(), "x", other[1], "kept"))
			_, _, err := s.CommitTurn(t.Context(), "x", "name")
			noErr(t, err)
			closeNow(t, s)
			remove(t, root, other...)
			rewriteMeta(t, root)
		}, 2},
		"the peer deleted a branch": {func(t *testing.T, root string, _, other []string) {
			remove(t, root, other...)
			rewriteMeta(t, root)
		}, 0},
		"sessionfs deleted a branch": {func(t *testing.T, root string, _, other []string) {
			s := open2(t, store.Options{Root: root, CommitAfter: time.Hour})
			_, err := s.DeleteBranch(t.Context(), "x", store.Ref(other[1]))
			noErr(t, err)
			closeNow(t, s)
		}, 0},
		"sessionfs deleted one, and was killed before the commit": {func(t *testing.T, root string, _, other []string) {
			git(t, filepath.Join(root, "x"), "commit", "-q", "--allow-empty", "-m", "before delete: it\n\nnode \""+other[0]+"\"\nnode \""+other[1]+"\"")
			remove(t, root, other...)
		}, 0},
		"one of two was deleted": {func(t *testing.T, root string, active, other []string) {
			git(t, filepath.Join(root, "x"), "commit", "-q", "--allow-empty", "-m", "before delete: it\n\nnode \""+other[0]+"\"\nnode \""+other[1]+"\"")
			remove(t, root, other...)
			remove(t, root, active...)
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			root, active, other := branchedRoot(t)
			if found := findings(t, root); len(found) > 0 {
				t.Fatalf("found before: %v", found)
			}
			before := git(t, filepath.Join(root, "x"), "ls-files", "history")
			c.lose(t, root, active, other)
			if found := findings(t, root); found["lost_node"] != c.want {
				t.Fatalf("found %v, want %d lost nodes", found, c.want)
			}
			out, err := store.Repair(t.Context(), store.Options{Root: root, Clock: inAMinute}, nil)
			noErr(t, err)
			if len(out.Left) > 0 {
				t.Errorf("left: %v", out.Left)
			}
			gone := 2 // one of the branches
			if c.want > 0 && name != "one of two was deleted" {
				gone = 0
			}
			files, err := filepath.Glob(filepath.Join(root, "x", "history", "*.json"))
			noErr(t, err)
			if want := strings.Count(before, "\n"); len(files) != want-gone {
				t.Errorf("%d of %d files are there: %v", len(files), want, files)
			}
		})
	}
}

// TestCheckBesideAPeersDeletion: OpenProgram removes the files first, without a
// lock, and then writes meta.json; what lies between is no loss.
func TestCheckBesideAPeersDeletion(t *testing.T) {
	root, _, other := branchedRoot(t)
	meta := filepath.Join(root, "x", "meta.json")
	raw, err := os.ReadFile(meta)
	noErr(t, err)
	for _, id := range other {
		noErr(t, os.Remove(node(t, root, id)))
	}
	timer := time.AfterFunc(300*time.Millisecond, func() {
		if err := errors.Join(os.WriteFile(meta+".new", raw, 0o600), os.Rename(meta+".new", meta)); err != nil {
			t.Error(err)
		}
	})
	defer timer.Stop()
	if found := findingsAt(t, root, time.Now); found["lost_node"] > 0 {
		t.Errorf("found %v", found)
	}
}

// TestRepairKeepsTheCommits: after the repair of a ref all commits are on the
// branch, what the file held is set aside, and git finds nothing.
func TestRepairKeepsTheCommits(t *testing.T) {
	for _, d := range gitDamages() {
		if !d.mends {
			continue
		}
		t.Run(d.kind, func(t *testing.T) {
			root, ids := soundRoot(t)
			dir := filepath.Join(root, "x")
			tip := strings.TrimSpace(git(t, dir, "rev-parse", "HEAD"))
			held := map[string]string{}
			d.plant(t, root, ids)
			for _, name := range []string{"HEAD", "config", "refs/heads/main"} {
				raw, _ := os.ReadFile(filepath.Join(dir, ".git", name))
				held[name] = string(raw)
			}
			out, err := store.Repair(t.Context(), store.Options{Root: root, Clock: inAMinute}, nil)
			noErr(t, err)
			if len(out.Left) > 0 || len(out.Mended) != 1 {
				t.Fatalf("mended %v, left %v", out.Mended, out.Left)
			}
			git(t, dir, "merge-base", "--is-ancestor", tip, "main")
			if logs, err := os.ReadFile(filepath.Join(dir, ".git", "logs", "HEAD")); err != nil || !strings.Contains(string(logs), ": lost") {
				git(t, dir, "fsck", "--strict") // else the log goes on naming that commit
			}
			if text := git(t, dir, "status", "--porcelain"); text != "" {
				t.Errorf("git status:\n%s", text)
			}
			for name, text := range held {
				now, err := os.ReadFile(filepath.Join(dir, ".git", name))
				noErr(t, err)
				if string(now) == text || text == "" {
					continue
				}
				if kept, err := os.ReadFile(filepath.Join(root, out.Aside, "x", ".git", name)); err != nil || string(kept) != text {
					t.Errorf("what %s held is not kept: %q, %v", name, kept, err)
				}
			}
			git(t, dir, "gc", "-q")
		})
	}
}

// TestCommitAfterALostRef: a commit goes on from the one that the log of a lost
// branch names, as it is without a repair.
func TestCommitAfterALostRef(t *testing.T) {
	root, _ := soundRoot(t)
	dir := filepath.Join(root, "x")
	before := git(t, dir, "rev-list", "main")
	noErr(t, os.Remove(filepath.Join(dir, ".git", "refs", "heads", "main")))
	s := openStore(t, store.Options{Root: root, CommitAfter: time.Hour})
	_, err := s.AppendText(t.Context(), "x", "user", "more")
	noErr(t, err)
	_, _, err = s.CommitTurn(t.Context(), "x", "turn: more")
	noErr(t, err)
	if now := git(t, dir, "rev-list", "main"); !strings.HasSuffix(now, before) || len(now) == len(before) {
		t.Errorf("the commits were\n%sand are\n%s", before, now)
	}
}

// TestCheckOfSoundRepositories: what git itself makes of a repository is no
// damage.
func TestCheckOfSoundRepositories(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, dir string){
		"packed":         func(t *testing.T, dir string) { git(t, dir, "gc", "-q", "--prune=now") },
		"packed refs":    func(t *testing.T, dir string) { git(t, dir, "pack-refs", "--all") },
		"detached":       func(t *testing.T, dir string) { git(t, dir, "checkout", "-q", "--detach") },
		"other branch":   func(t *testing.T, dir string) { git(t, dir, "checkout", "-qb", "other") },
		"renamed":        func(t *testing.T, dir string) { git(t, dir, "branch", "-m", "trunk") },
		"expired logs":   func(t *testing.T, dir string) { git(t, dir, "reflog", "expire", "--expire=all", "--all") },
		"no logs":        func(t *testing.T, dir string) { noErr(t, os.RemoveAll(filepath.Join(dir, ".git", "logs"))) },
		"repacked loose": func(t *testing.T, dir string) { git(t, dir, "repack", "-q") },
		"work tree": func(t *testing.T, dir string) {
			git(t, dir, "worktree", "add", "-q", filepath.Join(t.TempDir(), "w"))
		},
		"alternates": func(t *testing.T, dir string) {
			away := filepath.Join(t.TempDir(), "objects")
			noErr(t, os.Rename(filepath.Join(dir, ".git", "objects"), away))
			write(t, filepath.Join(dir, ".git", "objects", "info", "alternates"), away+"\n")
		},
		"new branch deleted": func(t *testing.T, dir string) {
			git(t, dir, "branch", "b")
			git(t, dir, "branch", "-D", "b")
		},
		"uncommitted": func(t *testing.T, dir string) { write(t, filepath.Join(dir, "workdir", "note"), "mine") },
	} {
		t.Run(name, func(t *testing.T) {
			root, _ := soundRoot(t)
			do(t, filepath.Join(root, "x"))
			if found := findings(t, root); len(found) > 0 {
				t.Errorf("found %v", found)
			}
		})
	}
}

// TestRepairLeavesAnotherFormatAlone: a repository of SHA-256 names is told, and
// nothing in it is taken for damaged, whether or not its configuration tells.
func TestRepairLeavesAnotherFormatAlone(t *testing.T) {
	for _, lost := range []bool{false, true} {
		root, _ := soundRoot(t)
		dir := filepath.Join(root, "x")
		noErr(t, os.RemoveAll(filepath.Join(dir, ".git")))
		git(t, dir, "init", "-q", "-b", "main", "--object-format=sha256")
		git(t, dir, "add", "-A")
		git(t, dir, "commit", "-qm", "all")
		config := filepath.Join(dir, ".git", "config")
		whole, err := os.ReadFile(config)
		noErr(t, err)
		if lost {
			write(t, config, strings.Repeat("\x00", len(whole)))
		}
		out, err := store.Repair(t.Context(), store.Options{Root: root, Clock: inAMinute}, nil)
		noErr(t, err)
		if len(out.Mended) > 0 || len(out.Left) == 0 {
			t.Errorf("lost %v: mended %v, left %v", lost, out.Mended, out.Left)
		}
		write(t, config, string(whole))
		if text := git(t, dir, "status", "--porcelain"); text != "" {
			t.Errorf("lost %v: git status:\n%s", lost, text)
		}
	}
}

// TestCheckBesideCommits: a session that is written to, committed and packed all
// the while has no damage.
func TestCheckBesideCommits(t *testing.T) {
	root, _ := soundRoot(t)
	s := open2(t, store.Options{Root: root, CommitAfter: time.Hour})
	defer closeNow(t, s)
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 40 && err == nil; i++ {
			_, e1 := s.AppendText(t.Context(), "x", "user", "more")
			_, _, e2 := s.CommitTurn(t.Context(), "x", "turn: more")
			err = errors.Join(e1, e2)
			if i%8 == 0 && err == nil {
				_, err = s.Compact(t.Context(), "x")
			}
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			noErr(t, err)
			return
		default:
		}
		reader := open2(t, store.Options{Root: root, ReadOnly: true, Clock: inAMinute})
		noErr(t, reader.Check(t.Context(), func(f store.Finding) {
			if f.Kind != "stale_row" {
				t.Errorf("found: %s", f)
			}
		}))
		closeNow(t, reader)
	}
}
