package gitrepo

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// situation is a sequence of changes to a work tree. After each, one copy is
// committed by CommitAll and one by git; their trees must be equal.
type situation struct {
	name  string
	steps []func(t *testing.T, dir string)
	// refused: git add -A refuses the whole work tree here, so that git is run
	// with --ignore-errors, and the rest must be the same.
	refused bool
}

func w(name, content string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { write(t, dir, name, content) }
}

func rm(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { must(t, os.RemoveAll(filepath.Join(dir, name))) }
}

func all(fs ...func(*testing.T, string)) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		for _, f := range fs {
			f(t, dir)
		}
	}
}

func chmod(name string, mode os.FileMode) func(*testing.T, string) {
	return func(t *testing.T, dir string) { must(t, os.Chmod(filepath.Join(dir, name), mode)) }
}

func link(target, name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path), os.Symlink(target, path))
	}
}

func mkdir(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { must(t, os.MkdirAll(filepath.Join(dir, name), 0o755)) }
}

func runGit(args ...string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { git(t, dir, args...) }
}

// nest makes a nested repository with one commit whose hash is always the same.
func nest(name, file string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		sub := filepath.Join(dir, name)
		must(t, os.MkdirAll(sub, 0o755))
		git(t, sub, "init", "-q")
		write(t, sub, file, file)
		git(t, sub, "add", "-A")
		git(t, sub, "-c", "user.name=n", "-c", "user.email=n@n", "commit", "-q", "-m", "m",
			"--date=@1700000000 +0000")
		// The committer's date is now: make the commits of both copies equal.
		tree := git(t, sub, "rev-parse", "HEAD^{tree}")
		must(t, os.WriteFile(filepath.Join(sub, ".git", "c"), []byte("tree "+tree+"\nauthor n <n@n> 1700000000 +0000\ncommitter n <n@n> 1700000000 +0000\n\nm\n"), 0o600))
		h := git(t, sub, "hash-object", "-t", "commit", "-w", ".git/c")
		git(t, sub, "reset", "-q", "--soft", h)
	}
}

