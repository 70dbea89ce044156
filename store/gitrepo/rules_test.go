package gitrepo

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestIgnoreAsGits compares random patterns on random paths with git
// check-ignore.
func TestIgnoreAsGits(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	rng := rand.New(rand.NewPCG(7, 7))
	pieces := []string{"a", "b", "ab", "*", "**", "?", "/", "/", "[ab]", "[!a]", "[^b]", "[a-c]", "[[:alpha:]]", "[]a]", "[a-]", "[", "]", `\a`, `\*`, "!", "#", " ", `\ `, ".", "-", `[\a]`, "[[:foo:]]", `\`, "[a-", "c", "[[:upper:][:digit:]]", "A", "1"}
	names := []string{"a", "b", "ab", "abc", "c", "A", "1", "-", ".a", "]", "*", " ", "a b", "[", "!", "#", "[a"}
	for round := range 60 {
		var rules strings.Builder
		for range 1 + rng.IntN(6) {
			for range 1 + rng.IntN(6) {
				rules.WriteString(pieces[rng.IntN(len(pieces))])
			}
			rules.WriteString("\n")
		}
		must(t, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(rules.String()), 0o600))
		var paths []string
		for range 60 {
			p := names[rng.IntN(len(names))]
			for rng.IntN(2) == 0 {
				p += "/" + names[rng.IntN(len(names))]
			}
			paths = append(paths, p)
		}
		want := checkIgnore(t, dir, paths)
		g := &ignorer{list: parseIgnore(rules.String(), "", false)}
		for _, p := range paths {
			if got := ignoredAnywhere(g, p); got != want[p] {
				t.Errorf("round %d: %q ignored = %v, git says %v, by rules:\n%s", round, p, got, want[p], rules.String())
			}
		}
	}
}

// ignoredAnywhere asks for the path, then for the directories above it, from
// the top, as a scan meets them.
func ignoredAnywhere(g *ignorer, path string) bool {
	for i, c := range path {
		if c == '/' && g.ignored(path[:i], true) {
			return true
		}
	}
	return g.ignored(path, false)
}

func checkIgnore(t *testing.T, dir string, paths []string) map[string]bool {
	t.Helper()
	cmd := gitCommand(dir, "check-ignore", "-z", "--stdin", "--no-index")
	cmd.Stdin = strings.NewReader(strings.Join(paths, "\x00") + "\x00")
	out, err := cmd.Output()
	if ee, ok := err.(*exec.ExitError); err != nil && (!ok || ee.ExitCode() != 1) {
		t.Fatalf("git check-ignore: %v", err)
	}
	ignored := map[string]bool{}
	for p := range bytes.SplitSeq(out, []byte{0}) {
		ignored[string(p)] = true
	}
	return ignored
}

func TestWildmatchEnds(t *testing.T) {
	start := time.Now()
	pattern := strings.Repeat("*a", 60) + "b"
	if wildmatch(pattern, strings.Repeat("a", 2000), false) {
		t.Error("matched")
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}

func FuzzWildmatch(f *testing.F) {
	for _, s := range []string{"a**/b", "[", "[[:alpha:]", `\`, "**/**/**", "[a-]", "[!]"} {
		f.Add(s, "a/b")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		wildmatch(pattern, text, false)
		parseIgnore(pattern+"\n"+text, "", true).decide(text, true)
		parseAttributes(pattern+"\n"+text, "", true, false)
	})
}

func FuzzParseIndex(f *testing.F) {
	idx := &gitIndex{entries: []indexEntry{{name: "a/b", mode: modeFile}, {name: "c", mode: modeExec, ext: flagSkipWorktree}}}
	f.Add(idx.encode(&treeNode{count: 2, subs: []*treeNode{{name: "a", count: 1}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseIndex(b)
		if err != nil {
			return
		}
		again, err := parseIndex(got.encode(nil))
		if err != nil || fmt.Sprint(again.entries) != fmt.Sprint(got.entries) {
			t.Errorf("not the same when written and read: %v", err)
		}
	})
}

func TestIndexAsGits(t *testing.T) {
	needGit(t)
	r, dir := newSession(t, testOptions(t))
	for i := range 40 {
		write(t, dir, fmt.Sprintf("d%d/%s", i%7, strings.Repeat("x", i*6)+"f"), fmt.Sprint(i))
	}
	commitAll(t, r, "x")
	git(t, dir, "update-index", "--skip-worktree", "d1/xxxxxxf")
	git(t, dir, "update-index", "--assume-unchanged", "d0/f")
	for _, version := range []string{"2", "4"} {
		git(t, dir, "update-index", "--index-version", version)
		want := git(t, dir, "ls-files", "-s", "-v", "--debug")
		b, err := os.ReadFile(filepath.Join(dir, ".git", "index"))
		must(t, err)
		idx, err := parseIndex(b)
		must(t, err)
		info, err := os.Stat(filepath.Join(dir, ".git", "index"))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, ".git", "index"), idx.encode(nil), 0o600),
			os.Chtimes(filepath.Join(dir, ".git", "index"), info.ModTime(), info.ModTime()))
		// The flags word shows the bits of memory, not of the file.
		if got := git(t, dir, "ls-files", "-s", "-v", "--debug"); stripFlags(got) != stripFlags(want) {
			t.Errorf("version %s:\n%s\nwas\n%s", version, got, want)
		}
	}
}

func stripFlags(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		if i := strings.Index(line, "flags:"); i >= 0 {
			line = line[:i] + "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

func TestProblemsAreReported(t *testing.T) {
	needGit(t)
	r, dir := newSession(t, testOptions(t))
	git(t, dir, "config", "filter.run.clean", "touch ran; cat")
	git(t, dir, "config", "filter.run.required", "true")
	write(t, dir, ".git/hooks/pre-commit", "#!/bin/sh\ntouch ran\nexit 1\n")
	must(t, os.Chmod(filepath.Join(dir, ".git/hooks/pre-commit"), 0o755))
	write(t, dir, ".gitattributes", "*.f filter=run\n*.e working-tree-encoding=UTF-16\n")
	write(t, dir, "a.f", "raw")
	write(t, dir, "a.e", "raw")
	git(t, dir, "init", "-q", "n")
	commitAll(t, r, "x")
	if _, err := os.Lstat(filepath.Join(dir, "ran")); err == nil {
		t.Error("a program was run")
	}
	var got []string
	for _, p := range r.Problems() {
		got = append(got, p.Path)
	}
	if fmt.Sprint(got) != "[a.e a.f n]" {
		t.Errorf("problems: %v", r.Problems())
	}
	if s := git(t, dir, "cat-file", "blob", "HEAD:a.f"); s != "raw" {
		t.Errorf("stored %q", s)
	}
	commitAll(t, r, "y")
	if p := r.Problems(); len(p) != 1 {
		t.Errorf("problems of a commit that read nothing: %v", p)
	}
}

// TestRacyFiles changes files again and again without changing size, inode or,
// as far as the clock of the file system is coarse, the time.
func TestRacyFiles(t *testing.T) {
	needGit(t)
	opt := testOptions(t)
	opt.Sync = SyncOff
	r, dir := newSession(t, opt)
	path := filepath.Join(dir, "f")
	must(t, os.WriteFile(path, []byte("00000"), 0o600))
	for i := range 150 {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		must(t, err)
		_, err = fmt.Fprintf(f, "%05d", i+1)
		must(t, err, f.Close())
		if _, changed := commitAll(t, r, fmt.Sprint(i)); !changed {
			t.Fatalf("change %d was missed", i)
		}
	}
	blob := git(t, dir, "cat-file", "blob", "HEAD:f")
	if blob != "00150" {
		t.Errorf("HEAD has %q", blob)
	}
	checkSound(t, dir)
}

func TestCompact(t *testing.T) {
	needGit(t)
	opt := testOptions(t)
	opt.Sync = SyncOff
	r, dir := newSession(t, opt)
	rng := rand.New(rand.NewPCG(3, 3))
	big := make([]byte, 100<<10)
	for i := range 120 {
		write(t, dir, fmt.Sprintf("history/%04d-u-%x.json", i, rng.Uint64()), strings.Repeat("text ", rng.IntN(200))+fmt.Sprint(i))
		write(t, dir, "meta.json", fmt.Sprintf(`{"n": %d, "pad": "%s"}`, i, strings.Repeat("x", 500)))
		if i == 60 {
			for j := range big {
				big[j] = byte(rng.Uint32())
			}
			write(t, dir, "workdir/big", string(big))
		}
		commitAll(t, r, fmt.Sprint(i))
	}
	before := git(t, dir, "rev-list", "--objects", "--all")
	log := allCommits(t, r)
	n, err := r.Compact(context.Background())
	if err != nil || n < 400 {
		t.Fatalf("Compact = %d, %v", n, err)
	}
	if got := git(t, dir, "count-objects"); !strings.HasPrefix(got, "0 objects") {
		t.Errorf("still loose: %s", got)
	}
	if after := git(t, dir, "rev-list", "--objects", "--all"); after != before {
		t.Error("not the same objects")
	}
	packs, err := filepath.Glob(filepath.Join(dir, ".git/objects/pack/*.pack"))
	must(t, err)
	if len(packs) != 1 {
		t.Fatalf("packs: %v", packs)
	}
	ours := size(t, packs[0])
	verify := git(t, dir, "verify-pack", "-v", strings.TrimSuffix(packs[0], ".pack")+".idx")
	if !strings.Contains(verify, "chain length = 5") {
		t.Error("no chains of deltas")
	}
	checkSound(t, dir)
	// The Repo that was open before, and a new one, read the packed objects.
	if got := allCommits(t, r); fmt.Sprint(got) != fmt.Sprint(log) {
		t.Error("another log")
	}
	write(t, dir, "meta.json", "after")
	commitAll(t, r, "after")
	if n, err := r.CompactIfNeeded(context.Background()); err != nil || n != 0 {
		t.Errorf("CompactIfNeeded = %d, %v", n, err)
	}
	git(t, dir, "gc", "-q")
	packs, err = filepath.Glob(filepath.Join(dir, ".git/objects/pack/*.pack"))
	must(t, err)
	if gits := size(t, packs[0]); ours > 2*gits {
		t.Errorf("pack of %d bytes, git's has %d", ours, gits)
	}
	allCommits(t, r)
	if n, err := r.Compact(context.Background()); err != nil || n != 0 {
		t.Errorf("nothing loose: %d, %v", n, err)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	fi, err := os.Stat(path)
	must(t, err)
	return fi.Size()
}

func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		for _, sync := range []SyncMode{SyncOff, SyncBatch} {
			b.Run(fmt.Sprintf("%d/sync=%v", n, sync == SyncBatch), func(b *testing.B) {
				opt := testOptions(b)
				opt.Sync = sync
				r, dir := newSession(b, opt)
				for i := range n {
					write(b, dir, fmt.Sprintf("history/%04d-u-x.json", i), fmt.Sprintf(`{"id": "%d"}`, i))
				}
				commitAll(b, r, "begin")
				i := n
				for b.Loop() {
					b.StopTimer()
					for range 2 {
						write(b, dir, fmt.Sprintf("history/%04d-u-x.json", i), fmt.Sprintf(`{"id": "%d"}`, i))
						i++
					}
					write(b, dir, "meta.json", fmt.Sprint(i))
					b.StartTimer()
					commitAll(b, r, "turn")
				}
			})
		}
	}
}
