package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sessionfs/sessionfs/store"
)

// commitID is the session whose turns are committed.
const commitID = "turns"

// commitGroup compares the commit of one turn with what Git's own program
// takes for it: meta.json and two new history files.
func commitGroup(s *suite) error {
	for _, size := range s.commits {
		if err := s.commitSize(size); err != nil {
			return fmt.Errorf("%d files: %w", size.files, err)
		}
	}
	return nil
}

func (s *suite) commitSize(size commitSize) (err error) {
	name := fmt.Sprint("commit-", size.files)
	root, err := s.corpus(name, 1, func(int) spec { return spec{commitID, size.files, 1500, repoFull} })
	if err != nil {
		return err
	}
	// All packed, so that nobody's housekeeping begins in the middle.
	if err := s.git(filepath.Join(root, commitID), "gc", "-q"); err != nil {
		return err
	}
	off, err := s.newTurns(root, "off")
	if err != nil {
		return err
	}
	batch, err := s.newTurns(root, "batch")
	if err != nil {
		return errors.Join(err, off.close())
	}
	defer func() { err = errors.Join(err, off.close(), batch.close(), s.drop(name)) }()
	theirs := &gitTurns{s: s, dir: filepath.Join(root, commitID), n: size.files}
	if err := s.git(theirs.dir, "config", "gc.auto", "0"); err != nil {
		return err
	}
	s.calm()
	raw, err := s.interleave(2*s.reps, 2, arm{"git", theirs.turn}, arm{"off", off.turn}, arm{"batch", batch.turn})
	if err != nil {
		return err
	}
	s.compare(fmt.Sprintf("commit/turn on %d files, sync off", size.files), size.bound, raw, "off", "git")
	s.compare(fmt.Sprintf("commit/turn on %d files, sync batch", size.files), 0.35, raw, "batch", "git")
	return nil
}

// git runs Git on a repository.
func (s *suite) git(dir string, args ...string) error { return s.command(dir, "git", args...) }

// turns makes turns in a session through the store.
type turns struct {
	s   *suite
	dir string // of the session
	st  *store.Store
	n   int
}

// newTurns copies a session's store and opens it.
func (s *suite) newTurns(root, sync string) (*turns, error) {
	copied, err := s.fresh("turns")
	if err != nil {
		return nil, err
	}
	if err := s.command("", "cp", "-a", root+"/.", copied); err != nil {
		return nil, err
	}
	dir := filepath.Join(copied, commitID)
	// The copies have other inodes: let Git's index know them.
	if err := s.git(dir, "status", "--porcelain"); err != nil {
		return nil, err
	}
	st, err := store.Open(s.ctx, store.Options{Root: copied, GitSync: sync})
	return &turns{s: s, dir: dir, st: st}, err
}

func (t *turns) close() error {
	return errors.Join(t.st.Close(), os.RemoveAll(filepath.Dir(t.dir)))
}

// turn appends a question and a reply and measures the commit of the two.
func (t *turns) turn() (time.Duration, error) {
	ctx := context.WithoutCancel(t.s.ctx)
	t.n++
	for _, role := range []string{"user", "assistant"} {
		raw := fmt.Appendf(nil, `{"role": %q, "content": %q}`, role, turnText(role, t.n))
		if _, err := t.st.AppendMessage(ctx, commitID, raw); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	_, changed, err := t.st.CommitTurn(ctx, commitID, "")
	took := time.Since(began)
	if err == nil && !changed {
		err = errors.New("nothing was committed")
	}
	return took, err
}

// turnText is what is said in a turn.
func turnText(role string, n int) string {
	repeat := 20
	if role == "assistant" {
		repeat = 150
	}
	return fmt.Sprintf("turn %d: %s", n, strings.Repeat(fmt.Sprintf("what the %s says %x; ", role, n*7919), repeat/4))
}

// gitTurns makes the same turns with Git's own program.
type gitTurns struct {
	s   *suite
	dir string
	n   int
}

func (t *gitTurns) turn() (time.Duration, error) {
	head := nodeID(commitID, t.n-1)
	for range 2 {
		id := nodeID(commitID, t.n)
		raw := message(id, t.n, head, turnText([]string{"user", "assistant"}[t.n%2], t.n))
		if err := os.WriteFile(filepath.Join(t.dir, "history", nodeFile(commitID, t.n)+".json"), raw, 0o600); err != nil {
			return 0, err
		}
		head = id
		t.n++
	}
	if err := os.WriteFile(filepath.Join(t.dir, "meta.json"), metaText(commitID, "turns", head, float64(t.n)), 0o600); err != nil {
		return 0, err
	}
	began := time.Now()
	err := errors.Join(t.s.git(t.dir, "add", "-A"), t.s.git(t.dir, "commit", "-q", "-m", "turn"))
	return time.Since(began), err
}
