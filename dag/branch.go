package dag

import "slices"

// chainLocked returns the positions of the predecessor walk from head, head
// first. It ends where a predecessor is missing or empty, or where the walk
// would come to a node a second time. Requires rlock.
func (ix *Index) chainLocked(head string) []int32 {
	pos := ix.posLocked(head)
	if pos == none {
		return nil
	}
	seen := newBitset(len(ix.nodes))
	var chain []int32
	for pos != none && seen.add(pos) {
		chain = append(chain, pos)
		pos = ix.nodeLocked(ix.s.links[pos].pred)
	}
	return chain
}

// Chain returns the nodes of the predecessor walk from head, head first, with
// nothing left out. Unknown head: none. A loop is walked once.
func (ix *Index) Chain(head string) []Node {
	unlock := ix.rlock()
	chain := ix.chainLocked(head)
	unlock()
	return ix.pick(chain)
}

// Ancestor returns the id of the n-th predecessor of id: id itself for 0, and
// otherwise what Chain(id) has at n. It reports false where the walk is
// shorter, id is unknown or n is negative.
func (ix *Index) Ancestor(id string, n int) (string, bool) {
	if n < 0 || n >= len(ix.nodes) {
		return "", false
	}
	defer ix.rlock()()
	pos := ix.posLocked(id)
	if pos == none {
		return "", false
	}
	seen := newBitset(len(ix.nodes))
	seen.add(pos)
	for range n {
		pos = ix.nodeLocked(ix.s.links[pos].pred)
		if pos == none || !seen.add(pos) {
			return "", false
		}
	}
	return ix.nodes[pos].ID, true
}

// Branch returns the branch that ends in head, oldest node first, without the
// display root and rewound nodes (reference 5.4). An unknown head, or "", has
// none. The error, where the walk ends at a node that is no legal start, is a
// *BrokenChainError; a dangling predecessor and a loop are no errors.
func (ix *Index) Branch(head string) ([]Node, error) {
	if head == "" {
		return nil, nil
	}
	unlock := ix.rlock()
	chain := ix.chainLocked(head)
	unlock()
	if len(chain) == 0 {
		return nil, nil
	}
	if first := ix.nodes[chain[len(chain)-1]]; first.Predecessor == "" && !ix.startsBranch(first) {
		return nil, &BrokenChainError{Node: first.ID}
	}
	chain = slices.DeleteFunc(chain, func(pos int32) bool {
		return ix.nodes[pos].Flags&(DisplayRoot|Rewound) != 0
	})
	slices.Reverse(chain)
	return ix.pick(chain), nil
}

// startsBranch reports whether a node without a predecessor may be the first
// of a branch: the read invariant (reference 5.4).
func (ix *Index) startsBranch(n Node) bool {
	if n.Flags&(SpawnRoot|DisplayRoot|Covers) != 0 || !n.Speaks() {
		return true
	}
	for _, other := range ix.nodes {
		if other.Seq >= n.Seq {
			return true
		}
		if other.opensChain() {
			return false
		}
	}
	return true
}

// CheckWrite reports whether n may be stored beside the nodes of this view:
// the write invariant (reference 5.3). The error is a
// *PredecessorMissingError. Whether the predecessor exists is not asked.
func (ix *Index) CheckWrite(n Node) error {
	if !n.Speaks() || n.Predecessor != "" || !ix.opened {
		return nil
	}
	answer := n.Role == roleUser && n.Flags.Has(HasInput)
	if answer || !n.ChainLevel() || n.Flags&(DisplayRoot|SpawnRoot|Covers) != 0 {
		return nil
	}
	return &PredecessorMissingError{Node: n.ID}
}
