package fsnode

import (
	"errors"
	"strings"
)

var errQuote = errors.New("a quoted word has no end")

// cutWord takes the first word off a command line. It may be quoted: within
// '…' everything stands for itself, within "…" a backslash goes before ", \
// and itself, and \n and \t are a newline and a tab.
func cutWord(line string) (word, rest string, err error) {
	line = strings.TrimLeft(line, " \t")
	if line == "" || line[0] != '"' && line[0] != '\'' {
		i := strings.IndexAny(line, " \t")
		if i < 0 {
			return line, "", nil
		}
		return line[:i], strings.TrimLeft(line[i:], " \t"), nil
	}
	text, n, ok := quoted(line)
	switch {
	case !ok:
		return "", "", errQuote
	case n < len(line) && line[n] != ' ' && line[n] != '\t':
		return "", "", errors.New("a quoted word is followed by something that is no blank")
	}
	return text, strings.TrimLeft(line[n:], " \t"), nil
}

// wholeArg is the last argument of a command: the rest of the line as it
// stands, or what it quotes when it is quoted as a whole.
func wholeArg(rest string) string {
	rest = strings.TrimSpace(rest)
	if rest == "" || rest[0] != '"' && rest[0] != '\'' {
		return rest
	}
	if text, n, ok := quoted(rest); ok && n == len(rest) {
		return text
	}
	return rest
}

// quoted reads a quoted word at the start of s and returns how long it is
// there.
func quoted(s string) (text string, n int, ok bool) {
	var b strings.Builder
	q := s[0]
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == q:
			return b.String(), i + 1, true
		case c == '\\' && q == '"' && i+1 < len(s):
			i++
			b.WriteString(unescaped(s[i]))
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, false
}

// unescaped is what a character after a backslash stands for.
func unescaped(c byte) string {
	switch c {
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case '"', '\\':
		return string(c)
	}
	return `\` + string(c)
}
