package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// AttachSpec names a branch to attach and where to.
type AttachSpec struct {
	// Source is the session whose branch is attached, Target the branch.
	Source string
	Target Ref
	// Anchor is the session that the pointer is written to, "" = Source;
	// AnchorRef the node that it hangs on, "" = that session's head.
	Anchor    string
	AnchorRef Ref
	// Label names the attachment, "" = the branch's own name.
	Label string
}

// Attached is what an attach did.
type Attached struct {
	Node string // the pointer's id
	// Existed is set when the same pointer was there: nothing was written.
	Existed bool
}

// noPreview stands for a branch that has no text of an assistant.
const noPreview = "(no preview)"

// Attach writes a pointer to a branch into a session (reference 7.3): a row of
// the machinery that hangs on the anchor, moves no head and is no tip. Within
// one session the branch counts as merged from then on. The anchor session's
// head is put back, through the one door, where it was. Two sessions are
// locked in the order of their ids. RunActive when a run is active in either,
// NotFound, Invalid when a branch is attached to itself.
func (s *Store) Attach(ctx context.Context, a AttachSpec) (Attached, error) {
	if a.Anchor == "" {
		a.Anchor = a.Source
	}
	if !utf8.ValidString(a.Label) {
		return Attached{}, &Error{Code: Invalid, Op: "attach", Session: a.Source, Err: errors.New("the label is not UTF-8 text")}
	}
	var out Attached
	work := func(src, anchor *tx) error {
		var err error
		out, err = attach(ctx, src, anchor, a)
		return err
	}
	if a.Anchor == a.Source {
		err := s.change(ctx, "attach", a.Source, 0, func(t *tx) error { return work(t, t) })
		return out, err
	}
	ids := []string{a.Source, a.Anchor}
	err := s.changeAll(ctx, "attach", ids, 0, func(ts []*tx) error { return work(ts[0], ts[1]) })
	return out, err
}

// attach does the work with both sessions' locks held.
func attach(ctx context.Context, src, anchor *tx, a AttachSpec) (Attached, error) {
	for _, t := range []*tx{src, anchor} {
		if err := t.refuseActiveRun(); err != nil {
			return Attached{}, err
		}
	}
	target, err := src.sn.Resolve(a.Target)
	if err != nil {
		return Attached{}, src.asOp(err)
	}
	at := anchor.sn.Head
	if a.AnchorRef != "" {
		if at, err = anchor.sn.Resolve(a.AnchorRef); err != nil {
			return Attached{}, anchor.asOp(err)
		}
	}
	switch {
	case at == "":
		return Attached{}, anchor.fail(NotFound, "", errors.New("the session has no head to attach to"))
	case at == target && a.Source == a.Anchor:
		return Attached{}, anchor.fail(Invalid, target, errors.New("a branch cannot be attached to itself"))
	}
	if id, ok := anchor.pointer(at, a.Source, target); ok {
		return Attached{Node: id, Existed: true}, nil
	}
	label := a.Label
	if label == "" {
		label = src.sn.branchLabel(target)
	}
	text, err := src.sn.lastReply(target)
	if err != nil {
		return Attached{}, src.asOp(err)
	}
	head := anchor.sn.Head
	res, err := anchor.append(anchor.pointerMessage(src.sn, at, target, label, a.Source, text))
	if err != nil {
		return Attached{}, err
	}
	if a.Source == a.Anchor {
		if err := anchor.markMerged(target); err != nil {
			return Attached{}, err
		}
	}
	if err := anchor.moveHeadBack(head); err != nil {
		return Attached{}, err
	}
	if _, _, err := anchor.commit(ctx, "attach branch: "+label); err != nil {
		return Attached{}, err
	}
	return Attached{Node: res.ID}, nil
}

// moveHeadBack pins the head, which an attach never moves, where it was.
func (t *tx) moveHeadBack(head string) error {
	if head == "" || head == t.sn.Head {
		return nil
	}
	return t.moveHead(head, nil)
}

// pointer finds an attach row with the same anchor and target.
func (t *tx) pointer(at, session, target string) (string, bool) {
	for _, n := range t.sn.Index.Callees(at) {
		if !n.Flags.Has(dag.Attach) {
			continue
		}
		md, err := t.metadata(n.ID)
		if err != nil {
			continue
		}
		raw, _ := md.Get("attach")
		obj, err := jsonedit.ParseObject(raw)
		if err == nil && obj.Str("session_id") == session && obj.Str("head_id") == target {
			return n.ID, true
		}
	}
	return "", false
}

// pointerMessage is the message dict of an attach row.
func (t *tx) pointerMessage(src *Snapshot, at, target, label, session, text string) *jsonedit.Object {
	str := jsonedit.EncodeString
	info := jsonedit.NewObject()
	info.Set("session_id", str(session))
	info.Set("head_id", str(target))
	info.Set("label", str(label))
	info.Set("manual", []byte("true"))
	info.Set("source_commit_id", []byte("null"))
	extra := jsonedit.NewObject()
	extra.Set("attach", info.Bytes())
	msg := jsonedit.NewObject()
	msg.Set("role", str("assistant"))
	msg.Set("content", str(text))
	msg.Set("predecessor", str(at))
	msg.Set("display", str("runtime"))
	msg.Set("function", str("attach"))
	if agent := src.meta.obj.Str("agent_id"); agent != "" {
		msg.Set("agent_id", str(agent))
	}
	msg.Set("extra", extra.Bytes())
	return msg
}

// lastReply is the newest text of an assistant on a branch. A text that makes
// no sense is passed over; one that the disk fails to give is an error.
func (sn *Snapshot) lastReply(tip string) (string, error) {
	branch, err := sn.BranchOf(tip)
	if err != nil {
		return noPreview, nil // a broken chain has no preview
	}
	for _, n := range slices.Backward(branch) {
		if n.Role != "llm" || n.Flags.Has(dag.Attach) {
			continue
		}
		text, err := sn.Text(n.ID)
		if failedRead(err) {
			return "", err
		}
		if err == nil && strings.TrimSpace(string(text)) != "" {
			return strings.TrimSuffix(string(text), "\n"), nil
		}
	}
	return noPreview, nil
}

// markMerged adds consumed tips to meta.merged_heads (reference 5.8).
func (t *tx) markMerged(ids ...string) error {
	m := t.editMeta()
	raw, _ := m.Get("merged_heads")
	elems, _ := jsonedit.Array(raw)
	known := map[string]bool{}
	for _, e := range elems {
		if id, ok := jsonedit.String(e); ok {
			known[id] = true
		}
	}
	added := false
	for _, id := range ids {
		id = strings.TrimSpace(id)
		if id != "" && !known[id] {
			known[id], added = true, true
			elems = append(elems, jsonedit.EncodeString(id))
		}
	}
	if !added {
		return nil
	}
	m.Set("merged_heads", jsonedit.EncodeArray(elems))
	return t.writeMeta(m)
}
