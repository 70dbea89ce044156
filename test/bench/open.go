package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store"
)

// openGroup measures the way from a cold start to the active branch.
func openGroup(s *suite) error {
	root, err := s.longSession()
	if err != nil {
		return err
	}
	if s.wants("open/cold") {
		if err := s.coldOpen(root); err != nil {
			return err
		}
	}
	if s.wants("open/again") {
		return s.branchAgain(root)
	}
	return nil
}

// coldOpen compares a new process's first reading of a branch, with and
// without an index cache, with the reading of the bare files.
func (s *suite) coldOpen(root string) error {
	dir := filepath.Join(root, longID)
	time.Sleep(3 * time.Second) // no cache trusts what was changed in the last two
	branch := func(cache string) (time.Duration, error) {
		st, err := store.Open(s.ctx, store.Options{Root: root, CacheDir: cache})
		if err != nil {
			return 0, err
		}
		runtime.GC() // nobody else's garbage
		began := time.Now()
		var b []dag.Node
		sn, err := st.Load(s.ctx, longID)
		if err == nil {
			b, err = sn.Branch() // texts are read on demand
		}
		took := time.Since(began)
		if err == nil && len(b) != s.nodes {
			err = fmt.Errorf("a branch of %d messages, want %d", len(b), s.nodes)
		}
		return took, errors.Join(err, st.Close())
	}
	raw, err := s.interleave(max(s.reps, 5), 1,
		timed("bare", func() error { return readAll(filepath.Join(dir, "history"), s.nodes) }),
		arm{"without cache", func() (time.Duration, error) { return branch("") }},
		arm{"with cache", func() (time.Duration, error) {
			cache := s.path("cache", "sessionfs")
			if _, err := branch(cache); err != nil { // writes it, where there is none
				return 0, err
			}
			return branch(cache)
		}})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("open/cold, %d nodes, ", s.nodes)
	s.compare(name+"no index cache", 1.6, raw, "without cache", "bare")
	s.compare(name+"index cache", 0.25, raw, "with cache", "bare")
	return nil
}

// readAll is the least that reading a history takes: the names, then each
// file opened, read into one buffer, and closed.
func readAll(dir string, want int) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for _, name := range names {
		fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		_, err = unix.Read(fd, buf)
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			return err
		}
	}
	if len(names) != want {
		return fmt.Errorf("%d files in %s, want %d", len(names), dir, want)
	}
	return nil
}

// branchAgain is the branch of a session that is open.
func (s *suite) branchAgain(root string) error {
	st, err := store.Open(s.ctx, store.Options{Root: root})
	if err != nil {
		return err
	}
	defer st.Close()
	raw, err := s.interleave(5*s.reps, 2, timed("branch", func() error {
		b, err := st.GetBranch(s.ctx, longID, "")
		if err == nil && len(b) != s.nodes {
			err = fmt.Errorf("a branch of %d messages, want %d", len(b), s.nodes)
		}
		return err
	}))
	if err != nil {
		return err
	}
	s.add(figure{Name: fmt.Sprintf("open/branch of %d messages again", s.nodes), Unit: "ms", Bound: 5, Value: 1e3 * median(raw["branch"]), Raw: raw})
	return nil
}
