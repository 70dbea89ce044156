package store

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// Field is one persistent field of a session as fields/ shows it.
type Field struct {
	Name     string // the key in meta.json
	Text     string // the value as text, without a final newline
	Writable bool
}

// fieldKind says how a field's text becomes a value.
type fieldKind int

const (
	fixedField  fieldKind = iota // never written through fields/
	textField                    // a string; may be empty
	labelField                   // a string that an empty text clears
	boolField                    // true or false
	statusField                  // one of the statuses a user may set
)

// knownFields are the fields that every session has, in the order in which
// fields/ lists them, whether meta.json holds them yet or not.
var knownFields = []struct {
	name string
	kind fieldKind
	zero string // the text of an absent value
}{
	{"title", textField, ""},
	{"status", statusField, statusIdle},
	{"pinned", boolField, "false"},
	{"archived", boolField, "false"},
	{"unread", boolField, "false"},
	{"group", labelField, ""},
	{"agent_id", fixedField, ""},
	{"source", fixedField, ""},
	{"model", fixedField, ""},
	{"created_at", fixedField, ""},
	{"updated_at", fixedField, ""},
	{"head_id", fixedField, ""},
	{"id", fixedField, ""},
}

func kindOf(name string) (fieldKind, bool) {
	for _, f := range knownFields {
		if f.name == name {
			return f.kind, true
		}
	}
	return fixedField, false
}

// internalMarker reports whether a meta.json key is bookkeeping that no
// client sees (reference 15, row 31).
func internalMarker(key string) bool { return strings.HasPrefix(key, "_") }

// Fields lists the persistent fields, in a stable order: those that every
// session has, then what else meta.json holds, by name. Internal markers
// (keys that start with "_") are left out. A value that is no text is shown
// as JSON.
func (sn *Snapshot) Fields() []Field {
	out := make([]Field, 0, len(knownFields))
	for _, f := range knownFields {
		out = append(out, sn.field(f.name, f.kind, f.zero))
	}
	var more []string
	for _, k := range sn.meta.obj.Keys() {
		if _, known := kindOf(k); !known && !internalMarker(k) && k != "" {
			more = append(more, k)
		}
	}
	slices.Sort(more)
	for _, k := range more {
		out = append(out, sn.field(k, fixedField, ""))
	}
	return out
}

// Field returns one of Fields.
func (sn *Snapshot) Field(name string) (Field, bool) {
	if internalMarker(name) || name == "" {
		return Field{}, false
	}
	for _, f := range knownFields {
		if f.name == name {
			return sn.field(f.name, f.kind, f.zero), true
		}
	}
	if _, ok := sn.meta.obj.Get(name); !ok {
		return Field{}, false
	}
	return sn.field(name, fixedField, ""), true
}

func (sn *Snapshot) field(name string, kind fieldKind, zero string) Field {
	f := Field{Name: name, Text: zero, Writable: kind != fixedField && sn.Openable && !sn.Legacy}
	if name == "head_id" {
		f.Text = sn.Head
		return f
	}
	raw, ok := sn.meta.obj.Get(name)
	if !ok || jsonedit.IsNull(raw) {
		return f
	}
	switch {
	case kind == boolField:
		f.Text = strconv.FormatBool(jsonedit.Truthy(raw))
	default:
		f.Text = valueText(raw)
	}
	if f.Text == "" && kind == statusField {
		f.Text = zero
	}
	return f
}

// valueText shows a JSON value: a string as it is, anything else as JSON.
func valueText(raw []byte) string {
	if s, ok := jsonedit.String(raw); ok {
		return s
	}
	return string(jsonedit.Compact(raw))
}

// settableStatus are the statuses that a user may set (the contract's "Small
// control files"): running and needs_input are set by a run alone.
var settableStatus = []string{statusIdle, statusDone, statusFailed, statusInterrupted}

// Statuses lists the statuses that a session can have.
func Statuses() []string {
	return []string{
		statusIdle, statusRunning, statusNeedsInput, statusDone, statusFailed, statusInterrupted,
		statusCancelling, statusCancelled,
	}
}

// LegalField reports whether text is, as it stands, a value that SetField
// would take, so that a write need not wait for its newline.
func LegalField(name, text string) bool {
	kind, ok := kindOf(name)
	if !ok {
		return false
	}
	switch kind {
	case boolField:
		_, ok := parseBool(text)
		return ok
	case statusField:
		return slices.Contains(settableStatus, text)
	}
	return false
}

func parseBool(text string) (value, ok bool) {
	switch strings.ToLower(text) {
	case "true", "1", "yes":
		return true, true
	case "false", "0", "no":
		return false, true
	}
	return false, false
}

// maxFieldValue is the longest text of a field, in bytes.
const maxFieldValue = 64 << 10

var (
	errNotText   = errors.New("the value is not UTF-8 text")
	errLongValue = errors.New("a value has at most 64 KiB")
)

// SetField sets a field from its text form; an empty text clears an optional
// field. A title that is set counts as the user's own (_user_titled). Invalid,
// Immutable, RunActive (status while a run is alive), NotFound, TooLarge over
// 64 KiB.
func (s *Store) SetField(ctx context.Context, id, name, text string) error {
	err := s.change(ctx, "set field", id, 0, func(t *tx) error { return t.setField(name, text) })
	if err == nil {
		s.Dirty(id)
	}
	return err
}

