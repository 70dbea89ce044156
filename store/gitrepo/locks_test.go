package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLocks(t *testing.T) {
	needGit(t)
	opt := testOptions(t)
	opt.LockTimeout = 100 * time.Millisecond
	r, dir := newSession(t, opt)
	lock := func(name string) string { return filepath.Join(dir, ".git", name+".lock") }
	foreign := []string{"index", "HEAD", "refs/heads/main"}
	for i, name := range foreign {
		write(t, dir, "f", fmt.Sprint(i))
		must(t, os.WriteFile(lock(name), nil, 0o600))
		if _, _, err := r.CommitAll(context.Background(), "x"); !errors.Is(err, ErrLocked) {
			t.Errorf("%s.lock held by git: %v", name, err)
		}
		if _, err := os.Lstat(lock(name)); err != nil {
			t.Errorf("a foreign %s.lock was removed", name)
		}
		must(t, os.Remove(lock(name)))
		commitAll(t, r, "y")
		checkSound(t, dir)
	}
	t.Run("released in time", func(t *testing.T) {
		slow := opt
		slow.LockTimeout = 5 * time.Second
		r, err := Open(dir, slow)
		must(t, err)
		must(t, os.WriteFile(lock("index"), nil, 0o600))
		time.AfterFunc(50*time.Millisecond, func() { os.Remove(lock("index")) })
		write(t, dir, "f", "released")
		commitAll(t, r, "z")
	})
	t.Run("older than the boot", func(t *testing.T) {
		must(t, os.WriteFile(lock("index"), nil, 0o600), os.Chtimes(lock("index"), time.Unix(1, 0), time.Unix(1, 0)))
		write(t, dir, "f", "boot")
		commitAll(t, r, "boot")
		checkSound(t, dir)
	})
	t.Run("recorded by the dead", func(t *testing.T) {
		var record strings.Builder
		record.WriteString(recordHeader + "pid 1 start 2\n")
		for _, name := range foreign {
			must(t, os.WriteFile(lock(name), []byte("half"), 0o600))
			id, err := identity(lock(name))
			must(t, err)
			fmt.Fprintf(&record, "lock %s %s.lock\n", id, name)
		}
		record.WriteString("lock 1:2 ../../escape\nlock 7")
		must(t, os.WriteFile(filepath.Join(dir, ".git", recordName), []byte(record.String()), 0o600))
		write(t, dir, "f", "dead")
		commitAll(t, r, "dead")
		checkSound(t, dir)
	})
	t.Run("recorded, but another file now", func(t *testing.T) {
		must(t, os.WriteFile(lock("index"), nil, 0o600))
		must(t, os.WriteFile(filepath.Join(dir, ".git", recordName), []byte(recordHeader+"lock 1:2 index.lock\n"), 0o600))
		write(t, dir, "f", "other")
		if _, _, err := r.CommitAll(context.Background(), "x"); !errors.Is(err, ErrLocked) {
			t.Errorf("a foreign lock with our name: %v", err)
		}
		must(t, os.Remove(lock("index")))
	})
	t.Run("cancelled", func(t *testing.T) {
		must(t, os.WriteFile(lock("index"), nil, 0o600))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, _, err := r.CommitAll(ctx, "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		must(t, os.Remove(lock("index")))
		commitAll(t, r, "x")
		checkSound(t, dir)
	})
}
