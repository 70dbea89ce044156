package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
)

// attempts is how often a session is copied again because something wrote to
// it meanwhile.
const attempts = 3

// relocation is one session on its way out of a working folder.
type relocation struct {
	*runner
	sid, pid     string
	source, dest string
	row          Row // as last read or written
	res          Result
	total        int64 // bytes of the source
}

// planRelocation returns what is to be done, nil when it is nothing. A
// candidate of today overrides what the row says of the source, as it does for
// the peer: the working folder may have moved.
func (r *runner) planRelocation(sid string) (*relocation, error) {
	row, journaled, err := r.row(sid, false)
	if err != nil {
		return nil, err
	}
	identified, err := r.identified()
	if err != nil {
		return nil, err
	}
	c, err := r.candidate(sid, identified)
	if err != nil {
		return nil, err
	}
	active := journaled && row.unfinished()
	if c == nil && !active {
		return nil, nil
	}
	if c != nil && errors.Is(c.Err, ErrUnidentified) && !active {
		return nil, ErrUnidentified
	}
	m := &relocation{runner: r, sid: sid, pid: row.ProjectID, source: row.Source, row: row}
	if c != nil {
		m.pid, m.source = c.ProjectID, c.Source
	}
	if m.pid == "" {
		project, _ := r.Layout.BoundProject(sid)
		m.pid = project.ID
	}
	dest, ok := r.Layout.NestedDir(m.pid, sid)
	if !ok {
		return nil, fmt.Errorf("%w: project %q has no directory", ErrUnsupported, m.pid)
	}
	m.dest = dest
	m.res = Result{SessionID: sid, Stage: row.Stage, Source: m.source, Destination: dest, Kept: row.Kept}
	return m, nil
}

// run brings the session to its destination, or finds that it is there.
// Requires the lock migration-<sid>.
func (m *relocation) run(ctx context.Context) (Result, error) {
	p, err := m.Layout.Resolve(m.sid)
	if err != nil {
		return m.res, err
	}
	if p.Deleted {
		return m.deleted()
	}
	served, err := m.served(ctx, p)
	if err != nil {
		return m.fail(ctx, err)
	}
	if served {
		return m.adopt(ctx, p)
	}
	if err := m.sourceReady(); err != nil {
		return m.pending(err)
	}
	lock, err := m.quiesce(ctx, m.sid)
	if errors.Is(err, ErrDeferred) {
		return m.deferred()
	}
	if err != nil {
		return m.res, err
	}
	err = errors.Join(m.move(ctx), lock.Unlock())
	if errors.Is(err, ErrDeleted) {
		return m.deleted()
	}
	if err != nil {
		return m.fail(ctx, err)
	}
	return m.finish(ctx)
}

// served reports whether the session is served from the destination already:
// the record names it, or none is recorded and a publication of the peer is
// found before the working folder.
func (m *relocation) served(ctx context.Context, p layout.Place) (bool, error) {
	if !p.Present || !sameDir(p.Dir, m.dest) {
		return false, nil
	}
	if p.Recorded || m.row.CleaningUp {
		return true, nil
	}
	switch m.row.Stage {
	case StageVerify, StagePublish, StageCleanup, StageDone:
		return true, nil
	}
	gone, err := m.gone(m.source)
	if err != nil || gone {
		return gone, err
	}
	t, err := m.inventory(ctx, m.source, nil)
	if err != nil {
		return false, err
	}
	missing, err := m.missing(ctx, t, m.source, m.dest, nil)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%w: %s lacks %s", ErrConflict, m.dest, missing[0])
	}
	return err == nil, err
}

func sameDir(a, b string) bool { return a == b || realPath(a) == realPath(b) }

func (m *relocation) gone(path string) (bool, error) {
	if path == "" {
		return true, nil
	}
	_, err := m.FS.Lstat(path)
	if absent(err) {
		return true, nil
	}
	return false, err
}

// adopt takes a served destination for what it is, the authority, and cleans
// up behind it.
func (m *relocation) adopt(ctx context.Context, p layout.Place) (Result, error) {
	if m.source == "" {
		m.source = m.row.Source
	}
	if !p.Recorded {
		if err := m.adoptUnrecorded(ctx); err != nil {
			return m.fail(ctx, err)
		}
	}
	return m.finish(ctx)
}

// adoptUnrecorded records a destination that the peer published without
// coming to the record, after the undo tree, which it had not come to either.
func (m *relocation) adoptUnrecorded(ctx context.Context) error {
	if err := m.publishUndoLate(ctx); err != nil {
		return err
	}
	for _, dir := range []string{m.dest, filepath.Dir(m.dest)} {
		if err := m.FS.SyncDir(dir); err != nil {
			return err
		}
	}
	return m.record(m.dest)
}

func (m *relocation) publishUndoLate(ctx context.Context) error {
	undo := m.undoSource()
	there, err := m.gone(layout.RecoveryDir(m.dest, m.sid))
	if err != nil || !there || undo == "" {
		return err
	}
	t, err := m.inventory(ctx, undo, nil)
	if err != nil || len(t.entries) == 0 {
		return err
	}
	staged := m.stagedUndo()
	if err := m.copyTree(ctx, t, undo, staged, nil); err != nil {
		return err
	}
	if err := m.verify(ctx, staged, t); err != nil {
		return err
	}
	return m.publish(ctx, staged, layout.RecoveryDir(m.dest, m.sid))
}

