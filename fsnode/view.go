package fsnode

import (
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// view is one state of a session as the tree shows it: a snapshot, and the
// listings that follow from it, made when they are first asked for.
type view struct {
	sn *store.Snapshot

	// messages lists messages/.
	messages func() []fuse.DirEntry
	// nodes lists nodes/, records lists history/.
	nodes   func() []fuse.DirEntry
	records func() []fuse.DirEntry
	// branches names what branch/ shows. It may read small files.
	branches func() []branchRef

	mu    sync.Mutex            // leaf
	other map[string][]dag.Node // branches by tip
}

func newView(s *session, sn *store.Snapshot) *view {
	v := &view{sn: sn, other: map[string][]dag.Node{}}
	v.messages = sync.OnceValue(func() []fuse.DirEntry {
		branch, _ := sn.Branch()
		out := make([]fuse.DirEntry, len(branch))
		for i, n := range branch {
			name := messageName(i+1, n)
			out[i] = vnode.FileEntry(name, s.ident("message", name))
		}
		return out
	})
	v.nodes = sync.OnceValue(func() []fuse.DirEntry {
		var out []fuse.DirEntry
		for _, e := range sn.Entries() {
			if v.shows(e) {
				out = append(out, vnode.FileEntry(nodeName(e.File), s.ident("node", e.File)))
			}
		}
		return out
	})
	v.records = sync.OnceValue(func() []fuse.DirEntry {
		entries := sn.Entries()
		out := make([]fuse.DirEntry, len(entries))
		for i, e := range entries {
			out[i] = vnode.FileEntry(e.File, s.ident("history", e.File))
		}
		return out
	})
	v.branches = sync.OnceValue(func() []branchRef { return branchNames(sn.Branches()) })
	return v
}

// shows reports whether nodes/ shows what a history file holds: a readable
// node, and of two files with one id the one that counts.
func (v *view) shows(e store.FileEntry) bool {
	if e.NodeID == "" {
		return false
	}
	cur, ok := v.sn.Entry(e.NodeID)
	return ok && cur.File == e.File
}

// node finds the history file of a name in nodes/.
func (v *view) node(file string) (store.FileEntry, bool) {
	e, ok := v.sn.EntryByFile(file)
	return e, ok && v.shows(e)
}

// headTarget is where head points; false when there is no head, or none that
// has a node.
func (v *view) headTarget() (string, bool) {
	if v.sn.Head == "" {
		return "", false
	}
	e, ok := v.sn.Entry(v.sn.Head)
	if !ok {
		return "", false
	}
	return "nodes/" + nodeName(e.File), true
}

// message finds a message of the active branch by its name.
func (v *view) message(name string) (dag.Node, store.Entry, bool) {
	branch, err := v.sn.Branch()
	if err != nil {
		return dag.Node{}, store.Entry{}, false
	}
	n, ok := messageAt(branch, name)
	if !ok {
		return n, store.Entry{}, false
	}
	e, ok := v.sn.Entry(n.ID)
	return n, e, ok
}

// branchOf is the branch that ends in a tip.
func (v *view) branchOf(tip string) ([]dag.Node, error) {
	v.mu.Lock()
	b, ok := v.other[tip]
	v.mu.Unlock()
	if ok {
		return b, nil
	}
	b, err := v.sn.BranchOf(tip)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.other[tip] = b
	return b, nil
}

// tip finds a name of branch/.
func (v *view) tip(name string) (branchRef, bool) {
	for _, b := range v.branches() {
		if b.name == name {
			return b, true
		}
	}
	return branchRef{}, false
}

// nodeTime is a node's modification time: the later of its creation and its
// file's, the file's alone where the creation cannot be true.
func nodeTime(n dag.Node, e store.Entry, now time.Time) time.Time {
	if n.CreatedAt <= 0 || n.CreatedAt > float64(now.Add(24*time.Hour).Unix()) {
		return e.MTime
	}
	sec := int64(n.CreatedAt)
	created := time.Unix(sec, int64((n.CreatedAt-float64(sec))*1e9))
	if created.After(e.MTime) {
		return created
	}
	return e.MTime
}

// sameBranch reports whether two views show the same active branch.
func sameBranch(a, b *view) bool {
	x, errX := a.sn.Branch()
	y, errY := b.sn.Branch()
	if len(x) != len(y) || (errX == nil) != (errY == nil) {
		return false
	}
	for i := range x {
		if x[i].ID != y[i].ID || x[i].Role != y[i].Role {
			return false
		}
	}
	return true
}