func (t *tx) setField(name, text string) error {
	kind, known := kindOf(name)
	if !known {
		if _, ok := t.sn.Field(name); !ok {
			return t.fail(NotFound, name, errors.New("no such field"))
		}
	}
	if !utf8.ValidString(text) {
		return t.fail(Invalid, name, errNotText)
	}
	if len(text) > maxFieldValue {
		return t.fail(TooLarge, name, errLongValue)
	}
	switch kind {
	case textField, labelField:
		if strings.ContainsAny(text, "\n\x00") {
			return t.fail(Invalid, name, errors.New("the value must be one line"))
		}
		return t.setText(name, text, kind)
	case boolField:
		v, ok := parseBool(text)
		if !ok {
			return t.fail(Invalid, name, errors.New("the value must be true or false"))
		}
		return t.setRegistryField(name, []byte(strconv.FormatBool(v)))
	case statusField:
		return t.setStatusField(text)
	}
	return t.fail(Immutable, name, errors.New("the field cannot be set"))
}

func (t *tx) setText(name, text string, kind fieldKind) error {
	if kind == labelField && text == "" {
		m := t.editMeta()
		if !m.Delete(name) {
			return nil
		}
		if err := t.writeMeta(m); err != nil {
			return err
		}
		t.s.list.put(t.se.id, KV{name, nil})
		return nil
	}
	raw := jsonedit.AppendString(nil, text)
	if name != "title" {
		return t.setRegistryField(name, raw)
	}
	m := t.editMeta()
	m.Set("title", raw)
	m.Set("_user_titled", []byte("true"))
	if err := t.writeMeta(m); err != nil {
		return err
	}
	t.s.list.put(t.se.id, KV{name, raw})
	return nil
}

// setRegistryField writes one field to meta.json and, when that is durable,
// to the registry's row.
func (t *tx) setRegistryField(name string, raw []byte) error {
	m := t.editMeta()
	m.Set(name, raw)
	if err := t.writeMeta(m); err != nil {
		return err
	}
	t.s.list.put(t.se.id, KV{name, raw})
	return nil
}

func (t *tx) setStatusField(text string) error {
	if !slices.Contains(settableStatus, text) {
		return t.fail(Invalid, "status", errors.New("the status must be idle, done, failed or interrupted"))
	}
	if err := t.refuseActiveRun(); err != nil {
		return err
	}
	return t.setStatus(text)
}

// SetArchived archives or unarchives a session. RunActive does not refuse it:
// an archived session goes on running.
func (s *Store) SetArchived(ctx context.Context, id string, archived bool) error {
	return s.SetField(ctx, id, "archived", strconv.FormatBool(archived))
}

// UpdateSession sets meta.json keys to raw JSON values; a null is refused, as
// a field cannot be set to null this way (reference 6.4). "head_id" moves
// through the one door; "id" and "created_at" are Immutable; Invalid for what
// is not JSON.
func (s *Store) UpdateSession(ctx context.Context, id string, kv []KV) error {
	err := s.change(ctx, "update session", id, 0, func(t *tx) error { return t.update(kv) })
	if err == nil {
		s.Dirty(id)
	}
	return err
}

// update writes all of kv in one write of meta.json, the head among it: a
// refusal or a crash leaves none of it.
func (t *tx) update(kv []KV) error {
	m := t.editMeta()
	var row []KV
	for _, f := range kv {
		switch {
		case !utf8.Valid(f.Raw):
			return t.fail(Invalid, f.Key, errNotText)
		case jsonedit.Check(f.Raw) != nil, jsonedit.IsNull(f.Raw):
			return t.fail(Invalid, f.Key, errors.New("not a JSON value other than null"))
		case f.Key == "id", f.Key == "created_at":
			return t.fail(Immutable, f.Key, errors.New("the field cannot be set"))
		case f.Key == "head_id":
			if err := t.updateHead(m, f.Raw); err != nil {
				return err
			}
			continue
		case f.Key == "status":
			if err := t.refuseActiveRun(); err != nil {
				return err
			}
		}
		// A lone surrogate would keep the peer from ever writing the file.
		f.Raw = jsonedit.Canonical(f.Raw)
		if err := t.checkType(f); err != nil {
			return err
		}
		m.Set(f.Key, f.Raw)
		row = append(row, f)
	}
	if err := t.writeMeta(m); err != nil {
		return err
	}
	t.s.list.put(t.se.id, row...)
	return nil
}

// checkType refuses a value of another kind than a known key has (reference
// 2.3): readers would take it for absent.
func (t *tx) checkType(f KV) error {
	want, ok := "", true
	switch f.Key {
	case "title", "agent_id", "source", "status", "group", "model", "channel", "project_id":
		want, ok = "a string", jsonedit.IsString(f.Raw)
	case "pinned", "archived", "unread":
		want, ok = "true or false", jsonedit.IsBool(f.Raw)
	case "updated_at", "head_version", "writer_epoch", "last_prompt_tokens":
		want, ok = "a number", jsonedit.IsNumber(f.Raw)
	case "merged_heads":
		want, ok = "an array", jsonedit.IsArray(f.Raw)
	case "branches", "branch_refs":
		want, ok = "an object", jsonedit.IsObject(f.Raw)
	}
	if !ok {
		return t.fail(Invalid, f.Key, errors.New("the value must be "+want))
	}
	return nil
}

// updateHead puts the head that a raw value names into m. A value that names
// none moves nothing.
func (t *tx) updateHead(m *jsonedit.Object, raw []byte) error {
	ref, _ := jsonedit.String(raw)
	if ref == "" {
		return nil
	}
	node, err := t.sn.Resolve(ref)
	if err != nil {
		return t.asOp(err)
	}
	return t.placeHead(m, node, nil)
}
