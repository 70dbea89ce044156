package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	livePrefix = "live-"
	lockName   = "lock"
	// lockWait bounds the wait for the directory lock, which is held for a
	// few renames at a time.
	lockWait = 10 * time.Second
)

// openLock opens a lock file, which it makes when there is none.
func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
}

// lockDir takes the lock of the spool directory. A file description of its own
// makes two Spools of one process exclude each other as two processes do.
func lockDir(dir string) (unlock func(), err error) {
	f, err := openLock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(lockWait)
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || time.Now().After(deadline) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// sweep moves what dead processes left in their live directories to failed/.
// What cannot be moved must not keep a mount from starting: it stays, and
// Recovered tells. The caller holds the directory lock.
func (s *Spool) sweep() {
	entries, err := os.ReadDir(s.dir)
	errs := []error{err}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), livePrefix) {
			continue
		}
		if err := s.sweepLive(filepath.Join(s.dir, e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("recover %s: %w", e.Name(), noSpace(err)))
		}
	}
	s.recoveredErr = errors.Join(errs...)
}

// sweepLive empties one live directory, unless its process holds its lock. It
// may be repeated after any failure.
func (s *Spool) sweepLive(dir string) error {
	lock, err := openLock(filepath.Join(dir, lockName))
	if err != nil {
		return err
	}
	defer lock.Close()
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == lockName {
			continue
		}
		if err := s.recover(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		return err
	}
	return os.Remove(dir)
}

// recover moves one leftover to failed/, or drops it when it is empty.
func (s *Spool) recover(path string) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", path)
	}
	if fi.Size() == 0 {
		return os.Remove(path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = errors.Join(f.Sync(), f.Close())
	if err != nil {
		return err
	}
	kept, err := s.failed.take(path, hintOf(filepath.Base(path)), fi.ModTime())
	if kept != "" {
		s.recovered = append(s.recovered, kept)
	}
	return err
}
