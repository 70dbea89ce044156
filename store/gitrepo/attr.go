package gitrepo

import "strings"

// The attributes that change what is stored of a file.
const (
	attrText     = "text"
	attrCRLF     = "crlf"
	attrEOL      = "eol"
	attrFilter   = "filter"
	attrIdent    = "ident"
	attrEncoding = "working-tree-encoding"
)

// attrState is the value of an attribute: unset until a line says otherwise.
type attrState struct {
	known bool   // some line decided
	set   bool   // "attr"
	unset bool   // "-attr"
	value string // "attr=value"
}

// attrAssign is one "attr", "-attr", "!attr" or "attr=value" of a line.
type attrAssign struct {
	name  string
	state attrState
}

// attrLine is one line of an attribute file: a pattern, or a macro definition.
type attrLine struct {
	macro   string
	pattern pathPattern
	assigns []attrAssign
}

// attrFile is one attribute file and the less important ones behind it.
type attrFile struct {
	up    *attrFile
	lines []attrLine
}

// Lines of an attribute file that are longer are ignored, as git does.
const maxAttrLine = 2048

// parseAttributes reads an attribute file. Macros are honoured only where
// topLevel is set.
func parseAttributes(data, base string, topLevel, fold bool) []attrLine {
	var lines []attrLine
	data = strings.TrimPrefix(data, "\xef\xbb\xbf")
	for line := range strings.SplitSeq(data, "\n") {
		if len(line) >= maxAttrLine {
			continue
		}
		if l, ok := parseAttrLine(line, base, topLevel, fold); ok {
			lines = append(lines, l)
		}
	}
	return lines
}

const attrBlank = " \t\r\n"

func parseAttrLine(line, base string, topLevel, fold bool) (attrLine, bool) {
	line = strings.TrimLeft(line, attrBlank)
	if line == "" || line[0] == '#' {
		return attrLine{}, false
	}
	name, rest, ok := cutAttrName(line)
	if !ok {
		return attrLine{}, false
	}
	var l attrLine
	if macro, isMacro := strings.CutPrefix(name, "[attr]"); isMacro {
		if macro == "" {
			fields := strings.Fields(rest)
			if len(fields) == 0 {
				return attrLine{}, false
			}
			macro, rest = fields[0], strings.Join(fields[1:], " ")
		}
		if !topLevel || !validAttrName(macro) {
			return attrLine{}, false
		}
		l.macro = macro
	} else {
		l.pattern = parsePathPattern(name, base, fold)
		if l.pattern.negated {
			return attrLine{}, false // git: negative patterns are ignored
		}
	}
	for _, f := range strings.FieldsFunc(rest, func(r rune) bool { return strings.ContainsRune(attrBlank, r) }) {
		a, ok := parseAssign(f)
		if !ok {
			return attrLine{}, false
		}
		l.assigns = append(l.assigns, a)
	}
	return l, true
}

// cutAttrName takes the pattern, which may be quoted as C strings are, off the
// line.
func cutAttrName(line string) (name, rest string, ok bool) {
	if line[0] == '"' {
		if name, rest, ok = unquoteC(line); ok {
			return name, rest, name != ""
		}
	}
	i := strings.IndexAny(line, attrBlank)
	if i < 0 {
		return line, "", true
	}
	return line[:i], line[i:], true
}

// unquoteC decodes a C-style quoted string at the beginning of s.
func unquoteC(s string) (text, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			i++
			if i >= len(s) {
				return "", "", false
			}
			if j := strings.IndexByte(`abfnrtv\"`, s[i]); j >= 0 {
				b.WriteByte("\a\b\f\n\r\t\v\\\""[j])
				continue
			}
			if i+2 >= len(s) || !isOctal(s[i:i+3]) {
				return "", "", false
			}
			b.WriteByte((s[i]-'0')<<6 | (s[i+1]-'0')<<3 | (s[i+2] - '0'))
			i += 2
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

func isOctal(s string) bool {
	return s[0] >= '0' && s[0] <= '3' && s[1] >= '0' && s[1] <= '7' && s[2] >= '0' && s[2] <= '7'
}

func parseAssign(f string) (attrAssign, bool) {
	state := attrState{known: true, set: true}
	switch f[0] {
	case '-':
		state.set, state.unset, f = false, true, f[1:]
	case '!':
		state.set, f = false, f[1:]
	}
	name, value, hasValue := strings.Cut(f, "=")
	if hasValue && state.set {
		state.set, state.value = false, value
	}
	return attrAssign{name, state}, validAttrName(name)
}

func validAttrName(name string) bool {
	if name == "" || name[0] == '-' {
		return false
	}
	for _, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}

// builtinAttrs are the macros that git itself defines.
func builtinAttrs() *attrFile {
	return &attrFile{lines: parseAttributes("[attr]binary -diff -merge -text", "", true, false)}
}

// lookup returns the attributes of a file. The first line that decides wins:
// files from the most important one down, lines from the last one up.
func (f *attrFile) lookup(path string) map[string]attrState {
	got := map[string]attrState{}
	for file := f; file != nil; file = file.up {
		for i := len(file.lines) - 1; i >= 0; i-- {
			l := &file.lines[i]
			if l.macro == "" && l.pattern.matches(path, false) {
				f.assign(got, l.assigns, 0)
			}
		}
	}
	return got
}

// assign takes over what is not decided yet, and expands macros that are set.
func (f *attrFile) assign(got map[string]attrState, assigns []attrAssign, depth int) {
	for i := len(assigns) - 1; i >= 0; i-- {
		a := assigns[i]
		if got[a.name].known {
			continue
		}
		got[a.name] = a.state
		if !a.state.set || depth > maxDepth {
			continue
		}
		if m := f.macro(a.name); m != nil {
			f.assign(got, m.assigns, depth+1)
		}
	}
}

func (f *attrFile) macro(name string) *attrLine {
	for ; f != nil; f = f.up {
		for i := len(f.lines) - 1; i >= 0; i-- {
			if f.lines[i].macro == name {
				return &f.lines[i]
			}
		}
	}
	return nil
}
