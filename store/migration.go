package store

import (
	"context"
	"errors"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/migrate"
)

// Migrated is what became of one session's migration.
type Migrated struct {
	Session string
	// From and To are absolute; they are equal where only the layout changed.
	From, To string
	// Kept are paths set aside that hold something the new place has not, or
	// that could not be removed.
	Kept []string
	// Err is why the session is where it was; nil when it is done.
	Err error
}

// MigrationProgress is told of each stage of each session, and of the bytes
// copied so far.
type MigrationProgress func(session, stage string, done, total int64)

// Migrate moves the sessions of old layouts to where they belong (reference
// 12): out of working folders, and from the first layout, in which history/
// was the repository itself. It is journaled: interrupted at any point, a
// later call goes on, with nothing lost and nothing served from two places. A
// session that fails does not stop the others. Sessions limits it to these
// ids; none means all. ReadOnly, Corrupt.
func (s *Store) Migrate(ctx context.Context, progress MigrationProgress, sessions ...string) ([]Migrated, error) {
	if s.opt.ReadOnly {
		return nil, &Error{Code: ReadOnly, Op: "migrate", Err: errReadOnlyStore}
	}
	results, err := s.runMigrations(ctx, s.migration(ctx, progress), sessions)
	out := make([]Migrated, 0, len(results))
	for _, r := range results {
		m := Migrated{Session: r.SessionID, From: r.Source, To: r.Destination, Kept: r.Kept}
		if r.Err != nil {
			m.Err = &Error{Code: migrationCode(r.Err), Op: "migrate", Session: r.SessionID, Err: r.Err}
		} else {
			s.forgetPlace(ctx, r.SessionID)
		}
		out = append(out, m)
	}
	if err != nil {
		return out, &Error{Code: migrationCode(err), Op: "migrate", Err: err}
	}
	s.rescan(ctx)
	return out, nil
}

func (s *Store) runMigrations(ctx context.Context, cfg migrate.Config, sessions []string) ([]migrate.Result, error) {
	if len(sessions) == 0 {
		return migrate.RunAll(ctx, cfg)
	}
	var out []migrate.Result
	for _, id := range sessions {
		r, err := migrate.Run(ctx, cfg, id)
		if errors.Is(err, migrate.ErrNotCandidate) {
			continue
		}
		r.SessionID, r.Err = id, err
		out = append(out, r)
	}
	return out, nil
}

// migration is the configuration of this root's migrations.
func (s *Store) migration(ctx context.Context, progress MigrationProgress) migrate.Config {
	cfg := migrate.Config{
		FS: s.fs, Layout: s.layout, State: s.opt.State, Now: s.now, Log: s.log,
		// A run that cannot be judged counts as live.
		Alive: func(id string) bool {
			active, err := s.RunIsActive(ctx, id)
			if err == nil && !active {
				return false
			}
			held, heldErr := filelock.Held(s.layout.RunLockPath(id))
			return err != nil || heldErr != nil || held || active
		},
	}
	if progress != nil {
		cfg.Progress = progress
	}
	return cfg
}

// forgetPlace drops what this process keeps of a session at its old place.
func (s *Store) forgetPlace(ctx context.Context, id string) {
	if err := s.Reload(ctx, id); err != nil && !errors.Is(err, NotFound) {
		s.log.Warn("reload after migration", "session", id, "err", err)
	}
}

// Unmigrated lists the sessions that do not lie where they belong, by id.
func (s *Store) Unmigrated(ctx context.Context) ([]string, error) {
	candidates, err := migrate.Candidates(ctx, s.migration(ctx, nil))
	if err != nil {
		return nil, &Error{Code: migrationCode(err), Op: "list migrations", Err: err}
	}
	ids := make([]string, len(candidates))
	for i, c := range candidates {
		ids[i] = c.SessionID
	}
	return ids, nil
}

// clearHolds removes what a killed migration left that would keep sessions from
// ever running again.
func (s *Store) clearHolds(ctx context.Context) {
	if err := migrate.ClearStaleHolds(ctx, s.migration(ctx, nil)); err != nil {
		s.log.Warn("clear stale migration holds", "err", err)
	}
}

// migrationCode is the code of a migration's error.
func migrationCode(err error) Code {
	switch {
	case errors.Is(err, migrate.ErrBusy), errors.Is(err, migrate.ErrDeferred):
		return Locked
	case errors.Is(err, migrate.ErrUnavailable), errors.Is(err, migrate.ErrUnidentified), errors.Is(err, migrate.ErrNotCandidate):
		return NotFound
	case errors.Is(err, migrate.ErrDeleted):
		return BurntID
	case errors.Is(err, migrate.ErrConflict), errors.Is(err, migrate.ErrSourceChanged):
		return Conflict
	}
	return diskCode(err)
}
