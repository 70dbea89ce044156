package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// MetaSeen are the texts of a meta.json that somebody may have begun from who
// saves one, each list oldest first.
type MetaSeen struct {
	// Own are the texts that he has read himself, or one of his.
	Own [][]byte
	// Served are the texts that anybody has read. They count where there is
	// none of his own.
	Served [][]byte
	// States are what the file held lately, whether read or not. They count
	// where no text that was read explains what is saved.
	States [][]byte
}

// MergeMeta takes over what somebody changed in the text of a session's
// meta.json. The change is counted from the newest of the texts that he may
// have begun from, or from an older one that differs from text in fewer keys,
// as long as it differs at all: to put back what was there before is a change
// as well. It is counted from the file as it is when there is none.
// Only keys that differ are written, with one write, and a key that was taken
// out is taken out; all other bytes stay. The document's layout is no change.
//
// Conflict when a key that was changed is not what it was when it was read, or
// when it cannot be told which of several texts was read and somebody else's
// change may be undone;
// Immutable for "id", "created_at", "updated_at" and "head_version", which
// only the store sets; Invalid for what is not a JSON object or not a value
// that the key can have; RunActive for "status" while a run is alive. A
// "head_id" is a reference and moves through the one door. An error leaves
// meta.json as it was.
func (s *Store) MergeMeta(ctx context.Context, id string, seen MetaSeen, text []byte) error {
	err := s.change(ctx, "save meta.json", id, 0, func(t *tx) error { return t.mergeMeta(seen, text) })
	if err == nil {
		s.Dirty(id)
	}
	return err
}

// keyChange is a key of a saved meta.json that is not what it was when it was
// read; next is nil for one that was taken out.
type keyChange struct {
	key         string
	before      []byte // nil when it was not there
	next        []byte
	beforeKnown bool // before is from a text that was read
}

func (t *tx) mergeMeta(seen MetaSeen, text []byte) error {
	saved, err := jsonedit.ParseObject(text)
	if err != nil {
		return t.fail(Invalid, metaFile, err)
	}
	changes, err := t.metaChanges(seen, saved)
	if err != nil {
		return err
	}
	m := t.editMeta()
	var row []KV
	for _, c := range changes {
		now, _ := t.sn.meta.obj.Get(c.key)
		switch {
		case sameValue(now, c.next):
			continue // it is so already
		case !sameValue(now, c.before):
			return t.fail(Conflict, c.key, errors.New("the key has changed since the text was read"))
		}
		if err := t.mergeKey(m, c); err != nil {
			return err
		}
		if c.key != "head_id" {
			row = append(row, KV{c.key, c.next})
		}
	}
	if err := t.writeMeta(m); err != nil {
		return err
	}
	if len(row) > 0 {
		t.s.list.put(t.se.id, row...)
	}
	return nil
}

// metaChanges lists what was changed in saved, in the order of its keys, the
// ones that were taken out last.
func (t *tx) metaChanges(seen MetaSeen, saved *jsonedit.Object) ([]keyChange, error) {
	if own, ok := nearest(seen.Own, saved); ok {
		return own.changes, nil
	}
	served, ok := nearest(seen.Served, saved)
	if ok && served.unsure && !t.isSo(served.changes) {
		return nil, t.fail(Conflict, served.changes[0].key, errors.New("it cannot be told from which text this one was made, and it may undo somebody else's change"))
	}
	if ok && t.lawful(served.changes) {
		return served.changes, nil
	}
	if state, found := nearest(seen.States, saved); found && t.lawful(state.changes) {
		return state.changes, nil
	}
	if ok {
		return served.changes, nil
	}
	return diffKeys(t.sn.meta.obj, saved, false), nil
}

// nearness is what of a text was changed, counted from the one that it was most
// likely made from.
type nearness struct {
	changes []keyChange
	unsure  bool // an older text explains it as well, by another change
}

// nearest finds the text that saved was most likely made from.
func nearest(texts [][]byte, saved *jsonedit.Object) (best nearness, found bool) {
	for _, text := range slices.Backward(texts) {
		base, err := jsonedit.ParseObject(text)
		if err != nil {
			continue
		}
		c := diffKeys(base, saved, true)
		switch {
		case !found, len(c) > 0 && len(c) < len(best.changes):
			best, found = nearness{changes: c}, true
		case len(c) <= len(best.changes) && !slices.EqualFunc(c, best.changes, sameChange):
			best.unsure = true
		}
	}
	return best, found
}

