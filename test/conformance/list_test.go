package conformance

import (
	"cmp"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

// registryFields are the keys that a row takes from meta.json (reference 2.3).
var registryFields = []string{
	"id", "agent_id", "title", "source", "created_at", "updated_at", "channel", "account_id",
	"peer_display", "peer_id", "pinned", "archived", "unread", "group", "status",
}

// row is the row that a list shows of a session, by rule: the registry's with
// meta.json's values over it, meta.json's alone where the registry has none,
// the registry's alone where meta.json cannot be trusted. nil: not listed.
func (d *diskStore) row(id string) map[string]any {
	s, row := d.sessions[id], maps.Clone(d.rows[id])
	switch {
	case s == nil && (row == nil || !d.unreachable(id)):
		return nil
	case s != nil && row == nil:
		row = d.rowFromMeta(s)
	case s != nil && s.trusted():
		overlay(row, s.meta)
		clearGone(row, s)
	}
	row["id"] = id
	if status, changed := ended(row["status"]); changed {
		// The process that ran it is dead: the store was extracted from a
		// tarball. Reference 8.3, with meta.json as the truth.
		row["status"] = status
	}
	return row
}

func overlay(row, meta map[string]any) {
	for _, f := range registryFields {
		// An unknown creation time is none (reference 8.2).
		if v, ok := meta[f]; ok && (f != "created_at" || truthy(v)) {
			row[f] = v
		}
	}
}

// clearGone gives a row what the absence of a field in meta.json means (reference
// 2.3): who takes a field out writes meta.json, and the registry may be behind.
// That something runs is believed also of a row alone (reference 8.3).
func clearGone(row map[string]any, s *diskSession) {
	for f, means := range map[string]any{"status": "idle", "pinned": false, "archived": false, "unread": false, "title": nil, "group": nil} {
		if _, has := s.meta[f]; has || row[f] == nil || !truthy(row[f]) && !truthy(means) {
			continue
		}
		if _, runs := ended(row[f]); f == "status" && (runs || !s.openable()) {
			continue
		}
		if row[f] = means; means == nil {
			delete(row, f)
		}
	}
}

// rowFromMeta is a rebuilt row (reference 2.7, 8.2). A meta.json that does not
// speak for its directory gives it nothing but its own time, and one that is
// reached through a link not even that. Call it after opening, which may bring
// a history back.
func (d *diskStore) rowFromMeta(s *diskSession) map[string]any {
	row := map[string]any{"status": "idle", "pinned": false, "archived": false, "unread": false}
	if s.trusted() {
		overlay(row, s.meta)
	}
	if !truthy(row["created_at"]) {
		row["created_at"] = number{Float: s.created}
	}
	if s.openable() {
		if text := orEmpty(modelOf(s, s.meta).latestUser()); text != "" {
			row["preview"] = preview(text)
		}
	}
	return row
}

// unreachable reports whether a session's recorded location is outside the
// root, where a drive may be missing, so that its absence proves nothing.
func (d *diskStore) unreachable(id string) bool {
	at, ok := d.locations[id].(string)
	if !ok || d.tombstone(id) {
		return false
	}
	rel, err := filepath.Rel(d.root, at)
	return err == nil && !filepath.IsLocal(rel)
}

// deviates says why a session's row is not the recorded one, "" when it must
// be.
func (d *diskStore) deviates(id string) string {
	s, row := d.sessions[id], d.rows[id]
	switch {
	case s == nil:
		return "its directory is gone"
	case row != nil && row["id"] != any(id):
		return "its row names another session"
	case s.symlink && row == nil:
		return "a symlinked directory without a row"
	case s.meta == nil && row == nil:
		return "no readable meta.json and no row"
	case !s.trusted() && row == nil:
		return "meta.json names another session"
	case !s.trusted():
		return ""
	case d.rows == nil && s.meta["id"] == nil:
		return "a rebuilt row of a meta.json without id"
	case d.rows != nil && row == nil:
		return "the registry lacks it"
	}
	for _, f := range registryFields {
		if v, ok := s.meta[f]; ok && row != nil && !equal(v, row[f]) {
			return "the registry's " + f + " is stale"
		}
	}
	now := maps.Clone(row)
	clearGone(now, s)
	for f := range row {
		if !equal(row[f], now[f]) {
			return "meta.json has no " + f + " any more"
		}
	}
	return ""
}

// ids lists every session that must be listed, removed shells left out, in
// the registry's order and then the disk's.
func (d *diskStore) ids(gone map[string]bool) []string {
	var out []string
	for _, id := range append(slices.Clone(d.registry), d.order...) {
		if d.row(id) != nil && !gone[id] && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// checkList compares the list of all sessions row by row: with the recorded
// rows, overrides applied, and by rule where the list is the disk's.
func (c *check) checkList() {
	var want listAnswer
	if !unanswered(c.want.ListSessions) {
		c.decode("list_sessions", c.want.ListSessions, &want)
	}
	peer := map[string]map[string]any{}
	for _, raw := range want.Rows {
		row := c.value(raw).(map[string]any)
		id, _ := row["id"].(string)
		peer[id] = row
	}
	rows := c.list(store.ListQuery{IncludeArchived: true})
	got := map[string]map[string]any{}
	for _, row := range rows {
		id := row["id"].(string)
		c.y.checkThat(got[id] == nil, "list_sessions names %s twice", id)
		got[id] = row
	}
	wantIDs := c.disk.ids(c.gone)
	c.y.check("list_sessions: the set of ids", slices.Sorted(maps.Keys(got)), slices.Sorted(slices.Values(wantIDs)))
	for _, id := range wantIDs {
		if got[id] != nil {
			c.checkRow(id, got[id], peer[id])
		}
	}
	c.checkOrder(rows, wantIDs)
	c.checkQueries(rows, want.Queries)
}

func (c *check) checkRow(id string, got, peer map[string]any) {
	why := c.disk.deviates(id)
	if why != "" || peer == nil {
		c.deviation(id, cmp.Or(why, "the peer removed it or lost its row"))
		c.differs(diskRows, func() { c.y.check("list_sessions row by rule of "+id, got, c.disk.row(id)) })
		return
	}
	c.override(peer, "list_sessions", id)
	c.y.check("list_sessions row of "+id, got, peer)
}

// checkOrder: updated_at descending, missing is 0, ties in registry order.
func (c *check) checkOrder(rows []map[string]any, want []string) {
	want = slices.Clone(want)
	slices.SortStableFunc(want, func(a, b string) int {
		return cmp.Compare(seconds(c.disk.row(b)["updated_at"]), seconds(c.disk.row(a)["updated_at"]))
	})
	c.y.check("list_sessions: the order", ids(rows), want)
}

// checkQueries asks every recorded question again. The right answer is the
// filter, sort and slice of reference 6.6 over the rows that checkList has
// compared one by one; where nothing deviates it must be the recorded one.
func (c *check) checkQueries(rows []map[string]any, queries []listQuery) {
	for _, q := range queries {
		name := "list_sessions " + argsText(q.Args)
		lq := c.query(q.Args)
		got := ids(c.list(lq))
		c.y.check(name+" by rule", got, ids(page(filter(rows, q.Args), q.Args)))
		if c.deviations > 0 {
			continue
		}
		list := q.idList
		for _, o := range c.want.SeedOverrides {
			if o.API == "list_sessions" && o.Field == "ids" && argsText(o.Args) == argsText(q.Args) {
				c.decode("seed", o.Seed, &list.IDs)
			}
		}
		c.y.checkIDs(name, got, list)
	}
	for _, q := range c.want.CountSessions {
		name := "count_sessions " + argsText(q.Args)
		got, err := c.s.CountSessions(c.ctx, c.query(q.Args))
		c.y.checkThat(err == nil, "%s: %v", name, err)
		c.y.check(name+" by rule", got, len(filter(rows, q.Args)))
		if c.deviations == 0 && !c.countOverridden(q.Args) {
			c.y.check(name, got, q.Count)
		}
	}
}

// countOverridden: an override of a list is one of its count as well, and so
// is one of a row's field that the count filters on.
func (c *check) countOverridden(args map[string]json.RawMessage) bool {
	return slices.ContainsFunc(c.want.SeedOverrides, func(o override) bool {
		return o.API == "list_sessions" && (argsText(o.Args) == argsText(args) || args[o.Field] != nil)
	})
}

// query turns recorded arguments into ours.
func (c *check) query(args map[string]json.RawMessage) store.ListQuery {
	q := store.ListQuery{Limit: 100, Filters: map[string][]byte{}}
	for name, raw := range args {
		switch name {
		case "limit":
			c.decode(name, raw, &q.Limit)
			if q.Limit == 0 {
				q.Limit = store.NoRows
			}
		case "offset":
			c.decode(name, raw, &q.Offset)
		case "include_archived":
			c.decode(name, raw, &q.IncludeArchived)
		case "agent_id":
			c.decode(name, raw, &q.AgentID)
		case "source":
			c.decode(name, raw, &q.Source)
		default:
			q.Filters[name] = raw
		}
	}
	for _, name := range []string{"source", "agent_id"} {
		if raw, found := args[name]; found && string(raw) == `""` {
			q.Filters[name] = raw // an empty text is a value to the peer, not "any"
		}
	}
	return q
}

func (c *check) list(q store.ListQuery) []map[string]any {
	c.t.Helper()
	rows, err := c.s.ListSessions(c.ctx, q)
	if err != nil {
		c.t.Fatalf("ListSessions(%+v): %v", q, err)
	}
	var out []map[string]any
	for _, r := range rows {
		m := pyObject(r.JSON)
		if m == nil || m["id"] != r.ID {
			c.t.Fatalf("ListSessions: row %q has JSON %s", r.ID, r.JSON)
		}
		out = append(out, m)
	}
	return out
}

// filter keeps the rows that the recorded arguments select.
func filter(rows []map[string]any, args map[string]json.RawMessage) []map[string]any {
	return slices.DeleteFunc(slices.Clone(rows), func(row map[string]any) bool {
		_, explicit := args["archived"]
		if !explicit && string(args["include_archived"]) != "true" && truthy(row["archived"]) {
			return true
		}
		for name, raw := range args {
			if name == "limit" || name == "offset" || name == "include_archived" {
				continue
			}
			want, err := pyDecode(raw)
			got, there := row[name]
			if err != nil || want != nil && (!there || !equal(got, want)) {
				return true
			}
		}
		return false
	})
}

// page slices rows as limit and offset say; the default limit is 100.
func page(rows []map[string]any, args map[string]json.RawMessage) []map[string]any {
	limit, offset := 100, 0
	_ = json.Unmarshal(args["limit"], &limit)
	_ = json.Unmarshal(args["offset"], &offset)
	rows = rows[min(offset, len(rows)):]
	return rows[:min(limit, len(rows))]
}

func ids(rows []map[string]any) []string {
	out := []string{}
	for _, row := range rows {
		out = append(out, row["id"].(string))
	}
	return out
}

// argsText names recorded arguments, keys sorted.
func argsText(args map[string]json.RawMessage) string {
	b, err := json.Marshal(args)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestFilter holds the suite's own filter to recorded answers, so that a
// mistake in it is not taken for one of the product.
func TestFilter(t *testing.T) {
	rows := []map[string]any{{"id": "a", "pinned": true}, {"id": "b", "archived": true}, {"id": "c", "pinned": false}}
	for args, want := range map[string][]string{
		`{}`: {"a", "c"}, `{"include_archived": true}`: {"a", "b", "c"}, `{"archived": true}`: {"b"},
		`{"pinned": true}`: {"a"}, `{"title": null}`: {"a", "c"}, `{"limit": 1, "offset": 1}`: {"c"}, `{"offset": 9}`: {},
	} {
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(args), &m); err != nil {
			t.Fatal(err)
		}
		if got := ids(page(filter(rows, m), m)); !equal(got, want) {
			t.Errorf("filter %s = %v, want %v", args, got, want)
		}
	}
}
