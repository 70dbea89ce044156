package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// oneLine makes text safe for one line of a terminal: whatever could move the
// cursor, and a line break above all, becomes a space.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if steers(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
}

// steers reports whether a character does something to a terminal instead of
// being shown there: the controls, and those that turn the direction of text
// around, with which it could read as something else.
func steers(r rune) bool {
	return unicode.IsControl(r) || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

// escaped puts text into one line and keeps what it says: a line break becomes
// "\n", another character that steers likewise.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		if steers(r) || r == '\u2028' || r == '\u2029' {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// clip shortens text to n characters.
func clip(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:n-1]) + "…"
}

// count is a number with its noun: "1 finding", "2 findings".
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// clock shows seconds since the epoch as local time, "-" when unknown.
func clock(seconds float64) string {
	if seconds <= 0 || math.IsNaN(seconds) || seconds > 253402300799 { // 9999-12-31
		return "-"
	}
	return time.Unix(0, int64(seconds*1e9)).Format("2006-01-02 15:04")
}

// printJSON writes v as one line.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// markedTable is a table whose lines may begin with a mark; those are coloured
// where colours are wanted.
func (a *app) markedTable(w io.Writer, header []string, rows [][]string) error {
	if !a.colours() {
		return table(w, header, rows)
	}
	var b strings.Builder
	if err := table(&b, header, rows); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if sgr := markColour(line[0]); sgr != "" {
			line = a.paint(sgr, strings.TrimSuffix(line, "\n")) + "\n"
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}

// markColour is the colour of a line that begins with a mark.
func markColour(mark byte) string {
	switch mark {
	case '>':
		return cyan
	case '?':
		return yellow
	case '!':
		return red
	case '*':
		return green
	}
	return ""
}

// table writes rows in columns; the last column is not padded. A tabwriter
// writes each cell and each padding by itself.
func table(w io.Writer, header []string, rows [][]string) error {
	return gathered(w, func(w io.Writer) error {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{header}, rows...) {
			if _, err := fmt.Fprintln(tw, strings.Join(row, "\t")); err != nil {
				return err
			}
		}
		return tw.Flush()
	})
}
