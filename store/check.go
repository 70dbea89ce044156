package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/registry"
)

// Severity says how much a finding matters.
type Severity string

// The severities. A note is lawful and only worth knowing; a warning is
// untidy, nothing is lost by it; an error hides or contradicts what somebody
// wrote.
const (
	Note    Severity = "note"
	Warning Severity = "warning"
	Fault   Severity = "error"
)

// Finding is one thing that is not as it should be.
type Finding struct {
	Kind     string // a stable word, see docs/operations.md
	Severity Severity
	Session  string // "" for the root
	Path     string // relative to the root
	Text     string
}

func (f Finding) String() string {
	where := f.Path
	if f.Session != "" && !strings.HasPrefix(where, f.Session) {
		where = f.Session + ": " + where
	}
	return fmt.Sprintf("%s: %s [%s]: %s", f.Severity, where, f.Kind, f.Text)
}

// youngTemp is how old a temporary file must be to count as left behind: a
// younger one may be somebody's write in progress.
const youngTemp = 10 * time.Minute

// checker gathers findings. It reads and never writes.
type checker struct {
	s      *Store
	report func(Finding)
}

// rowGrace is how long a row may be behind its session: a writer changes the
// session first and writes the row up to five seconds later (reference 6.14, and
// maxFlushDelay), and a busy machine takes its time. What anybody wrote into
// index.json meanwhile says nothing of this row: each writer writes only its own.
const rowGrace = 2 * maxFlushDelay

// Check looks at the whole root and reports every finding, in a stable order;
// it reads only, takes no lock for longer than it takes to look at it, and
// goes on after whatever it finds. Others may write meanwhile: what is found is
// looked at again, and reported if it is still there. Sessions limits it to
// these ids; none means all, and the root itself. The error is ctx's, or that of
// a root that cannot be read.
func (s *Store) Check(ctx context.Context, report func(Finding), sessions ...string) error {
	return s.CheckProgress(ctx, report, nil, sessions...)
}

// CheckProgress is Check that also tells progress, if not nil, how many of how
// many sessions are done.
func (s *Store) CheckProgress(ctx context.Context, report func(Finding), progress func(done, total int), sessions ...string) error {
	c := &checker{s: s, report: report}
	places, err := c.places(sessions)
	if err != nil {
		return &Error{Code: Corrupt, Op: "check", Err: err}
	}
	if len(sessions) == 0 {
		c.rootTwice(places)
	}
	for i, p := range places {
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(sessions) == 0 || contains(sessions, p.ID) {
			c.sessionTwice(ctx, p)
		}
		if progress != nil {
			progress(i+1, len(places))
		}
	}
	return nil
}

func (c *checker) add(kind string, sev Severity, session, path, format string, args ...any) {
	if rel, err := filepath.Rel(c.s.root, path); err == nil && filepath.IsAbs(path) {
		path = rel
	}
	c.report(Finding{Kind: kind, Severity: sev, Session: session, Path: path, Text: fmt.Sprintf(format, args...)})
}

// root checks what belongs to no single session.
func (c *checker) root(places []layout.Place) {
	for _, dir := range []string{filepath.Dir(c.s.layout.LockPath("x")), filepath.Dir(c.s.layout.TombstonePath("x")), filepath.Join(c.s.root, asideDir)} {
		c.symlink("", dir)
	}
	c.symlink("", c.s.layout.RegistryLockPath("index"))
	c.symlink("", c.s.layout.RegistryLockPath("locations"))
	c.registry(places)
	c.locations()
	c.leftovers(c.s.root, "")
	c.halfDeletes()
	c.migrations()
}

// registry compares index.json with what is on disk.
func (c *checker) registry(places []layout.Place) {
	path := c.s.layout.IndexPath()
	reg, state, err := registry.Open(c.s.fs, path)
	if err != nil {
		c.add("index_unreadable", Fault, "", path, "%v", err)
		return
	}
	if state == registry.Missing && !slices.ContainsFunc(places, func(p layout.Place) bool { return !p.Deleted }) {
		return // a new store, which has nothing to register
	}
	if state != registry.Loaded {
		c.add("index_"+strings.ReplaceAll(state.String(), " ", "_"), Warning, "", path, "the registry is %s; it can be rebuilt", state)
		return
	}
	onDisk := make(map[string]bool, len(places))
	for _, p := range places {
		if p.Deleted {
			continue
		}
		onDisk[p.ID] = true
		row, ok := reg.Row(p.ID)
		switch {
		case p.Unreachable: // nothing to compare it with
		case ok:
			c.row(p, row)
		// Its maker lets the lock go after the files are there: the lock is
		// looked at first.
		case !c.locked(p.ID) && !c.rowOnItsWay(p):
			c.add("directory_without_row", Warning, p.ID, p.Dir, "the registry does not list the session")
		}
	}
	for id := range reg.Rows() {
		if !onDisk[id] && !c.locked(id) {
			c.add("row_without_directory", Warning, id, path, "the registry lists a session that is not there")
		}
	}
}

