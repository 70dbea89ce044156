package fsnode

import (
	"context"
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// branchDir is branch/<name>/: one branch, root to tip, each message a link
// into nodes/. It belongs to the name, whichever branch that is.
type branchDir struct {
	vnode.List
	s    *session
	name string
	tip  string           // as last handed out; guarded by s.mu
	out  few[*branchLink] // the links handed out; guarded by s.mu
}

func (d *branchDir) label() string { return d.name }

// branchesKind is branch/.
var branchesKind = &listKind{
	name: "branch",
	list: func(_ context.Context, s *session, v *view) ([]fuse.DirEntry, error) {
		refs := v.branches()
		out := make([]fuse.DirEntry, len(refs))
		for i, b := range refs {
			out[i] = vnode.DirEntry(b.name, s.ident("branch", b.name))
		}
		return out, nil
	},
	find: func(ctx context.Context, l *sessionList, name string) (vnode.Found, error) {
		return l.s.findBranch(ctx, &l.List, name, l.s.watched())
	},
	verbs: func(l *sessionList) *vnode.Verbs {
		s := l.s
		return &vnode.Verbs{Mkdir: s.mkdirBranch, Rmdir: s.unnameBranch, Symlink: s.linkBranch, Rename: s.renameName}
	},
}

func (s *session) findBranch(ctx context.Context, parent *vnode.List, name string, watched bool) (vnode.Found, error) {
	for {
		v, err := s.current(ctx)
		if err != nil {
			return vnode.Found{}, err
		}
		b, ok := v.tip(name) // may read a small file: not under the lock
		if !ok {
			return vnode.Found{}, vnode.NotFound
		}
		s.mu.Lock()
		if s.v.Load() != v {
			s.mu.Unlock()
			continue
		}
		d, ok := s.branches.get(name)
		if !ok {
			d = &branchDir{List: vnode.List{Base: vnode.Base{Policy: policyOf(kindBranch, watched)}, Up: parent}, s: s, name: name}
			vnode.Place(context.Background(), &parent.Inode, d, vnode.Ino(s.ident("branch", name)), s.gen)
			s.branches.put(d)
		}
		d.tip = b.tip
		s.mu.Unlock()
		return vnode.Found{Node: d}, nil
	}
}

// Stat tells the attributes.
func (d *branchDir) Stat(ctx context.Context) (vnode.Stat, error) {
	v, err := d.s.current(ctx)
	if err != nil {
		return vnode.Stat{}, err
	}
	if _, ok := v.tip(d.name); !ok {
		return vnode.Stat{}, vnode.Stale
	}
	return d.s.dirOf(ctx)
}

// messages is the branch in a view.
func (d *branchDir) messages(v *view) ([]dag.Node, error) {
	b, ok := v.tip(d.name)
	if !ok {
		return nil, vnode.Stale
	}
	return v.branchOf(b.tip)
}

// branchMessage finds a message of a named branch.
func (v *view) branchMessage(branch, name string) (dag.Node, bool) {
	b, ok := v.tip(branch)
	if !ok {
		return dag.Node{}, false
	}
	nodes, err := v.branchOf(b.tip)
	if err != nil {
		return dag.Node{}, false
	}
	return messageAt(nodes, name)
}

// Entries lists the directory.
func (d *branchDir) Entries(ctx context.Context) ([]fuse.DirEntry, error) {
	v, err := d.s.current(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := d.messages(v)
	if err != nil {
		return nil, err
	}
	out := make([]fuse.DirEntry, len(nodes))
	for i, n := range nodes {
		name := messageName(i+1, n)
		out[i] = vnode.LinkEntry(name, d.ident(name))
	}
	return out, nil
}

func (d *branchDir) ident(name string) string {
	return d.s.ident("branch", d.name) + "/" + name
}

// Find finds a link in the directory.
func (d *branchDir) Find(ctx context.Context, name string) (vnode.Found, error) {
	s := d.s
	for {
		v, err := s.current(ctx)
		if err != nil {
			return vnode.Found{}, err
		}
		if _, ok := v.branchMessage(d.name, name); !ok {
			return vnode.Found{}, vnode.NotFound
		}
		s.mu.Lock()
		if s.v.Load() != v {
			s.mu.Unlock()
			continue
		}
		l, ok := d.out.get(name)
		if !ok {
			l = &branchLink{d: d, name: name}
			l.Policy = policyOf(kindBranchLink, s.watched())
			vnode.Place(context.Background(), &d.Inode, l, vnode.Ino(d.ident(name)), s.gen)
			d.out.put(l)
		}
		s.mu.Unlock()
		return vnode.Found{Node: l}, nil
	}
}

// branchLink is a link in branch/<name>/.
type branchLink struct {
	vnode.Link
	d    *branchDir
	name string
}

func (l *branchLink) label() string { return l.name }

// at finds the link's node in a view.
func (l *branchLink) at(v *view) (target string, n dag.Node, e store.Entry, err error) {
	n, ok := v.branchMessage(l.d.name, l.name)
	if ok {
		e, ok = v.sn.Entry(n.ID)
	}
	if !ok {
		return "", n, e, vnode.Stale
	}
	return "../../nodes/" + nodeName(e.File), n, e, nil
}

// Target returns the node's file.
func (l *branchLink) Target(context.Context) (string, error) {
	target, _, _, err := l.at(l.d.s.v.Load())
	return target, err
}

// Stat tells the attributes, with the node's time.
func (l *branchLink) Stat(ctx context.Context) (vnode.Stat, error) {
	s := l.d.s
	v, err := s.current(ctx)
	if err != nil {
		return vnode.Stat{}, err
	}
	target, n, e, err := l.at(v)
	if err != nil {
		return vnode.Stat{}, err
	}
	st := s.stat(v, 0o777, len(target))
	st.MTime = nodeTime(n, e, s.t.now())
	return st, nil
}

// staleBranches finds, of the branch directories that were handed out, those
// that end in another node now, with the links in them, and those that are no
// more. It may read a small file and is called with no lock held.
func (s *session) staleBranches() *record {
	v, r := s.v.Load(), &record{}
	f := s.files.Load()
	tips := map[string]string{}
	for _, b := range v.branches() {
		tips[b.name] = b.tip
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for d := range s.branches.all() {
		r.listings = append(r.listings, &d.List)
		tip, there := tips[d.name]
		if tip == d.tip {
			continue
		}
		d.tip = tip
		if !there && f != nil {
			r.gone = append(r.gone, goneName{f.branches, d.name})
		}
		for l := range d.out.all() {
			r.changed = append(r.changed, l)
			if _, there := v.branchMessage(d.name, l.name); !there {
				r.gone = append(r.gone, goneName{&d.List, l.name})
			}
		}
	}
	return r
}

// holdingBranches is the context of a change under branch/. The kernel may
// hold the directories of the names themselves as well: that of one that is
// removed, for sure.
func (s *session) holdingBranches(ctx context.Context, names ...string) context.Context {
	var more []*vnode.List
	s.mu.Lock()
	for _, name := range names {
		if d, ok := s.branches.get(name); ok {
			more = append(more, &d.List)
		}
	}
	s.mu.Unlock()
	return holdingMore(ctx, []*vnode.List{s.files.Load().branches}, more)
}

// nameBranch gives a node a branch name.
func (s *session) nameBranch(ctx context.Context, node, name string, noReplace bool) error {
	if err := s.writable(ctx); err != nil {
		return err
	}
	text := render.UnescapeName(name)
	if render.EscapeName(text) != name {
		return &store.Error{Code: store.Invalid, Op: "name branch", Session: s.id, Ref: name, Err: errors.New("not the form in which names are shown")}
	}
	if b, there := s.v.Load().tip(name); there {
		if b.tip == node && !noReplace {
			return nil
		}
		return &store.Error{Code: store.Exists, Op: "name branch", Session: s.id, Ref: name}
	}
	return s.t.st.SetBranchName(ctx, s.id, node, text)
}

// mkdirBranch names the active head.
func (s *session) mkdirBranch(ctx context.Context, name string) (vnode.Found, error) {
	v, err := s.current(holdingAny(ctx))
	if err != nil {
		return vnode.Found{}, err
	}
	if v.sn.Head == "" {
		return vnode.Found{}, &store.Error{Code: store.NotFound, Op: "name branch", Session: s.id, Err: errors.New("the session has no head to be named")}
	}
	ctx = s.holdingBranches(ctx)
	if err := s.nameBranch(ctx, v.sn.Head, name, true); err != nil {
		return vnode.Found{}, err
	}
	f := s.files.Load()
	return s.findBranch(holdingAny(ctx), f.branches, name, f.watched)
}

// linkBranch names the node that a link's target means, seen from branch/.
// The answer is a link, as the kernel wants it; the next lookup finds the
// branch.
func (s *session) linkBranch(ctx context.Context, target, name string) (vnode.Found, error) {
	if _, err := s.current(holdingAny(ctx)); err != nil {
		return vnode.Found{}, err
	}
	node, err := s.lexical(relativeTo("branch", target))
	if err != nil {
		return vnode.Found{}, err
	}
	if err := s.nameBranch(store.WithLockTimeout(s.holdingBranches(ctx), renameWait), node, name, true); err != nil {
		return vnode.Found{}, err
	}
	l := &vnode.FuncLink{
		Spec: vnode.Spec{Number: vnode.Ino(s.ident("branchlink", name)), Gen: s.gen, Policy: policyOf(kindScratch, true),
			Stat: func(context.Context) (vnode.Stat, error) { return s.stat(s.v.Load(), 0o777, len(target)), nil }},
		Target: func(context.Context) (string, error) { return target, nil },
	}
	vnode.PlaceFunc(context.Background(), &s.files.Load().branches.Inode, l)
	return vnode.Found{Node: l}, nil
}

// rmdirBranch takes a branch's name away, and nothing else.
func (s *session) rmdirBranch(ctx context.Context, name string) error {
	v, err := s.current(holdingAny(ctx))
	if err != nil {
		return err
	}
	b, ok := v.tip(name)
	switch {
	case !ok:
		return vnode.NotFound
	case !b.named:
		return &store.Error{Code: store.Immutable, Op: "remove branch name", Session: s.id, Ref: name, Err: errors.New("the branch has no name to be removed")}
	}
	return s.t.st.DeleteBranchName(s.holdingBranches(ctx, name), s.id, b.tip)
}

// renameBranch gives a branch another name.
func (s *session) renameBranch(ctx context.Context, name string, to *vnode.List, newName string, noReplace bool) error {
	f := s.files.Load()
	if to != f.branches {
		return vnode.Immutable
	}
	v, err := s.current(holdingAny(ctx))
	if err != nil {
		return err
	}
	b, ok := v.tip(name)
	if !ok {
		return vnode.NotFound
	}
	return s.nameBranch(store.WithLockTimeout(s.holdingBranches(ctx, name, newName), renameWait), b.tip, newName, noReplace)
}
