package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/nodefile"
)

// The eight moves of the data model (reference 7.3). Each resolves, refuses
// and writes under the session's locks, and moves the head through moveHead
// or, where it writes a node as well, through the same guard and assignHead in
// its one write of meta.json.

// Retry moves the head to the user message that a reply answers, so that the
// next reply becomes the reply's sibling; the old line is kept. The message
// may be named itself. It returns the user message's id. Invalid when there is
// no user message on the way to the root.
func (s *Store) Retry(ctx context.Context, id string, ref Ref) (string, error) {
	return s.move(ctx, "retry", id, func(t *tx) (string, error) {
		node, err := t.sn.Resolve(ref)
		if err != nil {
			return "", err
		}
		for _, n := range t.sn.Index.Chain(node) {
			if isUserMessage(n) {
				return n.ID, nil
			}
		}
		return "", t.fail(Invalid, ref, errors.New("it answers no user message"))
	})
}

// isUserMessage reports whether a node is a user's turn: not the root, and not
// an answer to a question that was asked back.
func isUserMessage(n dag.Node) bool {
	return n.Role == "user" && !n.Flags.Has(dag.DisplayRoot) && !n.Flags.Has(dag.HasInput)
}

// Sibling moves the head among the siblings of a node: which is "next",
// "prev" or a number from 1. It lands on the deepest leaf under the chosen
// sibling. Invalid for another word, NotFound when there is no such sibling.
func (s *Store) Sibling(ctx context.Context, id string, ref Ref, which string) (string, error) {
	return s.move(ctx, "sibling", id, func(t *tx) (string, error) {
		node, err := t.sn.Resolve(ref)
		if err != nil {
			return "", err
		}
		siblings := t.sn.Index.Siblings(node)
		at, err := siblingIndex(siblings, node, which)
		if err != nil {
			return "", t.fail(Invalid, which, err)
		}
		if at < 0 || at >= len(siblings) {
			return "", t.fail(NotFound, node, fmt.Errorf("there is no such sibling among %d", len(siblings)))
		}
		return t.landingUnder(siblings[at].ID)
	})
}

// siblingIndex turns "next", "prev" or a number from 1 into a position.
func siblingIndex(siblings []dag.Node, node, which string) (int, error) {
	at := 0
	for i, n := range siblings {
		if n.ID == node {
			at = i
		}
	}
	switch which {
	case "next":
		return at + 1, nil
	case "prev", "previous":
		return at - 1, nil
	}
	n, err := strconv.Atoi(which)
	if err != nil || n < 1 {
		return 0, errors.New("say next, prev or a number from 1")
	}
	return n - 1, nil
}

// Leaf moves the head to the deepest leaf under a node; an empty ref is the
// head.
func (s *Store) Leaf(ctx context.Context, id string, ref Ref) (string, error) {
	if ref == "" {
		ref = "@"
	}
	return s.move(ctx, "leaf", id, func(t *tx) (string, error) {
		node, err := t.sn.Resolve(ref)
		if err != nil {
			return "", err
		}
		return t.landingUnder(node)
	})
}

// landingUnder is the deepest leaf under a node (reference 5.9) at which a
// head may stand: a leaf that is a compaction summary does not count, nor what
// is only a row of the machinery.
func (t *tx) landingUnder(node string) (string, error) {
	leaf, ok := t.sn.Index.DeepestHead(node)
	if !ok {
		return "", t.fail(NotFound, node, errNoNode)
	}
	return leaf, nil
}

// Checkout moves the head to the tip of a branch, or exactly to any other
// node: it never goes down from there.
func (s *Store) Checkout(ctx context.Context, id string, ref Ref) (string, error) {
	return s.move(ctx, "checkout", id, func(t *tx) (string, error) {
		node, err := t.sn.Resolve(ref)
		if err != nil {
			return "", err
		}
		return node, t.refuseRoot(node)
	})
}

// move is a head move to the node that find names.
func (s *Store) move(ctx context.Context, op, id string, find func(t *tx) (string, error)) (node string, err error) {
	err = s.change(ctx, op, id, 0, func(t *tx) error {
		if node, err = find(t); err != nil {
			return t.asOp(err)
		}
		return t.moveHead(node, nil)
	})
	if err == nil {
		s.Dirty(id)
	}
	return node, err
}

// authorKeys are the metadata keys that say who wrote a message: a fork keeps
// all of them or has none (reference 2.6).
var authorKeys = []string{
	"speaker_kind", "speaker_id", "speaker_display", "principal_id", "authority_tier", "interaction", "authority_schema",
}

