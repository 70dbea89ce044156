package gitrepo

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

func commitObject(tree plumbing.Hash, parent tip, who string, when time.Time, message string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "tree %s\n", tree)
	if parent.commit != nil {
		fmt.Fprintf(&b, "parent %s\n", parent.hash)
	}
	fmt.Fprintf(&b, "author %s %s\ncommitter %s %s\n\n%s", who, stamp(when), who, stamp(when), message)
	return []byte(b.String())
}

// cleanMessage tidies a message as `git commit -m` does: no blanks at line
// ends, no empty lines around it, one at most between paragraphs, a newline at
// the end. A commit cannot hold a NUL, and says that it is UTF-8.
func cleanMessage(message string) (string, error) {
	message = strings.ToValidUTF8(strings.ReplaceAll(message, "\x00", ""), "\uFFFD")
	var b strings.Builder
	empty := 0
	for line := range strings.SplitSeq(message, "\n") {
		line = strings.TrimRight(line, " \t\r\v\f")
		if line == "" {
			empty++
			continue
		}
		if empty > 0 && b.Len() > 0 {
			b.WriteByte('\n')
		}
		empty = 0
		b.WriteString(line)
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return "", ErrEmptyMessage
	}
	return b.String(), nil
}

// subject is the first paragraph on one line, as git log's %s.
func subject(message string) string {
	var lines []string
	for line := range strings.SplitSeq(message, "\n") {
		line = strings.TrimRight(line, " \t\r\v\f")
		if line != "" {
			lines = append(lines, line)
		} else if len(lines) > 0 {
			break
		}
	}
	return strings.ToValidUTF8(strings.Join(lines, " "), "\uFFFD")
}
