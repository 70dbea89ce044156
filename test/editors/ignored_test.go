package editors

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestRemoveWhatGitRefuses: files that no commit takes, as they are ignored or
// in a repository of their own, are in failed/ after they were removed, and
// those that a commit has taken are not.
func TestRemoveWhatGitRefuses(t *testing.T) {
	need(t, "git")
	for name, script := range map[string]string{
		"the session": `rm -rf sessions/"$1"`,
		"the files":   `cd sessions/"$1"/attachments && rm -rf x.log repo d plain .gitignore .GIT`,
	} {
		t.Run(name, func(t *testing.T) {
			m := start(t, harness.Options{Warnings: []string{"git cannot store this name"}})
			r := harness.Shell(t, m.Session(nested, "attachments"), `
				echo '*.log' > .gitignore; echo a > x.log; echo plain > plain; mkdir d; echo b > d/y.log; echo c > d/z; : > d/empty.log; mkdir .GIT; echo odd > .GIT/odd
				git init -q repo && cd repo && echo committed > inner.txt && git -c user.name=u -c user.email=e add inner.txt &&
				git -c user.name=u -c user.email=e commit -qm first && echo loose > loose.txt &&
				cd .. && find . -type f -exec touch -d '1 minute ago' {} + # a build's files are not kept`)
			if r.Code != 0 {
				t.Fatal(r.Err)
			}
			harness.Shell(t, m.Dir, script, nested)
			got := failed(t, m)
			objects := git(t, m, nested, "rev-list", "--all", "--objects")
			for name, text := range map[string]string{"x.log": "a\n", "d.y.log": "b\n", "repo.inner.txt": "committed\n", "repo.loose.txt": "loose\n", "repo..git.HEAD": "ref: ", ".GIT.odd": "odd\n"} {
				if strings.Contains(objects, " workdir/attachments/"+strings.Replace(name, "repo.", "repo/", 1)+"\n") {
					continue // its .git went first
				}
				if have, ok := got[nested+"-attachments."+name]; !ok || !strings.HasPrefix(have, text) {
					t.Errorf("failed/ has %q for %s", have, name)
				}
			}
			for kept := range got {
				for _, name := range []string{".plain", ".gitignore", "d.z", "empty.log"} {
					if strings.HasSuffix(kept, name) {
						t.Errorf("failed/ has %q", kept)
					}
				}
			}
			if t.Failed() {
				t.Logf("failed/ holds %q", slices.Sorted(maps.Keys(got)))
			}
		})
	}
}

// TestReplaceARealFile: a file that is in no commit yet is in one after another
// was renamed over it; one that Git has costs none.
func TestReplaceARealFile(t *testing.T) {
	m := start(t, harness.Options{})
	dir := m.Session(nested, "attachments")
	replace := func(text string) {
		t.Helper()
		if r := harness.Shell(t, dir, `echo "$1" > new && mv new over`, text); r.Code != 0 {
			t.Fatal(r.Err)
		}
	}
	if r := harness.Shell(t, dir, `echo first > over`); r.Code != 0 {
		t.Fatal(r.Err)
	}
	replace("second")
	if got := git(t, m, nested, "show", "HEAD:workdir/attachments/over"); got != "first" {
		t.Errorf("Git has %q", got)
	}
	if r := harness.Shell(t, m.Session(nested), `echo commit > ctl`); r.Code != 0 {
		t.Fatal(r.Err)
	}
	commits := git(t, m, nested, "rev-list", "--count", "HEAD")
	replace("third")
	if got := git(t, m, nested, "rev-list", "--count", "HEAD"); got != commits {
		t.Errorf("%s commits, were %s", got, commits)
	}
	if got := read(t, m.Session(nested, "attachments", "over")); got != "third\n" {
		t.Errorf("the file is %q", got)
	}
	if got := failed(t, m); len(got) > 0 {
		t.Errorf("failed/ holds %q", got)
	}
}
