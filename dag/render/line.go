package render

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	previewMax  = 80 // code points that a preview may have
	previewKeep = 77 // code points that are kept of a longer text
	ellipsis    = "…"
)

// Preview returns the preview of a message: the text without white space at
// its ends, in one line; of more than 80 code points the first 77 and "…"
// (reference 6.13).
func Preview(text string) string {
	text = strings.ReplaceAll(strings.TrimFunc(text, isBlank), "\n", " ")
	if utf8.RuneCountInString(text) <= previewMax {
		return text
	}
	end := 0
	for range previewKeep {
		_, size := utf8.DecodeRuneInString(text[end:])
		end += size
	}
	return text[:end] + ellipsis
}

// isBlank reports whether r is white space as the session store means it: as
// Unicode does, and the four separators U+001C to U+001F.
func isBlank(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// oneLine returns s without anything that could end a line or steer a
// terminal: white space of any kind becomes single blanks, controls go, bytes
// that are not UTF-8 become U+FFFD.
func oneLine(s string) string {
	s = strings.Join(strings.FieldsFunc(s, isBlank), " ")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, s)
}
