package fsnode

import (
	"context"
	"errors"
	"slices"
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

// dagKind is dag/.
var dagKind = &listKind{
	name: "dag",
	list: func(_ context.Context, s *session, v *view) ([]fuse.DirEntry, error) {
		nodes := v.dagNodes()
		out := make([]fuse.DirEntry, len(nodes))
		for i, n := range nodes {
			name := render.EscapeName(n.ID)
			out[i] = vnode.DirEntry(name, s.ident("dag", name))
		}
		return out, nil
	},
	find: func(_ context.Context, l *sessionList, name string) (vnode.Found, error) {
		n, ok := l.s.v.Load().dagNode(name)
		if !ok {
			return vnode.Found{}, vnode.NotFound
		}
		return l.s.findDAGNode(&l.List, n.ID, name), nil
	},
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
	vnode.List
	s     *session
	id    string
	which uint8 // the place in dagDirs
}

// dagDirs are what a dagDir may be: "" is that of a node itself.
var dagDirs = [...]string{"", dagChildren, dagCallees}

// newDAGDir makes a directory below dag/.
func (s *session) newDAGDir(up *vnode.List, id string, which uint8) *dagDir {
	d := &dagDir{List: vnode.List{Base: vnode.Base{Policy: policyOf(kindGroup, s.watched())}, Up: up}, s: s, id: id, which: which}
	s.put(d, d.ident())
	return d
}

func (d *dagDir) ident() string {
	ident := d.s.ident("dag", render.EscapeName(d.id))
	if d.which != 0 {
		ident += "/" + dagDirs[d.which]
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
	if d.which != 0 {
		return v.followers(n.ID, dagDirs[d.which])
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
	if d.which == 0 {
		for _, which := range dagDirs[1:] {
			out = append(out, vnode.DirEntry(which, ident+"/"+which))
		}
	}
	return out, nil
}

// Find finds a name in the directory.
func (d *dagDir) Find(ctx context.Context, name string) (vnode.Found, error) {
	if sub := slices.Index(dagDirs[1:], name); sub >= 0 && d.which == 0 {
		if l := knownList(&d.List, name); l != nil {
			return vnode.Found{Node: l}, nil
		}
		return vnode.Found{Node: d.s.newDAGDir(&d.List, d.id, uint8(sub+1))}, nil
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
func (s *session) findDAGNode(dir *vnode.List, id, name string) vnode.Found {
	if l := knownList(dir, name); l != nil {
		return vnode.Found{Node: l}
	}
	return vnode.Found{Node: s.newDAGDir(dir, id, 0)}
}

// findEdge returns a link of dag/.
func (s *session) findEdge(d *dagDir, e edge) vnode.Found {
	l := &dagLink{s: s, id: d.id, target: e.target}
	l.Policy = policyOf(kindAsked, true)
	vnode.Place(context.Background(), &d.Inode, l, edgeNumber(d.ident(), e), s.gen)
	return vnode.Found{Node: l}
}

// dagLink is a link of dag/. It has its node's time.
type dagLink struct {
	vnode.Link
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
