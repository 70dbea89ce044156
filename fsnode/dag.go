package fsnode

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/fsnode/vnode"
)

// dag/ holds a directory for each node of the graph, with a link for each of
// its edges. Nothing of it is kept: a directory is made at each lookup, and
// whoever finds it again finds the one that the kernel has; a link's inode
// stands for its target, so that another target is another link, whose name
// the kernel asks for at each use. Which directories the kernel may have read
// is known from go-fuse's own tree. Their time is that of the nodes that they
// show, so that it stays when something else is said.

// The names of a node's directory.
const (
	dagText        = "text"
	dagJSON        = "json"
	dagPredecessor = "predecessor"
	dagCaller      = "caller"
	dagChildren    = "children"
	dagCallees     = "callees"
)

// newDAG makes dag/.
func (s *session) newDAG(watched bool) *vnode.List {
	l := s.newList(watched, "dag", func(_ context.Context, v *view) ([]fuse.DirEntry, error) {
		nodes := v.dagNodes()
		out := make([]fuse.DirEntry, len(nodes))
		for i, n := range nodes {
			name := render.EscapeName(n.ID)
			out[i] = vnode.DirEntry(name, s.ident("dag", name))
		}
		return out, nil
	})
	l.Find = func(ctx context.Context, name string) (vnode.Found, error) {
		v, err := s.current(ctx)
		if err != nil {
			return vnode.Found{}, err
		}
		n, ok := v.dagNode(name)
		if !ok {
			return vnode.Found{}, vnode.NotFound
		}
		return s.findDAGNode(l, n.ID, name, watched), nil
	}
	return l
}

// dagNodes are the nodes that dag/ shows: those of nodes/.
func (v *view) dagNodes() []dag.Node {
	out := make([]dag.Node, 0, v.sn.Index.Len())
	for i := range v.sn.Index.Len() {
		n := v.sn.Index.At(i)
		if last, ok := v.sn.Index.Position(n.ID); ok && last == i && n.ID != "" {
			out = append(out, n)
		}
	}
	return out
}

// dagNode finds the node of a name in dag/.
func (v *view) dagNode(name string) (dag.Node, bool) {
	n, ok := v.sn.Index.Get(render.UnescapeName(name))
	if ok && n.ID != "" && render.EscapeName(n.ID) == name {
		return n, true
	}
	for n := range v.sn.Index.All() { // a name that had to be cut
		if len(n.ID) > 60 && render.EscapeName(n.ID) == name {
			return n, true
		}
	}
	return dag.Node{}, false
}

// edge is a link of a node's directory; to is the node that it leads to, ""
// for the directory's own.
type edge struct{ name, target, to string }

// timeOf is the time of a node, the zero time where it has none.
func (v *view) timeOf(id string, now time.Time) time.Time {
	n, ok := v.sn.Index.Get(id)
	if !ok || id == "" {
		return time.Time{}
	}
	if e, ok := v.sn.Entry(id); ok {
		return nodeTime(n, e, now)
	}
	return v.sn.Created
}

// edges are the links that stand directly in a node's directory. An edge to a
// node that is not there is none.
func (v *view) edges(n dag.Node) []edge {
	var out []edge
	if e, ok := v.sn.Entry(n.ID); ok {
		out = append(out, edge{name: dagText, target: "../../nodes/" + nodeName(e.File)},
			edge{name: dagJSON, target: "../../history/" + e.File})
	}
	for _, to := range [][2]string{{dagPredecessor, n.Predecessor}, {dagCaller, n.Caller}} {
		if _, ok := v.sn.Index.Get(to[1]); ok && to[1] != "" {
			out = append(out, edge{name: to[0], target: "../" + render.EscapeName(to[1])})
		}
	}
	return out
}

// followers are the links of a node's children/ or callees/.
func (v *view) followers(id, which string) []edge {
	nodes := v.sn.Index.Children
	if which == dagCallees {
		nodes = v.sn.Index.Callees
	}
	var out []edge
	seen := map[string]bool{"": true}
	for _, n := range nodes(id) {
		if !seen[n.ID] {
			seen[n.ID] = true
			name := render.EscapeName(n.ID)
			out = append(out, edge{name, "../../" + name, n.ID})
		}
	}
	return out
}

// edgeNumber is the inode number of a link.
func edgeNumber(dir string, e edge) uint64 { return vnode.Ino(dir + "/" + e.name + " -> " + e.target) }

// dagDir is dag/<id>/, or one of the directories in it.
type dagDir struct {
	s       *session
	list    *vnode.List
	id      string
	which   string // "", dagChildren or dagCallees
	watched bool
}

// newDAGDir makes a directory below dag/.
func (s *session) newDAGDir(up *vnode.List, d *dagDir) *vnode.List {
	d.s = s
	d.list = &vnode.List{Base: vnode.Base{Env: s.t.env, Number: vnode.Ino(d.ident()), Gen: s.gen,
		Policy: policyOf(kindGroup, d.watched), Of: d}, Tag: s, Up: up}
	s.place(d.list)
	return d.list
}

func (d *dagDir) ident() string {
	ident := d.s.ident("dag", render.EscapeName(d.id))
	if d.which != "" {
		ident += "/" + d.which
	}
	return ident
}

// node is the directory's node.
func (d *dagDir) node(ctx context.Context) (*view, dag.Node, error) {
	v, err := d.s.current(ctx)
	if err != nil {
		return nil, dag.Node{}, err
	}
	n, ok := v.sn.Index.Get(d.id)
	if !ok {
		return nil, dag.Node{}, vnode.Stale
	}
	return v, n, nil
}

