package gitrepo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRefFault damages HEAD's branch, or does to it what git does.
func TestRefFault(t *testing.T) {
	needGit(t)
	const ref, log, headLog = ".git/refs/heads/main", ".git/logs/refs/heads/main", ".git/logs/HEAD"
	remove := func(t *testing.T, dir string, names ...string) {
		for _, n := range names {
			must(t, os.Remove(filepath.Join(dir, n)))
		}
	}
	for name, c := range map[string]struct {
		do   func(t *testing.T, dir string)
		want RefFaultKind
		born bool // a commit goes on from the last one
	}{
		"sound":                      {func(*testing.T, string) {}, RefSound, true},
		"packed":                     {func(t *testing.T, dir string) { git(t, dir, "pack-refs", "--all") }, RefSound, true},
		"detached":                   {func(t *testing.T, dir string) { git(t, dir, "checkout", "-q", "--detach") }, RefSound, true},
		"missing":                    {func(t *testing.T, dir string) { remove(t, dir, ref) }, RefMissing, true},
		"missing, no log of its own": {func(t *testing.T, dir string) { remove(t, dir, ref, log) }, RefMissing, true},
		"missing, no log": {func(t *testing.T, dir string) {
			remove(t, dir, ref, log, headLog)
		}, RefMissing, true},
		"missing, no log, packed": {func(t *testing.T, dir string) {
			git(t, dir, "gc", "-q", "--prune=now")
			remove(t, dir, ".git/packed-refs", log, headLog)
		}, RefMissing, true},
		"missing, logs emptied": {func(t *testing.T, dir string) {
			remove(t, dir, ref)
			write(t, dir, log, "")
			write(t, dir, headLog, "")
		}, RefMissing, true},
		"missing, logs of garbage": {func(t *testing.T, dir string) {
			remove(t, dir, ref)
			write(t, dir, log, "garbage\n")
			write(t, dir, headLog, "garbage\n")
		}, RefMissing, true},
		"missing, HEAD's log knows better": {func(t *testing.T, dir string) {
			tree := git(t, dir, "rev-parse", "HEAD^{tree}")
			git(t, dir, "commit-tree", "-m", "of nobody", tree)
			remove(t, dir, ref, log)
		}, RefMissing, true},
		"missing, a branch that HEAD is on": {func(t *testing.T, dir string) {
			git(t, dir, "branch", "-m", "main", "master")
			remove(t, dir, ".git/refs/heads/master", ".git/logs/refs/heads/master", headLog)
		}, RefMissing, true},
		"empty, no log": {func(t *testing.T, dir string) {
			write(t, dir, ref, "")
			remove(t, dir, log, headLog)
		}, RefBlank, true},
		"orphan":         {func(t *testing.T, dir string) { git(t, dir, "checkout", "-q", "--orphan", "other") }, HeadAstray, false},
		"deleted by git": {func(t *testing.T, dir string) { git(t, dir, "update-ref", "-d", "refs/heads/main") }, RefSound, false},
		"its end was logged": {func(t *testing.T, dir string) {
			tip := git(t, dir, "rev-parse", "HEAD")
			remove(t, dir, ref)
			f, err := os.OpenFile(filepath.Join(dir, log), os.O_APPEND|os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteString(tip + " " + strings.Repeat("0", 40) + " a <b> 1 +0000\tdeleted\n")
			must(t, err, f.Close())
		}, RefSound, false},
		"empty":   {func(t *testing.T, dir string) { write(t, dir, ref, "") }, RefBlank, true},
		"zeros":   {func(t *testing.T, dir string) { write(t, dir, ref, strings.Repeat("\x00", 41)) }, RefBlank, true},
		"half":    {func(t *testing.T, dir string) { write(t, dir, ref, "0123456789") }, RefDamaged, false},
		"no such": {func(t *testing.T, dir string) { write(t, dir, ref, strings.Repeat("2", 40)+"\n") }, RefLost, true},
		"astray":  {func(t *testing.T, dir string) { write(t, dir, ".git/HEAD", "ref: refs/heads/nope\n") }, HeadAstray, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, dir := newSession(t, testOptions(t))
			write(t, dir, "meta.json", "{}")
			tip, _ := commitAll(t, r, "x")
			c.do(t, dir)
			r, err := Open(dir, testOptions(t))
			must(t, err)
			f, err := r.RefFault()
			must(t, err)
			if f.Kind != c.want || f.Kind != RefSound && f.Commit != tip.Hash {
				t.Errorf("RefFault = %+v, want kind %d and %s", f, c.want, tip.Hash)
			}
			if f.Kind == RefDamaged {
				return // what a commit refuses
			}
			write(t, dir, "meta.json", "{ }")
			commitAll(t, r, "y")
			_, err = tryGit(t, dir, "merge-base", "--is-ancestor", tip.Hash, "HEAD")
			if (err == nil) != c.born {
				t.Errorf("the next commit goes on from the last one: %v, want %v", err == nil, c.born)
			}
		})
	}
}

