package fsnode

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/store"
)

// shortID is how many characters of a node's id stand in other names.
const shortID = 8

// short is the first characters of a node's id, as part of a file name.
func short(id string) string {
	n := 0
	for i := range id {
		if n == shortID {
			return render.EscapeName(id[:i])
		}
		n++
	}
	return render.EscapeName(id)
}

// stem is a history file's name without its extension.
func stem(file string) string { return strings.TrimSuffix(file, ".json") }

// nodeName is the name in nodes/ of the node that a history file holds.
func nodeName(file string) string { return stem(file) + ".md" }

// fileOfNode is the history file of a name in nodes/.
func fileOfNode(name string) (string, bool) {
	s, ok := strings.CutSuffix(name, ".md")
	return s + ".json", ok && s != ""
}

// roleWord is a node's role as its reader knows it, as part of a file name.
func roleWord(n dag.Node) string {
	switch {
	case n.Flags.Has(dag.CoversSome):
		return "summary"
	case n.Role == "llm":
		return "assistant"
	case n.Role == "code":
		return "tool"
	case n.Role == "":
		return "unknown"
	}
	return render.EscapeNameMax(n.Role, 64)
}

// messageName is the name of a message on a branch: its position from 1, its
// role, and the start of its node's id, so that a name never comes to mean
// another message.
func messageName(pos int, n dag.Node) string {
	return fmt.Sprintf("%06d-%s-%s.md", pos, roleWord(n), short(n.ID))
}

// messagePos is the position that a message's name begins with.
func messagePos(name string) (int, bool) {
	digits, _, ok := strings.Cut(name, "-")
	if !ok || len(digits) < 6 {
		return 0, false
	}
	pos, err := strconv.Atoi(digits)
	return pos, err == nil && pos > 0
}

// messageAt finds the message of a name on a branch.
func messageAt(branch []dag.Node, name string) (dag.Node, bool) {
	pos, ok := messagePos(name)
	if !ok || pos > len(branch) || messageName(pos, branch[pos-1]) != name {
		return dag.Node{}, false
	}
	return branch[pos-1], true
}

// branchRef is one name in branch/ and the node that its branch ends in.
type branchRef struct {
	name, tip string
	named     bool
}

// branchNames names the branches as branch/ shows them.
func branchNames(rows []store.Branch) []branchRef {
	out := make([]branchRef, len(rows))
	for i, name := range store.BranchFileNames(rows) {
		out[i] = branchRef{name: name, tip: rows[i].Head, named: rows[i].Named && rows[i].Name != ""}
	}
	return out
}

// cut shortens a name to at most limit bytes, at a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// relativeTo is a link target in a directory of the session as seen from the
// session's own.
func relativeTo(dir, target string) string {
	if path.IsAbs(target) {
		return target
	}
	return path.Join(dir, target)
}
