package jsonedit

import "bytes"

// Compact returns raw laid out as the peer's single-line files: ", " between
// members and elements, ": " after keys, no other white space. The bytes of
// keys and scalars are kept.
func Compact(raw []byte) []byte {
	out := make([]byte, 0, len(raw)+len(raw)/8)
	compact(raw, func(tok []byte) { out = append(out, tok...) })
	return out
}

// CompactLen returns len(Compact(raw)) without building it.
func CompactLen(raw []byte) int {
	n := 0
	compact(raw, func(tok []byte) { n += len(tok) })
	return n
}

func compact(raw []byte, emit func(tok []byte)) {
	comma, colon := []byte(", "), []byte(": ")
	tokens(raw, func(tok []byte) {
		switch tok[0] {
		case ',':
			emit(comma)
		case ':':
			emit(colon)
		default:
			emit(tok)
		}
	})
}

// Indent returns raw laid out as Python does with an indent of 2, the layout of
// index.json. Every line but the first starts with prefix. The bytes of keys
// and scalars are kept; empty containers are {} and []. The result may be up to
// MaxDepth times as long as raw. Invalid JSON is returned as it is: its depth
// has no bound.
func Indent(raw []byte, prefix string) []byte {
	if Check(raw) != nil {
		return append([]byte(nil), raw...)
	}
	w := indenter{prefix: prefix, out: make([]byte, 0, len(raw)*2)}
	tokens(raw, w.token)
	return w.out
}

type indenter struct {
	out    []byte
	prefix string
	depth  int
	opened bool // the last token opened a container
}

func (w *indenter) token(tok []byte) {
	opened := w.opened
	w.opened = false
	switch tok[0] {
	case '{', '[':
		if opened {
			w.line()
		}
		w.depth++
		w.opened = true
		w.out = append(w.out, tok...)
	case '}', ']':
		w.depth--
		if !opened {
			w.line()
		}
		w.out = append(w.out, tok...)
	case ',':
		w.out = append(w.out, ',')
		w.line()
	case ':':
		w.out = append(w.out, ": "...)
	default:
		if opened {
			w.line()
		}
		w.out = append(w.out, tok...)
	}
}

func (w *indenter) line() {
	w.out = append(w.out, '\n')
	w.out = append(w.out, w.prefix...)
	for range w.depth {
		w.out = append(w.out, "  "...)
	}
}

// tokens calls fn with every bracket, comma, colon, string and other scalar of
// a valid text. Of an invalid one it passes on what it cannot tell apart, so
// that nothing is lost.
func tokens(raw []byte, fn func(tok []byte)) {
	for i := 0; i < len(raw); {
		start := i
		switch c := raw[i]; {
		case isSpace(c):
			i++
			continue
		case c == '"':
			end, err := skipString(raw, i)
			if err != nil {
				end = len(raw)
			}
			i = end
		case isPunct(c):
			i++
		default:
			for i++; i < len(raw) && !isSpace(raw[i]) && !isPunct(raw[i]) && raw[i] != '"'; {
				i++
			}
		}
		fn(raw[start:i])
	}
}

func isPunct(c byte) bool {
	return c == ',' || c == ':' || c == '{' || c == '}' || c == '[' || c == ']'
}

// Canonical is Compact with strings and keys written as AppendString writes
// them: no escape that need not be, and U+FFFD for half of a surrogate pair,
// which the peer could read but not write again. It is for values that are
// written for the first time; what is on disk already is not touched.
func Canonical(raw []byte) []byte {
	out := make([]byte, 0, len(raw)+len(raw)/8)
	compact(raw, func(tok []byte) {
		if tok[0] == '"' && bytes.IndexByte(tok, '\\') >= 0 {
			if s, ok := String(tok); ok {
				out = AppendString(out, s)
				return
			}
		}
		out = append(out, tok...)
	})
	return out
}
