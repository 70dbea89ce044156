package fsnode

import (
	"context"
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// nodesKind is nodes/: every node once, as text.
var nodesKind = &listKind{
	name: "nodes",
	list: func(_ context.Context, _ *session, v *view) ([]fuse.DirEntry, error) { return v.nodes(), nil },
	find: func(_ context.Context, l *sessionList, name string) (vnode.Found, error) {
		found, err := l.s.findNode(&l.List, name, l.s.watched())
		if !errors.Is(err, vnode.NotFound) {
			return found, err
		}
		return l.s.miss(&l.List, name, func(v *view) bool {
			_, there := v.nodeID(name)
			return there
		})
	},
	verbs: func(l *sessionList) *vnode.Verbs { return &vnode.Verbs{Rename: l.s.renameNode} },
}

// historyKind is history/: the same nodes, the exact bytes on disk.
var historyKind = &listKind{
	name: "history",
	list: func(_ context.Context, _ *session, v *view) ([]fuse.DirEntry, error) { return v.records(), nil },
	find: func(_ context.Context, l *sessionList, name string) (vnode.Found, error) {
		found, err := l.s.findRecord(&l.List, name, l.s.watched())
		if !errors.Is(err, vnode.NotFound) {
			return found, err
		}
		return l.s.miss(&l.List, name, func(v *view) bool {
			_, there := v.sn.EntryByFile(name)
			return there
		})
	},
}

// nodeID is the node of a name in nodes/.
func (v *view) nodeID(name string) (string, bool) {
	file, ok := fileOfNode(name)
	if !ok {
		return "", false
	}
	e, ok := v.node(file)
	return e.NodeID, ok
}

// findNode returns the file of a node. It is made once, and found again for
// as long as the session is known, so that a change can be told about it.
func (s *session) findNode(dir *vnode.List, name string, watched bool) (vnode.Found, error) {
	file, ok := fileOfNode(name)
	if !ok {
		return vnode.Found{}, vnode.NotFound
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.v.Load().node(file); !ok {
		return vnode.Found{}, vnode.NotFound
	}
	f, ok := s.nodes.get(file)
	if !ok {
		f = &nodeText{s: s, file: file}
		f.Policy = policyOf(kindNode, watched)
		vnode.Place(context.Background(), &dir.Inode, f, vnode.Ino(s.ident("node", file)), s.gen)
		s.nodes.put(f)
	}
	return vnode.Found{Node: f}, nil
}

// nodeText is a file in nodes/. The active head's can be opened for writing, as
// a write to head reaches it.
type nodeText struct {
	vnode.File
	s    *session
	file string
}

func (n *nodeText) label() string { return n.file }

// Read returns the node's text.
func (n *nodeText) Read(context.Context) ([]byte, error) { return n.s.v.Load().sn.TextOfFile(n.file) }

// Version differs whenever the node's file does.
func (n *nodeText) Version() any { return n.s.v.Load().version(n.file) }

// Stat tells the attributes, with the node's time.
func (n *nodeText) Stat(ctx context.Context) (vnode.Stat, error) {
	v, err := n.s.current(ctx)
	if err != nil {
		return vnode.Stat{}, err
	}
	e, ok := v.node(n.file)
	if !ok {
		return vnode.Stat{}, vnode.Stale
	}
	perm := uint32(0o400)
	if e.NodeID == v.sn.Head {
		perm = 0o600
	}
	st := n.s.stat(v, perm, int(e.TextLen))
	node, _ := v.sn.Index.Get(e.NodeID)
	st.MTime = nodeTime(node, e.Entry, n.s.t.now())
	return st, nil
}

// Writer begins a move of the head.
func (n *nodeText) Writer(ctx context.Context) (vnode.Writer, error) {
	v, err := n.s.current(ctx)
	if err != nil {
		return nil, err
	}
	if e, ok := v.node(n.file); !ok || e.NodeID != v.sn.Head {
		return nil, vnode.Immutable
	}
	return n.s.guarded(n.s.writeHead().Writer)(ctx)
}

// version is a value that differs whenever a history file does.
func (v *view) version(file string) any {
	e, ok := v.sn.EntryByFile(file)
	if !ok {
		return nil
	}
	return e
}

func (s *session) findRecord(dir *vnode.List, file string, watched bool) (vnode.Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.v.Load().sn.EntryByFile(file); !ok {
		return vnode.Found{}, vnode.NotFound
	}
	f, ok := s.records.get(file)
	if !ok {
		f = &nodeRecord{s: s, file: file}
		f.Policy = policyOf(kindRecord, watched)
		vnode.Place(context.Background(), &dir.Inode, f, vnode.Ino(s.ident("history", file)), s.gen)
		s.records.put(f)
	}
	return vnode.Found{Node: f}, nil
}

// nodeRecord is a file in history/.
type nodeRecord struct {
	vnode.File
	s    *session
	file string
}

func (r *nodeRecord) label() string { return r.file }

// Read returns the file's bytes.
func (r *nodeRecord) Read(context.Context) ([]byte, error) { return r.s.v.Load().sn.Raw(r.file) }

// Version differs whenever the file does.
func (r *nodeRecord) Version() any { return r.s.v.Load().version(r.file) }

// Stat tells the attributes, with the time that the file has on the disk.
func (r *nodeRecord) Stat(ctx context.Context) (vnode.Stat, error) {
	v, err := r.s.current(ctx)
	if err != nil {
		return vnode.Stat{}, err
	}
	e, ok := v.sn.EntryByFile(r.file)
	if !ok {
		return vnode.Stat{}, vnode.Stale
	}
	st := r.s.stat(v, 0o400, int(e.Size))
	st.MTime = e.MTime
	return st, nil
}

// Writer refuses.
func (r *nodeRecord) Writer(context.Context) (vnode.Writer, error) { return nil, vnode.Immutable }

// renameNode moves the head to a node that is renamed onto head, and names a
// node that is renamed into branch/. The node file stays where it was.
func (s *session) renameNode(ctx context.Context, name string, to *vnode.List, newName string, noReplace bool) error {
	f := s.files.Load()
	node, ok := s.v.Load().nodeID(name)
	if !ok {
		return vnode.NotFound
	}
	ctx = store.WithLockTimeout(holding(ctx, f.nodes, to), renameWait)
	switch {
	case to == f.branches:
		return s.nameBranch(ctx, node, newName, noReplace)
	case to != s.dir || newName != "head":
		return &store.Error{Code: store.Immutable, Op: "rename", Session: s.id, Ref: name, Err: errors.New("a node can only be renamed onto head, which moves the head, or into branch/, which names it")}
	}
	if _, there := s.v.Load().headTarget(); there && noReplace {
		return &store.Error{Code: store.Exists, Op: "rename", Session: s.id, Ref: newName}
	}
	return s.setHead(ctx, node, renameWait)
}
