package mounted

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// broken are the golden stores in which some branch's predecessor chain is
// broken: what follows from such a branch is EIO, and said to be.
var broken = []string{"broken_nodes", "broken_layout"}

// goldenStores names every golden store.
func goldenStores(t *testing.T) []string {
	t.Helper()
	tarballs, err := filepath.Glob(filepath.Join(harness.StoresDir(t), "*.tar.gz"))
	if err != nil || len(tarballs) < 10 {
		t.Fatal(len(tarballs), err)
	}
	var out []string
	for _, p := range tarballs {
		out = append(out, strings.TrimSuffix(filepath.Base(p), ".tar.gz"))
	}
	return out
}

// TestWholeMount: apart from .sessionfs/, the tools that walk trees finish
// over a mount of every golden store without an error or a warning, and a
// second tar of the unchanged tree is the same byte for byte.
func TestWholeMount(t *testing.T) {
	for _, tool := range []string{"rsync", "tar", "du", "find", "grep"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	for _, golden := range goldenStores(t) {
		t.Run(golden, func(t *testing.T) {
			// As users have it: under the race detector the large stores take minutes.
			m := harness.Start(t, harness.Options{Store: harness.Golden(t, golden), Plain: true, Warnings: []string{".*"}})
			quiet := !slices.Contains(broken, golden)
			for _, script := range []string{
				`find . -path ./.sessionfs -prune -o -ls > /dev/null`,
				`du -s --exclude=.sessionfs . > /dev/null`,
				`grep -rI --exclude-dir=.sessionfs 'no such text anywhere' . ; [ $? = 1 ]`,
				`tar -c --exclude=./.sessionfs -f "$1/one.tar" . && tar -c --exclude=./.sessionfs -f "$1/two.tar" . && cmp "$1/one.tar" "$1/two.tar"`,
				`rsync -a --exclude=/.sessionfs ./ "$1/copy/" && rsync -anic --delete --exclude=/.sessionfs ./ "$1/copy/"`,
			} {
				r := harness.Shell(t, m.Dir, script, t.TempDir())
				if quiet && (r.Code != 0 || r.Out != "" || r.Err != "") {
					t.Errorf("%s: status %d: %.600s %.600s", script, r.Code, r.Out, r.Err)
				}
				if !quiet {
					onlyBroken(t, script, r.Err)
				}
			}
		})
	}
}

// onlyBroken checks that all that a tool complained about is what follows from
// a broken chain.
func onlyBroken(t *testing.T, script, words string) {
	t.Helper()
	for line := range strings.Lines(words) {
		of := []string{"/messages", "/branch/", "/transcript.md", "/transcript.jsonl"}
		ours := slices.ContainsFunc(of, func(name string) bool { return strings.Contains(line, name) })
		summary := strings.Contains(line, "Exiting with failure") || strings.Contains(line, "rsync error") || strings.Contains(line, "some files") || strings.Contains(line, "IO error encountered")
		if !ours && !summary {
			t.Errorf("%s: %s", script, line)
		}
	}
}
