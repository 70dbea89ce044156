package fsnode

import (
	"sync"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// derived are the entries of a session's directory that follow from the rest:
// texts about all of it, the graph, the history in Git.
type derived struct {
	jsonl, graph, dot *vnode.File
	dag, commits      *vnode.List

	renderMu sync.Mutex // level 0: one rendering of a session's at a time
	log      sync.Mutex // level 0: one reading of a session's commits at a time
	repo     *store.Commits
	repoDir  string
}

// newDerived makes the derived entries, placed.
func (s *session) newDerived(watched bool) *derived {
	d := &derived{}
	d.jsonl = s.newLate(watched, jsonLinesKind)
	d.graph = s.newLate(watched, graphKind)
	d.dot = s.newLate(watched, dotKind)
	d.dag = &s.newList(watched, dagKind).List
	d.commits = &s.newList(watched, commitsKind).List
	return d
}

// The texts about all of a session.
var (
	jsonLinesKind = renderedKind("transcript.jsonl", func(_ *session, v *view) ([]byte, error) { return v.sn.JSONLines("") })
	graphKind     = renderedKind("graph.txt", func(s *session, v *view) ([]byte, error) {
		return render.Graph(v.sn.Index, v.sn.Head, s.labels(v), v.sn.BranchNames()), nil
	})
	dotKind = renderedKind("graph.dot", func(s *session, v *view) ([]byte, error) {
		return render.DOT(v.sn.Index, v.sn.Head, s.labels(v), v.sn.BranchNames()), nil
	})
)

// renderedKind is a file whose text is made of many files when it is asked
// for, and kept for a while.
func renderedKind(name string, text func(*session, *view) ([]byte, error)) *textKind {
	return &textKind{name: name, kind: kindLive, perm: 0o400, text: func(s *session, v *view) ([]byte, error) {
		d := s.files.Load().derived
		d.renderMu.Lock()
		defer d.renderMu.Unlock()
		return s.t.texts.text(s.key(name, v.sn.Version), func() ([]byte, error) { return text(s, v) })
	}}
}

// live lists what every change of the session may change.
func (d *derived) live() []changer { return []changer{d.jsonl, d.graph, d.dot, d.dag} }

// key names a text of the session.
func (s *session) key(what string, version any) textKey {
	return textKey{session: s.id, gen: s.gen, what: what, version: version}
}

// label is a node's line in a drawing, as it was made of a file.
type label struct {
	entry store.Entry
	text  string
}

// labels returns what gives the lines of a drawing. They are taken over from
// the drawing before where the file is the same, so that a message more costs
// one reading. Requires the session's renderMu while what is returned is used.
func (s *session) labels(v *view) func(dag.Node) string {
	k := s.key("labels", nil)
	old, _ := s.t.texts.get(k).(map[string]label)
	nodes := v.sn.Index.Len()
	cur, size := make(map[string]label, nodes), max(8, nodes+nodes/2)*160
	for n := range v.sn.Index.All() {
		e, ok := v.sn.Entry(n.ID)
		if !ok {
			continue
		}
		l, known := old[n.ID]
		if !known || l.entry != e {
			l = label{e, v.sn.Label(n)}
		}
		cur[n.ID] = l
		size += 2*len(n.ID) + len(e.File) + len(l.text)
	}
	s.t.texts.put(k, cur, size)
	return func(n dag.Node) string { return cur[n.ID].text }
}
