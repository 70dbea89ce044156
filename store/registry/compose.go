package registry

import (
	"bytes"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// composer builds a text out of the members of another one. What was between
// two members goes with the second of them.
type composer struct {
	from *file
	text []byte
	out  []member
}

// compose returns f with the rows in rows replaced, or removed where the value
// is nil, and the rows named in added appended. When nothing differs the
// result has f's text, byte for byte.
func compose(f *file, rows map[string][]byte, added []string) *file {
	size := len(f.text)
	for _, raw := range rows {
		size += len(raw) + 80
	}
	c := composer{from: f, text: make([]byte, 0, size), out: make([]member, 0, len(f.members)+len(added))}
	for i, m := range f.members {
		raw, changed := rows[m.id]
		switch {
		case changed && raw == nil:
			continue
		case !changed || f.last[m.id] != int32(i):
			raw = f.text[m.val:m.end]
		}
		c.keep(i, m, raw)
	}
	for _, id := range added {
		if raw := rows[id]; raw != nil {
			c.add(id, raw)
		}
	}
	c.finish()
	next := &file{text: c.text, members: c.out}
	next.index()
	return next
}

// keep copies a member with the given value.
func (c *composer) keep(i int, m member, raw []byte) {
	f := c.from
	if len(c.out) == 0 {
		c.text = append(c.text, f.lead()...)
	} else {
		c.text = append(c.text, f.text[f.members[i-1].end:m.key]...)
	}
	c.put(m.id, f.text[m.key:m.val], raw)
}

// add appends a member.
func (c *composer) add(id string, raw []byte) {
	if len(c.out) > 0 {
		c.text = append(c.text, c.from.separator()...)
	} else {
		c.text = append(c.text, c.from.lead()...)
	}
	c.put(id, append(jsonedit.EncodeString(id), ": "...), raw)
}

// lead is what stands before the first key.
func (f *file) lead() []byte {
	if len(f.members) == 0 {
		return []byte("{\n  ")
	}
	return f.text[:f.members[0].key]
}

// separator is what stands between the last two members, or would.
func (f *file) separator() []byte {
	if n := len(f.members); n > 1 {
		return f.text[f.members[n-2].end:f.members[n-1].key]
	}
	lead := f.lead()
	lead = lead[bytes.IndexByte(lead, '{')+1:]
	if len(lead) == 0 {
		return []byte(", ")
	}
	return append([]byte{','}, lead...)
}

func (c *composer) put(id string, key, raw []byte) {
	m := member{id: id, key: len(c.text)}
	c.text = append(c.text, key...)
	m.val = len(c.text)
	c.text = append(c.text, raw...)
	m.end = len(c.text)
	c.out = append(c.out, m)
}

// finish closes the object.
func (c *composer) finish() {
	n := len(c.from.members)
	switch {
	case len(c.out) == 0 && n == 0:
		c.text = append(c.text, c.from.text...)
	case len(c.out) == 0:
		c.text = append(c.text, "{}"...)
	case n == 0:
		c.text = append(c.text, "\n}"...)
	default:
		c.text = append(c.text, c.from.text[c.from.members[n-1].end:]...)
	}
}
