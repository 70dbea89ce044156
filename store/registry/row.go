package registry

import (
	"maps"
	"slices"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// rowIndent is what a row's lines stand behind in index.json, and fieldIndent
// what the lines of a field's value do.
const (
	rowIndent   = "  "
	fieldIndent = "    "
)

// Fields are the keys that a row may have: the fifteen that meta.json has too,
// then "preview", in the order of a row that the peer makes (reference 2.3,
// 2.7). Nobody writes to it.
var Fields = []string{
	"id", "status", "pinned", "archived", "unread",
	"agent_id", "title", "source", "created_at", "updated_at",
	"channel", "peer_display", "peer_id", "account_id", "group",
	"preview",
}

// IsField reports whether a row may have the key.
func IsField(key string) bool { return slices.Contains(Fields, key) }

// newRow returns the row that every fresh one starts as (reference 2.7).
func newRow(id string) *jsonedit.Object {
	o := jsonedit.NewObject()
	o.SetAll([]jsonedit.Member{
		{Key: "id", Raw: jsonedit.EncodeString(id)},
		{Key: "status", Raw: []byte(`"idle"`)},
		{Key: "pinned", Raw: []byte("false")},
		{Key: "archived", Raw: []byte("false")},
		{Key: "unread", Raw: []byte("false")},
	})
	return relaid(o)
}

// relaid returns o in the layout of a row.
func relaid(o *jsonedit.Object) *jsonedit.Object {
	fresh, err := jsonedit.ParseObject(jsonedit.Indent(o.Bytes(), rowIndent))
	if err != nil {
		return o // not reached: o is valid, and indenting keeps that
	}
	return fresh
}

// RowFromMeta returns the row that meta.json of the session id gives
// (reference 8.2): the registry's fields that it has, over the defaults. A
// created_at that is absent or zero becomes fallbackCreated, the time of
// meta.json in seconds since the epoch. The preview is not in meta.json; the
// caller sets it. Meta may be nil.
func RowFromMeta(id string, meta *jsonedit.Object, fallbackCreated float64) *jsonedit.Object {
	if meta == nil {
		meta = jsonedit.NewObject()
	}
	row := newRow(id)
	var set []jsonedit.Member
	for _, key := range Fields {
		if key == "id" || key == "preview" {
			continue
		}
		raw, ok := meta.Get(key)
		if key == "created_at" && !jsonedit.Truthy(raw) {
			raw, ok = jsonedit.EncodeFloat(fallbackCreated), true
		}
		if ok {
			set = append(set, jsonedit.Member{Key: key, Raw: value(raw)})
		}
	}
	row.SetAll(set)
	return row
}

// value returns raw as the peer would write it into a row: containers laid out
// as deep as they stand, strings with no more escapes than they need. The
// latter replaces halves of surrogate pairs too, with which the peer could
// read the file and never write it again (reference 2.1).
func value(raw []byte) []byte {
	if s, ok := jsonedit.String(raw); ok {
		return jsonedit.EncodeString(s)
	}
	return jsonedit.Indent(raw, fieldIndent)
}

// apply sets fields of a row, in the order of Fields; a nil value removes the
// field. A row that had nothing gets the layout of one.
func apply(row *jsonedit.Object, fields map[string][]byte) *jsonedit.Object {
	bare := row.Len() == 0
	var set []jsonedit.Member
	for _, key := range Fields {
		raw, ok := fields[key]
		switch {
		case ok && raw == nil:
			row.Delete(key)
		case ok:
			set = append(set, jsonedit.Member{Key: key, Raw: raw})
		}
	}
	row.SetAll(set)
	if bare {
		return relaid(row)
	}
	return row
}

// usable keeps what may be in a row, in the form it has there. Values are
// copied.
func usable(fields map[string][]byte) map[string][]byte {
	fields = maps.Clone(fields)
	maps.DeleteFunc(fields, func(key string, _ []byte) bool { return !IsField(key) })
	for key, raw := range fields {
		if raw != nil {
			fields[key] = value(raw)
		}
	}
	return fields
}
