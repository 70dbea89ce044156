// Package store is the session store of one root: every file below the root
// and every lock around it belongs to this package. A session is a directory
// that is a Git repository: one JSON file a message in history/, the
// session's fields and its active DAG head in meta.json; index.json above
// them is a summary of all sessions that can be rebuilt. The format is shared
// with a live OpenProgram (docs/store-format.md).
//
// The active head moves through one door, SetHead. Every operation that moves
// it ends there; appends advance it through the same inner assignment, within
// their own write.
//
// A session's state is handed out as an immutable Snapshot. Every change
// makes a new one and is told to the observers in two steps (Observer), so
// that whoever caches what a snapshot said can drop it before the operation
// returns.
//
// The order of the locks is written in docs/architecture.md and nowhere else.
// This package knows nothing of FUSE and nothing of the terminal.
package store

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/registry"
)

// Store is the sessions of one root. It is safe for concurrent use.
type Store struct {
	opt         Options
	root        string
	fs          disk.FS
	log         *slog.Logger
	now         func() time.Time
	lockTimeout time.Duration
	layout      *layout.Layout
	list        *listing
	watch       *watcher // nil when not watching
	git         gitrepo.Options

	obsMu     sync.Mutex // leaf
	observers []*subscription

	mu            sync.Mutex                   // leaf: no I/O while it is held
	cache         *lru.Cache[string, *session] // sessions nobody pins
	pinned        map[string]*session          // sessions in use
	restoredFiles map[string]int               // history files restored at Open, by session
	runs          map[string]*Run              // runs that this process began
	endedRuns     map[string]bool              // sessions whose dead run this store has ended
	closed        bool
	maintaining   map[string]bool // repositories that are being packed, by directory

	keptRestored bool // Open set a directory aside (finishDelete)

	life context.Context // ends with Close
	end  context.CancelFunc

	background sync.WaitGroup // goroutines that Close waits for
}

// defaultCacheCap is how many sessions stay loaded, the peer's number
// (reference 13).
const defaultCacheCap = 256

// defaultLockTimeout is the contract's wait for a session's lock.
const defaultLockTimeout = 10 * time.Second

