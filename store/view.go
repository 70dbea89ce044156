package store

import (
	"errors"
	"path/filepath"
	"slices"
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

// Label is a node's text in a drawing of the graph: who speaks, and the
// beginning of what was said.
func (sn *Snapshot) Label(n dag.Node) string {
	text, err := sn.Text(n.ID)
	if err != nil {
		return n.Speaker() + " (unreadable)"
	}
	if p := render.Preview(string(text)); p != "" {
		return n.Speaker() + ": " + p
	}
	return n.Speaker()
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

// LastUser returns the last user message of the active branch, the one that an
// edit means when none is named. NotFound when there is none.
func (sn *Snapshot) LastUser() (string, error) {
	branch, err := sn.Branch()
	if err != nil {
		return "", err
	}
	for _, n := range slices.Backward(branch) {
		if isUserMessage(n) {
			return n.ID, nil
		}
	}
	return "", &Error{Code: NotFound, Op: "find message", Session: sn.ID, Err: errors.New("the active branch has no user message")}
}

// WorkPath is the absolute path of the session's workdir, which may not exist.
func (sn *Snapshot) WorkPath() string { return filepath.Join(sn.Dir, workDir) }
