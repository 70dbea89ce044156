package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/layout"
)

// The errors that callers tell apart with errors.Is.
var (
	// ErrConfig is returned for a Config without a layout.
	ErrConfig = errors.New("migration is not configured")
	// ErrNotCandidate is returned when there is nothing to migrate.
	ErrNotCandidate = errors.New("session needs no migration")
	// ErrBusy is returned when another process migrates the session.
	ErrBusy = errors.New("session is being migrated elsewhere")
	// ErrDeferred is returned when a run stayed live, or the session's lock
	// taken, for the whole wait. The row is "deferred"; try again later.
	ErrDeferred = errors.New("writers could not quiesce")
	// ErrUnavailable is returned when the source, or what is recorded of the
	// session, cannot be reached. The row is "pending"; try again later.
	ErrUnavailable = errors.New("migration source is not available")
	// ErrUnidentified is returned when the project's record does not prove
	// that its folder is the one the session was made in (reference 12.2).
	ErrUnidentified = errors.New("project directory identity unavailable")
	// ErrDeleted is returned for a session with a delete intent.
	ErrDeleted = errors.New("session is deleted")
	// ErrConflict is returned when something else is where the session should
	// be published. Nothing was touched.
	ErrConflict = errors.New("destination holds something else")
	// ErrSourceChanged is returned when the source kept changing while it was
	// copied. Nothing was published.
	ErrSourceChanged = errors.New("source changed during migration")
	// ErrUnsupported is returned for a source of a form that is not
	// understood: a symlink in its place, a .git that is no directory.
	ErrUnsupported = errors.New("unsupported migration source")
	// ErrVerify is returned when a copy is not what was copied.
	ErrVerify = errors.New("migrated copy differs from its source")
)

// DefaultDrainTimeout is how long writers get to end (reference 12.3).
const DefaultDrainTimeout = 15 * time.Second

const drainPoll = 100 * time.Millisecond

// Config is what a migration works with.
type Config struct {
	// FS is the disk; nil is the operating system's. Locks, and Git objects
	// that are only looked up, go to the operating system directly.
	FS     disk.FS
	Layout *layout.Layout
	// State is the directory that holds the project registry, "" for the
	// root's parent. A standalone root has none.
	State string
	// Now is the clock of commits; nil is time.Now.
	Now func() time.Time
	// Log may be nil.
	Log *slog.Logger
	// Alive reports whether a run of the session may be live; when that
	// cannot be known it has to answer true. Nil counts as always live. Run
	// leases are looked at beside it.
	Alive func(sid string) bool
	// DrainTimeout bounds the wait for writers, and for another process that
	// migrates the same session; 0 is DefaultDrainTimeout.
	DrainTimeout time.Duration
	// Progress, if not nil, is told of each stage, and during "copy" of the
	// bytes done so far.
	Progress func(sid, stage string, done, total int64)
	// MarkProject, if not nil, is told the state that a project's record
	// should show: "pending", "error" or "available" (reference 12.1). It is
	// called with no lock held but migration-<id>.
	MarkProject func(pid, state, message string)
}

// Result is what became of one session.
type Result struct {
	SessionID string
	// Stage is the journal's, "" when nothing was journaled.
	Stage string
	// Source and Destination are absolute; they are equal for a conversion.
	Source, Destination string
	// Converted is set when the repository was moved out of history/.
	Converted bool
	// Kept are paths that hold something the destination has not, or that
	// could not be removed. Nothing refers to them any more.
	Kept []string
	// Err is why it is not done, in RunAll's results; nil when done.
	Err error
}

// runner is a Config whose fields are all set.
type runner struct {
	Config
}

func newRunner(cfg Config) (*runner, error) {
	if cfg.Layout == nil {
		return nil, ErrConfig
	}
	if cfg.FS == nil {
		cfg.FS = disk.OS
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = DefaultDrainTimeout
	}
	if cfg.State == "" {
		cfg.State = filepath.Dir(cfg.Layout.Root())
	}
	return &runner{cfg}, nil
}

func (r *runner) progress(sid, stage string, done, total int64) {
	if r.Progress != nil {
		r.Progress(sid, stage, done, total)
	}
}

func (r *runner) mark(pid, state, message string) {
	if r.MarkProject != nil && pid != "" {
		r.MarkProject(pid, state, message)
	}
}

