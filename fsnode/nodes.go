package fsnode

import (
	"context"
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// newNodes makes nodes/: every node once, as text.
func (s *session) newNodes(watched bool) *vnode.List {
	l := s.newList(watched, "nodes", func(_ context.Context, v *view) ([]fuse.DirEntry, error) { return v.nodes(), nil })
	l.Find = func(ctx context.Context, name string) (vnode.Found, error) {
		if _, err := s.current(ctx); err != nil {
			return vnode.Found{}, err
		}
		found, err := s.findNode(l, name, watched)
		if !errors.Is(err, vnode.NotFound) {
			return found, err
		}
		return s.miss(l, name, func(v *view) bool {
			_, there := v.nodeID(name)
			return there
		})
	}
	l.Verbs = &vnode.Verbs{Rename: s.renameNode}
	return l
}

// newHistory makes history/: the same nodes, the exact bytes on disk.
func (s *session) newHistory(watched bool) *vnode.List {
	l := s.newList(watched, "history", func(_ context.Context, v *view) ([]fuse.DirEntry, error) { return v.records(), nil })
	l.Find = func(ctx context.Context, name string) (vnode.Found, error) {
		if _, err := s.current(ctx); err != nil {
			return vnode.Found{}, err
		}
		found, err := s.findRecord(l, name, watched)
		if !errors.Is(err, vnode.NotFound) {
			return found, err
		}
		return s.miss(l, name, func(v *view) bool {
			_, there := v.sn.EntryByFile(name)
			return there
		})
	}
	return l
}

// newList makes a directory of the session whose listing follows from the
// view. Its Find and its verbs are the caller's.
func (s *session) newList(watched bool, name string, list func(context.Context, *view) ([]fuse.DirEntry, error)) *vnode.List {
	l := &vnode.List{
		Base: vnode.Base{Env: s.t.env, Number: vnode.Ino(s.ident("dir", name)), Gen: s.gen, Policy: policyOf(kindDirectory, watched), Stat: s.dirOf},
		Tag:  s, Up: s.dir,
	}
	l.Entries = func(ctx context.Context) ([]fuse.DirEntry, error) {
		v, err := s.current(ctx)
		if err != nil {
			return nil, err
		}
		return list(ctx, v)
	}
	s.place(l)
	return l
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
	f, ok := s.nodes[file]
	if !ok {
		f = s.newNode(file, watched)
		vnode.Place(context.Background(), &dir.Inode, f)
		if s.nodes == nil {
			s.nodes = map[string]*vnode.File{}
		}
		s.nodes[file] = f
	}
	return vnode.Found{Node: f}, nil
}

// newNode makes nodes/<n>.md.
func (s *session) newNode(file string, watched bool) *vnode.File {
	return &vnode.File{Base: vnode.Base{Env: s.t.env, Number: vnode.Ino(s.ident("node", file)), Gen: s.gen,
		Policy: policyOf(kindNode, watched), Of: &nodeText{s, file}}}
}

// nodeText is a file in nodes/. The active head's can be opened for writing, as
// a write to head reaches it.
type nodeText struct {
	s    *session
	file string
}

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
	f, ok := s.records[file]
	if !ok {
		f = s.newRecord(file, watched)
		vnode.Place(context.Background(), &dir.Inode, f)
		if s.records == nil {
			s.records = map[string]*vnode.File{}
		}
		s.records[file] = f
	}
	return vnode.Found{Node: f}, nil
}

// newRecord makes history/<n>.json.
func (s *session) newRecord(file string, watched bool) *vnode.File {
	return &vnode.File{Base: vnode.Base{Env: s.t.env, Number: vnode.Ino(s.ident("history", file)), Gen: s.gen,
		Policy: policyOf(kindRecord, watched), Of: &nodeRecord{s, file}}}
}

// nodeRecord is a file in history/.
type nodeRecord struct {
	s    *session
	file string
}

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
