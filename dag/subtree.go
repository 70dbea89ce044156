package dag

// step is a node that a walk has yet to visit.
type step struct {
	pos   int32
	depth int
}

// DeepestLeaf returns the node that is furthest below id along predecessor
// edges, id itself if nothing follows it; with "" it starts from every node
// without a predecessor (reference 5.9). Structural nodes, and what is below
// them, do not count. Of equally deep ones the one under the latest-stored
// child wins, between several starts the one under the earlier. It reports
// false if id is unknown, or if with "" there is no start. The walk is linear
// and ends on loops.
func (ix *Index) DeepestLeaf(id string) (string, bool) {
	return ix.deepest(id, func(n Node) bool { return !n.Flags.Has(Structural) })
}

// DeepestHead is DeepestLeaf among the nodes at which a head may stand: a
// compaction summary cannot be one, and the rows of the machinery and of the
// context engine are no place to talk from. The node itself always counts,
// unless it is a summary.
func (ix *Index) DeepestHead(id string) (string, bool) {
	if n, ok := ix.Get(id); !ok || n.Flags.Has(CoversSome) {
		return "", false
	}
	return ix.deepest(id, func(n Node) bool {
		return n.Flags&(Structural|DisplayRuntime|Attach|CoversSome) == 0 && !n.isContext()
	})
}

// deepest is the node furthest below id over nodes that pass.
func (ix *Index) deepest(id string, pass func(Node) bool) (string, bool) {
	if len(ix.nodes) == 0 {
		return "", false
	}
	defer ix.rlock()()
	w := leafWalk{ix: ix, pass: pass, seen: newBitset(len(ix.s.lasts)), best: step{none, -1}}
	if id != "" {
		if pos := ix.posLocked(id); pos != none {
			w.fromLocked(pos)
		}
	} else {
		for i := range ix.nodes {
			if ix.s.links[i].pred == none {
				w.fromLocked(int32(i))
			}
		}
	}
	if w.best.pos == none {
		return "", false
	}
	return ix.nodes[w.best.pos].ID, true
}

// leafWalk is a depth-first search that remembers the deepest node.
type leafWalk struct {
	ix   *Index
	pass func(Node) bool // whether a node, and what is below it, counts
	seen bitset          // by symbol: a loop leads back to an id, not to a position
	best step
	todo []step
	kids []int32
}

// fromLocked searches below the node at pos. Requires rlock.
func (w *leafWalk) fromLocked(pos int32) {
	w.todo = append(w.todo[:0], step{pos, 0})
	for len(w.todo) > 0 {
		at := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		sym := w.ix.s.links[at.pos].id
		if !w.seen.add(sym) {
			continue
		}
		if at.depth > w.best.depth {
			w.best = at
		}
		w.kids = w.ix.chainedLocked(w.kids[:0], sym)
		for _, kid := range w.kids {
			if w.pass(w.ix.nodes[kid]) {
				w.todo = append(w.todo, step{kid, at.depth + 1})
			}
		}
	}
}

// Descendants returns the ids of the nodes that id called, directly or through
// others, in the order of a depth-first search that takes the latest-stored
// callee first (reference 5.9). id itself is not among them, unless calls form
// a loop through it. An unknown id has none.
func (ix *Index) Descendants(id string) []string {
	return ix.below(id, false, ix.calledLocked)
}

// Closure returns what goes when the branch at id is deleted: id and all nodes
// that follow it or that it called, directly or through others, id first
// (reference 5.9). An unknown id has none.
func (ix *Index) Closure(id string) []string {
	return ix.below(id, true, func(dst []int32, sym int32) []int32 {
		return ix.calledLocked(ix.chainedLocked(dst, sym), sym)
	})
}

// below returns the ids to which edgesLocked leads from id, each once, in the
// order in which a depth-first search comes to them. self says whether id is
// the first of them or counts only if a loop leads back to it.
func (ix *Index) below(id string, self bool, edgesLocked func(dst []int32, sym int32) []int32) []string {
	if id == "" {
		return nil
	}
	defer ix.rlock()()
	start := ix.posLocked(id)
	if start == none {
		return nil
	}
	seen := newBitset(len(ix.s.lasts))
	todo := []int32{start}
	if !self {
		todo = edgesLocked(nil, ix.s.links[start].id)
	}
	var out []string
	for len(todo) > 0 {
		pos := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		sym := ix.s.links[pos].id
		if !seen.add(sym) {
			continue
		}
		out = append(out, ix.nodes[pos].ID)
		todo = edgesLocked(todo, sym)
	}
	return out
}