// Edit makes a sibling of a user message with another text, and moves the head
// to it: the same predecessor, and the lineage recorded (reference 7.3). The
// old message and what followed it are kept. It returns the new node's id.
// Immutable for a message that is not a user's, Invalid for an empty text and
// for one that is not UTF-8.
func (s *Store) Edit(ctx context.Context, id string, ref Ref, text string) (node string, err error) {
	err = s.change(ctx, "edit", id, 0, func(t *tx) error {
		source, err := t.sn.Resolve(ref)
		if err != nil {
			return t.asOp(err)
		}
		if err := t.refuseActiveRun(); err != nil {
			return err
		}
		node, err = t.fork(source, text)
		return err
	})
	if err == nil {
		s.Dirty(id)
	}
	return node, err
}

// fork writes the sibling, then meta.json with the head on it.
func (t *tx) fork(source, text string) (string, error) {
	n, ok := t.sn.Index.Get(source)
	if !ok {
		return "", t.fail(NotFound, source, errNoNode)
	}
	if !isUserMessage(n) {
		return "", t.fail(Immutable, source, errors.New("only a user's message can be edited"))
	}
	if text == "" {
		return "", t.fail(Invalid, source, errors.New("the message is empty"))
	}
	if err := refuseNotText(t.op, t.se.id, text); err != nil {
		return "", err
	}
	spec, err := t.forkSpec(n, text)
	if err != nil {
		return "", err
	}
	node := spec.Node()
	if err := t.sn.Index.CheckWrite(node); err != nil {
		return "", t.fail(PredecessorMissing, spec.ID, err)
	}
	if err := t.addNode(spec, node); err != nil {
		return "", err
	}
	m := t.editMeta()
	assignHead(m, spec.ID)
	now := jsonedit.EncodeFloat(t.timestamp())
	m.Set("updated_at", now)
	if err := t.writeMeta(m); err != nil {
		return "", err
	}
	row := []KV{{"updated_at", now}}
	if text != "" {
		row = append(row, KV{"preview", jsonedit.EncodeString(render.Preview(text))})
	}
	t.s.list.put(t.se.id, row...)
	return spec.ID, nil
}

// forkSpec describes the sibling of a user message.
func (t *tx) forkSpec(n dag.Node, text string) (nodefile.Spec, error) {
	md := jsonedit.NewObject()
	md.Set("forked_from", jsonedit.EncodeString(n.ID))
	md.Set("edit_of", jsonedit.EncodeString(n.ID))
	old, err := t.metadata(n.ID)
	if err != nil {
		return nodefile.Spec{}, err
	}
	for _, k := range append([]string{"display"}, authorKeys...) {
		if raw, ok := old.Get(k); ok {
			md.Set(k, raw)
		}
	}
	pred := n.Predecessor
	if pred == "" {
		pred = dag.RootID
	}
	return nodefile.Spec{
		ID: t.newTurnID(), CreatedAt: t.timestamp(), Seq: t.sn.maxSeq + 1, Role: n.Role, Name: n.Name,
		Output: jsonedit.EncodeString(text), Caller: n.Caller, Predecessor: pred, Metadata: md,
	}, nil
}

// metadata reads a node's metadata object from its file.
func (t *tx) metadata(node string) (*jsonedit.Object, error) {
	e, ok := t.sn.Entry(node)
	if !ok {
		return nil, t.fail(NotFound, node, errNoNode)
	}
	raw, err := t.sn.Raw(e.File)
	if err != nil {
		return nil, t.asOp(err)
	}
	obj, err := jsonedit.ParseObject(raw)
	if err != nil {
		return nil, t.fail(Corrupt, e.File, err)
	}
	if md, ok := obj.Get("metadata"); ok {
		if o, err := jsonedit.ParseObject(md); err == nil {
			return o, nil
		}
	}
	return jsonedit.NewObject(), nil
}

// newTurnID is a fresh id of a user turn's form, 8 hex digits (reference 2.5).
func (t *tx) newTurnID() string {
	for {
		if id := randomHex(4); t.free(id) {
			return id
		}
	}
}

// newNodeID is a fresh id of the generic form, 12 hex digits (reference 2.5).
func (t *tx) newNodeID() string {
	for {
		if id := randomHex(6); t.free(id) {
			return id
		}
	}
}

func (t *tx) free(id string) bool {
	_, taken := t.sn.Index.Get(id)
	return !taken
}
