package attachment

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// Marker is a reference to a file in the text of a message (reference 9.2).
type Marker struct {
	Text string // the whole marker, as it stands
	Name string // as displayed, without the blanks around it; may be empty
	Path string // as recorded, also when nothing is there any more
	Ext  string
	// KB is the size in units of 1024 bytes, 0 when it is no number.
	KB float64
	// Count is what follows the size, such as "3 lines"; "" when nothing does.
	Count string
	// Preview is the path of a preview, "" when there is none.
	Preview string
	// Start and End are where Text stands, in bytes.
	Start, End int
}

// The peer's patterns are Python's, in which \s is any Unicode space.
const (
	blank = `[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]`

	// Groups: name, ext, kb, count.
	head = `\[(?:attachment|attached):` + blank + `*([^()\[\]]+?)` + blank + `*` +
		`\(([^,)]+),` + blank + `*([0-9.]+)` + blank + `*KB(?:,([^)]+))?\)` + blank + `*`

	literal = `("(?:\\(?s:.)|[^"\\])*")`

	// notJSON is a path up to the first ], not starting with a blank nor with
	// "json" and a blank. RE2 has no lookahead, hence letter by letter.
	notJSON = `((?:[^\]j` + blankInside + `]|j[^\]s]|js[^\]o]|jso[^\]n]|json[^\]` + blankInside + `])[^\]]*|j|js|jso|json)`

	blankInside = `\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`
)

var (
	current = regexp.MustCompile(head + `@json` + blank + `*` + literal +
		`(?:` + blank + `*@previewjson` + blank + `*` + literal + `)?` + blank + `*\]`)
	historic = regexp.MustCompile(head + `@` + blank + `*` + notJSON + `\]`)
)

// Find returns the markers in a text, of both spellings, in their order. A
// marker whose path is no valid JSON string is not one.
func Find(text string) []Marker {
	if !strings.Contains(text, "[attach") {
		return nil
	}
	var found []Marker
	for _, at := range current.FindAllStringSubmatchIndex(text, -1) {
		m := headOf(text, at)
		path, ok := jsonedit.String([]byte(group(text, at, 5)))
		if !ok {
			continue
		}
		m.Path = path
		m.Preview, _ = jsonedit.String([]byte(group(text, at, 6)))
		found = append(found, m)
	}
	spans := found
	next := 0
	for _, at := range historic.FindAllStringSubmatchIndex(text, -1) {
		for next < len(spans) && spans[next].End <= at[0] {
			next++
		}
		if next < len(spans) && spans[next].Start < at[1] {
			continue // part of a marker of the current spelling, or around it
		}
		m := headOf(text, at)
		m.Path = strings.TrimFunc(group(text, at, 5), isBlank)
		found = append(found, m)
	}
	slices.SortFunc(found, func(a, b Marker) int { return a.Start - b.Start })
	return found
}

// headOf reads what both spellings begin with.
func headOf(text string, at []int) Marker {
	kb, _ := strconv.ParseFloat(group(text, at, 3), 64)
	return Marker{
		Text: text[at[0]:at[1]], Start: at[0], End: at[1],
		Name:  strings.TrimFunc(group(text, at, 1), isBlank),
		Ext:   strings.TrimFunc(group(text, at, 2), isBlank),
		KB:    kb,
		Count: strings.TrimFunc(group(text, at, 4), isBlank),
	}
}

func group(text string, at []int, n int) string {
	if 2*n+1 >= len(at) || at[2*n] < 0 {
		return ""
	}
	return text[at[2*n]:at[2*n+1]]
}

// isBlank reports what Python's str.isspace does.
func isBlank(r rune) bool {
	switch {
	case r >= '\t' && r <= '\r', r >= 0x1c && r <= 0x20, r >= 0x2000 && r <= 0x200a:
		return true
	case r == 0x85, r == 0xa0, r == 0x1680, r == 0x2028, r == 0x2029, r == 0x202f, r == 0x205f, r == 0x3000:
		return true
	}
	return false
}

// Strip returns a text without its markers, everything else as it was.
func Strip(text string) string {
	found := Find(text)
	if len(found) == 0 {
		return text
	}
	var b strings.Builder
	end := 0
	for _, m := range found {
		b.WriteString(text[end:m.Start])
		end = m.End
	}
	b.WriteString(text[end:])
	return b.String()
}

var blocks = regexp.MustCompile(`(?s)<attachment-preview\b[^>]*>.*?</attachment-preview>|<file\b[^>]*>(?:.*?</file>)?`)

// StripBlocks returns a text without the previews and inlined files that an
// upload puts beside its marker. A title is made of Strip and StripBlocks
// (reference 10.1); elsewhere the blocks are text like any other.
func StripBlocks(text string) string { return blocks.ReplaceAllString(text, "") }
