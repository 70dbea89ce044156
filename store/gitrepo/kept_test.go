package gitrepo

import (
	"bytes"
	"context"
	"crypto/sha1"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

// TestLargeTree: the tree of a large directory, made of pieces of which most are
// kept, is what git makes of the same files, wherever in it something changes.
func TestLargeTree(t *testing.T) {
	needGit(t)
	r, dir := newSession(t, testOptions(t))
	name := func(i int) string { return fmt.Sprintf("history/%05d-u-%012x.json", i, i*7919) }
	for i := range 1500 {
		write(t, dir, name(10*i), fmt.Sprint(i))
	}
	steps := []func(){
		func() {},
		func() { write(t, dir, name(15000), "at the end") },
		func() { write(t, dir, name(1), "near the beginning") },
		func() { write(t, dir, name(7001), "in the middle"); write(t, dir, name(7010), "changed") },
		func() { must(t, os.Remove(filepath.Join(dir, name(7001)))) },
		func() {
			for i := range 1400 {
				must(t, os.Remove(filepath.Join(dir, name(10*i))))
			}
		},
	}
	for i, step := range steps {
		step()
		commitAll(t, r, fmt.Sprint("step ", i))
		head := strings.TrimSpace(git(t, dir, "rev-parse", "HEAD^{tree}"))
		git(t, dir, "read-tree", "--empty")
		git(t, dir, "add", "-A")
		if want := strings.TrimSpace(git(t, dir, "write-tree")); head != want {
			t.Fatalf("step %d: tree %s, git makes %s", i, head, want)
		}
		checkSound(t, dir)
	}
	if p := r.pieces.Load(); p == nil || len(*p) == 0 {
		t.Error("no piece of a tree was kept")
	}
}

// TestKeptIndex: an index that somebody else wrote is not taken for our own, not
// even one of the same length.
func TestKeptIndex(t *testing.T) {
	needGit(t)
	r, dir := newSession(t, testOptions(t))
	write(t, dir, "a", "1")
	write(t, dir, "b", "1")
	commitAll(t, r, "first")
	if r.kept.Load() == nil {
		t.Fatal("the index was not kept")
	}
	index := filepath.Join(dir, ".git/index")
	b, err := os.ReadFile(index)
	must(t, err)
	at := bytes.Index(b, []byte("\x00\x01a\x00")) // the flags and the name of a
	b[at] |= flagAssumeValid >> 8
	sum := sha1.Sum(b[:len(b)-checksumSize])
	copy(b[len(b)-checksumSize:], sum[:])
	must(t, os.WriteFile(index, b, 0o600))
	write(t, dir, "a", "2")
	write(t, dir, "b", "2")
	commitAll(t, r, "second")
	if got := git(t, dir, "show", "--format=", "--name-only", "HEAD"); got != "b" {
		t.Errorf("committed %q: the flag that was set on a is lost", got)
	}
	git(t, dir, "update-index", "--no-assume-unchanged", "a")
	commitAll(t, r, "third")
	checkSound(t, dir)
}

// TestHeadLockOfTheDead: HEAD.lock is another name of the record. One that a
// killed process left is removed, also when a power cut took the record's text
// and when it is HEAD itself that is written.
func TestHeadLockOfTheDead(t *testing.T) {
	needGit(t)
	for name, detached := range map[string]bool{"branch": false, "detached": true} {
		for _, recorded := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, recorded %t", name, recorded), func(t *testing.T) {
				r, dir := newSession(t, testOptions(t))
				write(t, dir, "a", "0")
				commitAll(t, r, "before")
				if detached {
					git(t, dir, "checkout", "-q", "--detach")
				}
				record, lock := filepath.Join(dir, ".git", recordName), filepath.Join(dir, ".git/HEAD.lock")
				id, err := identity(record)
				must(t, err, os.Link(record, lock))
				if recorded {
					must(t, os.WriteFile(record, []byte(recordHeader+"pid 1 start 2\nlock "+id+" HEAD.lock\n"), 0o600))
				}
				write(t, dir, "a", "1")
				commitAll(t, r, "after")
				checkSound(t, dir)
			})
		}
	}
}

// TestObjectSizes: an object is stored, compressed or put together of pieces by
// its size; git reads what it is.
func TestObjectSizes(t *testing.T) {
	needGit(t)
	r, dir := newSession(t, testOptions(t))
	rng := rand.New(rand.NewPCG(7, 7))
	for _, n := range []int{0, 1, storedMax - 1, storedMax, storedMax + 1, 1<<16 - 1, 1 << 16, 70000} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		write(t, dir, fmt.Sprint("workdir/", n), string(b))
	}
	commitAll(t, r, "blobs")
	checkSound(t, dir)
	// A large tree that cannot be divided behind its first tenth.
	for i := range 2700 {
		write(t, dir, fmt.Sprintf("workdir/d%05d/f", i), fmt.Sprint(min(i, 300)))
	}
	commitAll(t, r, "directories")
	checkSound(t, dir)
	must(t, os.RemoveAll(filepath.Join(dir, "workdir")))
	// A tree that grows from a stored one to one with several pieces.
	for i := range 400 {
		write(t, dir, fmt.Sprintf("history/%04d-u-%012x.json", i, i*7919), fmt.Sprint(i))
		commitAll(t, r, fmt.Sprint(i))
	}
	checkSound(t, dir)
	git(t, dir, "read-tree", "--empty")
	git(t, dir, "add", "-A")
	if head, want := git(t, dir, "rev-parse", "HEAD^{tree}"), git(t, dir, "write-tree"); head != want {
		t.Errorf("tree %s, git makes %s", head, want)
	}
}

// TestShortOfPacked: an abbreviation is unique among the objects of all packs.
func TestShortOfPacked(t *testing.T) {
	needGit(t)
	r, dir := newSession(t, testOptions(t))
	for i := range 300 {
		write(t, dir, "history/a", fmt.Sprint(i))
		commitAll(t, r, fmt.Sprint(i))
		if i%100 == 99 {
			if _, err := r.Compact(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	var all []string
	for line := range strings.Lines(git(t, dir, "cat-file", "--batch-all-objects", "--batch-check")) {
		all = append(all, line[:40])
	}
	a := r.newAbbreviator()
	a.min = 2 // so that it matters
	for _, h := range all {
		want := 2
		for _, other := range all {
			if other != h {
				want = max(want, commonPrefix(h, other)+1)
			}
		}
		if got := a.short(plumbing.NewHash(h)); got != h[:want] {
			t.Errorf("short(%s) = %s, want %s", h, got, h[:want])
		}
	}
	if len(a.packs) != 3 {
		t.Errorf("%d packs", len(a.packs))
	}
}
