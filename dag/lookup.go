package dag

import "slices"

// rlock takes the storage's lock for reading and returns the function that
// releases it. A goroutine that holds it must not take it again: a writer that
// waits in between would stop both.
func (ix *Index) rlock() (unlock func()) {
	if ix.s == nil {
		return func() {}
	}
	ix.s.mu.RLock()
	return ix.s.mu.RUnlock
}

// symbolLocked returns the number of an id, none if nothing has or names it.
// Requires rlock.
func (ix *Index) symbolLocked(id string) int32 {
	if ix.s == nil {
		return none
	}
	if sym, ok := ix.s.symbols[id]; ok {
		return sym
	}
	return none
}

// nodeLocked returns the position of the last node of this view that has the
// id sym, none if it has none. Requires rlock.
func (ix *Index) nodeLocked(sym int32) int32 {
	if sym == none {
		return none
	}
	pos := ix.s.lasts[sym].node
	for int(pos) >= len(ix.nodes) {
		pos = ix.s.links[pos].oldNode
	}
	return pos
}

// posLocked is nodeLocked for an id. Requires rlock.
func (ix *Index) posLocked(id string) int32 { return ix.nodeLocked(ix.symbolLocked(id)) }

// chainedLocked appends to dst the positions of this view's nodes whose
// predecessor is sym, in stored order. Requires rlock.
func (ix *Index) chainedLocked(dst []int32, sym int32) []int32 {
	if sym == none {
		return dst
	}
	from := len(dst)
	for pos := ix.s.lasts[sym].chained; pos != none; pos = ix.s.links[pos].oldChained {
		if int(pos) < len(ix.nodes) {
			dst = append(dst, pos)
		}
	}
	slices.Reverse(dst[from:])
	return dst
}

// calledLocked is chainedLocked for the nodes whose caller is sym. Requires
// rlock.
func (ix *Index) calledLocked(dst []int32, sym int32) []int32 {
	if sym == none {
		return dst
	}
	from := len(dst)
	for pos := ix.s.lasts[sym].called; pos != none; pos = ix.s.links[pos].oldCalls {
		if int(pos) < len(ix.nodes) {
			dst = append(dst, pos)
		}
	}
	slices.Reverse(dst[from:])
	return dst
}

// pick returns the nodes at these positions, nil for none.
func (ix *Index) pick(positions []int32) []Node {
	if len(positions) == 0 {
		return nil
	}
	out := make([]Node, len(positions))
	for i, pos := range positions {
		out[i] = ix.nodes[pos]
	}
	return out
}

// Get returns the node with an id, the last one where there are several.
func (ix *Index) Get(id string) (Node, bool) {
	pos, ok := ix.Position(id)
	if !ok {
		return Node{}, false
	}
	return ix.nodes[pos], true
}

// Position returns the place of Get's node in stored order, counted from 0.
func (ix *Index) Position(id string) (int, bool) {
	defer ix.rlock()()
	pos := ix.posLocked(id)
	return int(pos), pos != none
}

// Children returns the nodes whose predecessor is id, in stored order; id need
// not be a node's. "" has none.
func (ix *Index) Children(id string) []Node {
	unlock := ix.rlock()
	positions := ix.chainedLocked(nil, ix.edgeSymbolLocked(id))
	unlock()
	return ix.pick(positions)
}

// Callees returns the nodes whose caller is id, in stored order; id need not
// be a node's. "" has none.
func (ix *Index) Callees(id string) []Node {
	unlock := ix.rlock()
	positions := ix.calledLocked(nil, ix.edgeSymbolLocked(id))
	unlock()
	return ix.pick(positions)
}

// edgeSymbolLocked is symbolLocked without "", which is no edge's target even
// if a damaged node has it as its id. Requires rlock.
func (ix *Index) edgeSymbolLocked(id string) int32 {
	if id == "" {
		return none
	}
	return ix.symbolLocked(id)
}

// bitset is a set of small numbers.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

// add puts i into the set and reports whether it was not there.
func (b bitset) add(i int32) bool {
	word, bit := i>>6, uint64(1)<<(i&63)
	fresh := b[word]&bit == 0
	b[word] |= bit
	return fresh
}

func (b bitset) has(i int32) bool { return b[i>>6]&(1<<(i&63)) != 0 }
