package store

import (
	"strings"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/dag/render"
)

// maxFileName is the most bytes that a file name may have.
const maxFileName = 255

// BranchFileNames are the names under which a directory shows branches, in the
// order of rows: the branch's name, that of a tip without one the start of its
// node's id, and where two would be equal with "~" and the whole id behind.
func BranchFileNames(rows []Branch) []string {
	out := make([]string, len(rows))
	count := map[string]int{}
	for i, b := range rows {
		out[i] = render.EscapeName(clipID(b.Head))
		if b.Named && b.Name != "" {
			out[i] = render.EscapeName(b.Name)
		}
		count[out[i]]++
	}
	for i, b := range rows {
		if count[out[i]] > 1 {
			tail := "~" + render.EscapeNameMax(b.Head, 200)
			out[i] = cutAtRune(out[i], maxFileName-len(tail)) + tail
		}
	}
	return out
}

// cutAtRune shortens a text to at most limit bytes, at a character.
func cutAtRune(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// shownAs finds the branch that is listed under a name which is not the
// branch's own as it stands, so that what a listing prints can be given back.
func (sn *Snapshot) shownAs(name string) (node string, ok bool) {
	if !strings.ContainsAny(name, "%~") && name != "untitled" {
		return "", false // no other character is the escaping's
	}
	rows := sn.Branches()
	for i, shown := range BranchFileNames(rows) {
		if shown == name {
			return rows[i].Head, true
		}
	}
	return "", false
}