// row compares a registry row with meta.json.
func (c *checker) row(p layout.Place, row *jsonedit.Object) {
	now := row.Clone()
	overlay(now, c.s.list.meta(p), p)
	differ := differing(row, now)
	behind := slices.Sorted(maps.Keys(differ))
	// How old meta.json is is asked when it has been read: it may have been
	// replaced just before.
	if len(behind) == 0 || c.rowOnItsWay(p) {
		return
	}
	for _, key := range behind {
		c.add("stale_row", Warning, p.ID, c.s.layout.IndexPath(), "%s differs from meta.json", key)
	}
}

// rowOnItsWay reports whether a session changed just now, so that its row may
// still be to come. A time in the future is no reason to wait for it.
func (c *checker) rowOnItsWay(p layout.Place) bool {
	fi, err := c.s.fs.Lstat(filepath.Join(p.Dir, metaFile))
	return err == nil && c.s.now().Sub(fi.ModTime()).Abs() < rowGrace
}

// locked reports whether somebody is changing a session: making or deleting it,
// where half of it is seen.
func (c *checker) locked(id string) bool {
	held, err := filelock.Held(c.s.layout.LockPath(id))
	return err == nil && held
}

// anyLocked is locked for all sessions: what is being removed has a name that
// does not tell whose it is.
func (c *checker) anyLocked() bool {
	dir := filepath.Dir(c.s.layout.LockPath("x"))
	entries, err := c.s.fs.ReadDir(dir)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		if strings.HasPrefix(e.Name(), ".") || !e.Type().IsRegular() {
			return false // no session's
		}
		held, err := filelock.Held(filepath.Join(dir, e.Name()))
		return err == nil && held
	})
}

// locations checks the recorded places.
func (c *checker) locations() {
	path := filepath.Join(c.s.root, "locations.json")
	raw, err := safefile.ReadRegular(c.s.fs, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		c.add("locations_unreadable", Fault, "", path, "%v", err)
		return
	}
	recorded, err := jsonedit.ParseObject(raw)
	if err != nil {
		c.add("locations_corrupt", Fault, "", path, "%v", err)
		return
	}
	for id, dir := range recorded.All() {
		p, err := c.s.layout.Resolve(id)
		if err == nil && !p.Present && !p.Deleted && !p.Symlink && !p.Unreachable && !c.locked(id) {
			c.add("location_missing", Warning, id, path, "the recorded place has no session: %s", dir)
		}
	}
}

// leftovers reports old temporary files and hidden directories of ours in a
// directory.
func (c *checker) leftovers(dir, session string) {
	entries, err := c.s.fs.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		fi, err := e.Info()
		if err != nil {
			continue
		}
		old := c.s.now().Sub(fi.ModTime()) > youngTemp
		switch {
		case disk.IsTemp(e.Name()) && !e.IsDir():
			if old {
				c.add("temp_file", Warning, session, path, "a write that was never finished left it behind")
			}
		case strings.HasPrefix(e.Name(), removingPrefix) && !c.anyLocked(), strings.HasPrefix(e.Name(), creatingPrefix) && old:
			c.add("hidden_directory", Warning, session, path, "a creation or removal that was cut off left it behind")
		}
	}
}

// halfDeletes reports sessions whose delete intent is there and a directory
// too: what the deletion left, or what somebody put there since.
func (c *checker) halfDeletes() {
	dir := filepath.Dir(c.s.layout.TombstonePath("x"))
	if fi, err := c.s.fs.Stat(dir); err == nil && !fi.IsDir() {
		c.add("intents_unreadable", Fault, "", dir, "it is no directory: no session can be deleted")
	}
	ids, err := c.s.layout.Tombstones()
	if err != nil {
		c.add("intents_unreadable", Fault, "", ".deleted", "%v", err)
	}
	for _, id := range ids {
		if c.locked(id) {
			continue // a deletion that goes on
		}
		for _, dir := range c.s.remains(id) {
			if c.s.restoredAfterDelete(layout.Place{ID: id, Dir: dir}) {
				c.add("restored_deleted", Fault, id, dir, "the session was deleted and put back; its id stays taken, it needs a new one")
				continue
			}
			c.add("half_delete", Warning, id, dir, "the session was deleted, its files are still there")
		}
	}
}

