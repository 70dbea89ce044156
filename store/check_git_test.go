package store_test

import (
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
	return []damage{
		{"missing_ref", func(t *testing.T, root string, _ []string) {
			noErr(t, os.Remove(x(root, ".git", "refs", "heads", "main")))
		}, true},
		{"missing_ref", func(t *testing.T, root string, _ []string) { // and its directories
			noErr(t, os.RemoveAll(x(root, ".git", "refs", "heads")))
		}, true},
		{"empty_ref", ref(strings.Repeat("\x00", 41)), true},
		{"damaged_ref", ref("garbage\n"), true},
		{"damaged_ref", ref("0123456789abcdef"), true},
		{"damaged_ref", ref(strings.Repeat("1", 40) + "\n"), true},
		{"damaged_ref", func(t *testing.T, root string, _ []string) { // nothing says what it was
			ref("garbage\n")(t, root, nil)
			noErr(t, os.RemoveAll(x(root, ".git", "logs")))
		}, false},
		{"head_astray", func(t *testing.T, root string, _ []string) {
			write(t, x(root, ".git", "HEAD"), "ref: refs/heads/nope\n")
		}, true},
	}
}

// TestRepairKeepsTheCommits: after the repair of a ref all commits are on the
// branch, what the file held is set aside, and git finds nothing.
func TestRepairKeepsTheCommits(t *testing.T) {
	for _, d := range gitDamages() {
		if !d.mends || !strings.Contains(d.kind, "ref") && d.kind != "head_astray" {
			continue
		}
		t.Run(d.kind, func(t *testing.T) {
			root, ids := soundRoot(t)
			dir := filepath.Join(root, "x")
			tip := strings.TrimSpace(git(t, dir, "rev-parse", "HEAD"))
			held := map[string]string{}
			d.plant(t, root, ids)
			for _, name := range []string{"HEAD", "refs/heads/main"} {
				raw, _ := os.ReadFile(filepath.Join(dir, ".git", name))
				held[name] = string(raw)
			}
			out, err := store.Repair(t.Context(), store.Options{Root: root, Clock: inAMinute}, nil)
			noErr(t, err)
			if len(out.Left) > 0 || len(out.Mended) != 1 {
				t.Fatalf("mended %v, left %v", out.Mended, out.Left)
			}
			git(t, dir, "merge-base", "--is-ancestor", tip, "main")
			git(t, dir, "fsck", "--strict")
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
