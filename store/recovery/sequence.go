package recovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/disk"
)

const (
	mutationLocks = "mutation-locks"
	sequenceName  = "workspace-sequence"
	historyLock   = "history.lock"

	// lockWait is how long a lock is waited for.
	lockWait = 10 * time.Second
)

// nextSequence counts one change of the workspace, across sessions (reference
// 3.1). Without a state directory there is no counter: 0.
func (t *Tree) nextSequence(ctx context.Context) (n int64, err error) {
	if err := ctx.Err(); err != nil || t.opt.State == "" {
		return 0, err
	}
	dir := filepath.Join(t.opt.State, mutationLocks)
	if err := disk.MkdirOwned(t.fs, dir, 0o700); err != nil {
		return 0, err
	}
	path := filepath.Join(dir, sequenceName)
	lock, err := filelock.Acquire(ctx, path+".lock", lockWait)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	text, err := t.fs.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if s := strings.TrimSpace(string(text)); s != "" {
		if n, err = strconv.ParseInt(s, 10, 64); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
	}
	n++
	return n, disk.WriteAtomic(t.fs, path, strconv.AppendInt(nil, n, 10), disk.WriteOptions{})
}

// lockFiles takes the locks of a restoration: that of all sessions' files, and
// the intent's own.
func (t *Tree) lockFiles(ctx context.Context, id string) (unlock func() error, err error) {
	paths := []string{filepath.Join(t.opt.Dir, locksName, id+".lock")}
	if t.opt.State != "" {
		paths = append([]string{filepath.Join(t.opt.State, mutationLocks, historyLock)}, paths...)
	}
	var locks []*filelock.Lock
	unlock = func() (err error) {
		for i := len(locks) - 1; i >= 0; i-- {
			err = errors.Join(err, locks[i].Unlock())
		}
		return err
	}
	for _, p := range paths {
		if err := disk.MkdirOwned(t.fs, filepath.Dir(p), 0o700); err != nil {
			return nil, errors.Join(err, unlock())
		}
		l, err := filelock.Acquire(ctx, p, lockWait)
		if err != nil {
			return nil, errors.Join(err, unlock())
		}
		locks = append(locks, l)
	}
	return unlock, nil
}