// Run migrates one session, or goes on where an interrupted run of this or the
// peer's side left off. It returns nil when the session is done, or was
// before; ErrNotCandidate when there is nothing to do. When it fails, or its
// context ends, the session is served from one place, as before or from its
// destination, and a later Run goes on.
//
// The caller holds no lock of the session.
func Run(ctx context.Context, cfg Config, sid string) (Result, error) {
	r, err := newRunner(cfg)
	if err != nil {
		return Result{SessionID: sid}, err
	}
	res, err := r.run(ctx, sid)
	res.Err = err
	return res, err
}

// RunAll removes stale hold files and then runs every candidate and every
// unfinished row of the journal, in the order of their ids. A session that
// fails does not stop the others: see Result.Err. The error is that of a
// journal or root that cannot be read, or of ctx.
func RunAll(ctx context.Context, cfg Config) ([]Result, error) {
	r, err := newRunner(cfg)
	if err != nil {
		return nil, err
	}
	if err := r.clearStaleHolds(ctx); err != nil {
		return nil, err
	}
	ids, err := r.work(ctx)
	if err != nil {
		return nil, err
	}
	var out []Result
	for _, sid := range ids {
		if err := ctx.Err(); err != nil {
			return out, context.Cause(ctx)
		}
		res, err := r.run(ctx, sid)
		if errors.Is(err, ErrNotCandidate) {
			continue
		}
		if err != nil {
			r.Log.Warn("session not migrated", "session", sid, "stage", res.Stage, "err", err)
		}
		res.Err = err
		out = append(out, res)
	}
	return out, nil
}

// work returns the sessions that RunAll runs, sorted.
func (r *runner) work(ctx context.Context) ([]string, error) {
	candidates, err := r.candidates(ctx)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, c := range candidates {
		if errors.Is(c.Err, ErrUnidentified) {
			r.mark(c.ProjectID, "pending", ErrUnidentified.Error())
			continue
		}
		ids[c.SessionID] = true
	}
	for _, conversions := range []bool{false, true} {
		rows, err := r.rows(conversions)
		if err != nil {
			return nil, err
		}
		for sid, row := range rows {
			if layout.ValidID(sid) == nil && row.unfinished() {
				ids[sid] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(ids)), nil
}

// run is Run with defaults filled in.
func (r *runner) run(ctx context.Context, sid string) (res Result, err error) {
	res.SessionID = sid
	if err := layout.ValidID(sid); err != nil {
		return res, err
	}
	lock, err := filelock.Acquire(ctx, r.Layout.RegistryLockPath("migration-"+sid), r.DrainTimeout)
	if errors.Is(err, filelock.ErrTimeout) {
		return res, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return res, err
	}
	defer func() {
		// The lock is ours, so whatever hold there is, ours or a dead
		// process's, holds for nobody from now on.
		err = errors.Join(err, r.removeHold(sid), lock.Unlock())
	}()
	return r.dispatch(ctx, sid)
}

// dispatch finds out what kind of work a session needs. Requires the lock
// migration-<sid>.
func (r *runner) dispatch(ctx context.Context, sid string) (Result, error) {
	res := Result{SessionID: sid}
	m, err := r.planRelocation(sid)
	if err != nil {
		return res, err
	}
	relocated := m != nil
	if relocated {
		if res, err = m.run(ctx); err != nil {
			return res, err
		}
	}
	c, err := r.planConversion(sid)
	if err != nil {
		return res, err
	}
	if c == nil && !relocated {
		return r.nothing(sid)
	}
	if c != nil {
		kept := res.Kept
		res, err = c.run(ctx)
		res.Kept = append(kept, res.Kept...)
	}
	return res, err
}

// nothing answers for a session without work: it was done before, or there
// never was any.
func (r *runner) nothing(sid string) (Result, error) {
	for _, conversions := range []bool{false, true} {
		row, ok, err := r.row(sid, conversions)
		if err != nil {
			return Result{SessionID: sid}, err
		}
		if ok && row.Stage == StageDone {
			return row.result(), nil
		}
	}
	return Result{SessionID: sid}, ErrNotCandidate
}

// failure is the text of a row's error, in the peer's form "<type>: <message>".
func failure(err error) string {
	for target, name := range map[error]string{
		ErrConflict: "Conflict", ErrSourceChanged: "SourceChanged", ErrUnsupported: "Unsupported",
		ErrVerify: "VerifyError", ErrUnavailable: "Unavailable",
	} {
		if errors.Is(err, target) {
			return name + ": " + err.Error()
		}
	}
	return "MigrationError: " + err.Error()
}
