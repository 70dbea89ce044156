package dag

// A chain's end is asked for at every change of a session, and to walk there
// takes as long as the conversation is. It is therefore remembered where each
// walk ended, by position; what is remembered is dropped when a node comes
// that an earlier one named already, or that repeats an id: only then can an
// old chain end elsewhere.

const (
	unknownEnd = int32(-1)
	loopEnd    = int32(-2) // the walk comes to a node a second time
)

// CheckBranch is the error of Branch, without the branch: constant time after
// the first question about a chain, if ix is the newest view of its storage or
// lacks only nodes that continue it.
func (ix *Index) CheckBranch(head string) error {
	if head == "" || ix.s == nil {
		return nil
	}
	first, ok := ix.chainEnd(head)
	if !ok {
		return nil
	}
	n := ix.nodes[first]
	if n.Predecessor == "" && !ix.startsBranch(n) {
		return &BrokenChainError{Node: n.ID}
	}
	return nil
}

// chainEnd is the position of the last node of the walk from head. It reports
// false when head is unknown, and when the walk loops: every node of a loop has
// a predecessor, so none begins a branch.
func (ix *Index) chainEnd(head string) (int32, bool) {
	s := ix.s
	s.mu.Lock()
	defer s.mu.Unlock()
	pos := ix.posLocked(head)
	if pos == none {
		return none, false
	}
	current := ix.epoch == s.epoch
	for len(s.ends) < len(s.nodes) {
		s.ends = append(s.ends, unknownEnd)
	}
	var seen bitset
	var walked []int32
	end := loopEnd
	for {
		if current && s.ends[pos] != unknownEnd {
			end = s.ends[pos]
			break
		}
		if seen == nil {
			seen = newBitset(len(ix.nodes))
		}
		if !seen.add(pos) {
			break
		}
		walked = append(walked, pos)
		next := ix.nodeLocked(s.links[pos].pred)
		if next == none {
			end = pos
			break
		}
		pos = next
	}
	if current {
		for _, p := range walked {
			s.ends[p] = end
		}
	}
	return end, end != loopEnd
}
