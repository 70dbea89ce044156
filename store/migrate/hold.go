package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/layout"
)

// setHold makes the file that keeps new runs from beginning.
func (r *runner) setHold(sid string) error {
	path := r.Layout.HoldPath(sid)
	if err := disk.MkdirOwned(r.FS, filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return disk.WriteAtomic(r.FS, path, strconv.AppendInt(nil, int64(os.Getpid()), 10), disk.WriteOptions{})
}

func (r *runner) removeHold(sid string) error {
	err := r.FS.Remove(r.Layout.HoldPath(sid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// ClearStaleHolds removes the hold files that a killed migration left: they
// would keep the sessions from ever running again (reference 12.4). Whoever
// makes one, the peer too, holds the lock migration-<id> as long as it exists,
// so that one whose lock is free belongs to nobody, also when its pid has been
// given to another process.
func ClearStaleHolds(ctx context.Context, cfg Config) error {
	r, err := newRunner(cfg)
	if err != nil {
		return err
	}
	return r.clearStaleHolds(ctx)
}

func (r *runner) clearStaleHolds(ctx context.Context) error {
	dir := filepath.Dir(r.Layout.HoldPath("x"))
	entries, err := r.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("hold files: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e.IsDir() {
			continue
		}
		if disk.IsTemp(e.Name()) {
			errs = append(errs, r.removeOldTemp(filepath.Join(dir, e.Name())))
			continue
		}
		errs = append(errs, r.clearStaleHold(e.Name()))
	}
	return errors.Join(errs...)
}

// removeOldTemp removes a temporary file that no writer can still be at work
// on.
func (r *runner) removeOldTemp(path string) error {
	fi, err := r.FS.Lstat(path)
	if err != nil || time.Since(fi.ModTime()) < time.Minute {
		return nil
	}
	if err := r.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (r *runner) clearStaleHold(sid string) error {
	if layout.ValidID(sid) != nil {
		return nil
	}
	lock, ok, err := filelock.Try(r.Layout.RegistryLockPath("migration-" + sid))
	if err != nil || !ok {
		return err
	}
	r.Log.Info("removing a stale migration hold", "session", sid)
	return errors.Join(r.removeHold(sid), lock.Unlock())
}

// live reports whether a run of the session may be on.
func (r *runner) live(sid string) bool {
	if r.Alive == nil || r.Alive(sid) {
		return true
	}
	held, err := filelock.Held(r.Layout.RunLockPath(sid))
	return err != nil || held
}

// quiesce announces the migration and returns the session's lock once no run
// is live (reference 12.3, steps 2 and 3). Unlike the peer it keeps the lock
// that it found free. ErrDeferred when the wait was too long.
func (r *runner) quiesce(ctx context.Context, sid string) (*filelock.Lock, error) {
	if err := r.setHold(sid); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(r.DrainTimeout); ; {
		lock, err := r.tryQuiet(sid)
		if lock != nil || err != nil {
			return lock, err
		}
		if !time.Now().Before(deadline) {
			return nil, ErrDeferred
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(drainPoll):
		}
	}
}

// tryQuiet returns the session's lock if it is free and no run is live, also
// none that began just before the lock was taken.
func (r *runner) tryQuiet(sid string) (*filelock.Lock, error) {
	if r.live(sid) {
		return nil, nil
	}
	lock, ok, err := filelock.Try(r.Layout.LockPath(sid))
	if err != nil || !ok {
		return nil, err
	}
	if r.live(sid) {
		return nil, lock.Unlock()
	}
	return lock, nil
}
