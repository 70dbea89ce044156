package fsnode

import (
	"context"
	"sync"
	"sync/atomic"

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
	d.jsonl = s.newRendered(d, watched, "transcript.jsonl", func(v *view) ([]byte, error) { return v.sn.JSONLines("") })
	d.graph = s.newRendered(d, watched, "graph.txt", func(v *view) ([]byte, error) {
		return render.Graph(v.sn.Index, v.sn.Head, s.labels(v), v.sn.BranchNames()), nil
	})
	d.dot = s.newRendered(d, watched, "graph.dot", func(v *view) ([]byte, error) {
		return render.DOT(v.sn.Index, v.sn.Head, s.labels(v), v.sn.BranchNames()), nil
	})
	d.dag = s.newDAG(watched)
	d.commits = s.newCommits(d, watched)
	return d
}

// live lists what every change of the session may change.
func (d *derived) live() []changer { return []changer{d.jsonl, d.graph, d.dot, d.dag} }

// newRendered makes a file whose text is made of many files when it is asked
// for, and kept for a while. What comes with the name is the size that it had
// last, and is never kept.
func (s *session) newRendered(d *derived, watched bool, name string, text func(*view) ([]byte, error)) *vnode.File {
	var last atomic.Int64
	f := s.newText(watched, name, 0o400, func(v *view) ([]byte, error) {
		d.renderMu.Lock()
		defer d.renderMu.Unlock()
		b, err := s.t.texts.text(s.key(name, v.sn.Version), func() ([]byte, error) { return text(v) })
		last.Store(int64(len(b)))
		return b, err
	})
	f.Version = func() any { return s.v.Load().sn.Version }
	f.Rare = &vnode.Rare{LookupStat: func(ctx context.Context) (vnode.Stat, error) {
		v, err := s.current(ctx)
		if err != nil {
			return vnode.Stat{}, err
		}
		return s.stat(v, 0o400, int(last.Load())), nil
	}}
	return f
}

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
	cur, size := make(map[string]label, v.sn.Index.Len()), 0
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
		size += 2*len(n.ID) + len(e.File) + len(l.text) + 160
	}
	s.t.texts.put(k, cur, size)
	return func(n dag.Node) string { return cur[n.ID].text }
}
