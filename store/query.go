package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
)

// ListSessions lists sessions by updated_at, newest first, equal ones in the
// registry's order (reference 6.6). What is on disk is listed, whatever the
// registry says, and meta.json wins over a row that lags behind.
func (s *Store) ListSessions(ctx context.Context, q ListQuery) ([]Row, error) {
	defer s.list.dropKept()
	found, err := s.selectRows(ctx, q)
	if err != nil {
		return nil, err
	}
	found = page(found, q)
	names := s.projectNames()
	out := make([]Row, len(found))
	layout.SideBySide(len(found), func(i int) { out[i] = makeRow(found[i], names) })
	return out, nil
}

// CountSessions counts what ListSessions would list without limit and offset.
func (s *Store) CountSessions(ctx context.Context, q ListQuery) (int, error) {
	found, err := s.selectRows(ctx, q)
	return len(found), err
}

// selectRows returns the rows that a query selects, sorted.
func (s *Store) selectRows(ctx context.Context, q ListQuery) ([]listed, error) {
	rows, err := s.rowsFor(ctx, q)
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(r listed) bool { return !q.selects(r.row) })
	for i := range rows {
		rows[i].updated, _ = rows[i].row.Float("updated_at")
	}
	slices.SortStableFunc(rows, func(a, b listed) int { return cmp.Compare(b.updated, a.updated) })
	return rows, nil
}

// rowsFor returns all rows, those of the start where they will do.
func (s *Store) rowsFor(ctx context.Context, q ListQuery) ([]listed, error) {
	if q.AsOpened {
		if rows, ok := s.list.opened(); ok {
			return rows, nil
		}
	}
	rows, err := s.list.scan(ctx)
	if err != nil {
		return nil, err
	}
	s.showedList(rows)
	s.list.saveCache()
	return rows, nil
}

// selects reports whether a row passes the query's filters.
func (q ListQuery) selects(row *jsonedit.Object) bool {
	if q.AgentID != "" && row.Str("agent_id") != q.AgentID {
		return false
	}
	if q.Source != "" && row.Str("source") != q.Source {
		return false
	}
	_, archivedAsked := q.Filters["archived"]
	if !q.IncludeArchived && !archivedAsked && row.Truthy("archived") {
		return false
	}
	for key, want := range q.Filters {
		if jsonedit.IsNull(want) {
			continue
		}
		got, ok := row.Get(key)
		if !ok || !jsonedit.Equal(got, want) {
			return false
		}
	}
	return true
}

func page(rows []listed, q ListQuery) []listed {
	rows = rows[min(max(q.Offset, 0), len(rows)):]
	if q.Limit < 0 {
		return nil
	}
	if q.Limit > 0 {
		rows = rows[:min(q.Limit, len(rows))]
	}
	return rows
}

// projectNames maps a session to the name of the project that it is bound to.
func (s *Store) projectNames() map[string]string {
	projects, bound, err := s.layout.Projects()
	if err != nil {
		s.log.Warn("read project registry", "err", err)
	}
	names := make(map[string]string, len(bound))
	for id, pid := range bound {
		if p, ok := projects[pid]; ok {
			names[id] = p.Name
		}
	}
	return names
}

func makeRow(l listed, projects map[string]string) Row {
	o := l.row
	r := Row{
		ID: l.place.ID, AgentID: o.Str("agent_id"), Title: o.Str("title"), Source: o.Str("source"),
		Status: o.Str("status"), Group: o.Str("group"), Preview: o.Str("preview"), Channel: o.Str("channel"),
		Pinned: o.Truthy("pinned"), Archived: o.Truthy("archived"), Unread: o.Truthy("unread"),
		Project: projects[l.place.ID], JSON: jsonedit.Compact(o.Bytes()),
	}
	r.CreatedAt, _ = o.Float("created_at")
	r.UpdatedAt, _ = o.Float("updated_at")
	if r.Status == "" {
		r.Status = statusIdle
	}
	return r
}

// Row returns one session's row, archived or not. NotFound.
func (s *Store) Row(ctx context.Context, id string) (Row, error) {
	read := s.showing(id)
	place, err := s.place("find session", id)
	if err != nil {
		read(nil)
		return Row{}, err
	}
	m := s.list.meta(place)
	s.list.mu.Lock()
	row, ok := s.list.reg.Row(id)
	s.list.mu.Unlock()
	if !ok {
		row = s.list.newRow(place, m)
	}
	project := map[string]string{}
	if p, ok := s.layout.BoundProject(id); ok {
		project[id] = p.Name
	}
	overlay(row, m, place)
	r := listed{place: place, row: row}
	read(&r)
	return makeRow(r, project), nil
}

// IndexJSON returns the registry as index.json would hold it now: every
// session that is listed, archived ones included, in the peer's layout.
func (s *Store) IndexJSON(ctx context.Context) ([]byte, error) {
	rows, err := s.list.scan(ctx)
	if err != nil {
		return nil, err
	}
	s.showedList(rows)
	if len(rows) == 0 {
		return []byte("{}"), nil
	}
	out := []byte("{")
	for i, r := range rows {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, "\n  "...)
		out = jsonedit.AppendString(out, r.place.ID)
		out = append(out, ": "...)
		out = append(out, jsonedit.Indent(r.row.Bytes(), "  ")...)
	}
	return append(out, "\n}"...), nil
}
