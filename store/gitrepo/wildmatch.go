package gitrepo

import "strings"

// wildmatch reports whether text matches a Git glob with pathname rules: "*"
// and "?" and brackets stop at '/', "**" between slashes crosses them.
//
// go-git matches with path/filepath.Match, which knows neither [!x] nor
// [[:alpha:]] nor "**" inside a pattern; a file that git ignores would be
// committed.
func wildmatch(pattern, text string, fold bool) bool {
	if fold {
		pattern, text = asciiLower(pattern), asciiLower(text)
	}
	m := matcher{fold: fold, budget: matchBudget}
	return m.match(pattern, text, true) == matched
}

// matchBudget bounds the steps of one match: patterns come from files that
// agents write.
const matchBudget = 1 << 17

// matchResult is a match, or what its failure says to the stars before it.
type matchResult int

const (
	matched      matchResult = iota
	noMatch                  // try further on
	noMatchHere              // a '/' is in the way: only a "**" can try further on
	noMatchAtAll             // the text is too short from here on
)

type matcher struct {
	fold   bool
	budget int
}

// match matches all of text. atStart is set where the pattern so far is empty
// or ends with '/', which is what makes "**" special.
func (m *matcher) match(p, t string, atStart bool) matchResult {
	for len(p) > 0 {
		if m.budget--; m.budget < 0 {
			return noMatchAtAll
		}
		c := p[0]
		if c == '*' {
			return m.star(p, t, atStart)
		}
		if t == "" {
			return noMatchAtAll
		}
		atStart = false
		switch c {
		case '?':
			if t[0] == '/' {
				return noMatch
			}
			p = p[1:]
		case '[':
			rest, ok := bracket(p[1:], t[0], m.fold)
			if !ok || t[0] == '/' {
				return noMatch
			}
			p = rest
		case '\\':
			if len(p) < 2 {
				return noMatch
			}
			p, c = p[1:], p[1]
			fallthrough
		default:
			if t[0] != c {
				return noMatch
			}
			atStart = c == '/'
			p = p[1:]
		}
		t = t[1:]
	}
	if t == "" {
		return matched
	}
	return noMatch
}

// star matches a pattern that begins with one or more '*'.
func (m *matcher) star(p, t string, atStart bool) matchResult {
	rest := strings.TrimLeft(p, "*")
	stars := len(p) - len(rest)
	crosses := stars > 1 && atStart && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
	if crosses && rest != "" {
		// "**/" is also no directory at all.
		after := strings.TrimPrefix(rest, `\`)[1:]
		if m.match(after, t, true) == matched {
			return matched
		}
	}
	if rest == "" {
		if crosses || !strings.Contains(t, "/") {
			return matched
		}
		return noMatchHere
	}
	for ; t != ""; t = t[1:] {
		got := m.match(rest, t, false)
		if got != noMatch && (got != noMatchHere || !crosses) {
			return got
		}
		if !crosses && t[0] == '/' {
			return noMatchHere
		}
	}
	return noMatchAtAll
}

// bracket matches one character against the set that begins after '[' and
// returns the pattern after the set. A set that is not closed matches nothing.
func bracket(p string, c byte, fold bool) (rest string, ok bool) {
	negated := p != "" && (p[0] == '!' || p[0] == '^')
	if negated {
		p = p[1:]
	}
	found, first := false, true
	var prev byte // of a range, 0 when the last item cannot begin one
	for {
		if p == "" {
			return "", false
		}
		ch := p[0]
		if ch == ']' && !first {
			return p[1:], found != negated
		}
		first = false
		switch {
		case ch == '[' && len(p) > 1 && p[1] == ':':
			name, after, isClass := strings.Cut(p[2:], ":]")
			if !isClass || strings.Contains(name, "]") {
				// Not a class: '[' stands for itself.
				found = found || c == '['
				prev, p = '[', p[1:]
				continue
			}
			in, known := classContains(name, c, fold)
			if !known {
				return "", false
			}
			found = found || in
			prev, p = 0, after
		case ch == '-' && prev != 0 && len(p) > 1 && p[1] != ']':
			hi := p[1]
			p = p[2:]
			if hi == '\\' {
				if p == "" {
					return "", false
				}
				hi, p = p[0], p[1:]
			}
			found = found || prev <= c && c <= hi
			prev = 0
		default:
			p = p[1:]
			if ch == '\\' {
				if p == "" {
					return "", false
				}
				ch, p = p[0], p[1:]
			}
			found = found || ch == c
			prev = ch
		}
	}
}

// classContains reports whether c is in the named POSIX class, in the C locale.
func classContains(name string, c byte, fold bool) (in, known bool) {
	lower, upper, digit := 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9'
	alpha, graph := lower || upper, c > ' ' && c < 0x7f
	switch name {
	case "alnum":
		return alpha || digit, true
	case "alpha":
		return alpha, true
	case "blank":
		return c == ' ' || c == '\t', true
	case "cntrl":
		return c < ' ' || c == 0x7f, true
	case "digit":
		return digit, true
	case "graph":
		return graph, true
	case "lower":
		return lower, true
	case "print":
		return graph || c == ' ', true
	case "punct":
		return graph && !alpha && !digit, true
	case "space":
		return c == ' ' || '\t' <= c && c <= '\r', true
	case "upper":
		return upper || fold && lower, true
	case "xdigit":
		return digit || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F', true
	}
	return false, false
}

func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