// sourceReady checks that the source is there and the destination can be looked
// at.
func (m *relocation) sourceReady() error {
	if m.source == "" {
		return ErrUnavailable
	}
	ok, err := m.present(m.source)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if !ok {
		return ErrUnavailable
	}
	if _, err := m.present(m.dest); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// checkSource refuses what must not be copied from or removed.
func (m *relocation) checkSource(p layout.Place) error {
	fi, err := m.FS.Lstat(m.source)
	if err != nil {
		return err
	}
	real := realPath(m.source)
	switch {
	case fi.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%w: %s is a symlink", ErrUnsupported, m.source)
	case filepath.Base(m.source) != m.sid || m.inRoot(m.source):
		return fmt.Errorf("%w: %s is no working folder's session", ErrUnsupported, m.source)
	case below(real, realPath(m.Layout.Root())):
		return fmt.Errorf("%w: %s holds the store", ErrUnsupported, m.source)
	case p.Present && !sameDir(p.Dir, m.source):
		return fmt.Errorf("%w: the session is served from %s", ErrConflict, p.Dir)
	}
	return nil
}

// record makes a directory the session's recorded place.
func (m *relocation) record(dir string) error {
	lock, err := filelock.Acquire(context.Background(), m.Layout.RegistryLockPath("locations"), registryTimeout)
	if err != nil {
		return fmt.Errorf("record location: %w", err)
	}
	err = disk.MkdirOwned(m.FS, m.Layout.Root(), 0o755)
	if err == nil {
		err = m.Layout.RecordLocation(m.sid, dir)
	}
	return errors.Join(err, lock.Unlock())
}

// write changes the row, and reads it back.
func (m *relocation) write(stage string, more ...jsonedit.Member) error {
	return m.writeError(stage, "", more...)
}

func (m *relocation) writeError(stage, text string, more ...jsonedit.Member) error {
	err := m.update(m.sid, false, func(o *jsonedit.Object) {
		o.SetAll(append([]jsonedit.Member{
			{Key: "project_id", Raw: jsonedit.EncodeString(m.pid)},
			{Key: "source", Raw: jsonedit.EncodeString(m.source)},
			{Key: "source_unavailable", Raw: jsonedit.EncodeBool(stage == StagePending)},
			{Key: "destination", Raw: jsonedit.EncodeString(m.dest)},
			{Key: "stage", Raw: jsonedit.EncodeString(stage)},
			{Key: "error", Raw: jsonedit.EncodeString(text)},
		}, more...))
		m.row = parseRow(m.sid, o)
	})
	if err != nil {
		return err
	}
	m.res.Stage = stage
	m.res.Kept = m.row.Kept
	m.progress(m.sid, stage, 0, m.total)
	return nil
}

// deleted ends the migration of a session that has a delete intent. What is
// staged is nobody's.
func (m *relocation) deleted() (Result, error) {
	err := errors.Join(m.removeStaging(), m.write(StageDeleted, jsonedit.Member{Key: "cleanup", Raw: []byte("[]")}))
	if err != nil {
		return m.res, err
	}
	return m.res, ErrDeleted
}

func (m *relocation) pending(cause error) (Result, error) {
	if err := m.writeError(StagePending, failure(cause)); err != nil {
		return m.res, errors.Join(cause, err)
	}
	m.mark(m.pid, "pending", cause.Error())
	return m.res, cause
}

func (m *relocation) deferred() (Result, error) {
	if err := m.writeError(StageDeferred, ErrDeferred.Error()); err != nil {
		return m.res, errors.Join(ErrDeferred, err)
	}
	return m.res, ErrDeferred
}

// fail writes down why it went wrong. An interruption is no failure, and after
// the record nothing is: the row keeps its stage then.
func (m *relocation) fail(ctx context.Context, cause error) (Result, error) {
	if ctx.Err() != nil {
		return m.res, cause
	}
	stage := StageFailed
	if m.res.Stage == StageCleanup || m.res.Stage == StageDone {
		stage = m.res.Stage
	}
	if err := m.writeError(stage, failure(cause)); err != nil {
		return m.res, errors.Join(cause, err)
	}
	if stage == StageFailed {
		m.mark(m.pid, "error", cause.Error())
	}
	return m.res, cause
}

func (m *relocation) staged() string { return filepath.Join(m.Layout.StagingDir(m.sid), "session") }

func (m *relocation) stagedUndo() string { return m.Layout.StagingDir(m.sid) + ".recovery" }

// stagingFor is where an interrupted publication is put when it is taken back.
func (m *relocation) stagingFor(name string) string {
	return filepath.Join(m.Layout.StagingDir(m.sid), name)
}

func (m *relocation) removeStaging() error {
	return errors.Join(m.FS.RemoveAll(m.Layout.StagingDir(m.sid)), m.FS.RemoveAll(m.stagedUndo()))
}

// undoSource is where the source's undo tree is (reference 12.3, step 4), ""
// when it has none.
func (m *relocation) undoSource() string {
	if m.source == "" {
		return ""
	}
	for _, dir := range []string{layout.RecoveryDir(m.source, m.sid), filepath.Join(m.source, "file_backups")} {
		if fi, err := m.FS.Lstat(dir); err == nil && fi.IsDir() {
			return dir
		}
	}
	return ""
}
