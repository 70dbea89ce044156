package attachment

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxName is how many characters a stored name has at most (reference
	// 9.1), and maxNameBytes how many bytes: a file name holds 255, less the
	// number of a collision and the suffix of a temporary file.
	maxName      = 120
	maxNameBytes = 200

	dedupName   = ".opdedup.json"
	sourcesName = ".opsourcepaths.json"
)

// StoredName returns the name under which an upload is stored, as long as the
// name is free (reference 9.1). Beyond the peer's rule, a name that Git would
// take for one of its own files is not used as it is: an uploaded .gitignore
// must not decide what of the session is committed.
func StoredName(name string) string {
	name = name[strings.LastIndexByte(name, '/')+1:]
	safe := strings.Map(func(r rune) rune {
		if r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsNumber(r) || strings.ContainsRune("._- ", r)) {
			return r
		}
		return '_'
	}, name)
	if strings.Trim(safe, ". ") == "" {
		safe = "file"
	}
	if safe == dedupName || safe == sourcesName || strings.HasPrefix(strings.ToLower(safe), ".git") {
		safe = "attachment-" + safe
	}
	return shorten(safe)
}

// shorten cuts a name to its limits; its suffix stays when it is a usual one.
func shorten(name string) string {
	stem, suffix := splitExt(name)
	if len(suffix) > 20 {
		stem, suffix = name, ""
	}
	chars := maxName - utf8.RuneCountInString(suffix)
	bytes := maxNameBytes - len(suffix)
	for i, r := range stem {
		if chars == 0 || i+utf8.RuneLen(r) > bytes {
			return stem[:i] + suffix
		}
		chars--
	}
	return name
}

// numbered returns the n-th name to try: the name, then name-1, name-2.
func numbered(name string, n int) string {
	if n == 0 {
		return name
	}
	stem, suffix := splitExt(name)
	return stem + "-" + strconv.Itoa(n) + suffix
}
