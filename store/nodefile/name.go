package nodefile

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Ext ends the name of every history file.
const Ext = ".json"

// maxID keeps the name of a history file, its temporary name and the names that
// the mount derives from it below 255 bytes.
const maxID = 200

// FileName returns a node's file name (reference 2.5): seq with at least four
// digits, the first letter of the role or x, the id.
func FileName(seq int64, role, id string) string {
	letter := "x"
	if role != "" {
		_, n := utf8.DecodeRuneInString(role)
		letter = role[:n]
	}
	return fmt.Sprintf("%04d-%s-%s%s", seq, letter, id, Ext)
}

// ParseName takes a file name apart. ok is false when it does not have
// FileName's form; such a file may hold a node nevertheless.
func ParseName(name string) (seq int64, letter byte, id string, ok bool) {
	stem, ok := strings.CutSuffix(name, Ext)
	if !ok {
		return 0, 0, "", false
	}
	n := digits(stem)
	seq, err := strconv.ParseInt(stem[:n], 10, 64)
	rest := stem[n:]
	if err != nil || len(rest) < 4 || rest[0] != '-' || rest[1] >= utf8.RuneSelf || rest[2] != '-' {
		return 0, 0, "", false
	}
	return seq, rest[1], rest[3:], true
}

// Stem returns a file name without ".json".
func Stem(name string) string { return strings.TrimSuffix(name, Ext) }

// Less is the order in which history files are loaded: by the number in front,
// then by bytes. It is the peer's byte order, except that 10000 comes after
// 9999 (reference 15.2). A name without a number stands where its bytes put it.
func Less(a, b string) bool {
	na, nb := digits(a), digits(b)
	if na == 0 || nb == 0 {
		return a < b
	}
	x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
	if len(x) != len(y) {
		return len(x) < len(y)
	}
	if x != y {
		return x < y
	}
	return a < b
}

func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// ValidID reports whether an id can be part of a file name that is made here:
// not empty, at most 200 bytes of UTF-8, no slash, backslash or control
// character, not "." or "..".
func ValidID(id string) bool {
	if id == "" || len(id) > maxID || id == "." || id == ".." || !utf8.ValidString(id) {
		return false
	}
	return strings.IndexFunc(id, func(r rune) bool {
		return r == '/' || r == '\\' || r < ' ' || r == 0x7f
	}) < 0
}
