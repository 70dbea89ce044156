package jsonedit

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may be nested: about what Python reads
// and writes with its usual recursion limit.
const MaxDepth = 1000

// SyntaxError says what is wrong with a text and where.
type SyntaxError struct {
	Offset int    // in bytes
	Msg    string // without the offset
}

// Error returns "invalid JSON at byte 12: expected a value".
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset, e.Msg)
}

func syntax(i int, msg string) error { return &SyntaxError{Offset: i, Msg: msg} }

// Check returns a *SyntaxError when b is not one whole JSON document.
func Check(b []byte) error {
	if err := checkUTF8(b); err != nil {
		return err
	}
	end, err := skipValue(b, skipSpace(b, 0), MaxDepth)
	if err != nil {
		return err
	}
	return checkEnd(b, end)
}

func checkUTF8(b []byte) error {
	if utf8.Valid(b) {
		return nil
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return syntax(i, "invalid UTF-8")
		}
		i += n
	}
	return nil
}

func checkEnd(b []byte, end int) error {
	if end = skipSpace(b, end); end != len(b) {
		return syntax(end, "text after the value")
	}
	return nil
}

// at returns b[i], or 0, which is never part of valid JSON, past the end.
func at(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func skipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// nest is the stack of open arrays and objects, a bit each.
type nest struct {
	bits  [(MaxDepth + 63) / 64]uint64
	n     int
	limit int
}

func (s *nest) push(object bool) bool {
	if s.n == s.limit {
		return false
	}
	word, bit := s.n/64, uint64(1)<<(s.n%64)
	s.bits[word] &^= bit
	if object {
		s.bits[word] |= bit
	}
	s.n++
	return true
}

func (s *nest) inObject() bool {
	i := s.n - 1
	return s.bits[i/64]&(1<<(i%64)) != 0
}

// skipValue returns the end of the value that starts at b[i] and nests at most
// limit (up to MaxDepth) deep. The common case, a scalar, needs no stack.
func skipValue(b []byte, i, limit int) (int, error) {
	switch at(b, i) {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i, limit)
	}
	return skipScalar(b, i)
}

// skipNested is skipValue for arrays and objects, without recursion.
func skipNested(b []byte, i, limit int) (int, error) {
	open := nest{limit: limit}
	var err error
	for {
		var opened bool
		switch c := at(b, i); c {
		case '"':
			i, err = skipString(b, i)
		case '{', '[':
			i, opened, err = enter(b, i, &open)
		default:
			i, err = skipScalar(b, i)
		}
		if err != nil {
			return i, err
		}
		if opened {
			continue
		}
		var done bool
		if i, done, err = leave(b, i, &open); done || err != nil {
			return i, err
		}
	}
}

// enter steps over an opening bracket to the first value inside. Of an empty
// container it steps over the whole and reports opened as false.
func enter(b []byte, i int, open *nest) (next int, opened bool, err error) {
	object := b[i] == '{'
	if !open.push(object) {
		return i, false, syntax(i, "nested too deep")
	}
	i = skipSpace(b, i+1)
	if c := at(b, i); object && c == '}' || !object && c == ']' {
		open.n--
		return i + 1, false, nil
	}
	if object {
		i, err = skipKey(b, i)
	}
	return i, true, err
}

// leave steps from the end of a value to the next one, over closing brackets;
// done says that nothing is open any more.
func leave(b []byte, i int, open *nest) (next int, done bool, err error) {
	for open.n > 0 {
		i = skipSpace(b, i)
		object := open.inObject()
		switch c := at(b, i); {
		case c == ',' && object:
			i, err = skipKey(b, skipSpace(b, i+1))
			return i, false, err
		case c == ',':
			return skipSpace(b, i+1), false, nil
		case c == '}' && object, c == ']' && !object:
			open.n--
			i++
		default:
			return i, false, syntax(i, "expected a comma or the end of the container")
		}
	}
	return i, true, nil
}

// skipKey steps over a key and its colon to the value.
func skipKey(b []byte, i int) (int, error) {
	if at(b, i) != '"' {
		return i, syntax(i, "expected a key")
	}
	i, err := skipString(b, i)
	if err != nil {
		return i, err
	}
	i = skipSpace(b, i)
	if at(b, i) != ':' {
		return i, syntax(i, "expected a colon")
	}
	return skipSpace(b, i+1), nil
}

// skipString returns the end of the string whose opening quote is b[i].
func skipString(b []byte, i int) (int, error) {
	start := i
	for i++; ; {
		i = plainRun(b, i)
		if i >= len(b) {
			return i, syntax(start, "string without end")
		}
		switch b[i] {
		case '"':
			return i + 1, nil
		case '\\':
			n := escapeLen(b, i)
			if n == 0 {
				return i, syntax(i, "invalid escape")
			}
			i += n
		default:
			return i, syntax(i, "control character in a string")
		}
	}
}

// plainRun returns the index of the first quote, backslash or control character
// at or after i. Eight bytes are looked at together.
func plainRun(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		// (x-n)&^x has its high bit set where a byte is below n; the lowest
		// such bit is exact, the ones above it may be borrows.
		m := ((quote - ones) &^ quote) | ((slash - ones) &^ slash) | ((w - ones*' ') &^ w)
		if m &= highs; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' ' {
		i++
	}
	return i
}

// escapeLen returns the length of the escape at b[i], 0 when it is none.
func escapeLen(b []byte, i int) int {
	switch at(b, i+1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b, i+2); ok {
			return 6
		}
	}
	return 0
}

func hex4(b []byte, i int) (rune, bool) {
	if i+4 > len(b) {
		return 0, false
	}
	var r rune
	for _, c := range b[i : i+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
