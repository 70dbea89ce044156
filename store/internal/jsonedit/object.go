package jsonedit

import (
	"bytes"
	"iter"
	"unicode/utf8"
)

// Object is the text of one JSON object and where its members are. Reading is
// safe for concurrent use as long as nothing is set. The slices that Get and
// Bytes return stay valid, and keep their content, after any edit.
type Object struct {
	b           []byte // never written to: every edit makes a new one
	open, close int    // the braces
	members     []entry
	index       map[string]int // key to its last member; nil for few members
}

type entry struct {
	key string
	span
}

// indexFrom is the number of members from which a map beats a walk over them.
const indexFrom = 24

// usualMembers is how many members are read without making room for them.
const usualMembers = 16

// ParseObject parses a document whose top level is an object. The Object keeps
// b, which must not be written to afterwards. The error is a *SyntaxError.
func ParseObject(b []byte) (*Object, error) {
	// Room for what a row, a node or a meta.json mostly has. It is not what is
	// kept, so that no more is.
	var spanRoom [usualMembers]span
	var keyRoom [10 * usualMembers]byte
	spans, keys := spanRoom[:0], keyRoom[:0]
	open, end, err := walk(b, func(s span) error {
		keys = append(keys, decodedKey(b[s.k0:s.k1])...)
		spans = append(spans, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	o := &Object{b: b, open: open, close: end, members: make([]entry, len(spans))}
	for i, s := range spans {
		o.members[i].span = s
	}
	o.nameMembers(string(keys)) // all keys in one string: one allocation instead of many
	return o, nil
}

// nameMembers cuts the keys, joined in order, into the members' names.
func (o *Object) nameMembers(keys string) {
	for i := range o.members {
		m := &o.members[i]
		n := len(decodedKey(o.b[m.k0:m.k1]))
		m.key, keys = keys[:n], keys[n:]
	}
	o.reindex()
}

func (o *Object) reindex() {
	o.index = nil
	if len(o.members) < indexFrom {
		return
	}
	o.index = make(map[string]int, len(o.members))
	for i := range o.members {
		o.index[o.members[i].key] = i
	}
}

// NewObject returns the object "{}".
func NewObject() *Object { return &Object{b: []byte("{}"), close: 1} }

// Bytes returns the current text. As long as nothing was set it is the parsed
// text, byte for byte. The caller must not write to it.
func (o *Object) Bytes() []byte { return o.b }

// Clone returns a copy that is edited independently.
func (o *Object) Clone() *Object {
	c := *o // edits replace all of these, none is changed in place
	return &c
}

// Len returns the number of members, duplicates counted.
func (o *Object) Len() int { return len(o.members) }

// Keys returns the keys in document order, a duplicate once, where it is first.
// A key with half of a surrogate pair holds it in the form of UTF-8.
func (o *Object) Keys() []string {
	keys := make([]string, 0, len(o.members))
	var seen map[string]bool
	for i := range o.members {
		k := o.members[i].key
		if o.find(k) != i { // there is a later one of that name
			if seen[k] {
				continue
			}
			if seen == nil {
				seen = map[string]bool{}
			}
			seen[k] = true
		} else if seen[k] {
			continue
		}
		keys = append(keys, k)
	}
	return keys
}

// All yields each key of Keys with its (last) value.
func (o *Object) All() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, k := range o.Keys() {
			raw, _ := o.Get(k)
			if !yield(k, raw) {
				return
			}
		}
	}
}

// find returns the last member of that key, -1 when there is none.
func (o *Object) find(key string) int {
	if o.index != nil {
		if i, ok := o.index[key]; ok {
			return i
		}
		return -1
	}
	for i := len(o.members) - 1; i >= 0; i-- {
		if o.members[i].key == key {
			return i
		}
	}
	return -1
}

// Has reports whether there is a member of that key.
func (o *Object) Has(key string) bool { return o.find(key) >= 0 }

// Get returns a member's raw value, of duplicates the last one's.
func (o *Object) Get(key string) (raw []byte, ok bool) {
	i := o.find(key)
	if i < 0 {
		return nil, false
	}
	m := o.members[i]
	return o.b[m.v0:m.v1:m.v1], true
}

// Str returns a string's value, "" when the member is absent or no string.
func (o *Object) Str(key string) string {
	raw, _ := o.Get(key)
	s, _ := String(raw)
	return s
}

// Float returns a number's value; ok is false when the member is absent or no
// number.
func (o *Object) Float(key string) (f float64, ok bool) {
	raw, _ := o.Get(key)
	return Number(raw)
}

// Int returns an integer's value, see the function Int.
func (o *Object) Int(key string) (n int64, ok bool) {
	raw, _ := o.Get(key)
	return Int(raw)
}

// Truthy returns a member's truth value in Python; an absent one is false.
func (o *Object) Truthy(key string) bool {
	raw, _ := o.Get(key)
	return Truthy(raw)
}

// Member is a key and a raw value.
type Member struct {
	Key string
	Raw []byte
}

// Set replaces the bytes of one value, of duplicates the last one's. A value
// that is equal byte for byte changes nothing. A new key is appended the way
// the object's last members are laid out. Raw without a value is null; raw that
// is no valid JSON, or nested too deep to stand in an object, is set as a string of its text, so that an Object is valid
// whatever it is given.
func (o *Object) Set(key string, raw []byte) { o.SetAll([]Member{{key, raw}}) }

// SetAll sets several members with one rewrite of the text.
func (o *Object) SetAll(members []Member) {
	repl := map[int][]byte{}
	var added []Member
	addedAt := map[string]int{}
	for _, m := range members {
		m.Raw = settable(m.Raw)
		if !utf8.ValidString(m.Key) { // the key that will be read back
			m.Key = string(decodedKey(appendKey(nil, m.Key)))
		}
		if i := o.find(m.Key); i >= 0 {
			repl[i] = m.Raw
		} else if j, ok := addedAt[m.Key]; ok {
			added[j].Raw = m.Raw
		} else {
			addedAt[m.Key] = len(added)
			added = append(added, m)
		}
	}
	for i, raw := range repl {
		if m := o.members[i]; bytes.Equal(raw, o.b[m.v0:m.v1]) {
			delete(repl, i)
		}
	}
	if len(repl)+len(added) > 0 {
		o.rewrite(repl, nil, added)
	}
}

func settable(raw []byte) []byte {
	raw = trim(raw)
	if len(raw) == 0 {
		return []byte("null")
	}
	end, err := skipValue(raw, 0, MaxDepth-1)
	if err != nil || end != len(raw) || checkUTF8(raw) != nil {
		return EncodeString(string(raw))
	}
	return raw
}

// Delete removes a member and its duplicates, and reports whether there was
// one.
func (o *Object) Delete(key string) bool {
	if o.find(key) < 0 {
		return false
	}
	o.rewrite(nil, func(e entry) bool { return e.key == key }, nil)
	return true
}