func situations() []situation {
	type steps = []func(*testing.T, string)
	return []situation{
		{"add modify delete", steps{w("a", "1"), w("a", "2"), w("d/e/f", "x"), rm("a"), rm("d")}, false},
		{"order", steps{all(w("a", "1"), w("a-b", "1"), w("a.b", "1"), w("ad/x", "1"), w("ad-/x", "2"), w("ad.x", "3"), w("ad0", "1")), w("ad/y", "2")}, false},
		{"same size", steps{w("a", "1"), w("a", "2"), w("a", "3")}, false},
		{"executable", steps{w("a", "1"), chmod("a", 0o755), chmod("a", 0o700), chmod("a", 0o611), chmod("a", 0o655)}, false},
		{"fileMode off", steps{all(w("a", "1"), w("x", "1"), chmod("x", 0o755)), all(runGit("config", "core.fileMode", "false"), chmod("a", 0o755), w("b", "2"), chmod("b", 0o755)), all(w("x", "22"), chmod("x", 0o644))}, false},
		{"symlinks", steps{all(link("a", "l"), link("nowhere/at all", "d/l"), w("f", "1")), link("b", "l"), link("/tmp", "f"), all(rm("l"), w("l", "a"))}, false},
		{"symlink to a directory", steps{all(w("d/f", "1"), link("d", "l")), all(rm("d"), link("elsewhere", "d")), all(rm("d"), w("d/f", "2"))}, false},
		{"file and directory", steps{w("a", "1"), all(rm("a"), w("a/b", "1"), w("a-", "2")), all(rm("a"), w("a", "3"))}, false},
		{"deep", steps{w(strings.Repeat("d/", 60)+"f", "1"), rm("d/d/d")}, false},
		{"empty directories", steps{all(mkdir("e/e/e"), w("f", "1")), mkdir("e/x")}, false},
		{"empty file", steps{w("a", ""), w("a", "x"), w("a", "")}, false},
		{"odd names", steps{all(w("sp ace", "1"), w("-dash", "2"), w("new\nline", "3"), w("\xff\xfe", "4"), w("tab\t\"q\"\\", "5"), w("ünï", "6"), w("*?[x]", "7"), w(strings.Repeat("n", 255), "8"))}, false},
		{"hidden", steps{all(w(".hidden", "1"), w(".gitfoo", "2"), w("d/.git2/x", "3"), w(".gitmodules", "[submodule]\n"))}, false},
		{"fifo", steps{all(w("a", "1"), w("f", "1")), func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "f")), unix.Mkfifo(filepath.Join(dir, "f2"), 0o600))
		}}, false},
		{"nested repository", steps{all(nest("n", "f"), w("a", "1")), nest("n", "g"), w("n/untracked", "1"), rm("n")}, false},
		{"nested becomes files", steps{nest("n", "f"), rm("n/.git"), all(rm("n"), w("n/x", "1"))}, false},
		{"nested becomes a file", steps{nest("n", "f"), all(rm("n"), w("n", "1"))}, false},
		{"nested empty directory", steps{nest("n", "f"), all(rm("n"), mkdir("n")), w("a", "1")}, false},
		{"files become nested", steps{w("n/f", "1"), nest("n", "g"), w("n/h", "2")}, false},
		{"file becomes nested", steps{w("n", "1"), all(rm("n"), nest("n", "g"))}, false},
		{"nested without a commit", steps{all(w("a", "1"), func(t *testing.T, dir string) { git(t, dir, "init", "-q", "n"); write(t, dir, "n/f", "1") }), w("b", "2")}, true},
		{"half a .git", steps{all(mkdir("n/.git"), w("n/f", "1"), w("m/.git", "no gitdir"), w("m/f", "1"))}, false},
		{"ignored nested", steps{all(w(".gitignore", "n/\nm\n"), nest("n", "f"), nest("m", "f"), nest("k", "f"))}, false},
		{"linked nested", steps{func(t *testing.T, dir string) {
			nest("n", "f")(t, dir)
			git(t, filepath.Join(dir, "n"), "worktree", "add", "-q", "../m")
		}}, false},
		{"forbidden names", steps{all(w("a", "1"), w(".GIT/x", "1"), w("git~1", "2"), w("d/.Git", "3"), w("e/.git.", "4"), link("x", ".gitmodules")), w("b", "2")}, true},
		{"ignore", steps{all(w(".gitignore", "*.log\n!keep.log\n/top\nd/x\nbuild/\n# c\n\\#h\n\\!b\nsp \ntr\\ \n**/deep/z\nq/**\ncr\r\n"),
			w("a.log", "1"), w("keep.log", "1"), w("top", "1"), w("s/top", "1"), w("d/x", "1"), w("s/d/x", "1"), w("build", "1"), w("s/build/f", "1"),
			w("#h", "1"), w("!b", "1"), w("sp", "1"), w("tr ", "1"), w("k/deep/z", "1"), w("deep/z", "1"), w("q/r/s", "1"), w("s/q/r", "1"), w("cr", "1")),
			w("s/.gitignore", "!*.log\n"), w("s/b.log", "1"), rm(".gitignore")}, false},
		{"tracked and ignored", steps{all(w("a.log", "1"), w("ig/t", "1"), w("ig/sub/t", "1")), all(w(".gitignore", "*.log\nig/\n!ig/new\n"), w("a.log", "22"), w("ig/t", "22"), w("ig/new", "1"), w("ig/sub/new", "1"), w("b.log", "1")), all(rm("ig/t"), rm("ig/sub"), w("ig/sub2/t", "1"))}, false},
		{"info/exclude", steps{all(w(".git/info/exclude", "*.o\n!x.o\n"), w("a.o", "1"), w("x.o", "1"), w("s/.gitignore", "x.o\n"), w("s/x.o", "1"))}, false},
		{"excludesFile", steps{all(w(".git/info/exclude", "!b.tmp\n"), w(".git/ex", "*.tmp\n"), runGit("config", "core.excludesFile", ".git/ex"), w("a.tmp", "1"), w("b.tmp", "1"), w("c", "1"))}, false},
		{"ignoreCase", steps{all(runGit("config", "core.ignoreCase", "true"), w(".gitignore", "*.LOG\nFoo\nb[A-C]d\n"), w("a.log", "1"), w("FOO", "1"), w("x/bBd", "1"), w("bzd", "1"))}, false},
		{"attributes", steps{all(w(".gitattributes", "*.txt text\n*.crlf text eol=crlf\n*.bin binary\n*.auto text=auto\n*.no -text\nsub/*.txt -text\n*.lf eol=lf\n[attr]mine text\n*.m mine\n\"q uo.te\" text\n*.old crlf\n*.oldno -crlf\n!neg text\n"),
			w("a.txt", "x\r\ny\r\n"), w("a.crlf", "x\r\ny\n"), w("a.bin", "x\r\n"), w("a.auto", "x\r\ny\r\n"), w("b.auto", "x\r\n\x00"), w("c.auto", "x\ry\r\n"), w("a.no", "x\r\n"), w("sub/a.txt", "x\r\n"), w("sub/b/a.txt", "x\r\n"),
			w("a.lf", "x\r\n\x00"), w("a.m", "x\r\n"), w("q uo.te", "x\r\n"), w("a.old", "x\r\n"), w("a.oldno", "x\r\n"), w("neg", "x\r\n"), w("plain", "x\r\n"), w("d.txt", "x\r\r\n\r")),
			all(w("s2/.gitattributes", "*.txt -text\n"), w("s2/a.txt", "1\r\n"), w("s2/b.bin", "1\r\n")),
			all(w(".git/info/attributes", "*.zin their\n*.yin binary\n[attr]their text\n"), w("z.zin", "zz\r\n"), w("z.yin", "zz\r\n"))}, false},
		{"auto keeps CRLF of the index", steps{all(w("a", "x\r\n"), w("b", "x\n")), w(".gitattributes", "* text=auto\n"), all(w("a", "x\r\ny\r\n"), w("b", "x\r\ny\r\n"))}, false},
		{"autocrlf", steps{all(runGit("config", "core.autocrlf", "input"), w("a", "x\r\n"), w("b", "\x00\r\n"), w("c", "1\x01\r\n"), w("d", "long enough to be text for certain "+strings.Repeat("y", 200)+"\x01\r\n\x1a")), all(w(".gitattributes", "e text=auto eol=crlf\nf -text\n"), w("e", "1\r\n"), w("f", "1\r\n"))}, false},
		{"autocrlf true", steps{all(runGit("config", "core.autocrlf", "true"), runGit("config", "core.safecrlf", "false"), w("a", "x\r\n"), w("b", "x\n"))}, false},
		{"ident", steps{all(w(".gitattributes", "*.i ident\n*.ti text ident\n"), w("a.i", "$Id: abc $ $Id$ $Id: x\n$ $Id: y"), w("b.ti", "$Id: abc $\r\n"), w("c", "$Id: abc $"))}, false},
		{"macro unset", steps{all(w(".gitattributes", "* text\n*.b binary\n*.u !text\n*.bb binary text\n"), w("a.b", "\r\n"), w("a.u", "\r\n"), w("a.bb", "\r\n"), w("a", "\r\n"))}, false},
		{"big", steps{w("big", strings.Repeat("0123456789abcdef", 400<<10)), all(w("big", strings.Repeat("0123456789abcdeg", 400<<10)), w("auto", strings.Repeat("line of text\r\n", 400<<10)), w(".gitattributes", "auto text\n"))}, false},
		{"many", steps{func(t *testing.T, dir string) {
			for i := range 300 {
				write(t, dir, fmt.Sprintf("history/%04d-u-%d.json", i, i), fmt.Sprint(i))
			}
		}, w("history/0300-u-x.json", "x"), rm("history/0007-u-7.json")}, false},
		{"everything goes", steps{all(w("a", "1"), w("b/c", "1")), all(rm("a"), rm("b"), rm("workdir")), w("a", "1")}, false},

		{"index v4", steps{all(w("dir/abc", "1"), w("dir/abd", "1")), all(runGit("update-index", "--index-version", "4"), w("dir/abe", "2")), w("dir/abc", "3")}, false},
		{"split index", steps{all(w("a", "1"), w("b", "1")), all(runGit("update-index", "--split-index"), w("c", "1")), all(rm("a"), runGit("update-index", "--split-index"), w("b", "2"))}, false},
		{"untracked cache", steps{w("a", "1"), all(runGit("update-index", "--force-untracked-cache"), runGit("status"), w("b", "1")), w("c/d", "1")}, false},
		{"assume unchanged", steps{all(w("a", "1"), w("b", "1"), w("c/d", "1")), all(runGit("update-index", "--assume-unchanged", "a", "b", "c/d"), w("a", "22"), rm("b"), w("e", "1")), all(rm("c"), w("c", "1"))}, false},
		{"skip-worktree", steps{all(w("a", "1"), w("b", "1")), all(runGit("update-index", "--skip-worktree", "a", "b"), rm("a"), w("e", "1")), w("e", "2")}, false},
		{"intent to add", steps{all(w("a", "1"), w("z", "1")), all(w("b", "1"), w("c", "1"), runGit("add", "-N", "b", "c"), rm("c")), w("e", "2")}, false},
		{"staged and gone again", steps{w("a", "1"), all(w("b", "1"), runGit("add", "b"), rm("b")), all(w("a", "2"), runGit("add", "a"), w("a", "1")), all(w("k", "1"), runGit("add", "k"))}, false},
		{"forced past ignore", steps{all(w(".gitignore", "i*\n"), w("i1", "1"), runGit("add", "-f", "i1"), w("i2", "1"))}, false},
		{"index missing", steps{all(w(".gitignore", "ig\n"), w("ig", "1"), runGit("add", "-f", "ig"), w("a", "1")), all(rm(".git/index"), w("b", "1"))}, false},
		{"merge conflict", steps{w("a", "1"), func(t *testing.T, dir string) {
			one := git(t, dir, "rev-parse", "HEAD:a")
			in := fmt.Sprintf("0 0000000000000000000000000000000000000000\ta\n100644 %s 1\ta\n100644 %s 2\ta\n100644 %s 3\tgone\n", one, one, one)
			must(t, os.WriteFile(filepath.Join(dir, ".git", "in"), []byte(in), 0o600))
			f, err := os.Open(filepath.Join(dir, ".git", "in"))
			must(t, err)
			defer f.Close()
			gitStdin(t, dir, f, "update-index", "--index-info")
			write(t, dir, "a", "resolved")
		}, w("b", "1")}, false},
	}
}

