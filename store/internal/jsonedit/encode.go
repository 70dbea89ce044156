package jsonedit

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// AppendString appends s as the peer writes a string (reference 2.1): only the
// quote, the backslash and U+0000 to U+001F are escaped. Invalid UTF-8 becomes
// U+FFFD.
func AppendString(dst []byte, s string) []byte { return appendString(dst, s, false) }

// appendKey is AppendString for a key as decodedKey returns it.
func appendKey(dst []byte, s string) []byte { return appendString(dst, s, true) }

func appendString(dst []byte, s string, wtf8 bool) []byte {
	dst = append(dst, '"')
	valid := utf8.ValidString(s)
	for i := 0; i < len(s); {
		start := i
		for i < len(s) && s[i] >= ' ' && s[i] != '"' && s[i] != '\\' && (valid || s[i] < utf8.RuneSelf) {
			i++
		}
		dst = append(dst, s[start:i]...)
		if i == len(s) {
			break
		}
		if s[i] < utf8.RuneSelf {
			dst = appendEscape(dst, s[i])
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if half, ok := surrogateAt(s[i:]); ok && wtf8 && r == utf8.RuneError {
			dst = append(dst, `\u`...)
			dst = strconv.AppendInt(dst, int64(half), 16)
			i += 3
			continue
		}
		dst = utf8.AppendRune(dst, r)
		i += size
	}
	return append(dst, '"')
}

// surrogateAt decodes the three bytes that UTF-8 would have for a surrogate.
func surrogateAt(s string) (r rune, ok bool) {
	if len(s) < 3 || s[0] != 0xed || s[1] < 0xa0 || s[1] > 0xbf || s[2]&0xc0 != 0x80 {
		return 0, false
	}
	return 0xd000 | rune(s[1]&0x3f)<<6 | rune(s[2]&0x3f), true
}

func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	if i := strings.IndexByte("\"\\\n\r\t\b\f", c); i >= 0 {
		return append(dst, '\\', `"\nrtbf`[i])
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}

// AppendFloat appends f as the peer writes a float: the shortest digits that
// give the same value back, ".0" on a whole number, an exponent below 1e-04 and
// from 1e+16, and NaN, Infinity, -Infinity.
func AppendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	for _, c := range dst[start:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

// EncodeString is AppendString to a new slice.
func EncodeString(s string) []byte { return AppendString(make([]byte, 0, len(s)+2), s) }

// EncodeFloat is AppendFloat to a new slice.
func EncodeFloat(f float64) []byte { return AppendFloat(nil, f) }

// EncodeInt returns n as a raw integer.
func EncodeInt(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

// EncodeBool returns true or false as a raw value.
func EncodeBool(b bool) []byte { return strconv.AppendBool(nil, b) }

// EncodeStrings returns a raw array of strings in the compact layout.
func EncodeStrings(list []string) []byte {
	out := []byte{'['}
	for i, s := range list {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = AppendString(out, s)
	}
	return append(out, ']')
}

// EncodeArray returns a raw array of raw elements in the compact layout.
func EncodeArray(elems [][]byte) []byte {
	out := []byte{'['}
	for i, e := range elems {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = append(out, e...)
	}
	return append(out, ']')
}
