package store

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/nodefile"
)

// creatingPrefix begins the name of a session's directory while it is being
// made: dot-named, so that no reader takes it for a session.
const creatingPrefix = ".sessionfs-new-"

// removingPrefix begins the name of a session's directory while it is being
// taken away.
const removingPrefix = ".sessionfs-old-"

// CreateSession creates a session with its repository: all of it under a
// hidden name first, then one rename, so that a crash leaves either the whole
// session or nothing that anybody lists. Exists, BurntID, Invalid, NotFound
// (unknown project), TooLarge for a title over 64 KiB, ReadOnly.
func (s *Store) CreateSession(ctx context.Context, n NewSession) error {
	const op = "create session"
	fail := func(code Code, err error) error { return &Error{Code: code, Op: op, Session: n.ID, Err: err} }
	if s.opt.ReadOnly {
		return fail(ReadOnly, errReadOnlyStore)
	}
	if err := layout.ValidNewID(n.ID); err != nil {
		return fail(Invalid, err)
	}
	for _, text := range []string{n.Title, n.AgentID, n.Source} {
		switch {
		case !utf8.ValidString(text):
			return fail(Invalid, errNotText)
		case len(text) > maxFieldValue:
			return fail(TooLarge, errLongValue)
		}
	}
	if s.layout.Tombstone(n.ID) {
		return &Error{Code: BurntID, Op: op, Session: n.ID, Err: errors.New("a session with this id was deleted; an id is never used again"),
			Hint: "choose another id"}
	}
	se := s.pin(n.ID)
	defer s.unpin(se)
	if err := se.acquire(ctx, s.lockTimeout); err != nil {
		return s.lockError(op, n.ID, err)
	}
	c, err := s.createLocked(ctx, se, n)
	se.release()
	s.publish(ctx, c)
	return err
}

// createLocked makes the session under its inter-process lock.
//
// Requires se.lock.
func (s *Store) createLocked(ctx context.Context, se *session, n NewSession) (*Change, error) {
	const op = "create session"
	fail := func(code Code, err error) error { return &Error{Code: code, Op: op, Session: n.ID, Err: err} }
	lock, err := filelock.Acquire(ctx, s.layout.LockPath(n.ID), s.lockTimeout)
	if err != nil {
		return nil, s.lockError(op, n.ID, err)
	}
	defer lock.Unlock()
	place, err := s.layout.Resolve(n.ID)
	switch {
	case err != nil:
		return nil, fail(Corrupt, err)
	case place.Deleted:
		return nil, fail(BurntID, errors.New("a session with this id was deleted; an id is never used again"))
	case place.Present || place.Symlink || place.Unreachable:
		return nil, fail(Exists, errors.New("a session with this id is there already"))
	}
	dir, err := s.newPlace(ctx, n)
	if err != nil {
		return nil, err
	}
	meta, row, err := s.newMeta(n)
	if err != nil {
		return nil, fail(Invalid, err)
	}
	if err := s.makeRepository(ctx, n, dir, meta); err != nil {
		return nil, fail(createCode(err), err)
	}
	if place, err = s.place(op, n.ID); err != nil {
		return nil, err
	}
	if n.Project != "" {
		s.bind(ctx, n.ID, func() error { return s.layout.Bind(n.Project, n.ID) })
	}
	sn := s.readSnapshot(n.ID, place, nil)
	s.swapLocked(se, sn)
	s.list.setRow(n.ID, row)
	c := &Change{ID: n.ID, New: sn, Listing: true, Row: true}
	s.tell(*c)
	return c, s.list.flush(ctx)
}

// createCode tells a name that is taken from a failing disk.
func createCode(err error) Code {
	if errors.Is(err, fs.ErrExist) {
		return Exists
	}
	return diskCode(err)
}

// newPlace chooses the session's directory; a session bound to a project gets
// its location recorded before anything is there (reference 6.2, step 3).
func (s *Store) newPlace(ctx context.Context, n NewSession) (string, error) {
	if n.Project == "" {
		return s.layout.DefaultDir(n.ID), nil
	}
	p, ok := s.layout.Project(n.Project)
	if !ok {
		return "", &Error{Code: NotFound, Op: "create session", Session: n.ID, Ref: n.Project, Err: errors.New("unknown project")}
	}
	if p.Default {
		return s.layout.DefaultDir(n.ID), nil
	}
	if !p.Available() {
		return "", &Error{Code: Conflict, Op: "create session", Session: n.ID, Ref: n.Project,
			Err: errors.New("the project's folder is " + p.LocationState)}
	}
	dir, ok := s.layout.NestedDir(n.Project, n.ID)
	if !ok {
		return "", &Error{Code: Invalid, Op: "create session", Session: n.ID, Ref: n.Project, Err: errors.New("the project's id is no file name")}
	}
	lock, err := filelock.Acquire(ctx, s.layout.RegistryLockPath("locations"), s.lockTimeout)
	if err != nil {
		return "", s.lockError("create session", n.ID, err)
	}
	defer lock.Unlock()
	if err := s.layout.RecordLocation(n.ID, dir); err != nil {
		return "", &Error{Code: diskCode(err), Op: "create session", Session: n.ID, Err: err}
	}
	return dir, nil
}

