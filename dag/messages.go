package dag

import (
	"cmp"
	"slices"
	"strings"
)

// Messages returns what a reader of the session's messages sees, of all
// branches, in stored order (reference 5.5).
func (ix *Index) Messages() []Node {
	var out []Node
	for _, n := range ix.nodes {
		if n.IsMessage() {
			out = append(out, n)
		}
	}
	return out
}

// LatestUser returns the last node in stored order whose role is user, of
// whatever kind and on whatever branch (reference 5.10).
func (ix *Index) LatestUser() (Node, bool) {
	for _, n := range slices.Backward(ix.nodes) {
		if n.Role == roleUser {
			return n, true
		}
	}
	return Node{}, false
}

// IsConversation reports whether n, a node of this view or one that could be,
// is a conversation node: a turn of the chat itself or a program run at its
// level (reference 5.6).
func (ix *Index) IsConversation(n Node) bool {
	defer ix.rlock()()
	return ix.conversationLocked(n, ix.edgeSymbolLocked(n.Caller))
}

// conversationLocked is IsConversation for a node whose caller's symbol is
// known. Requires rlock.
func (ix *Index) conversationLocked(n Node, caller int32) bool {
	if n.Flags&(Structural|DisplayRoot|DisplayRuntime|Attach) != 0 || n.isContext() {
		return false
	}
	if n.Role == roleCode {
		return n.ChainLevel() && (n.Name != "" || n.Flags.Has(Function))
	}
	if !n.Speaks() {
		return false
	}
	if n.ChainLevel() {
		return true
	}
	pos := ix.nodeLocked(caller)
	return pos == none || ix.nodes[pos].Speaks()
}

// Tips returns the tips of the session's branches in stored order: the
// conversation nodes that no conversation node follows (reference 5.7).
// Summaries are none, nor are ids for which skip, if not nil, is true (the
// merged heads). skip may use ix.
func (ix *Index) Tips(skip func(id string) bool) []Node {
	var tips []Node
	for _, pos := range ix.tipPositions() {
		n := ix.nodes[pos]
		if strings.HasPrefix(n.ID, summaryPrefix) || skip != nil && skip(n.ID) {
			continue
		}
		tips = append(tips, n)
	}
	return tips
}

// tipPositions returns the positions of the conversation nodes that no
// conversation node follows.
func (ix *Index) tipPositions() []int32 {
	if len(ix.nodes) == 0 {
		return nil
	}
	defer ix.rlock()()
	var turns []int32
	followed := newBitset(len(ix.s.lasts))
	for i, n := range ix.nodes {
		l := &ix.s.links[i]
		if !ix.conversationLocked(n, l.caller) {
			continue
		}
		turns = append(turns, int32(i))
		if l.pred != none {
			followed.add(l.pred)
		}
	}
	return slices.DeleteFunc(turns, func(pos int32) bool { return followed.has(ix.s.links[pos].id) })
}

// Siblings returns the alternatives among which id is one: the user's and
// models' nodes of the chat chain that share its predecessor, in seq order, id
// included (reference 5.9). First turns, with or without the root as their
// predecessor, are siblings of each other. A node that is not of the chain
// stands alone; an unknown id has none. A duplicated id counts once.
func (ix *Index) Siblings(id string) []Node {
	n, ok := ix.Get(id)
	if !ok {
		return nil
	}
	if !ix.inChain(n) {
		return []Node{n}
	}
	candidates := ix.nodes
	if parentOf(n) != RootID {
		candidates = ix.Children(n.Predecessor)
	}
	var out []Node
	seen := map[string]bool{}
	for _, other := range slices.Backward(candidates) {
		if parentOf(other) == parentOf(n) && !seen[other.ID] && ix.inChain(other) {
			seen[other.ID] = true
			out = append(out, other)
		}
	}
	slices.Reverse(out)
	slices.SortStableFunc(out, func(a, b Node) int { return cmp.Compare(a.Seq, b.Seq) })
	return out
}

// inChain reports whether n is a turn of the chat chain.
func (ix *Index) inChain(n Node) bool {
	return n.Speaks() && n.ChainLevel() && ix.IsConversation(n)
}

// parentOf returns the predecessor of a chain node, RootID for a first turn.
func parentOf(n Node) string {
	if n.Predecessor == "" {
		return RootID
	}
	return n.Predecessor
}
