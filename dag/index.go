package dag

import (
	"iter"
	"math"
	"slices"
	"sync"
)

// none is the position, or symbol, that does not exist.
const none = int32(-1)

// Index is an immutable view of a session's nodes and their edges. It is safe
// for concurrent use, also while views are appended to the same storage. The
// zero value is an empty view.
type Index struct {
	s     *storage // shared with the views before and after this one
	nodes []Node   // this view's nodes in stored order, never written again

	epoch  int   // of the storage when the view was made: see start.go
	maxSeq int64 // largest seq of nodes, -1 when none is positive or zero
	opened bool  // a node of the view opensChain
}

// storage holds what views share. Everything in it only grows. What belongs to
// nodes that a view does not have is told by its position: a view looks at
// positions below its own length only.
type storage struct {
	// mu guards every field. Views read under it; Append and what is remembered
	// of chains write under it.
	mu sync.RWMutex
	// nodes is the list of the newest view.
	nodes []Node
	// symbols numbers every id that occurs, as an id or as an edge's target.
	symbols map[string]int32
	lasts   []lasts // by symbol
	links   []link  // by position

	epoch int     // counts the nodes that may have changed where a chain ends
	ends  []int32 // by position: where the walk from it ends, in this epoch
}

// lasts has, for one id, the newest position of each list that it heads.
type lasts struct {
	node    int32 // nodes that have the id (more than one if duplicated)
	chained int32 // nodes whose predecessor it is
	called  int32 // nodes whose caller it is
}

// link has a node's symbols, and its older neighbour in each list of which it
// is a member. Lists run from new to old, so that a link never changes once it
// is written.
type link struct {
	id, pred, caller              int32 // symbols; pred and caller may be none
	oldNode, oldChained, oldCalls int32 // positions or none
}

// NewIndex returns a view of nodes, which are in stored order (the order of
// their file names). Nodes may come in any order as far as edges go. Where an
// id occurs twice, Get sees the last, lists hold both (reference 2.5). The
// slice is copied.
func NewIndex(nodes []Node) *Index { return OwnIndex(slices.Clone(nodes)) }

// OwnIndex is NewIndex that keeps the slice: nobody else may use it afterwards,
// except to read nodes' values from it.
func OwnIndex(nodes []Node) *Index {
	s := &storage{
		nodes:   nodes[:0:len(nodes)],
		symbols: make(map[string]int32, len(nodes)),
		lasts:   make([]lasts, 0, len(nodes)+1),
		links:   make([]link, 0, len(nodes)),
	}
	ix := &Index{s: s, maxSeq: -1}
	for _, n := range nodes {
		s.addLocked(n)
		ix.note(n)
	}
	ix.nodes, ix.epoch = slices.Clip(s.nodes), s.epoch
	return ix
}

// Append returns a view that also holds n, as its last node; ix stays as it
// is. It takes amortised constant time if ix is the newest view of its
// storage, else ix is copied first.
func (ix *Index) Append(n Node) *Index {
	if next, ok := ix.extend(n); ok {
		return next
	}
	next, _ := NewIndex(ix.nodes).extend(n)
	return next
}

// extend appends n in the shared storage. It reports false when ix is not the
// storage's newest view.
func (ix *Index) extend(n Node) (*Index, bool) {
	s := ix.s
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.nodes) != len(ix.nodes) {
		return nil, false
	}
	s.addLocked(n)
	next := &Index{s: s, nodes: slices.Clip(s.nodes), epoch: s.epoch, maxSeq: ix.maxSeq, opened: ix.opened}
	next.note(n)
	return next, true
}

// note takes n into account in the figures that a view keeps about its nodes.
func (ix *Index) note(n Node) {
	ix.maxSeq = max(ix.maxSeq, n.Seq)
	ix.opened = ix.opened || n.opensChain()
}

// Replace returns a view in which the node with n's id is n, at the position
// of the old one. Of duplicates the last is replaced, which is the one that
// Get sees. An id that is not there is appended.
func (ix *Index) Replace(n Node) *Index {
	pos, ok := ix.Position(n.ID)
	if !ok {
		return ix.Append(n)
	}
	nodes := slices.Clone(ix.nodes)
	nodes[pos] = n
	return NewIndex(nodes)
}

// Without returns a view that lacks the nodes with these ids. It is ix itself
// if there are none.
func (ix *Index) Without(ids map[string]bool) *Index {
	gone := func(n Node) bool { return ids[n.ID] }
	if !slices.ContainsFunc(ix.nodes, gone) {
		return ix
	}
	return NewIndex(slices.DeleteFunc(slices.Clone(ix.nodes), gone))
}

// Len returns the number of nodes.
func (ix *Index) Len() int { return len(ix.nodes) }

// At returns the i-th node in stored order, counted from 0. As with a slice, i
// must be below Len.
func (ix *Index) At(i int) Node { return ix.nodes[i] }

// Nodes returns the nodes in stored order. The caller must not write to them.
func (ix *Index) Nodes() []Node { return ix.nodes }

// All yields the nodes in stored order.
func (ix *Index) All() iter.Seq[Node] { return slices.Values(ix.nodes) }

// NextSeq returns the seq that a new node gets: the largest one plus one, 0
// for an empty view (reference 5.2).
func (ix *Index) NextSeq() int64 {
	if len(ix.nodes) == 0 {
		return 0
	}
	if ix.maxSeq == math.MaxInt64 {
		return math.MaxInt64
	}
	return ix.maxSeq + 1
}

// addLocked appends n and links it into the lists. Requires s.mu, or that
// nobody else knows s.
func (s *storage) addLocked(n Node) {
	pos := int32(len(s.nodes))
	// Edges are numbered first: they usually name an older node, whose string
	// replaces the edge's own copy of it.
	l := link{pred: s.edgeLocked(&n.Predecessor), caller: s.edgeLocked(&n.Caller)}
	known := len(s.lasts)
	if l.id = s.symbolLocked(n.ID); int(l.id) < known {
		s.epoch++ // it is named already, or repeats an id
		s.ends = s.ends[:0]
	}
	l.oldNode = swap(&s.lasts[l.id].node, pos)
	l.oldChained, l.oldCalls = none, none
	if l.pred != none {
		l.oldChained = swap(&s.lasts[l.pred].chained, pos)
	}
	if l.caller != none {
		l.oldCalls = swap(&s.lasts[l.caller].called, pos)
	}
	s.nodes = append(s.nodes, n)
	s.links = append(s.links, l)
}

// edgeLocked returns the symbol of an edge's target, none for "". Where a node
// has that id, *id becomes that node's string, so that its bytes are kept once.
// Requires s.mu as addLocked does.
func (s *storage) edgeLocked(id *string) int32 {
	if *id == "" {
		return none
	}
	sym := s.symbolLocked(*id)
	if pos := s.lasts[sym].node; pos != none {
		*id = s.nodes[pos].ID
	}
	return sym
}

// symbolLocked returns the number of an id, a new one if need be. Requires
// s.mu as addLocked does.
func (s *storage) symbolLocked(id string) int32 {
	if sym, ok := s.symbols[id]; ok {
		return sym
	}
	sym := int32(len(s.lasts))
	s.symbols[id] = sym
	s.lasts = append(s.lasts, lasts{none, none, none})
	return sym
}

// swap sets *p and returns what it was.
func swap(p *int32, v int32) (old int32) {
	old, *p = *p, v
	return old
}
