package conformance

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// fileRow is the row that index.json has of a session after opening, nil for
// none: the listed one, and as it was one whose session is nowhere, which may
// be about to be made or on a drive that is missing.
func (c *check) fileRow(id string) map[string]any {
	if c.gone[id] || c.isGhost(id) {
		return nil
	}
	if row := c.disk.row(id); row != nil {
		return row
	}
	return c.disk.rows[id]
}

// isGhost reports whether a row is of a session that is deleted, or was swept
// away as a shell or would be (reference 8.5): nowhere, in no recorded place,
// older than an hour, not archived, not on the move.
func (c *check) isGhost(id string) bool {
	row := c.disk.rows[id]
	if row != nil && c.disk.tombstone(id) {
		return true
	}
	if row == nil || c.disk.sessions[id] != nil || c.disk.locations[id] != nil {
		return false
	}
	return !truthy(row["archived"]) && c.want.RecordedAt-seconds(row["created_at"]) > 3600 && !c.disk.moving(id)
}

// moving reports whether the journal has a migration of a session that is not
// done (reference 12.1).
func (d *diskStore) moving(id string) bool {
	b, err := os.ReadFile(filepath.Join(d.root, ".migration", "journal.json"))
	if err != nil {
		return false
	}
	sessions, _ := pyObject(b)["sessions"].(map[string]any)
	row, _ := sessions[id].(map[string]any)
	return row != nil && row["stage"] != any("done") && row["stage"] != any("deleted")
}

// checkRegistry closes the store and compares index.json, row for row and key
// for key: with the peer's registry after opening where that was recorded and
// with the extracted one where opening left it alone, both with meta.json's
// values laid over.
func (c *check) checkRegistry() {
	if err := c.s.Close(); err != nil {
		c.y.checkThat(false, "close: %v", err)
	}
	b, err := os.ReadFile(filepath.Join(c.root, "index.json"))
	c.y.checkThat(err == nil, "read index.json: %v", err)
	var got diskStore
	got.readRegistry(b)
	peer := c.disk.rows
	if len(c.want.Disk.IndexAfterOpen) > 0 {
		peer = map[string]map[string]any{}
		for id, row := range c.value(c.want.Disk.IndexAfterOpen).(map[string]any) {
			peer[id] = row.(map[string]any)
		}
	}
	order := c.registryOrder()
	c.y.check("index.json: its rows, in order", nonNil(got.registry), order)
	for _, id := range order {
		if got.rows[id] != nil {
			c.checkFileRow(id, got.rows[id], peer[id])
		}
	}
	for _, id := range sortedIDs(peer) {
		c.y.checkThat(slices.Contains(order, id) || c.fileRow(id) == nil && c.disk.rows[id] != nil || c.disk.misnamed(id),
			"index.json: the peer has a row of %s", id)
	}
	if maps.EqualFunc(c.disk.rows, got.rows, func(a, b map[string]any) bool { return equal(a, b) }) && slices.Equal(c.disk.registry, got.registry) {
		c.y.check("index.json, of which no row changed", sum(b), c.before["index.json"])
	}
	c.checkKeyOrder(b)
}