// links are the links in the directory.
func (d *dagDir) links(v *view, n dag.Node) []edge {
	if d.which != "" {
		return v.followers(n.ID, d.which)
	}
	return v.edges(n)
}

// Stat tells the attributes: the time is that of the nodes that are shown.
func (d *dagDir) Stat(ctx context.Context) (vnode.Stat, error) {
	v, n, err := d.node(ctx)
	if err != nil {
		return vnode.Stat{}, err
	}
	now := d.s.t.now()
	st := vnode.Stat{Perm: 0o700, MTime: v.timeOf(n.ID, now), UID: v.sn.UID, GID: v.sn.GID}
	for _, e := range d.links(v, n) {
		st.MTime = latest(st.MTime, v.timeOf(e.to, now))
	}
	return st, nil
}

// Entries lists the directory.
func (d *dagDir) Entries(ctx context.Context) ([]fuse.DirEntry, error) {
	v, n, err := d.node(ctx)
	if err != nil {
		return nil, err
	}
	var out []fuse.DirEntry
	ident := d.ident()
	for _, e := range d.links(v, n) {
		out = append(out, fuse.DirEntry{Name: e.name, Mode: syscall.S_IFLNK, Ino: edgeNumber(ident, e)})
	}
	if d.which == "" {
		for _, which := range []string{dagChildren, dagCallees} {
			out = append(out, vnode.DirEntry(which, ident+"/"+which))
		}
	}
	return out, nil
}

// Find finds a name in the directory.
func (d *dagDir) Find(ctx context.Context, name string) (vnode.Found, error) {
	if d.which == "" && (name == dagChildren || name == dagCallees) {
		if sub := knownList(d.list, name); sub != nil {
			return vnode.Found{Node: sub}, nil
		}
		return vnode.Found{Node: d.s.newDAGDir(d.list, &dagDir{id: d.id, which: name, watched: d.watched})}, nil
	}
	v, n, err := d.node(ctx)
	if errors.Is(err, vnode.Stale) {
		return vnode.Found{}, vnode.NotFound
	}
	if err != nil {
		return vnode.Found{}, err
	}
	for _, e := range d.links(v, n) {
		if e.name == name {
			return d.s.findEdge(d, e), nil
		}
	}
	return vnode.Found{}, vnode.NotFound
}

// findDAGNode returns dag/<id>/.
func (s *session) findDAGNode(dir *vnode.List, id, name string, watched bool) vnode.Found {
	if l := knownList(dir, name); l != nil {
		return vnode.Found{Node: l}
	}
	return vnode.Found{Node: s.newDAGDir(dir, &dagDir{id: id, watched: watched})}
}

// findEdge returns a link of dag/.
func (s *session) findEdge(d *dagDir, e edge) vnode.Found {
	l := &vnode.Link{Base: vnode.Base{Env: s.t.env, Number: edgeNumber(d.ident(), e), Gen: s.gen,
		Policy: policyOf(kindAsked, true), Of: &dagLink{s, d.id, e.target}}}
	vnode.Place(context.Background(), &d.list.Inode, l)
	return vnode.Found{Node: l}
}

// dagLink is a link of dag/. It has its node's time.
type dagLink struct {
	s          *session
	id, target string
}

// Target returns where the link points.
func (l *dagLink) Target(context.Context) (string, error) { return l.target, nil }

// Stat tells the attributes.
func (l *dagLink) Stat(ctx context.Context) (vnode.Stat, error) {
	v, err := l.s.current(ctx)
	if err != nil {
		return vnode.Stat{}, err
	}
	n, ok := v.sn.Index.Get(l.id)
	if !ok {
		return vnode.Stat{}, vnode.Stale
	}
	st := l.s.stat(v, 0o777, len(l.target))
	if file, ok := v.sn.Entry(l.id); ok {
		st.MTime = nodeTime(n, file, l.s.t.now())
	}
	return st, nil
}

// knownDAG returns a function that finds the directories of dag/ that the
// kernel knows and whose links differ between two views, or that are no more.
func (f *sessionFiles) knownDAG(old, cur *view) func(barrier func(*vnode.List)) *record {
	return func(barrier func(*vnode.List)) *record {
		r := &record{}
		barrier(f.derived.dag)
		for id := range touched(old.sn.Index, cur.sn.Index) {
			name := render.EscapeName(id)
			if _, ok := cur.sn.Index.Get(id); !ok {
				r.gone = append(r.gone, goneName{f.derived.dag, name})
			}
			l := knownList(f.derived.dag, name)
			if l == nil {
				continue
			}
			barrier(l)
			r.listings = append(r.listings, l)
			for _, which := range []string{dagChildren, dagCallees} {
				if sub := knownList(l, which); sub != nil {
					r.listings = append(r.listings, sub)
				}
			}
		}
		return r
	}
}

// touched are the nodes that differ between two graphs, and those that have
// an edge to one.
func touched(a, b *dag.Index) map[string]bool {
	out := map[string]bool{}
	mark := func(from, to *dag.Index) {
		for n := range from.All() {
			if m, ok := to.Get(n.ID); !ok || m != n {
				out[n.ID], out[n.Predecessor], out[n.Caller] = true, true, true
			}
		}
	}
	mark(a, b)
	mark(b, a)
	delete(out, "")
	return out
}
