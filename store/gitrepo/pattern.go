package gitrepo

import "strings"

// pathPattern is the pattern that ignore files and attribute files share.
type pathPattern struct {
	text    string // without '!', a leading and a final slash
	base    string // directory of the file that holds it, "" or ending in '/'
	literal int    // length of the part before the first special character
	negated bool
	dirOnly bool
	anyDir  bool // no slash inside: compared with the last component
	fold    bool
}

// parsePathPattern takes a pattern apart. base is the directory it applies in.
func parsePathPattern(p, base string, fold bool) pathPattern {
	pat := pathPattern{base: base, fold: fold}
	if strings.HasPrefix(p, "!") {
		pat.negated, p = true, p[1:]
	}
	if strings.HasSuffix(p, "/") {
		pat.dirOnly, p = true, p[:len(p)-1]
	}
	pat.anyDir = !strings.Contains(p, "/")
	pat.text = strings.TrimPrefix(p, "/")
	pat.literal = len(pat.text)
	if i := strings.IndexAny(pat.text, `*?[\`); i >= 0 {
		pat.literal = i
	}
	return pat
}

// matches reports whether the pattern matches a path relative to the top.
func (p *pathPattern) matches(path string, isDir bool) bool {
	if p.dirOnly && !isDir {
		return false
	}
	if len(path) < len(p.base) || path[:len(p.base)] != p.base {
		return false
	}
	if p.anyDir {
		return p.glob(path[strings.LastIndexByte(path, '/')+1:])
	}
	return p.glob(path[len(p.base):])
}

// glob compares the literal beginning byte for byte, so that most patterns
// never reach the matcher. What is left is matched as a pattern of its own,
// which is why "a**/b" crosses directories although "**" does not follow a
// slash: git does the same.
func (p *pathPattern) glob(name string) bool {
	if p.literal > len(name) {
		return false
	}
	text, head := p.text[:p.literal], name[:p.literal]
	if p.fold {
		text, head = asciiLower(text), asciiLower(head)
	}
	if text != head {
		return false
	}
	if p.literal == len(p.text) {
		return p.literal == len(name)
	}
	return wildmatch(p.text[p.literal:], name[p.literal:], p.fold)
}
