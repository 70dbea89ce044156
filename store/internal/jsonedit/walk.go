package jsonedit

import "bytes"

// span is a member's place in the source: [k0,k1) the key with its quotes,
// [v0,v1) the value.
type span struct{ k0, k1, v0, v1 int }

// walk calls fn for every member of the object b and returns the places of its
// braces.
func walk(b []byte, fn func(s span) error) (open, end int, err error) {
	if err := checkUTF8(b); err != nil {
		return 0, 0, err
	}
	open = skipSpace(b, 0)
	if at(b, open) != '{' {
		return open, open, syntax(open, "expected an object")
	}
	i := skipSpace(b, open+1)
	if at(b, i) == '}' {
		return open, i, checkEnd(b, i+1)
	}
	for {
		var s span
		if s, err = member(b, i); err != nil {
			return open, i, err
		}
		if err := fn(s); err != nil {
			return open, i, err
		}
		i = skipSpace(b, s.v1)
		switch at(b, i) {
		case ',':
			i = skipSpace(b, i+1)
		case '}':
			return open, i, checkEnd(b, i+1)
		default:
			return open, i, syntax(i, "expected a comma or the end of the object")
		}
	}
}

func member(b []byte, i int) (s span, err error) {
	s.k0 = i
	if at(b, i) != '"' {
		return s, syntax(i, "expected a key")
	}
	if s.k1, err = skipString(b, i); err != nil {
		return s, err
	}
	i = skipSpace(b, s.k1)
	if at(b, i) != ':' {
		return s, syntax(i, "expected a colon")
	}
	s.v0 = skipSpace(b, i+1)
	s.v1, err = skipValue(b, s.v0, MaxDepth-1)
	return s, err
}

// Walk calls fn with the members of the object b in document order, duplicates
// included. It stops at fn's first error and returns it. When b turns out to
// be invalid after some members, fn has seen those.
func Walk(b []byte, fn func(key string, raw []byte) error) error {
	return WalkBytes(b, func(key, raw []byte) error { return fn(string(key), raw) })
}

// WalkBytes is Walk without an allocation: key is valid until fn returns.
func WalkBytes(b []byte, fn func(key, raw []byte) error) error {
	_, _, err := walk(b, func(s span) error {
		return fn(decodedKey(b[s.k0:s.k1]), b[s.v0:s.v1])
	})
	return err
}

// decodedKey keeps halves of surrogate pairs apart (as WTF-8), so that keys
// that differ stay different.
func decodedKey(raw []byte) []byte {
	body := raw[1 : len(raw)-1]
	if bytes.IndexByte(body, '\\') < 0 {
		return body
	}
	return appendDecoded(nil, body, true)
}

// Array returns the elements of a raw array in order; ok is false when raw is
// no valid array.
func Array(raw []byte) (elems [][]byte, ok bool) {
	i := skipSpace(raw, 0)
	if at(raw, i) != '[' {
		return nil, false
	}
	i = skipSpace(raw, i+1)
	if at(raw, i) == ']' {
		return nil, skipSpace(raw, i+1) == len(raw)
	}
	for {
		end, err := skipValue(raw, i, MaxDepth-1)
		if err != nil {
			return nil, false
		}
		elems = append(elems, raw[i:end])
		i = skipSpace(raw, end)
		switch at(raw, i) {
		case ',':
			i = skipSpace(raw, i+1)
		case ']':
			return elems, skipSpace(raw, i+1) == len(raw)
		default:
			return nil, false
		}
	}
}
