package render

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/sessionfs/sessionfs/dag"
)

// Call is one call that a reply made.
type Call struct {
	Name string
	// Args and Result are shown as they are, normally JSON and text.
	Args, Result string
	OK           bool
}

// Message is one message of a branch, as a transcript shows it.
type Message struct {
	Node dag.Node
	// Role is the displayed one: user, assistant, system, tool, summary, …
	Role  string
	Model string // "" when there is none
	Text  string // shown verbatim
	Time  time.Time
	// Status is shown unless it says that all is well.
	Status string
	Calls  []Call
}

// Transcript returns a branch as one Markdown document: the title, the session
// id, then every message under a heading with its position, role, model and
// time (UTC), its text as it stands, and the calls it made. It ends in a
// newline.
func Transcript(title, sessionID string, msgs []Message) []byte {
	return TranscriptFrom(title, sessionID, 1, msgs)
}

// TranscriptFrom is Transcript for the end of a branch: first is the position
// of the first message.
func TranscriptFrom(title, sessionID string, first int, msgs []Message) []byte {
	var b bytes.Buffer
	if title = oneLine(title); title == "" {
		title = oneLine(sessionID)
	}
	b.WriteString("# " + title + "\n\nSession: " + codeSpan(sessionID) + "\n")
	for i := range msgs {
		writeMessage(&b, first+i, &msgs[i])
	}
	return b.Bytes()
}

// TranscriptJSONL returns JSON texts, one a line. Newlines inside a text, which
// in JSON can only stand between tokens, become blanks; empty texts are left
// out.
func TranscriptJSONL(lines [][]byte) []byte {
	var b bytes.Buffer
	for _, line := range lines {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		from := b.Len()
		b.Write(line)
		for i, c := range b.Bytes()[from:] {
			if c == '\n' || c == '\r' {
				b.Bytes()[from+i] = ' '
			}
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// writeMessage writes the message at a position, counted from 1.
func writeMessage(b *bytes.Buffer, position int, m *Message) {
	heading := []string{strconv.Itoa(position), oneLine(m.Role), oneLine(m.Model)}
	if !m.Time.IsZero() {
		heading = append(heading, m.Time.UTC().Format(time.RFC3339))
	}
	if !ordinary(m.Status) {
		heading = append(heading, oneLine(m.Status))
	}
	b.WriteString("\n## " + joinNonEmpty(heading) + "\n")
	if m.Text != "" {
		b.WriteByte('\n')
		writeLines(b, m.Text)
	}
	for i := range m.Calls {
		writeCall(b, &m.Calls[i])
	}
}

// ordinary reports whether a status says no more than that a message is there.
func ordinary(status string) bool {
	switch status {
	case "", "done", "completed", "success":
		return true
	}
	return false
}

// joinNonEmpty joins the words of a heading.
func joinNonEmpty(words []string) string {
	var b strings.Builder
	for _, w := range words {
		if w == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(" · ")
		}
		b.WriteString(w)
	}
	return b.String()
}

func writeCall(b *bytes.Buffer, c *Call) {
	outcome := "ok"
	if !c.OK {
		outcome = "failed"
	}
	b.WriteString("\n### Call " + codeSpan(c.Name) + ": " + outcome + "\n")
	writeBlock(b, "Arguments:", c.Args)
	writeBlock(b, "Result:", c.Result)
}

// writeBlock writes text between fences that are longer than any in it; an
// empty text is left out with its caption.
func writeBlock(b *bytes.Buffer, caption, text string) {
	if text == "" {
		return
	}
	fence := strings.Repeat("`", max(3, longestTicks(text)+1))
	b.WriteString("\n" + caption + "\n\n" + fence + "\n")
	writeLines(b, text)
	b.WriteString(fence + "\n")
}

// writeLines writes text with a newline at its end.
func writeLines(b *bytes.Buffer, text string) {
	b.WriteString(text)
	if !strings.HasSuffix(text, "\n") {
		b.WriteByte('\n')
	}
}

// codeSpan returns s as inline code, whatever backticks it has.
func codeSpan(s string) string {
	if s = oneLine(s); s == "" {
		return "``"
	}
	ticks := strings.Repeat("`", longestTicks(s)+1)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return ticks + s + ticks
}

// longestTicks returns the length of the longest run of backticks in s.
func longestTicks(s string) int {
	longest, run := 0, 0
	for i := range len(s) {
		if s[i] != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}

// Comparable returns a branch as text to be compared with another one: role,
// text and calls of every message, without positions, ids and times, which
// differ where nobody said anything else.
func Comparable(msgs []Message) []byte {
	var b bytes.Buffer
	for i := range msgs {
		m := &msgs[i]
		b.WriteString("## " + oneLine(m.Role) + "\n")
		if m.Text != "" {
			writeLines(&b, m.Text)
		}
		for j := range m.Calls {
			writeCall(&b, &m.Calls[j])
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}