// TestMissingObjects: objects that git has moved into packs, or elsewhere, are
// there, and nothing is looked for in a partial clone.
func TestMissingObjects(t *testing.T) {
	needGit(t)
	for name, c := range map[string]struct {
		do   func(t *testing.T, dir string)
		want string
	}{
		"loose":  {func(*testing.T, string) {}, ""},
		"packed": {func(t *testing.T, dir string) { git(t, dir, "gc", "-q", "--prune=now") }, ""},
		"multi-pack index": {func(t *testing.T, dir string) {
			git(t, dir, "repack", "-adq")
			git(t, dir, "multi-pack-index", "write")
		}, ""},
		"lost": {func(*testing.T, string) {}, "sub/f"},
		"partial clone": {func(t *testing.T, dir string) {
			git(t, dir, "config", "core.repositoryformatversion", "1")
			git(t, dir, "config", "extensions.partialClone", "origin")
		}, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			r, dir := newSession(t, testOptions(t))
			write(t, dir, "sub/f", "content")
			write(t, dir, "sub/g", "content of g")
			must(t, os.Symlink("f", filepath.Join(dir, "sub", "link")))
			commitAll(t, r, "x")
			c.do(t, dir)
			if c.want != "" {
				hash := git(t, dir, "rev-parse", "HEAD:sub/f")
				must(t, os.Remove(filepath.Join(dir, ".git", "objects", hash[:2], hash[2:])))
			}
			r, err := Open(dir, testOptions(t))
			must(t, err)
			missing, err := r.MissingObjects(t.Context(), 0)
			must(t, err)
			var got []string
			for _, m := range missing {
				got = append(got, m.Path)
			}
			if strings.Join(got, " ") != strings.Trim(c.want, "-") {
				t.Errorf("missing: %v, want %q", got, c.want)
			}
			if len(r.DamagedPacks()) > 0 {
				t.Errorf("damaged packs: %v", r.DamagedPacks())
			}
		})
	}
}

// TestALostRefIsPutBack: also when there is nothing to commit, and when the
// repository is looked over as a new one is.
func TestALostRefIsPutBack(t *testing.T) {
	needGit(t)
	for name, use := range map[string]func(r *Repo, dir string) error{
		"commit": func(r *Repo, _ string) error {
			_, changed, err := r.CommitAll(t.Context(), "y")
			if changed {
				t.Error("there was something to commit")
			}
			return err
		},
		"init": func(_ *Repo, dir string) error { return Init(t.Context(), dir, testOptions(t)) },
	} {
		r, dir := newSession(t, testOptions(t))
		write(t, dir, "meta.json", "{}")
		tip, _ := commitAll(t, r, "x")
		must(t, os.Remove(filepath.Join(dir, ".git/refs/heads/main")), os.RemoveAll(filepath.Join(dir, ".git/logs")))
		r, err := Open(dir, testOptions(t))
		must(t, err)
		must(t, use(r, dir))
		if got, err := tryGit(t, dir, "rev-parse", "HEAD"); err != nil || got != tip.Hash {
			t.Errorf("%s: HEAD is %s, %v, want %s", name, got, err, tip.Hash)
		}
	}
}