// registryOrder: the rows that were there in their order, new ones after them
// in the order of the disk; only those of removed shells are gone.
func (c *check) registryOrder() []string {
	out := []string{}
	for _, id := range append(slices.Clone(c.disk.registry), c.disk.order...) {
		noRow := c.disk.rows[id] == nil && c.disk.sessions[id] == nil && !c.isGhost(id) // it is left alone
		if (noRow || c.fileRow(id) != nil) && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// checkFileRow compares one row. What the peer has is right but for what
// meta.json says otherwise.
func (c *check) checkFileRow(id string, got, peer map[string]any) {
	what := "index.json: the row of " + id
	s := c.disk.sessions[id]
	if s == nil && !equal(c.fileRow(id), peer) {
		c.differs(goneRows, func() { c.y.check(what, got, c.fileRow(id)) })
		return
	}
	if peer == nil {
		c.differs(registryRows, func() { c.y.check(what, got, c.fileRow(id)) })
		return
	}
	want := c.caughtUp(id, peer)
	status, dead := ended(c.statusBefore(id, want))
	if dead = dead && (s != nil || c.disk.unreachable(id)); dead {
		want["status"] = status
	}
	switch {
	case dead:
		c.differs(deadRuns, func() { c.y.check(what, got, want) })
	case !equal(want, peer):
		c.differs(registryRows, func() { c.y.check(what, got, want) })
	default:
		c.y.check(what, got, want)
	}
}

// caughtUp is a row of the peer's registry with what its extracted one had
// otherwise than meta.json.
func (c *check) caughtUp(id string, peer map[string]any) map[string]any {
	row, s, extracted := maps.Clone(peer), c.disk.sessions[id], c.disk.rows[id]
	if !truthy(row["id"]) || extracted != nil && extracted["id"] != any(id) {
		row["id"] = id // of a meta.json without one, or a row with another's
	}
	for _, f := range registryFields {
		if s == nil || !s.trusted() || extracted == nil {
			break
		}
		if v, ok := s.meta[f]; ok && !equal(v, extracted[f]) && (f != "created_at" || truthy(v)) {
			row[f] = v
		}
	}
	if s != nil && s.trusted() && extracted != nil {
		clearGone(row, s)
	}
	return row
}

// statusBefore is the status that a session had before opening: meta.json's,
// or where that has none the extracted row's, which the peer may have set to
// idle on the way.
func (c *check) statusBefore(id string, row map[string]any) any {
	if s := c.disk.sessions[id]; s != nil && s.trusted() {
		if status, ok := s.meta["status"]; ok {
			return status
		}
	}
	if _, dead := ended(c.disk.rows[id]["status"]); dead {
		return c.disk.rows[id]["status"]
	}
	return row["status"]
}

// misnamed reports whether a meta.json gives its session the id of another
// one. The peer's rebuilt registry follows it; here a directory's name is the
// id (section 1.4, 1.5).
func (d *diskStore) misnamed(id string) bool {
	for _, s := range d.sessions {
		if s.id != id && s.meta["id"] == any(id) {
			return true
		}
	}
	return false
}

// checkKeyOrder: the keys of a row that was there keep their order, new ones
// follow; a new row begins as section 2.7 says.
func (c *check) checkKeyOrder(after []byte) {
	was, is := rowKeys(c.disk.index), rowKeys(after)
	for _, id := range sortedIDs(is) {
		first := was[id]
		if c.disk.rows[id] == nil {
			first = []string{"id", "status", "pinned", "archived", "unread"}
		}
		keys := nonNil(is[id])
		if len(keys) > 0 { // else it is no row
			c.y.check("index.json: the first keys of the row of "+id, keys[:min(len(keys), len(first))], nonNil(first))
		}
	}
}

// rowKeys maps each row of a registry's text to its keys in order; nil where
// it is no object.
func rowKeys(text []byte) map[string][]string {
	out := map[string][]string{}
	ids, rows := members(string(text))
	for i, id := range ids {
		out[id], _ = members(rows[i])
	}
	return out
}

// members takes an object's text apart.
func members(text string) (keys, values []string) {
	d := &decoder{s: text}
	if d.space(); !d.eat("{") {
		return nil, nil
	}
	for d.space(); !d.eat("}"); d.space() {
		d.eat(",")
		d.space()
		key, err := d.str()
		d.space()
		if err != nil || !d.eat(":") {
			return nil, nil
		}
		d.space()
		begin := d.i
		if _, err := d.value(1); err != nil {
			return nil, nil
		}
		keys, values = append(keys, key), append(values, d.s[begin:d.i])
	}
	return keys, values
}
