package spool

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// The errors of this package, for errors.Is.
var (
	// ErrTooLarge is returned when a Buf would exceed Limits.File.
	ErrTooLarge = errors.New("file too large for the spool")
	// ErrNoSpace is returned when Limits.Total, Limits.Count or Limits.Failed
	// is reached, and when the disk itself is full or over quota.
	ErrNoSpace = errors.New("no space in the spool")
	// ErrClosed is returned by a Buf that was discarded or failed, and by a
	// Spool after Close.
	ErrClosed = errors.New("spool closed")
	// ErrInvalid is returned for a negative offset or size.
	ErrInvalid = errors.New("invalid offset or size")
)

// The defaults of Limits.
const (
	DefaultFile   int64 = 64 << 20
	DefaultTotal  int64 = 256 << 20
	DefaultFailed int64 = 1 << 30
	DefaultCount        = 10_000
)

// Limits bound a Spool. A zero field means its default.
type Limits struct {
	// File is the size of one Buf in bytes.
	File int64
	// Total is the size of all live Bufs of this Spool in bytes.
	Total int64
	// Failed is the size of all files in failed/ in bytes, whoever put them
	// there.
	Failed int64
	// Count is the number of live Bufs of this Spool.
	Count int
}

func (l Limits) withDefaults() Limits {
	if l.File <= 0 {
		l.File = DefaultFile
	}
	if l.Total <= 0 {
		l.Total = DefaultTotal
	}
	if l.Failed <= 0 {
		l.Failed = DefaultFailed
	}
	if l.Count <= 0 {
		l.Count = DefaultCount
	}
	return l
}

// Spool is private disk space for one mount. It is safe for concurrent use.
type Spool struct {
	dir    string // holds the live directories of all processes
	live   string // this Spool's own
	failed failedDir
	lim    Limits
	lock   *os.File // flocked while the Spool is open
	now    func() time.Time

	mu     sync.Mutex
	used   int64 // sum of the sizes of all bufs
	bufs   map[*Buf]struct{}
	seq    uint64
	closed bool
	// writers counts the FailBytes under way; Close waits for them.
	writers sync.WaitGroup

	recovered    []string // set by Open, constant afterwards
	recoveredErr error
}

// Open makes a Spool in dir, which is created with its parents when it does
// not exist; failed/ is made beside it. What dead processes left in dir moves
// to failed/ first. Open refuses a directory that belongs to another user, and
// narrows the mode of one that others can enter.
func Open(dir string, lim Limits) (*Spool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	failed := filepath.Join(filepath.Dir(dir), "failed")
	for _, d := range []string{dir, failed} {
		if err := privateDir(d); err != nil {
			return nil, fmt.Errorf("open spool: %w", noSpace(err))
		}
	}
	s := &Spool{
		dir:    dir,
		failed: failedDir{path: failed},
		lim:    lim.withDefaults(),
		now:    time.Now,
		bufs:   make(map[*Buf]struct{}),
	}
	if err := s.start(); err != nil {
		return nil, fmt.Errorf("open spool: %w", noSpace(err))
	}
	return s, nil
}

// start sweeps what dead processes left and makes the own live directory, both
// under the directory lock, so that a sweep never sees a live directory whose
// lock is not held yet.
func (s *Spool) start() error {
	unlock, err := lockDir(s.dir)
	if err != nil {
		return err
	}
	defer unlock()
	s.sweep()
	s.live = filepath.Join(s.dir, fmt.Sprintf("%s%d-%s", livePrefix, os.Getpid(), token()))
	if err := os.Mkdir(s.live, 0o700); err != nil {
		return err
	}
	s.lock, err = openLock(filepath.Join(s.live, lockName))
	if err == nil {
		err = syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		if s.lock != nil {
			s.lock.Close()
		}
		s.removeLive()
	}
	return err
}

// Recovered returns the files in failed/ that Open found in the directories of
// dead processes, and what kept it from moving more (a full disk, say): that
// stays where it is for the next Open.
func (s *Spool) Recovered() (kept []string, err error) {
	return s.recovered, s.recoveredErr
}

