package store

import (
	"strings"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/dag/render"
)

// Messages returns the branch that ends in head as render shows it, the calls
// of each reply below it; "" is the session's own head. A node whose file
// cannot be read says so in its text. Corrupt when the chain is broken.
func (sn *Snapshot) Messages(head string) ([]render.Message, error) {
	if head == "" {
		head = sn.Head
	}
	branch, err := sn.BranchOf(head)
	if err != nil {
		return nil, err
	}
	out := make([]render.Message, 0, len(branch))
	for _, n := range branch {
		m := sn.renderMessage(n)
		for _, call := range sn.Index.Callees(n.ID) {
			if call.Role == "code" {
				m.Calls = append(m.Calls, sn.renderCall(call))
			}
		}
		out = append(out, m)
	}
	return out, nil
}

// TranscriptOf is Transcript for the branch that ends in head; "" is the
// session's own.
func (sn *Snapshot) TranscriptOf(head string) ([]byte, error) {
	msgs, err := sn.Messages(head)
	if err != nil {
		return nil, err
	}
	return render.Transcript(sn.Title(), sn.ID, msgs), nil
}

// JSONLines returns the branch that ends in head as message dicts (reference
// 2.11), one a line; "" is the session's own head. Corrupt.
func (sn *Snapshot) JSONLines(head string) ([]byte, error) {
	if head == "" {
		head = sn.Head
	}
	branch, err := sn.BranchOf(head)
	if err != nil {
		return nil, err
	}
	lines := make([][]byte, 0, len(branch))
	for _, n := range branch {
		line, err := sn.MessageJSON(n.ID)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return render.TranscriptJSONL(lines), nil
}

// Label is a node's line in a drawing of the graph: who speaks, the id, and
// the beginning of the text.
func (sn *Snapshot) Label(n dag.Node) string {
	label := n.Speaker() + " " + n.ID
	text, err := sn.Text(n.ID)
	if err != nil {
		return label + " (unreadable)"
	}
	if p := render.Preview(string(text)); p != "" {
		return label + ": " + p
	}
	return label
}

// BranchNames maps every named node to its branch names.
func (sn *Snapshot) BranchNames() map[string][]string {
	names := map[string][]string{}
	for _, b := range sn.Branches() {
		if b.Named && strings.TrimSpace(b.Name) != "" {
			names[b.Head] = append(names[b.Head], b.Name)
		}
	}
	return names
}