// Open opens a root: the registry is loaded or rebuilt, and what the options
// ask for is reconciled and swept. A damaged session never fails Open.
// NotFound when the root does not exist and Options.Create is not set.
func Open(ctx context.Context, opt Options) (*Store, error) {
	s, err := newStore(opt)
	if err != nil {
		return nil, err
	}
	if err := s.openRoot(); err != nil {
		s.end()
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func newStore(opt Options) (*Store, error) {
	root, err := filepath.Abs(opt.Root)
	if err != nil || opt.Root == "" {
		return nil, &Error{Code: Invalid, Op: "open store", Err: errNoRoot}
	}
	s := &Store{
		opt: opt, root: root, fs: opt.FS, log: opt.Log, now: opt.Clock, lockTimeout: opt.LockTimeout,
		pinned: map[string]*session{}, restoredFiles: map[string]int{}, runs: map[string]*Run{}, endedRuns: map[string]bool{},
		maintaining: map[string]bool{},
	}
	s.life, s.end = context.WithCancel(context.Background())
	if s.fs == nil {
		s.fs = disk.OS
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.lockTimeout <= 0 {
		s.lockTimeout = defaultLockTimeout
	}
	capacity := opt.CacheCap
	if capacity <= 0 {
		capacity = defaultCacheCap
	}
	if s.cache, err = lru.New[string, *session](capacity); err != nil {
		return nil, err
	}
	s.git = gitrepo.Options{FS: s.fs, Now: s.now, Log: s.log, Compressors: gitrepo.NewCompressors()}
	if opt.GitSync == "off" {
		s.git.Sync = gitrepo.SyncOff
	}
	return s, nil
}

var errNoRoot = errors.New("no store directory given")

// openRoot finds the root, or makes it.
func (s *Store) openRoot() error {
	s.adoptRoot()
	fi, err := s.fs.Stat(s.root)
	switch {
	case err == nil && !fi.IsDir():
		return &Error{Code: Invalid, Op: "open store", Ref: s.root, Err: errors.New("not a directory")}
	case errors.Is(err, fs.ErrNotExist) && s.opt.Create && !s.opt.ReadOnly:
		if err := disk.MkdirOwned(s.fs, s.root, 0o700); err != nil {
			return &Error{Code: diskCode(err), Op: "create store", Ref: s.root, Err: err}
		}
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Code: NotFound, Op: "open store", Ref: s.root, Err: errors.New("no such directory"),
			Hint: "name an existing store with --store or $SESSIONFS_STORE"}
	case err != nil:
		return &Error{Code: Corrupt, Op: "open store", Ref: s.root, Err: err}
	}
	if resolved, err := filepath.EvalSymlinks(s.root); err == nil {
		s.root = resolved
	}
	s.layout = layout.New(s.fs, s.root, s.opt.State, s.log)
	return nil
}

// adoptRoot gives a root that still has its historic name, sessions-git, its
// present one (reference 1.1). A root that cannot be renamed is used as it is.
func (s *Store) adoptRoot() {
	if s.opt.State == "" || s.opt.ReadOnly || filepath.Dir(s.root) != filepath.Clean(s.opt.State) {
		return
	}
	root, err := layout.AdoptRoot(s.fs, s.opt.State)
	if err != nil {
		s.log.Warn("rename the historic root", "err", err)
	}
	if _, statErr := s.fs.Stat(s.root); errors.Is(statErr, fs.ErrNotExist) || filepath.Base(s.root) == filepath.Base(root) {
		s.root = root
	}
}

// start loads what the store keeps in memory and does the start-up work of
// reference 8, as far as the options ask for it.
func (s *Store) start(ctx context.Context) error {
	if s.opt.Watch {
		s.watch = newWatcher(s)
	}
	var err error
	if s.list, err = openListing(s); err != nil {
		return err
	}
	if s.opt.ReadOnly && s.watch == nil && s.list.state == registry.Loaded {
		// Nobody is told what changes, so nothing needs to be known before
		// somebody asks for the list.
		s.opt.Progress = nil
		return nil
	}
	rows, err := s.startList(ctx)
	if s.watch != nil {
		// What changed since newWatcher is looked at now that there is a list
		// to compare it with.
		s.watch.start(rows, s.list.firstList())
	}
	return err
}

// startList loads the list, after what a crash left has been put right where
// that may be written. All sessions are looked for once, or twice when that
// changed where they are.
func (s *Store) startList(ctx context.Context) ([]listed, error) {
	if !s.opt.ReadOnly {
		var swept sync.WaitGroup
		swept.Go(func() { s.sweepHidden(s.root) }) // of names that discovery passes over
		defer swept.Wait()
		s.finishDeletes(ctx)
		s.clearHolds(ctx)
	}
	places, err := s.discover()
	if err != nil {
		return nil, err
	}
	if !s.opt.ReadOnly {
		changed := s.restoreHistories(ctx, places)
		if s.opt.Sweep && s.sweepShells(ctx, places) || changed {
			if places, err = s.discover(); err != nil {
				return nil, err
			}
		}
	}
	rows, err := s.list.load(ctx, places)
	if err != nil {
		return nil, err
	}
	if !s.opt.ReadOnly {
		if s.opt.Sweep {
			s.dropGhosts(ctx)
		}
		if s.opt.Reconcile != ReconcileNever {
			s.reconcile(ctx, rows)
		}
		err = s.list.flush(ctx)
	}
	if s.watch == nil { // else it is done when nobody waits for it
		s.list.saveCache()
	}
	return rows, err
}

// Close ends the runs of this process, commits what waits for a commit,
// writes the registry and stops watching.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	runs := make([]*Run, 0, len(s.runs))
	for _, r := range s.runs {
		runs = append(runs, r)
	}
	s.mu.Unlock()
	ctx := context.Background()
	for _, r := range runs {
		if err := r.End(ctx, statusInterrupted); err != nil {
			s.log.Warn("end run at close", "session", r.id, "err", err)
		}
	}
	if s.watch != nil {
		s.watch.close()
	}
	var errs []error
	if !s.opt.ReadOnly {
		errs = append(errs, s.commitDirty(ctx))
	}
	s.end()
	s.background.Wait()
	if s.list != nil && !s.opt.ReadOnly {
		errs = append(errs, s.list.close(ctx))
	}
	s.closeRepos()
	return errors.Join(errs...)
}

func (s *Store) closeRepos() {
	s.mu.Lock()
	sessions := s.cache.Values()
	for _, se := range s.pinned {
		sessions = append(sessions, se)
	}
	s.mu.Unlock()
	for _, se := range sessions {
		if se.acquire(context.Background(), s.lockTimeout) != nil {
			continue
		}
		if se.repo != nil {
			_ = se.repo.Close()
			se.repo = nil
		}
		se.release()
	}
}

// Root returns the absolute path of the root.
func (s *Store) Root() string { return s.root }

// ReadOnly reports whether the store was opened read-only.
func (s *Store) ReadOnly() bool { return s.opt.ReadOnly }

// Watching reports whether changes by other processes are noticed by
// themselves.
func (s *Store) Watching() bool { return s.watch != nil }

// restored tells how many history files Open restored from Git.
func (s *Store) restored(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restoredFiles[id]
}