// Create begins a Buf. hint says what it is for ("sessions/s1/meta.json"); it
// becomes part of a file name in failed/ should the process die. Create fails
// with ErrNoSpace when failed/ is full or there are too many live Bufs.
func (s *Spool) Create(hint string) (*Buf, error) {
	full, err := s.full()
	if err != nil {
		return nil, fmt.Errorf("spool %s: %w", hint, err)
	}
	if full {
		return nil, fmt.Errorf("spool %s: failed/ is full: %w", hint, ErrNoSpace)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if len(s.bufs) >= s.lim.Count {
		return nil, fmt.Errorf("spool %s: too many open files: %w", hint, ErrNoSpace)
	}
	s.seq++
	b := &Buf{s: s, hint: hint, seq: s.seq}
	s.bufs[b] = struct{}{}
	return b, nil
}

// FailBytes keeps data in failed/ under a name made from name, and returns the
// path of the file. It fails with ErrNoSpace when the disk is full, or when
// failed/ exceeds its limit by more than all that may be live.
func (s *Spool) FailBytes(name string, data []byte) (string, error) {
	used, err := s.failed.used()
	if err != nil {
		return "", err
	}
	if used+int64(len(data)) > s.lim.Failed+s.lim.Total {
		return "", fmt.Errorf("keep %s: failed/ is full: %w", name, ErrNoSpace)
	}
	tmp, err := s.beginWrite(name)
	if err != nil {
		return "", err
	}
	defer s.writers.Done()
	if err := writeNew(tmp, data); err != nil {
		return "", fmt.Errorf("keep %s: %w", name, noSpace(err))
	}
	kept, err := s.failed.take(tmp, name, s.now())
	if err != nil {
		os.Remove(tmp)
		return kept, fmt.Errorf("keep %s: %w", name, noSpace(err))
	}
	return kept, nil
}

// beginWrite names a file in the live directory that Close waits for, until
// s.writers.Done.
func (s *Spool) beginWrite(name string) (path string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", ErrClosed
	}
	s.writers.Add(1)
	s.seq++
	return filepath.Join(s.live, liveName(s.seq, name)), nil
}

// Full reports whether failed/ has reached its limit, so that nothing new may
// begin. A failed/ that cannot be read counts as full.
func (s *Spool) Full() bool {
	full, err := s.full()
	return full || err != nil
}

func (s *Spool) full() (bool, error) {
	used, err := s.failed.used()
	return used >= s.lim.Failed, err
}

// FailedDir returns the directory of what could not be applied. Its files may
// be read and removed by anybody who can.
func (s *Spool) FailedDir() string { return s.failed.path }

// Used returns the bytes and the number of live Bufs.
func (s *Spool) Used() (bytes int64, bufs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, len(s.bufs)
}

// Close moves what is still live to failed/, except what is empty, and gives
// the live directory up. What could not be moved stays for the next Open, and
// the error says so. Bufs answer ErrClosed afterwards.
func (s *Spool) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	bufs := make([]*Buf, 0, len(s.bufs))
	for b := range s.bufs {
		bufs = append(bufs, b)
	}
	s.mu.Unlock()
	s.writers.Wait()
	var errs []error
	for _, b := range bufs {
		errs = append(errs, b.retire())
	}
	unlock, err := lockDir(s.dir)
	if err != nil {
		s.lock.Close()
		return errors.Join(append(errs, err)...)
	}
	defer unlock()
	if errors.Join(errs...) == nil {
		errs = append(errs, s.removeLive())
	}
	s.lock.Close()
	return errors.Join(errs...)
}

// removeLive removes the live directory if nothing but its lock is in it.
func (s *Spool) removeLive() error {
	if err := os.Remove(filepath.Join(s.live, lockName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Remove(s.live)
}

// grow accounts for delta more live bytes, or fewer when it is negative.
func (s *Spool) grow(delta int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delta > 0 && s.used+delta > s.lim.Total {
		return ErrNoSpace
	}
	s.used += delta
	return nil
}

// forget takes a Buf of the given size off the books.
func (s *Spool) forget(b *Buf, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.bufs[b]; !ok {
		return
	}
	delete(s.bufs, b)
	s.used -= size
}

// token returns eight random hexadecimal digits.
func token() string {
	var b [4]byte
	rand.Read(b[:]) // never fails, and says so
	return hex.EncodeToString(b[:])
}

// noSpace makes a full disk answer to errors.Is(err, ErrNoSpace).
func noSpace(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