func sameChange(a, b keyChange) bool {
	return a.key == b.key && sameValue(a.before, b.before) && sameValue(a.next, b.next)
}

// isSo reports whether the file has the changes already.
func (t *tx) isSo(changes []keyChange) bool {
	return !slices.ContainsFunc(changes, func(c keyChange) bool {
		now, _ := t.sn.meta.obj.Get(c.key)
		return !sameValue(now, c.next)
	})
}

// lawful reports whether changes are such as a user makes, of keys that nobody
// has changed meanwhile.
func (t *tx) lawful(changes []keyChange) bool {
	return !slices.ContainsFunc(changes, func(c keyChange) bool {
		now, _ := t.sn.meta.obj.Get(c.key)
		return onlyStore(c.key) || !sameValue(now, c.next) && !sameValue(now, c.before)
	})
}

// onlyStore reports whether only the store sets a key.
func onlyStore(key string) bool {
	return slices.Contains([]string{"id", "created_at", "updated_at", "head_version"}, key)
}

// older reports whether a key that only the store sets, and sets to more each
// time, tells that the saved text was made from one that is not kept any more.
func (c keyChange) older() bool {
	if c.key != "updated_at" && c.key != "head_version" {
		return false
	}
	before, okBefore := jsonedit.Number(c.before)
	next, okNext := jsonedit.Number(c.next)
	return !c.beforeKnown || okBefore && okNext && next < before
}

func diffKeys(base, saved *jsonedit.Object, known bool) []keyChange {
	var out []keyChange
	for _, key := range saved.Keys() {
		next, _ := saved.Get(key)
		before, _ := base.Get(key)
		if !sameValue(before, next) {
			out = append(out, keyChange{key, before, next, known})
		}
	}
	for _, key := range base.Keys() {
		if !saved.Has(key) {
			before, _ := base.Get(key)
			out = append(out, keyChange{key, before, nil, known})
		}
	}
	return out
}

// sameValue compares two values of which either may be absent.
func sameValue(a, b []byte) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return jsonedit.Equal(a, b)
}

// mergeKey puts one changed key into m, by the rules of that key.
func (t *tx) mergeKey(m *jsonedit.Object, c keyChange) error {
	if onlyStore(c.key) {
		if c.older() {
			return t.fail(Conflict, c.key, errors.New("the text is older than the file"))
		}
		return t.fail(Immutable, c.key, errors.New("only the store sets this key"))
	}
	switch c.key {
	case "head_id":
		if ref, ok := jsonedit.String(c.next); !ok || ref == "" {
			return t.fail(Invalid, c.key, errors.New("the value must name a node"))
		}
		return t.updateHead(m, c.next)
	case "status":
		if err := t.refuseActiveRun(); err != nil {
			return err
		}
	case "title":
		if raw, _ := m.Get("_user_titled"); !jsonedit.Truthy(raw) {
			m.Set("_user_titled", []byte("true"))
		}
	}
	if err := checkValue(c.key, c.next); err != nil {
		return t.fail(Invalid, c.key, err)
	}
	if c.next == nil {
		m.Delete(c.key)
		return nil
	}
	m.Set(c.key, jsonedit.Canonical(c.next))
	return nil
}

// checkValue reports why a known field cannot have a value; nil is one that
// was taken out.
func checkValue(key string, raw []byte) error {
	kind, known := kindOf(key)
	if !known || raw == nil && kind != statusField && kind != textField {
		return nil
	}
	text, isText := jsonedit.String(raw)
	switch kind {
	case textField, labelField:
		if kind == labelField && jsonedit.IsNull(raw) {
			return nil
		}
		if !isText || strings.ContainsAny(text, "\n\x00") {
			return errors.New("the value must be a text of one line")
		}
	case boolField:
		if !jsonedit.IsBool(raw) {
			return errors.New("the value must be true or false")
		}
	case statusField:
		if !isText || !slices.Contains(settableStatus, text) {
			return fmt.Errorf("the status must be one of %s", strings.Join(settableStatus, ", "))
		}
	}
	return nil
}
