package layout

import (
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// Layout answers for the names under one root. It is safe for concurrent use.
type Layout struct {
	fs          disk.FS
	log         *slog.Logger
	root, state string
	realRoot    string // root with its symlinks resolved, else root

	locations locations
	projects  projects
	looks     looks

	// mu guards nested: the project that a session was last found under by
	// looking through projects/. Memory only.
	mu     sync.Mutex
	nested map[string]string
}

// New returns the layout of root. State is the directory that holds the
// project registry, "" for a standalone root. Nothing is read yet; log may be
// nil.
func New(f disk.FS, root, state string, log *slog.Logger) *Layout {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &Layout{fs: f, log: log, root: absolute(root), nested: map[string]string{}}
	if state != "" {
		l.state = absolute(state)
		l.projects.path = filepath.Join(l.state, projectRegistry)
	}
	l.realRoot = l.root
	if real, err := filepath.EvalSymlinks(l.root); err == nil {
		l.realRoot = real
	}
	l.locations.path = filepath.Join(l.root, locationsName)
	return l
}

// absolute leaves a path relative only when there is no working directory.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return filepath.Clean(path)
}

// Root returns the root's absolute path.
func (l *Layout) Root() string { return l.root }

// Standalone reports whether the root consults no project registry.
func (l *Layout) Standalone() bool { return l.state == "" }

// IndexPath returns the path of the registry, index.json.
func (l *Layout) IndexPath() string { return filepath.Join(l.root, indexName) }

// JournalPath returns the path of the migration journal (reference 12.1).
func (l *Layout) JournalPath() string { return filepath.Join(l.root, migrationName, "journal.json") }

// StagingDir returns the directory that a migration stages a session in.
func (l *Layout) StagingDir(id string) string {
	return filepath.Join(l.root, migrationName, "staging", id)
}

// HoldPath returns the path of the file that exists while a session is being
// migrated; no run may begin then (reference 7.2).
func (l *Layout) HoldPath(id string) string {
	return filepath.Join(l.root, migrationName, "holds", id)
}

// RecoveryDir returns the undo data's directory of the session at dir: beside
// it, outside of its Git (reference 11).
func RecoveryDir(dir, id string) string {
	return filepath.Join(filepath.Dir(dir), recoveryName, id)
}

// DefaultDir returns where a session lies that is bound to no project.
func (l *Layout) DefaultDir(id string) string { return filepath.Join(l.root, id) }

// NestedDir returns where a session lies that is bound to a project other than
// the default one; ok is false when the project's id cannot be a file name.
func (l *Layout) NestedDir(pid, id string) (dir string, ok bool) {
	if pid == defaultProject || !nestable(pid) {
		return "", false
	}
	return filepath.Join(l.root, projectsName, pid, id), true
}

// lockDir is where the lock files are: under <state>/sessions, even while the
// root still has its historic name, and under any other root itself
// (reference 3.1).
func (l *Layout) lockDir() string {
	if l.state != "" && l.root == filepath.Join(l.state, historicRoot) {
		return filepath.Join(l.state, rootName, locksName)
	}
	return filepath.Join(l.root, locksName)
}

// LockPath returns the path of a session's lock file, which goes by its id and
// not by its place.
func (l *Layout) LockPath(id string) string {
	return filepath.Join(l.lockDir(), filelock.SafeName(id)+".lock")
}

// RegistryLockPath returns the path of a lock that is not a session's:
// "locations", "migration-journal", "migration-<id>" (reference 3.1).
func (l *Layout) RegistryLockPath(name string) string {
	return filepath.Join(l.lockDir(), "."+filelock.SafeName(name)+".lock")
}

// RunLockPath returns the path of a session's run lease, held by the process
// that runs the turn.
func (l *Layout) RunLockPath(id string) string { return l.RegistryLockPath("run-" + id) }

// LaterIntent reports whether the session at dir holds a change begun and not
// finished by a later revision of the peer (reference 2.10): until it is
// replayed, the session is to be read only.
func (l *Layout) LaterIntent(dir string) bool {
	for _, name := range []string{appendIntent, deleteIntent} {
		if _, err := l.fs.Lstat(filepath.Join(dir, gitName, name)); err == nil {
			return true
		}
	}
	return false
}

// inside reports whether a path lies below the root.
func (l *Layout) inside(path string) bool {
	return below(l.root, path) || below(l.realRoot, path)
}

func below(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, "../")
}

// isLegacy reports whether a recorded place is a working folder, where a
// session may have been kept once: a migration source, never written to.
func (l *Layout) isLegacy(dir, id string) bool {
	return strings.HasSuffix(dir, "/"+legacySessions+"/"+id) && !l.inside(dir)
}

// projectOf returns the project whose directory under projects/ dir lies in.
func (l *Layout) projectOf(dir string) string {
	if filepath.Dir(dir) == l.root {
		return "" // as most are
	}
	for _, root := range []string{l.root, l.realRoot} {
		rel, err := filepath.Rel(filepath.Join(root, projectsName), filepath.Dir(dir))
		if err == nil && nestable(rel) {
			return rel
		}
	}
	return ""
}
