package store

import (
	"context"
	"errors"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// DeletedBranch is what a branch's deletion did.
type DeletedBranch struct {
	// Nodes are the ids of the nodes that are gone.
	Nodes []string
	// Head is the active head afterwards, "" when there is none.
	Head string
}

// DeleteBranch deletes a branch: the nodes on the way to its tip that no other
// tip reaches, what hangs on them alone, and the calls they made, after a
// commit "before delete: <name>" that keeps them in Git and lists them. The
// names of the nodes go with them. If the head was among them it moves to a
// surviving tip, the newest, or where there is none to the fork point. All of
// it happens or nothing, a crash included (docs/store-format.md). After an
// error of the disk it may happen at the next change. RunActive, NotFound,
// Corrupt when a node of the session cannot be read, Invalid when every node of
// the branch is on the way to another tip.
func (s *Store) DeleteBranch(ctx context.Context, id string, ref Ref) (DeletedBranch, error) {
	return s.deleteNodes(ctx, "delete branch", id, ref, func(t *tx, tip string) ([]string, error) {
		if len(t.sn.bad) > 0 {
			return nil, t.fail(Corrupt, t.sn.bad[0].File, errors.New("it cannot be read, so another branch may go on from here unseen"))
		}
		doomed := t.sn.onlyReachedBy(tip)
		if len(doomed) == 0 {
			return nil, t.fail(Invalid, ref, errors.New("other branches go on from here, so there is nothing that is its own"))
		}
		return doomed, nil
	})
}

// DeleteSubtree is the peer's form of deleting (reference 6.12): a node and
// everything that follows it or that it called, other branches included. It
// too keeps what it deletes in a commit first.
func (s *Store) DeleteSubtree(ctx context.Context, id string, ref Ref) (DeletedBranch, error) {
	return s.deleteNodes(ctx, "delete subtree", id, ref, func(t *tx, node string) ([]string, error) {
		return t.sn.Index.Closure(node), nil
	})
}

func (s *Store) deleteNodes(ctx context.Context, op, id string, ref Ref, pick func(t *tx, node string) ([]string, error)) (DeletedBranch, error) {
	var out DeletedBranch
	err := s.change(ctx, op, id, 0, func(t *tx) error {
		node, err := t.sn.Resolve(ref)
		if err != nil {
			return t.asOp(err)
		}
		if err := t.refuseActiveRun(); err != nil {
			return err
		}
		if n, _ := t.sn.Index.Get(node); n.Flags.Has(dag.DisplayRoot) || node == dag.RootID {
			return t.fail(Immutable, node, errors.New("the root of the session cannot be deleted"))
		}
		if out.Nodes, err = pick(t, node); err != nil {
			return err
		}
		kept, err := t.commitBeforeDelete(ctx, node, out.Nodes)
		if err != nil {
			return err
		}
		if err := t.deleteNodes(out.Nodes, kept.Hash); err != nil {
			return err
		}
		out.Head = t.sn.Head
		return nil
	})
	if err == nil {
		s.Dirty(id)
	}
	return out, err
}

// branchLabel is a branch's name as people see it: its own, or for an unnamed
// tip the first eight characters of its id (reference 5.7).
func (sn *Snapshot) branchLabel(node string) string {
	if e := sn.branchEntries()[node]; e.named && e.name != "" {
		return e.name
	}
	return firstRunes(node, 8)
}

func firstRunes(s string, n int) string {
	r := []rune(s)
	return string(r[:min(len(r), n)])
}

// onlyReachedBy lists what belongs to a tip alone: the nodes of its chain that
// are on no other tip's, what hangs on them without being a branch, and their
// calls. It is empty when another branch goes on from the tip.
func (sn *Snapshot) onlyReachedBy(tip string) []string {
	kept := map[string]bool{}
	for _, other := range sn.Index.Tips(nil) {
		if other.ID == tip {
			continue
		}
		for _, n := range sn.Index.Chain(other.ID) {
			kept[n.ID] = true
		}
	}
	doomed := map[string]bool{}
	var order, todo []string
	for _, n := range sn.Index.Chain(tip) {
		if kept[n.ID] || n.Flags.Has(dag.DisplayRoot) {
			break
		}
		todo = append(todo, n.ID)
	}
	for len(todo) > 0 {
		id := todo[0]
		todo = todo[1:]
		if doomed[id] || kept[id] {
			continue
		}
		doomed[id] = true
		order = append(order, id)
		for _, n := range sn.Index.Children(id) {
			todo = append(todo, n.ID)
		}
		for _, n := range sn.Index.Callees(id) {
			todo = append(todo, n.ID)
		}
	}
	return order
}

// deleteNodes removes nodes: the intent first, which decides it and from which a
// deletion that is cut off is finished; then meta.json, with the head moved
// away and the names dropped; then the files. Commit is the one that keeps them.
func (t *tx) deleteNodes(ids []string, commit string) error {
	doomed := make(map[string]bool, len(ids))
	for _, id := range ids {
		doomed[id] = true
	}
	in, err := t.newDeleteIntent(doomed, commit)
	if err != nil {
		return err
	}
	m := t.editMeta()
	dropBranchEntries(m, doomed)
	if doomed[t.sn.Head] {
		assignHead(m, t.sn.survivor(t.sn.Head, doomed))
	}
	if err := t.writeDeleteIntent(in); err != nil {
		return err
	}
	if err := t.showDeleted(m, doomed); err != nil {
		return err
	}
	names := make([]string, len(in.files))
	for i, f := range in.files {
		names[i] = f.name
	}
	if err := t.unlink(names); err != nil {
		t.reread() // the intent stays: the next change does the rest
		return err
	}
	t.dropDeleteIntent()
	t.become(t.sn.next()) // the directory has another time now
	return nil
}

// showDeleted writes meta.json and makes the state without the nodes current,
// in one step. When it fails with meta.json as it was, nothing has been deleted
// and nothing will be.
func (t *tx) showDeleted(m *jsonedit.Object, doomed map[string]bool) error {
	before := string(t.sn.meta.raw)
	next := t.sn.next()
	next.Index = t.sn.Index.Without(doomed)
	next.entries = make([]Entry, 0, len(t.sn.entries))
	for i, e := range t.sn.entries {
		if !doomed[t.sn.Index.At(i).ID] {
			next.entries = append(next.entries, e)
		}
	}
	if string(m.Bytes()) == before {
		t.become(next)
		return nil
	}
	t.ahead = next
	err := t.writeMeta(m)
	if p := t.sn.pending; err != nil && p != nil && string(p.meta) == before {
		t.dropDeleteIntent()
		t.reread()
	}
	return err
}

// dropBranchEntries removes the branch entries of nodes.
func dropBranchEntries(m *jsonedit.Object, doomed map[string]bool) {
	branches, dropped := branchesOf(m), false
	for id := range doomed {
		dropped = branches.Delete(id) || dropped
	}
	if dropped {
		m.Set("branches", branches.Bytes())
	}
}

// survivor is where the head goes when its node is deleted: the newest tip
// that stays and is not archived, else the nearest node on its way to the root
// that stays, else nowhere.
func (sn *Snapshot) survivor(head string, doomed map[string]bool) string {
	for _, b := range sn.Tips() {
		if !doomed[b.Head] && !b.Archived {
			return b.Head
		}
	}
	for _, n := range sn.Index.Chain(head) {
		if !doomed[n.ID] && !n.Flags.Has(dag.DisplayRoot) && !n.Flags.Has(dag.CoversSome) {
			return n.ID
		}
	}
	return ""
}
