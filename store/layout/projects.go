package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/internal/stamp"
)

// Project is what a store needs of a record in the project registry
// (reference 1.7).
type Project struct {
	ID, Name string
	// Path is the project's working folder, "" when the record has none that
	// is absolute.
	Path string
	// Default marks the project of all that is bound to none: its sessions
	// lie directly under the root.
	Default bool
	// LocationState is "" or one of available, missing, replaced, migrating,
	// pending, error.
	LocationState string
}

// Available reports whether new work in the project's folder may begin: a
// session for a project that is not available is not created (reference 1.7).
func (p Project) Available() bool {
	return p.Default || p.LocationState == "" || p.LocationState == "available"
}

// projects caches <state>/projects/projects.json.
type projects struct {
	path string // "" when standalone
	mu   sync.Mutex
	cur  atomic.Pointer[projectState]
}

// projectState is one reading of the file; immutable.
type projectState struct {
	stamp stamp.Stamp
	byID  map[string]Project
	bound map[string]string // session id to project id
	err   error             // the file is there and cannot be used
}

// load returns the file's current content, read again if it changed.
func (p *projects) load(f disk.FS) *projectState {
	if p.path == "" {
		return &projectState{}
	}
	now, err := stamp.Take(f, p.path, time.Now())
	if cur := p.cur.Load(); err == nil && cur.good(now) {
		return cur
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if cur := p.cur.Load(); err == nil && cur.good(now) {
		return cur
	}
	next := &projectState{stamp: now}
	if err == nil {
		err = next.read(f, p.path)
	}
	if err != nil {
		next.err = fmt.Errorf("project registry: %w", err)
	}
	p.cur.Store(next)
	return next
}

func (s *projectState) good(now stamp.Stamp) bool {
	return s != nil && s.err == nil && s.stamp.Same(now)
}

func (s *projectState) read(f disk.FS, path string) error {
	s.byID, s.bound = map[string]Project{}, map[string]string{}
	data, err := f.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	records, err := jsonedit.ParseObject(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for pid, raw := range records.All() {
		if rec, err := jsonedit.ParseObject(raw); err == nil {
			s.add(pid, rec)
		}
	}
	return nil
}

// add enters a record; of two that claim a session the first one has it.
func (s *projectState) add(pid string, rec *jsonedit.Object) {
	p := Project{
		ID: pid, Name: rec.Str("name"), Path: rec.Str("path"),
		Default:       pid == defaultProject || rec.Truthy("is_default"),
		LocationState: rec.Str("location_state"),
	}
	if !filepath.IsAbs(p.Path) {
		p.Path = ""
	}
	s.byID[pid] = p
	list, _ := rec.Get("session_ids")
	ids, _ := jsonedit.Array(list)
	for _, raw := range ids {
		id, ok := jsonedit.String(raw)
		if _, taken := s.bound[id]; ok && !taken {
			s.bound[id] = pid
		}
	}
}

// project returns the project that a session is bound to.
func (s *projectState) project(id string) (Project, bool) {
	pid, ok := s.bound[id]
	if !ok {
		return Project{}, false
	}
	p, ok := s.byID[pid]
	return p, ok
}

// Project returns a project by its own id. A standalone root knows none, and a
// registry that cannot be read has none.
func (l *Layout) Project(pid string) (Project, bool) {
	p, ok := l.projects.load(l.fs).byID[pid]
	return p, ok
}

// BoundProject returns the project that a session is bound to.
func (l *Layout) BoundProject(id string) (Project, bool) {
	return l.projects.load(l.fs).project(id)
}

// Projects returns all projects by their ids, and for every bound session the
// id of its project. The error is that of a registry that is there and cannot
// be read.
func (l *Layout) Projects() (byID map[string]Project, bound map[string]string, err error) {
	s := l.projects.load(l.fs)
	return maps.Clone(s.byID), maps.Clone(s.bound), s.err
}

// ProjectsVersion returns a value that differs from an earlier one when the
// project registry may have changed in between; nil when there is none.
func (l *Layout) ProjectsVersion() any {
	if l.projects.path == "" {
		return nil
	}
	return l.projects.load(l.fs)
}