// bind edits the project registry, best effort: the session's own meta.json
// and locations.json are what counts (reference 6.2, step 9).
func (s *Store) bind(ctx context.Context, id string, edit func() error) {
	lock, err := filelock.Acquire(ctx, s.layout.RegistryLockPath("projects"), s.lockTimeout)
	if err == nil {
		defer lock.Unlock()
		err = edit()
	}
	if err != nil {
		s.log.Warn("project registry", "session", id, "err", err)
	}
}

// newMeta is a new session's meta.json and its registry row, keys in the
// peer's order (reference 2.3 and 6.2).
func (s *Store) newMeta(n NewSession) (meta, row *jsonedit.Object, err error) {
	now := jsonedit.AppendFloat(nil, epoch(s.now()))
	str := func(v string) []byte { return jsonedit.AppendString(nil, v) }
	agent, source := n.AgentID, n.Source
	if agent == "" {
		agent = "main"
	}
	if source == "" {
		source = "sessionfs"
	}
	common := []KV{{"agent_id", str(agent)}, {"title", str(n.Title)}, {"source", str(source)}, {"created_at", now}, {"updated_at", now}}
	meta, row = jsonedit.NewObject(), jsonedit.NewObject()
	meta.Set("id", str(n.ID))
	row.Set("id", str(n.ID))
	row.Set("status", str(statusIdle))
	for _, k := range []string{"pinned", "archived", "unread"} {
		row.Set(k, []byte("false"))
	}
	for _, f := range common {
		meta.Set(f.Key, f.Raw)
		row.Set(f.Key, f.Raw)
	}
	for _, k := range []string{"channel", "peer_display", "peer_id"} {
		row.Set(k, []byte("null"))
	}
	for _, f := range n.Extra {
		if jsonedit.Check(f.Raw) != nil {
			return nil, nil, errors.New(f.Key + ": not a JSON value")
		}
		meta.Set(f.Key, f.Raw)
		if registryField(f.Key) {
			row.Set(f.Key, f.Raw)
		}
	}
	switch {
	case n.Project != "":
		meta.Set("project_id", str(n.Project))
	case s.opt.State != "":
		meta.Set("project_id", str("default"))
	}
	assignHead(meta, "")
	return meta, row, nil
}

// makeRepository makes a session's directory under a hidden name and renames
// it into place.
func (s *Store) makeRepository(ctx context.Context, n NewSession, dir string, meta *jsonedit.Object) (err error) {
	if err := disk.MkdirOwned(s.fs, filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	hidden := filepath.Join(filepath.Dir(dir), creatingPrefix+randomHex(8))
	defer func() {
		if err != nil {
			_ = s.fs.RemoveAll(hidden)
		}
	}()
	if err := disk.MkdirOwned(s.fs, hidden, 0o700); err != nil {
		return err
	}
	if err := gitrepo.Init(ctx, hidden, s.git); err != nil {
		return err
	}
	if n.Root {
		root := nodefile.Spec{ID: dag.RootID, CreatedAt: epoch(s.now()), Role: "user", Output: []byte(`""`), Metadata: jsonedit.NewObject()}
		root.Metadata.Set("display", []byte(`"root"`))
		path := filepath.Join(hidden, historyDir, nodefile.FileName(0, root.Role, root.ID))
		if err := disk.WriteAtomic(s.fs, path, root.Encode(), disk.WriteOptions{}); err != nil {
			return err
		}
	}
	if err := disk.WriteAtomic(s.fs, filepath.Join(hidden, metaFile), meta.Bytes(), disk.WriteOptions{}); err != nil {
		return err
	}
	if err := s.fs.RenameNoReplace(hidden, dir); err != nil {
		return err
	}
	return s.fs.SyncDir(filepath.Dir(dir))
}

// sweepHidden removes directories that a crash left under a hidden name of
// ours: unfinished creations older than an hour, and unfinished removals.
func (s *Store) sweepHidden(dir string) {
	entries, err := s.fs.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), removingPrefix):
		case strings.HasPrefix(e.Name(), creatingPrefix):
			if fi, err := e.Info(); err != nil || s.now().Sub(fi.ModTime()) < time.Hour {
				continue
			}
		default:
			continue
		}
		if err := s.fs.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			s.log.Warn("remove leftover directory", "dir", e.Name(), "err", err)
		}
	}
}
