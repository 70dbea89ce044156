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

	others *branchCache
}

// branchCache holds branches by their tips, for all views of one graph.
type branchCache struct {
	mu    sync.Mutex // leaf
	byTip map[string][]dag.Node
}

// newView makes the view of a snapshot. What does not differ from the view
// before, which may be nil, is taken over from it: after a move of the head
// that is everything but messages/.
func newView(s *session, sn *store.Snapshot, old *view) *view {
	v := &view{sn: sn}
	v.messages = sync.OnceValue(func() []fuse.DirEntry {
		branch, _ := sn.Branch()
		out := make([]fuse.DirEntry, len(branch))
		for i, n := range branch {
			name := messageName(i+1, n)
			out[i] = vnode.FileEntry(name, s.ident("message", name))
		}
		return out
	})
	if old != nil && sameRecord(old.sn, sn) {
		v.nodes, v.records, v.others = old.nodes, old.records, old.others
		if sameBranches(old.sn, sn) {
			v.branches = old.branches
			return v
		}
		v.branches = sync.OnceValue(func() []branchRef { return branchNames(sn.Branches()) })
		return v
	}
	v.others = &branchCache{byTip: map[string][]dag.Node{}}
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

// sameRecord reports whether two snapshots hold the same history files: the
// index is another one whenever a node is, and where a file holds no node
// there is a problem.
func sameRecord(a, b *store.Snapshot) bool {
	return a.Index == b.Index && len(a.Problems) == 0 && len(b.Problems) == 0
}

// sameBranches reports whether two snapshots of one record name their branches
// alike.
func sameBranches(a, b *store.Snapshot) bool {
	for _, name := range []string{"branches", "merged_heads"} {
		x, okX := a.Field(name)
		y, okY := b.Field(name)
		if okX != okY || x.Text != y.Text {
			return false
		}
	}
	return true
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
	c := v.others
	c.mu.Lock()
	b, ok := c.byTip[tip]
	c.mu.Unlock()
	if ok {
		return b, nil
	}
	b, err := v.sn.BranchOf(tip)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byTip[tip] = b
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
