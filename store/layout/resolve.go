package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// ErrPlacement is wrapped by the error of a session whose place cannot be
// known, because the project registry cannot be read (reference 1.5).
var ErrPlacement = errors.New("session placement unknown")

// Place is where a session lies, or would lie.
type Place struct {
	ID string
	// Dir is the session's directory. When nothing is Present it is where the
	// session should be: its recorded place, or the place to create it in.
	Dir string
	// Present: Dir looks like a session, history/ is a directory or meta.json
	// a regular file (reference 1.4). Never together with Deleted.
	Present bool
	// Openable: more than present, Dir is no symlink, has .git, and history/
	// is a directory.
	Openable bool
	// Symlink: Dir is a symlink. It is not followed for writing.
	Symlink bool
	// HistoryRepo: history/ itself is the Git repository and Dir is none, the
	// first layout, to be migrated.
	HistoryRepo bool
	// Legacy: Dir is in a working folder, a migration source. Read only.
	Legacy bool
	// Deleted: there is a delete intent. Dir is what may be left to remove.
	Deleted bool
	// Unreachable: Dir cannot be looked at, or is a recorded place outside of
	// the root with nothing there, on a disk not mounted perhaps. Not a reason
	// to forget the session, nor to make another of its id.
	Unreachable bool
	// Recorded: locations.json names Dir.
	Recorded bool
	// Project is the id of the project that the session is bound to or lies
	// under, "" when it is bound to none.
	Project string
}

// view is what the small files say at one moment.
type view struct {
	locations *locationState
	projects  *projectState
	// looked is a directory that has just been looked at.
	looked Place
}

// plain reports whether the small files say nothing of a session.
func (v view) plain(id string) bool {
	_, recorded := v.locations.dirs[id]
	_, bound := v.projects.bound[id]
	return v.projects.err == nil && !recorded && !bound
}

func (l *Layout) view() view {
	return view{locations: l.locations.load(l.fs, l.log), projects: l.projects.load(l.fs)}
}

// Resolve finds a session's place (reference 1.5). That there is none is not
// an error: see Place.Present. Errors wrap ErrInvalidID, ErrPlacement, or what
// kept the delete intent from being looked at.
//
// A caller who is about to write resolves again after taking the session's
// lock.
func (l *Layout) Resolve(id string) (Place, error) {
	if err := ValidID(id); err != nil {
		return Place{ID: id}, err
	}
	dead, err := l.tombstone(id)
	if err != nil {
		return Place{ID: id}, err
	}
	p, err := l.find(l.view(), id, l.scan)
	if dead {
		p.Deleted, p.Present, p.Openable = true, false, false
		err = nil // where it was no longer matters
	}
	return p, err
}

// scanner looks for a session under projects/ beyond the places that the
// small files name.
type scanner func(id string) (pid string, ok bool)

// find applies the order of reference 1.5, the delete intent aside.
func (l *Layout) find(v view, id string, scan scanner) (Place, error) {
	_, recorded := v.locations.dirs[id]
	if v.projects.err != nil && !recorded {
		return l.findUnregistered(v, id)
	}
	dirs, target, nested := l.candidates(v, id)
	var lost *Place // the first place that could not be looked at
	for _, dir := range dirs {
		p := v.looked
		if p.Dir != dir {
			p = l.inspect(id, dir)
		}
		if p.Present {
			return l.bind(v, p), nil
		}
		if p.Unreachable && lost == nil {
			lost = &p
		}
	}
	if !nested {
		if pid, ok := scan(id); ok {
			dir, _ := l.NestedDir(pid, id)
			if p := l.inspect(id, dir); p.Present || !recorded {
				return l.bind(v, p), nil
			}
		}
	}
	if lost != nil && !recorded {
		return l.bind(v, *lost), nil
	}
	return l.bind(v, l.missing(id, target, recorded)), nil
}

// candidates returns where a session may lie, most binding first, and where it
// should when it is nowhere. Nested is set when one of them is a project's.
func (l *Layout) candidates(v view, id string) (dirs []string, target string, nested bool) {
	recorded, isRecorded := v.locations.dirs[id]
	if isRecorded {
		dirs = append(dirs, recorded)
	}
	target = l.DefaultDir(id)
	bound, isBound := v.projects.project(id)
	isBound = isBound && !bound.Default
	if isBound {
		var dir string
		if dir, nested = l.NestedDir(bound.ID, id); nested {
			target = dir
			dirs = append(dirs, dir)
		}
	}
	dirs = append(dirs, l.DefaultDir(id))
	if isBound && bound.Path != "" {
		dirs = append(dirs, filepath.Join(bound.Path, legacySessions, id))
	}
	if isRecorded {
		target = recorded
	}
	return dirs, target, nested
}

