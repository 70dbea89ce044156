package store

import (
	"maps"
	"slices"
)

// ProjectNames maps every session that is bound to a project to the project's
// name. Known is the version that the caller has: while it is the current one,
// the names are nil. Asking costs one stat of the project registry.
func (s *Store) ProjectNames(known any) (names map[string]string, version any) {
	version = s.layout.ProjectsVersion()
	if version == known {
		return nil, version
	}
	return s.projectNames(), version
}

// Project is a project of the registry beside the store.
type Project struct {
	ID, Name string
	Path     string // its working folder, "" when the record has none that is absolute
}

// Projects lists the projects that a session can belong to, by id. A standalone
// store has none, and neither has one whose registry cannot be read.
func (s *Store) Projects() []Project {
	byID, _, err := s.layout.Projects()
	if err != nil {
		s.log.Warn("read project registry", "err", err)
	}
	out := make([]Project, 0, len(byID))
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		out = append(out, Project{id, byID[id].Name, byID[id].Path})
	}
	return out
}