func TestTreesEqualGits(t *testing.T) {
	needGit(t)
	for _, s := range situations() {
		t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			opt := testOptions(t)
			r, ours := newSession(t, opt)
			_, theirs := newSession(t, opt)
			for i, step := range s.steps {
				step(t, ours)
				step(t, theirs)
				_, changed := commitAll(t, r, fmt.Sprintf("step %d", i))
				before := git(t, theirs, "rev-parse", "HEAD")
				commitByGit(t, theirs, s.refused)
				compareTrees(t, i, ours, theirs)
				if gits := git(t, theirs, "rev-parse", "HEAD") != before; gits != changed {
					t.Errorf("step %d: changed = %v, git committed: %v", i, changed, gits)
				}
				if !s.refused {
					checkSound(t, ours)
				} else {
					checkFsck(t, ours)
				}
				if _, again := commitAll(t, r, "again"); again {
					t.Errorf("step %d: a second commit finds a change", i)
				}
			}
		})
	}
}

func gitStdin(t testing.TB, dir string, in *os.File, args ...string) {
	t.Helper()
	b, err := os.ReadFile(in.Name())
	must(t, err)
	cmd := gitCommand(dir, args...)
	cmd.Stdin = bytes.NewReader(b)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func commitByGit(t testing.TB, dir string, refused bool) {
	t.Helper()
	if refused {
		if out, err := tryGit(t, dir, "add", "-A"); err == nil {
			t.Errorf("git add -A did not refuse:\n%s", out)
		}
		tryGit(t, dir, "add", "-A", "--ignore-errors")
	} else {
		git(t, dir, "add", "-A")
	}
	if git(t, dir, "diff", "--cached", "--name-only") != "" {
		git(t, dir, "commit", "-q", "-m", "x")
	}
}

func compareTrees(t testing.TB, step int, ours, theirs string) {
	t.Helper()
	if git(t, ours, "rev-parse", "HEAD^{tree}") == git(t, theirs, "rev-parse", "HEAD^{tree}") {
		return
	}
	t.Errorf("step %d: trees differ\n--- ours\n%s\n--- git's\n%s", step,
		git(t, ours, "ls-tree", "-r", "-t", "HEAD"), git(t, theirs, "ls-tree", "-r", "-t", "HEAD"))
}
