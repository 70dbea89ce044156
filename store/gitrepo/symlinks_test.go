package gitrepo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// treeOf lists the files below a directory with their contents.
func treeOf(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		b.WriteString(path + "\n")
		if d.Type().IsRegular() {
			raw, err := os.ReadFile(path)
			b.Write(raw)
			return err
		}
		return nil
	}))
	return b.String()
}

// TestNoLinkIsWrittenThrough puts symlinks into .git: whatever writes leaves
// alone what they lead to.
func TestNoLinkIsWrittenThrough(t *testing.T) {
	needGit(t)
	names := []string{
		"logs", "logs/HEAD", "logs/refs", "logs/refs/heads", "logs/refs/heads/main", "refs", "refs/heads",
		"objects", "objects/pack", "objects/info", "info", "every other object directory",
	}
	for _, name := range names {
		for _, dangling := range []bool{false, true} {
			r, dir := newSession(t, testOptions(t))
			write(t, dir, "f", "one")
			commitAll(t, r, "x")
			must(t, r.Close())
			outside := t.TempDir()
			parts := []string{name}
			if name == "every other object directory" {
				parts = otherObjectDirs(dir)
			}
			for _, part := range parts {
				path, away := filepath.Join(dir, ".git", part), filepath.Join(outside, filepath.Base(part))
				err := os.Rename(path, away)
				if errors.Is(err, fs.ErrNotExist) && !dangling {
					must(t, os.MkdirAll(away, 0o755))
				}
				if dangling {
					must(t, os.RemoveAll(away))
				}
				must(t, os.Symlink(away, path))
			}
			before := treeOf(t, outside)
			write(t, dir, "f", "two")
			r, err := Open(dir, testOptions(t))
			if err == nil {
				_, _, cerr := r.CommitAll(t.Context(), "y")
				_, perr := r.Compact(t.Context())
				_, oerr := r.RestoreObjects(t.Context(), os.Remove)
				if !dangling && (!errors.Is(cerr, ErrUnsupported) || !errors.Is(perr, ErrUnsupported) || !errors.Is(oerr, ErrUnsupported)) {
					t.Errorf("%s: commit: %v, compact: %v, restore: %v", name, cerr, perr, oerr)
				}
			}
			if after := treeOf(t, outside); after != before {
				t.Errorf("%s, dangling %v: what the link leads to was\n%s\nand is\n%s", name, dangling, before, after)
			}
		}
	}
}

// otherObjectDirs are the object directories that are not there: in these, what
// is new will mostly lie.
func otherObjectDirs(dir string) []string {
	var out []string
	for i := range 256 {
		name := fmt.Sprintf("objects/%02x", i)
		if _, err := os.Lstat(filepath.Join(dir, ".git", name)); err != nil {
			out = append(out, name)
		}
	}
	return out
}

// TestALogElsewhereIsNotWrittenTo: HEAD may be on a branch whose log has
// directories of its own.
func TestALogElsewhereIsNotWrittenTo(t *testing.T) {
	needGit(t)
	for _, name := range []string{"logs/refs/heads/a", "logs/refs/heads/a/b"} {
		r, dir := newSession(t, testOptions(t))
		git(t, dir, "checkout", "-q", "-b", "a/b")
		path, away := filepath.Join(dir, ".git", name), filepath.Join(t.TempDir(), "away")
		must(t, os.Rename(path, away), os.Symlink(away, path))
		before := treeOf(t, filepath.Dir(away))
		write(t, dir, "f", "two")
		commitAll(t, r, "y")
		if after := treeOf(t, filepath.Dir(away)); after != before {
			t.Errorf("%s: what the link leads to was\n%s\nand is\n%s", name, before, after)
		}
	}
}
