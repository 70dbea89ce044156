package render

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxName is the most bytes that a file name may have.
	maxName = 255
	// cutMark starts what replaces the end of a name that is too long.
	cutMark = '~'
	// hashDigits is the number of hexadecimal digits after cutMark.
	hashDigits = 16
	// cutTail is the length of cutMark and the digits.
	cutTail = 1 + hashDigits
	// maxUnit is the most bytes that one character of a name can take: a
	// control character of two bytes, each written as %XX.
	maxUnit = 6

	untitled = "untitled"
	hexUpper = "0123456789ABCDEF"
)

// EscapeName returns a file name for a title, a branch name or an id. A "%", a
// slash, control characters, bytes that are not UTF-8, a blank at either end,
// and a leading "." or "-" are written as %XX, byte by byte. A name of more than
// 255 bytes is cut at a character and ends in "~" and a hash of s; "" is
// "untitled". The result depends on s alone, is never ".", ".." or empty, and
// differs for different s, but for "untitled" itself.
func EscapeName(s string) string { return EscapeNameMax(s, maxName) }

// EscapeNameMax is EscapeName for a name that must leave room for something
// else: limit replaces 255. A limit that is too small for a cut name is raised
// to the smallest that is not.
func EscapeNameMax(s string, limit int) string {
	if s == "" {
		return untitled
	}
	limit = max(limit, cutTail+maxUnit)
	var b strings.Builder
	fit := 0 // the longest prefix, at a character, that leaves room for the tail
	for i := 0; i < len(s); {
		_, size := utf8.DecodeRuneInString(s[i:])
		appendUnit(&b, s, i, size)
		i += size
		if b.Len() <= limit-cutTail {
			fit = b.Len()
		}
	}
	name := b.String()
	if len(name) <= limit && !looksCut(name, limit) {
		return name
	}
	sum := sha256.Sum256([]byte(s))
	return name[:fit] + string(cutMark) + hex.EncodeToString(sum[:])[:hashDigits]
}

// appendUnit writes the character of s at i, size bytes long, escaped where it
// must be.
func appendUnit(b *strings.Builder, s string, i, size int) {
	if !mustEscape(s, i, size) {
		b.WriteString(s[i : i+size])
		return
	}
	for _, c := range []byte(s[i : i+size]) {
		b.WriteByte('%')
		b.WriteByte(hexUpper[c>>4])
		b.WriteByte(hexUpper[c&15])
	}
}

// mustEscape reports whether the character of s at i, size bytes long, cannot
// stand in a file name as it is.
func mustEscape(s string, i, size int) bool {
	r, _ := utf8.DecodeRuneInString(s[i:])
	switch {
	case r == utf8.RuneError && size == 1:
		return true // not UTF-8
	case r == '%', r == '/', unicode.IsControl(r):
		return true
	case i == 0 && (r == '.' || r == '-'):
		return true
	}
	return (i == 0 || i+size == len(s)) && unicode.IsSpace(r)
}

// looksCut reports whether a name that fits could be mistaken for a cut one.
// It is then cut as well, so that no text can be made to take another's name.
func looksCut(name string, limit int) bool {
	at := len(name) - cutTail
	if len(name) <= limit-maxUnit || at < 0 || name[at] != cutMark {
		return false
	}
	return strings.Trim(name[at+1:], "0123456789abcdef") == ""
}

// UnescapeName returns the text of which EscapeName made a name: each %XX is
// the byte that it stands for, in either case of its digits. A "%" that is not
// followed by two of them stands for itself, so that a name typed by a user is
// never refused. What was cut, and the emptiness of "untitled", do not come
// back.
func UnescapeName(name string) string {
	if !strings.Contains(name, "%") {
		return name
	}
	var b strings.Builder
	b.Grow(len(name))
	for i := 0; i < len(name); i++ {
		if name[i] == '%' && i+2 < len(name) {
			if c, err := hex.DecodeString(name[i+1 : i+3]); err == nil {
				b.WriteByte(c[0])
				i += 2
				continue
			}
		}
		b.WriteByte(name[i])
	}
	return b.String()
}
