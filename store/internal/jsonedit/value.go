package jsonedit

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

func first(raw []byte) byte { return at(raw, skipSpace(raw, 0)) }

// IsNull reports whether raw is null.
func IsNull(raw []byte) bool { return first(raw) == 'n' }

// IsObject reports whether raw is an object.
func IsObject(raw []byte) bool { return first(raw) == '{' }

// IsArray reports whether raw is an array.
func IsArray(raw []byte) bool { return first(raw) == '[' }

// IsString reports whether raw is a string.
func IsString(raw []byte) bool { return first(raw) == '"' }

// IsBool reports whether raw is true or false.
func IsBool(raw []byte) bool { c := first(raw); return c == 't' || c == 'f' }

// IsNumber reports whether raw is a number, NaN and the infinities included.
func IsNumber(raw []byte) bool {
	c := first(raw)
	return c == '-' || '0' <= c && c <= '9' || c == 'N' || c == 'I'
}

// Truthy reports Python's truth value: null, false, zero, "", [] and {} are
// false, all else (NaN too) is true. No bytes at all are false.
func Truthy(raw []byte) bool {
	i := skipSpace(raw, 0)
	switch at(raw, i) {
	case 0, 'n', 'f':
		return false
	case 't':
		return true
	case '"':
		return at(raw, i+1) != '"'
	case '[':
		return at(raw, skipSpace(raw, i+1)) != ']'
	case '{':
		return at(raw, skipSpace(raw, i+1)) != '}'
	}
	f, ok := Number(raw)
	return ok && f != 0
}

// Number returns a raw number's value; 1e400 and what else is too large is
// infinite. ok is false when raw is no number.
func Number(raw []byte) (f float64, ok bool) {
	raw = trim(raw)
	if end, err := skipScalar(raw, 0); err != nil || end != len(raw) {
		return 0, false
	}
	switch raw[0] {
	case 'n', 't', 'f':
		return 0, false
	case 'N':
		return math.NaN(), true
	case 'I':
		return math.Inf(1), true
	}
	f, _ = strconv.ParseFloat(string(raw), 64) // out of range: ±Inf, as wanted
	return f, true
}

// Int returns the value of a raw number that is written as an integer and fits
// into 64 bits. A float, also a whole one, is not an integer to Python.
func Int(raw []byte) (n int64, ok bool) {
	raw = trim(raw)
	if len(raw) == 0 || !isIntText(raw) {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// isIntText reports whether a valid number is an integer.
func isIntText(raw []byte) bool {
	i := 0
	if raw[0] == '-' {
		i = 1
	}
	return i < len(raw) && skipDigits(raw, i) == len(raw)
}

func trim(raw []byte) []byte {
	i, end := skipSpace(raw, 0), len(raw)
	for end > i && isSpace(raw[end-1]) {
		end--
	}
	return raw[i:end]
}

// String decodes a raw string; ok is false when raw is no valid string. A
// surrogate without its other half becomes U+FFFD.
func String(raw []byte) (s string, ok bool) {
	body, ok := stringBody(raw)
	if !ok {
		return "", false
	}
	if bytes.IndexByte(body, '\\') < 0 {
		return string(body), true
	}
	return string(appendDecoded(make([]byte, 0, len(body)), body, false)), true
}

// AppendDecoded appends the decoded form of a raw string to dst; ok is false,
// and dst as it was, when raw is no valid string.
func AppendDecoded(dst, raw []byte) (out []byte, ok bool) {
	body, ok := stringBody(raw)
	if !ok {
		return dst, false
	}
	return appendDecoded(dst, body, false), true
}

// DecodedLen returns the length in bytes of what String would return, and
// whether that ends in a line feed. Raw must be a valid string.
func DecodedLen(raw []byte) (n int, newline bool) {
	body, ok := stringBody(raw)
	if !ok {
		return 0, false
	}
	for {
		i := bytes.IndexByte(body, '\\')
		if i < 0 {
			// A raw line feed is no valid JSON, so only an escape can be one.
			return n + len(body), newline && len(body) == 0
		}
		r, size := escaped(body[i:])
		n += i + max(utf8.RuneLen(r), 3*b2i(utf16.IsSurrogate(r)))
		newline = r == '\n'
		body = body[i+size:]
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func stringBody(raw []byte) ([]byte, bool) {
	raw = trim(raw)
	if at(raw, 0) != '"' {
		return nil, false
	}
	end, err := skipString(raw, 0)
	if err != nil || end != len(raw) {
		return nil, false
	}
	return raw[1 : end-1], true
}

// appendDecoded decodes the valid text between a string's quotes. A lone
// surrogate becomes U+FFFD, or with wtf8 the three bytes that UTF-8 would have
// had for it.
func appendDecoded(dst, body []byte, wtf8 bool) []byte {
	for {
		i := bytes.IndexByte(body, '\\')
		if i < 0 {
			return append(dst, body...)
		}
		dst = append(dst, body[:i]...)
		r, size := escaped(body[i:])
		if wtf8 && utf16.IsSurrogate(r) {
			dst = append(dst, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
		} else {
			dst = utf8.AppendRune(dst, r) // U+FFFD for a surrogate
		}
		body = body[i+size:]
	}
}

// escaped decodes the valid escape at the start of b and returns its length;
// two escapes that are a surrogate pair are one rune.
func escaped(b []byte) (r rune, size int) {
	switch c := b[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
	default:
		return rune(c), 2
	}
	r, _ = hex4(b, 2)
	if r < 0xd800 || r >= 0xdc00 || at(b, 6) != '\\' || at(b, 7) != 'u' {
		return r, 6
	}
	low, ok := hex4(b, 8)
	if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
		return pair, 12
	}
	return r, 6
}
