package render

import (
	"bytes"
	"slices"
	"strings"

	"github.com/sessionfs/sessionfs/dag"
)

const (
	// maxRails is the number of rails up to which the newest branch is drawn
	// first. To the right of it the largest is, which bounds the width of a
	// drawing whatever the session.
	maxRails = 48
	// maxIndent is the depth of calls up to which each is indented further.
	maxIndent = 24
)

// Graph draws the session's graph like "git log --graph": one line a node, the
// newest at the top, each followed by the node it continues. The head is marked
// HEAD, and every node with the names that it has in names (node id → branch
// names). The calls that a node made are listed below it. label gives the text
// of a node's line; nil shows its role.
func Graph(ix *dag.Index, head string, label func(dag.Node) string, names map[string][]string) []byte {
	if label == nil {
		label = func(n dag.Node) string { return n.Role }
	}
	d := &drawing{forest: newForest(ix), label: label, marks: newMarks(head, names)}
	for i, start := range d.starts {
		if i > 0 {
			d.out.WriteByte('\n')
		}
		d.tree(start)
	}
	return d.out.Bytes()
}

// drawing is a graph being drawn.
type drawing struct {
	*forest
	label func(dag.Node) string
	marks marks
	out   bytes.Buffer
}

// place is a chain node on its way into the drawing.
type place struct {
	pos, rail int
	open      bool // what stands above it is drawn
	joins     bool // it joins the rail to its left below its line
}

// tree draws the chain nodes of one start: what continues a node above it, the
// newest branch on the node's own rail, every other one on the next and joined
// to it. So rails never cross, and to draw a line its own rail is enough.
func (d *drawing) tree(start int) {
	todo := []place{{pos: start}}
	for len(todo) > 0 {
		at := &todo[len(todo)-1]
		if at.open {
			p := *at
			todo = todo[:len(todo)-1]
			d.node(p)
			continue
		}
		at.open = true
		todo = d.branches(todo, at.pos, at.rail)
	}
}

// branches puts the continuations of a node on the stack, so that the one on
// the node's own rail comes off first.
func (d *drawing) branches(todo []place, pos, rail int) []place {
	kids := d.kids[pos]
	if rail >= maxRails && len(kids) > 1 {
		kids = slices.Clone(kids)
		slices.SortStableFunc(kids, func(a, b int) int { return d.size[b] - d.size[a] })
	}
	for i, kid := range slices.Backward(kids) {
		p := place{pos: kid, rail: rail}
		if i > 0 {
			p.rail, p.joins = rail+1, true
		}
		todo = append(todo, p)
	}
	return todo
}

// node draws a chain node, its calls, and its junction.
func (d *drawing) node(p place) {
	n := d.nodes[p.pos]
	rails := strings.Repeat("| ", p.rail)
	d.line(rails+"* ", n, d.note(p.pos))
	own := "  "
	if d.parent[p.pos] != none {
		own = "| "
	}
	d.callsOf(p.pos, rails+own)
	if p.joins {
		d.out.WriteString(strings.Repeat("| ", p.rail-1) + "|/\n")
	}
}

// callsOf lists what a node called, directly or through others.
func (d *drawing) callsOf(pos int, rails string) {
	type call struct{ pos, depth int }
	var todo []call
	push := func(pos, depth int) {
		for _, c := range slices.Backward(d.calls[pos]) {
			todo = append(todo, call{c, depth})
		}
	}
	for push(pos, 0); len(todo) > 0; {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		d.line(rails+strings.Repeat("  ", min(c.depth, maxIndent))+"> ", d.nodes[c.pos], "")
		push(c.pos, c.depth+1)
	}
}

// line writes one node's line: prefix, id, marks, label, note.
func (d *drawing) line(prefix string, n dag.Node, note string) {
	words := []string{oneLine(n.ID)}
	if m := d.marks.of(n.ID); len(m) > 0 {
		words = append(words, "("+strings.Join(m, ", ")+")")
	}
	for _, w := range []string{oneLine(d.label(n)), note} {
		if w != "" {
			words = append(words, w)
		}
	}
	d.out.WriteString(prefix + strings.Join(words, " ") + "\n")
}

// note says why a chain node starts a tree although an edge of it leads on.
func (d *drawing) note(pos int) string {
	n := d.nodes[pos]
	if d.parent[pos] != none {
		return ""
	}
	if n.Predecessor == "" {
		if n.Flags.Has(dag.SpawnRoot) && !n.ChainLevel() {
			return "[spawned by " + oneLine(n.Caller) + "]"
		}
		return ""
	}
	target, exists := d.ix.Position(n.Predecessor)
	switch {
	case exists && d.caller[target] == none:
		return "[loops back to " + oneLine(n.Predecessor) + "]"
	case exists:
		return "[after " + oneLine(n.Predecessor) + "]"
	case n.Predecessor == dag.RootID:
		return ""
	}
	return "[after " + oneLine(n.Predecessor) + ", which is missing]"
}

// marks tells which nodes are marked, and with what.
type marks struct {
	head  string
	names map[string][]string
}

func newMarks(head string, names map[string][]string) marks { return marks{head, names} }

// of returns a node's marks: HEAD first, then its names in order.
func (m marks) of(id string) []string {
	var out []string
	if id == m.head && id != "" {
		out = append(out, "HEAD")
	}
	for _, name := range slices.Sorted(slices.Values(m.names[id])) {
		out = append(out, oneLine(name))
	}
	return out
}
