package store

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
