package store

import (
	"slices"

	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
)

// refreshPending brings the changes that wait to be written up to what is on
// disk: meanwhile another process may have changed the same fields, and its
// row may be in the file already. A change waits up to seconds, so that what
// it holds may be older than the row that it would replace; meta.json wins
// (docs/store-format.md), and with the preview the newest user message. Fields
// that this store did not change are not touched: who changed them writes them.
//
// It is called when the file has been read: a row that is in it by then came
// after the session's own files, so that what they hold now is no older. And a
// session that is gone by then has, or will have, its row removed by who removed
// it, and must not get another one.
//
// Requires the registry's lock, so that no other sessionfs writes rows
// meanwhile, and l.flushMu.
func (l *listing) refreshPending() {
	for id, keys := range l.reg.Pending() {
		place, err := l.s.place("write registry", id)
		switch {
		case place.Deleted:
			l.reg.Delete(id)
		case CodeOf(err) == NotFound:
			l.reg.Revert(id) // removed meanwhile, its row too
		case err == nil && len(keys) > 0:
			l.refreshRow(place, keys)
		}
	}
}

// refreshRow is refreshPending for the given fields of one session's row.
func (l *listing) refreshRow(place layout.Place, keys []string) {
	id, m := place.ID, l.meta(place)
	row, ok := l.reg.Row(id)
	if !m.trusted || !ok {
		return
	}
	now := row.Clone()
	overlay(now, m, place)
	stale := map[string][]byte{}
	for _, key := range keys {
		old, had := row.Get(key)
		raw, has := now.Get(key)
		if had != has || had && !jsonedit.Equal(old, raw) {
			stale[key] = raw
		}
	}
	if slices.Contains(keys, "preview") {
		if text, ok := l.latestUserText(place); ok && text != "" && row.Str("preview") != render.Preview(text) {
			stale["preview"] = jsonedit.EncodeString(render.Preview(text))
		}
	}
	if len(stale) > 0 {
		l.reg.Put(id, stale)
	}
}

// field returns a field that a meta.json holds.
func (m metaRow) field(key string) ([]byte, bool) {
	for _, f := range m.fields {
		if f.Key == key {
			return f.Raw, true
		}
	}
	return nil, false
}
