package render

import (
	"cmp"
	"slices"

	"github.com/sessionfs/sessionfs/dag"
)

// none is the position that does not exist.
const none = -1

// forest is a session's graph as it is drawn: chain nodes hang below their
// predecessor, called nodes on their caller. Damaged edges are cut, so that
// every node has its place once. Positions are the index's.
type forest struct {
	ix    *dag.Index
	nodes []dag.Node
	// caller is, of a called node, the position of the node it is listed
	// under; none for a chain node.
	caller []int
	// parent is, of a chain node, the position of its predecessor in the
	// drawing; none for a start.
	parent []int
	calls  [][]int // by position: the called nodes in stored order
	kids   [][]int // by position: the chain nodes above it, newest subtree first
	starts []int   // chain nodes without a parent, newest tree first
	size   []int   // by position: the chain nodes of its subtree
	newest []int64 // by position: the largest seq of its subtree
}

func newForest(ix *dag.Index) *forest {
	f := &forest{ix: ix, nodes: slices.AppendSeq(make([]dag.Node, 0, ix.Len()), ix.All())}
	f.caller = f.edges(func(n dag.Node) (string, bool) { return n.Caller, f.called(n) })
	cutLoops(f.caller)
	f.parent = f.edges(func(n dag.Node) (string, bool) { return n.Predecessor, n.Predecessor != "" })
	for i := range f.parent {
		if p := f.parent[i]; f.caller[i] != none || p != none && f.caller[p] != none {
			f.parent[i] = none
		}
	}
	cutLoops(f.parent)
	f.calls, f.kids = make([][]int, len(f.nodes)), make([][]int, len(f.nodes))
	for i := range f.nodes {
		switch {
		case f.caller[i] != none:
			f.calls[f.caller[i]] = append(f.calls[f.caller[i]], i)
		case f.parent[i] != none:
			f.kids[f.parent[i]] = append(f.kids[f.parent[i]], i)
		default:
			f.starts = append(f.starts, i)
		}
	}
	f.measure()
	return f
}

// called reports whether n is listed under its caller: it is no turn of a
// conversation, no branch's start and no pointer to one.
func (f *forest) called(n dag.Node) bool {
	return !n.ChainLevel() && !n.Flags.Has(dag.SpawnRoot) && !n.Flags.Has(dag.Attach) && !f.ix.IsConversation(n)
}

// edges returns, by position, where the edge leads that of gives, if it gives
// one and the target exists.
func (f *forest) edges(of func(dag.Node) (id string, ok bool)) []int {
	to := make([]int, len(f.nodes))
	for i, n := range f.nodes {
		to[i] = none
		if id, ok := of(n); ok {
			if pos, ok := f.ix.Position(id); ok {
				to[i] = pos
			}
		}
	}
	return to
}

// cutLoops cuts, in every loop that the edges form, that of the first node.
func cutLoops(to []int) {
	const unseen = 0
	walk := make([]int, len(to)) // by position: the walk that came by, from 1
	for start := range to {
		at := start
		for at != none && walk[at] == unseen {
			walk[at] = start + 1
			at = to[at]
		}
		if at == none || walk[at] != start+1 {
			continue
		}
		first := at
		for next := to[at]; next != at; next = to[next] {
			first = min(first, next)
		}
		to[first] = none
	}
}

// measure computes size and newest, and puts starts and kids in order.
func (f *forest) measure() {
	f.size, f.newest = make([]int, len(f.nodes)), make([]int64, len(f.nodes))
	order := slices.Clone(f.starts) // parents before children
	for i := 0; i < len(order); i++ {
		order = append(order, f.kids[order[i]]...)
	}
	for _, pos := range slices.Backward(order) {
		f.size[pos]++
		f.newest[pos] = max(f.newest[pos], f.nodes[pos].Seq)
		if p := f.parent[pos]; p != none {
			f.size[p] += f.size[pos]
			f.newest[p] = max(f.newest[p], f.newest[pos])
		}
	}
	byAge := func(a, b int) int {
		return cmp.Or(cmp.Compare(f.newest[b], f.newest[a]), cmp.Compare(b, a))
	}
	slices.SortFunc(f.starts, byAge)
	for _, kids := range f.kids {
		slices.SortFunc(kids, byAge)
	}
}
