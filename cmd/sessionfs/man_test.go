package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// updateMan rewrites docs/sessionfs.1 ("make man").
var updateMan = flag.Bool("update", false, "write docs/sessionfs.1 from docs/sessionfs.1.md")

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestManPageIsRendered(t *testing.T) {
	want := renderMan(readDoc(t, "sessionfs.1.md"))
	if *updateMan {
		if err := os.WriteFile(filepath.Join("..", "..", "docs", "sessionfs.1"), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, readDoc(t, "sessionfs.1")); diff != "" {
		t.Errorf("docs/sessionfs.1 is not what docs/sessionfs.1.md says, run 'make man' (-want +got):\n%s", diff)
	}
}

func TestRenderMan(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"heading", "## FILES", ".SH FILES\n"},
		{"command", "### sessionfs ls", ".SS sessionfs ls\n"},
		{"marks", "a **bold** and *italic* `code` word", ".PP\na \\fBbold\\fR and \\fIitalic\\fR \\fBcode\\fR word\n"},
		{"dash and backslash", `a - b \\ c\* --x`, ".PP\na \\- b \\e c* \\-\\-x\n"},
		{"leading dot", ".dotted", ".PP\n\\&.dotted\n"},
		{"definition", "**--x**\n:   First\n    second", ".TP\n\\fB\\-\\-x\\fR\nFirst\nsecond\n"},
		{"example", "    sessionfs ls", ".PP\n.EX\n    sessionfs ls\n.EE\n"},
		{"table", "| a | b |\n| --- | --- |\n| 1 | One. |", ".TP\n\\fB1\\fR\nOne.\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := renderManBody(tt.in); got != tt.want {
				t.Errorf("got %q, want %q, input %q", got, tt.want, tt.in)
			}
		})
	}
}

// renderMan turns the Markdown of a manual page into man(7) macros. It knows
// the forms that docs/sessionfs.1.md uses and no more: headings, paragraphs,
// definitions (": "), indented examples, and two-column tables.
func renderMan(md string) string {
	title, body, _ := strings.Cut(md, "\n")
	about := strings.TrimPrefix(title, "# sessionfs(1) - ")
	return ".\\\" Made from docs/sessionfs.1.md by 'make man'; do not edit.\n" +
		".TH SESSIONFS 1 \"\" sessionfs \"User Commands\"\n.SH NAME\nsessionfs \\- " + roff(about) + "\n" +
		renderManBody(body)
}

func renderManBody(md string) string {
	var b strings.Builder
	for _, block := range regexp.MustCompile(`\n{2,}`).Split(strings.Trim(md, "\n"), -1) {
		renderBlock(&b, strings.Split(block, "\n"))
	}
	return b.String()
}

func renderBlock(b *strings.Builder, lines []string) {
	first := lines[0]
	switch {
	case strings.HasPrefix(first, "### "):
		b.WriteString(".SS " + roff(first[4:]) + "\n")
	case strings.HasPrefix(first, "## "):
		b.WriteString(".SH " + roff(first[3:]) + "\n")
	case strings.HasPrefix(first, "| "):
		for _, line := range lines[2:] { // the first two are the header
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			b.WriteString(".TP\n\\fB" + roff(cells[0]) + "\\fR\n" + textLine(cells[1]))
		}
	case strings.HasPrefix(first, "    "):
		b.WriteString(".PP\n.EX\n")
		for _, line := range lines {
			b.WriteString(strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(line) + "\n")
		}
		b.WriteString(".EE\n")
	case len(lines) > 1 && strings.HasPrefix(lines[1], ":   "):
		b.WriteString(".TP\n" + textLine(first))
		for _, line := range lines[1:] {
			b.WriteString(textLine(line[4:]))
		}
	default:
		b.WriteString(".PP\n")
		for _, line := range lines {
			b.WriteString(textLine(line))
		}
	}
}

// textLine renders a line of running text; a line that begins like a macro
// is guarded.
func textLine(s string) string {
	s = roff(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s + "\n"
}

// roff renders the marks within a line.
func roff(s string) string {
	s = strings.NewReplacer(`\*`, "\x00", `\\`, `\e`, `\`, `\e`, `-`, `\-`).Replace(s)
	s = regexp.MustCompile(`\*\*(.+?)\*\*`).ReplaceAllString(s, `\fB$1\fR`)
	s = regexp.MustCompile(`\*(.+?)\*`).ReplaceAllString(s, `\fI$1\fR`)
	s = regexp.MustCompile("`(.+?)`").ReplaceAllString(s, `\fB$1\fR`)
	return strings.ReplaceAll(s, "\x00", "*")
}
