package render

import (
	"bytes"
	"strings"

	"github.com/sessionfs/sessionfs/dag"
)

// DOT returns the session's graph for Graphviz: a solid edge from every node to
// its predecessor, a dashed one to its caller; the head is drawn bold, branch
// names stand in their node, and a node that an edge names but that does not
// exist is dotted. Arguments are those of Graph.
func DOT(ix *dag.Index, head string, label func(dag.Node) string, names map[string][]string) []byte {
	if label == nil {
		label = func(n dag.Node) string { return n.Role }
	}
	d := dot{ix: ix, marks: newMarks(head, names), missing: map[string]bool{}}
	d.out.WriteString("digraph session {\n  rankdir=BT;\n  node [shape=box, fontname=\"monospace\"];\n")
	for n := range ix.All() {
		d.node(n, label(n))
	}
	for n := range ix.All() {
		d.edge(n.ID, n.Predecessor, "")
		if n.Caller != dag.RootID {
			d.edge(n.ID, n.Caller, " [style=dashed]")
		}
	}
	d.out.WriteString("}\n")
	return d.out.Bytes()
}

// dot is a Graphviz text being written.
type dot struct {
	ix      *dag.Index
	marks   marks
	missing map[string]bool // edge targets declared as such
	out     bytes.Buffer
}

func (d *dot) node(n dag.Node, label string) {
	lines := []string{oneLine(n.ID)}
	marked := d.marks.of(n.ID)
	if len(marked) > 0 {
		lines = append(lines, "("+strings.Join(marked, ", ")+")")
	}
	if label = oneLine(label); label != "" {
		lines = append(lines, label)
	}
	for i := range lines {
		lines[i] = dotEscape(lines[i])
	}
	d.out.WriteString("  " + dotQuote(n.ID) + ` [label="` + strings.Join(lines, `\n`) + `"`)
	if n.ID == d.marks.head {
		d.out.WriteString(", penwidth=3")
	}
	if n.Flags&(dag.Rewound|dag.Structural) != 0 {
		d.out.WriteString(", color=gray, fontcolor=gray")
	}
	d.out.WriteString("];\n")
}

func (d *dot) edge(from, to, attributes string) {
	if to == "" {
		return
	}
	if _, ok := d.ix.Position(to); !ok && !d.missing[to] {
		d.missing[to] = true
		d.out.WriteString("  " + dotQuote(to) + " [style=dotted];\n")
	}
	d.out.WriteString("  " + dotQuote(from) + " -> " + dotQuote(to) + attributes + ";\n")
}

// dotQuote returns s as a quoted string.
func dotQuote(s string) string { return `"` + dotEscape(oneLine(s)) + `"` }

// dotEscape makes s safe between quotes and free of label escapes.
func dotEscape(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"`, `\"`)
}
