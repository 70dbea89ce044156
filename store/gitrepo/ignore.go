package gitrepo

import "strings"

// ignoreList are the patterns of one ignore file, in order.
type ignoreList []pathPattern

// parseIgnore reads an ignore file. base is its directory, "" or ending in
// '/'. Lines may end in CR LF, trailing blanks count only when escaped.
func parseIgnore(data, base string, fold bool) ignoreList {
	var list ignoreList
	data = strings.TrimPrefix(data, "\xef\xbb\xbf")
	for line := range strings.SplitSeq(data, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" || line[0] == '#' {
			continue
		}
		if line = trimTrailingSpaces(line); line != "" {
			list = append(list, parsePathPattern(line, base, fold))
		}
	}
	return list
}

// trimTrailingSpaces cuts the spaces at the end that no backslash protects.
func trimTrailingSpaces(s string) string {
	cut := -1
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
			if cut < 0 {
				cut = i
			}
		case '\\':
			cut = -1
			i++
		default:
			cut = -1
		}
	}
	if cut < 0 {
		return s
	}
	return s[:cut]
}

// decide returns whether the last matching pattern excludes the path; decided
// is false when none matches.
func (l ignoreList) decide(path string, isDir bool) (ignored, decided bool) {
	for i := len(l) - 1; i >= 0; i-- {
		if l[i].matches(path, isDir) {
			return !l[i].negated, true
		}
	}
	return false, false
}

// ignorer decides for the paths of one directory: its own ignore file first,
// then those above it, then .git/info/exclude, then core.excludesFile.
type ignorer struct {
	up   *ignorer
	list ignoreList
}

// ignored reports whether an untracked path is left out of a commit. That a
// directory above it is ignored is for the caller to know.
func (g *ignorer) ignored(path string, isDir bool) bool {
	for ; g != nil; g = g.up {
		if ignored, decided := g.list.decide(path, isDir); decided {
			return ignored
		}
	}
	return false
}