// missing is the place of a session that is nowhere.
func (l *Layout) missing(id, dir string, recorded bool) Place {
	p := l.inspect(id, dir)
	if recorded && !l.inside(dir) {
		_, err := l.fs.Lstat(dir)
		p.Unreachable = p.Unreachable || err != nil
	}
	return p
}

// findUnregistered resolves without a readable project registry a session of
// which no place is recorded. Only when it lies directly under the root, and
// nowhere under projects/, its place is beyond doubt.
func (l *Layout) findUnregistered(v view, id string) (Place, error) {
	p := l.inspect(id, l.DefaultDir(id))
	if p.Present {
		if _, ok := l.scan(id); !ok {
			return p, nil
		}
	}
	return Place{ID: id}, fmt.Errorf("%w: %w", ErrPlacement, v.projects.err)
}

// bind fills in what the small files say of a place.
func (l *Layout) bind(v view, p Place) Place {
	p.Recorded = v.locations.dirs[p.ID] == p.Dir
	if bound, ok := v.projects.project(p.ID); ok {
		p.Project = bound.ID
		return p
	}
	p.Project = l.projectOf(p.Dir)
	return p
}

// inspect looks at one directory. One that is as it was when it was looked at
// last is not looked into again.
func (l *Layout) inspect(id, dir string) Place {
	lstat := l.lstatIn(dir)
	p := Place{ID: id, Dir: dir, Legacy: l.isLegacy(dir, id)}
	began := time.Now()
	st, err := lstat("")
	if err != nil {
		p.Unreachable = !absent(err)
		return p
	}
	if l.looks.same(dir, st) {
		p.Present, p.Openable = true, true
		return p
	}
	if st.Mode.IsDir() && openable(lstat) {
		p.Present, p.Openable = true, true
		l.looks.note(dir, st, began)
		return p
	}
	p.Symlink = st.Mode&fs.ModeSymlink != 0
	history, err1 := l.is(fs.FileMode.IsDir, dir, historyName)
	p.Present = history
	var err2 error
	if !history {
		p.Present, err2 = l.is(fs.FileMode.IsRegular, dir, metaName)
	}
	p.Unreachable = !p.Present && (err1 != nil || err2 != nil)
	if !history || p.Symlink || l.linked(filepath.Join(dir, historyName)) || l.linked(filepath.Join(dir, gitName)) {
		return p
	}
	if _, err := l.fs.Stat(filepath.Join(dir, gitName)); err == nil {
		p.Openable = true
		l.looks.note(dir, st, began)
		return p
	}
	_, err = l.fs.Stat(filepath.Join(dir, historyName, gitName))
	p.HistoryRepo = err == nil
	return p
}

// openable reports whether a directory holds what most sessions do: history/ and
// .git, neither of them a symlink. All else takes a closer look.
func openable(lstat lstatFunc) bool {
	history, err := lstat(historyName)
	if err != nil || !history.Mode.IsDir() {
		return false
	}
	git, err := lstat(gitName)
	return err == nil && git.Mode&fs.ModeSymlink == 0
}

// linked reports whether a name is a symlink: nothing of a session is read or
// written through one, since the store may belong to somebody else.
func (l *Layout) linked(path string) bool {
	fi, err := l.fs.Lstat(path)
	return err == nil && fi.Mode()&fs.ModeSymlink != 0
}

// is reports whether a file of a directory has a kind. The error says that it
// cannot be known.
func (l *Layout) is(kind func(fs.FileMode) bool, dir, name string) (bool, error) {
	fi, err := l.fs.Stat(filepath.Join(dir, name))
	if err == nil {
		return kind(fi.Mode()), nil
	}
	if absent(err) {
		return false, nil
	}
	return false, err
}

// scan looks for a session in every project's directory, in the order of
// their names, starting with where it was last found.
func (l *Layout) scan(id string) (pid string, ok bool) {
	l.mu.Lock()
	last, known := l.nested[id]
	l.mu.Unlock()
	if known && l.isNested(last, id) {
		return last, true
	}
	for _, pid := range l.projectDirs() {
		if l.isNested(pid, id) {
			l.remember(id, pid)
			return pid, true
		}
	}
	return last, known
}

func (l *Layout) remember(id, pid string) {
	l.mu.Lock()
	l.nested[id] = pid
	l.mu.Unlock()
}

func (l *Layout) isNested(pid, id string) bool {
	dir, ok := l.NestedDir(pid, id)
	return ok && l.inspect(id, dir).Present
}