// migrations reports what a migration has not finished.
func (c *checker) migrations() {
	path := c.s.layout.JournalPath()
	raw, err := c.s.fs.ReadFile(path)
	if err != nil {
		return
	}
	journal, err := jsonedit.ParseObject(raw)
	if err != nil {
		c.add("journal_corrupt", Fault, "", path, "%v", err)
		return
	}
	rows, _ := journal.Get("sessions")
	obj, err := jsonedit.ParseObject(rows)
	if err != nil {
		return
	}
	for id, raw := range obj.All() {
		row, err := jsonedit.ParseObject(raw)
		if err != nil {
			continue
		}
		stage := row.Str("stage")
		if held, err := filelock.Held(c.s.layout.RegistryLockPath("migration-" + id)); err == nil && held {
			continue // a migration that goes on
		}
		if stage != "done" && stage != "deleted" {
			c.add("half_migration", Warning, id, path, "stage %s %s", stage, row.Str("error"))
		}
	}
}

// session checks one session.
func (c *checker) session(ctx context.Context, p layout.Place) {
	switch {
	case p.Deleted:
		return
	case p.Unreachable:
		c.add("unreachable", Fault, p.ID, p.Dir, "the session's place cannot be reached")
		return
	case p.Symlink:
		c.add("symlinked_session", Fault, p.ID, p.Dir, "the session's directory is a symbolic link")
		return
	}
	m := c.s.readMeta(p)
	sn := c.s.build(p.ID, p, m, takeFingerprint(c.s.fs, p.Dir, p.Openable), nil)
	c.meta(p, sn)
	c.openable(p)
	c.files(p, sn)
	c.graph(p, sn)
	c.run(p, sn)
	c.leftovers(p.Dir, p.ID)
	c.leftovers(filepath.Join(p.Dir, historyDir), p.ID)
	c.git(ctx, p, sn)
}

// meta checks meta.json and what it refers to.
func (c *checker) meta(p layout.Place, sn *Snapshot) {
	path := filepath.Join(p.Dir, metaFile)
	switch {
	case sn.meta.missing:
		c.add("meta_missing", Fault, p.ID, path, "there is no meta.json")
	case sn.meta.err != nil:
		c.add("meta_invalid", Fault, p.ID, path, "%v", sn.meta.err)
	}
	if id := sn.meta.obj.Str("id"); id != "" && id != p.ID {
		c.add("meta_other_id", Fault, p.ID, path, "its id names another session, %s", id)
	}
	if head := sn.Head; head != "" {
		n, ok := sn.Index.Get(head)
		switch {
		case !ok:
			c.add("dangling_head", Fault, p.ID, path, "the head names a node that is not there: %s", head)
		case n.Flags&coversSome != 0:
			c.add("summary_head", Fault, p.ID, path, "the head is a compaction summary: %s", head)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(sn.branchEntries())) {
		if _, ok := sn.Index.Get(id); !ok {
			c.add("branch_without_node", Note, p.ID, path, "a branch entry names a node that is not there: %s", id)
		}
	}
	if c.s.layout.LaterIntent(p.Dir) {
		c.add("unfinished_change", Fault, p.ID, filepath.Join(p.Dir, ".git"), "a newer OpenProgram left an unfinished change here")
	}
	switch d := sn.pending; {
	case d == nil:
	case d.err != nil:
		c.add("unfinished_change", Fault, p.ID, filepath.Join(p.Dir, ".git", deleteIntentName), "%v", d.err)
	default:
		c.add("half_delete_nodes", Warning, p.ID, filepath.Join(p.Dir, ".git", deleteIntentName),
			"the deletion of %d messages was cut off; the next change of the session finishes it", len(d.intent.files))
	}
}

// openable checks what a session needs to be opened.
func (c *checker) openable(p layout.Place) {
	if _, err := c.s.fs.Lstat(filepath.Join(p.Dir, ".git")); err != nil && !p.HistoryRepo {
		c.add("no_repository", Fault, p.ID, p.Dir, "there is no Git repository")
	}
	if fi, err := c.s.fs.Lstat(filepath.Join(p.Dir, historyDir)); err != nil || !fi.IsDir() {
		c.add("no_history", Fault, p.ID, p.Dir, "there is no history directory")
	}
	if p.HistoryRepo {
		c.add("old_layout", Warning, p.ID, p.Dir, "the session has the first layout and waits for its migration")
	}
	if p.Legacy {
		c.add("unmigrated", Note, p.ID, p.Dir, "the session is in its working folder and waits for its migration")
	}
}
