package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/nodefile"
)

// AppendText appends a message of a role ("user", "assistant", "system") to
// the active branch and advances the head. A user's and a system message are
// refused with RunActive while a run is active; an assistant's is the run's
// own. Invalid for another role and for text that is not UTF-8.
func (s *Store) AppendText(ctx context.Context, id, role, text string) (AppendResult, error) {
	switch role {
	case "user", "assistant", "system":
	default:
		return AppendResult{}, &Error{Code: Invalid, Op: "append", Session: id, Ref: role,
			Err: errors.New("the role must be user, assistant or system")}
	}
	if err := refuseNotText("append", id, text); err != nil {
		return AppendResult{}, err
	}
	msg := jsonedit.NewObject()
	msg.Set("role", jsonedit.AppendString(nil, role))
	msg.Set("content", jsonedit.AppendString(nil, text))
	if role == "assistant" {
		return s.append(ctx, id, msg, appendReply)
	}
	return s.append(ctx, id, msg, appendGuarded)
}

// refuseNotText refuses a message's text that is not UTF-8: the record is JSON,
// which would hold replacement characters in place of the bytes.
func refuseNotText(op, id, text string) error {
	if utf8.ValidString(text) {
		return nil
	}
	return &Error{Code: Invalid, Op: op, Session: id, Err: errors.New("the message is not UTF-8 text"),
		Hint: "attach what is no text as a file"}
}

// appendKind says what an append does beside appending.
type appendKind int

const (
	appendPlain   appendKind = iota
	appendGuarded            // refused while a run is active
	appendReply              // ends a turn, which is committed
)

// AppendMessage appends a message dict (reference 2.11 and 6.7); the id is
// chosen when it has none, and a message without a "predecessor" key chains
// on the head. It is a run's own way to write, so an active run does not
// refuse it. Invalid, PredecessorMissing, NotFound.
func (s *Store) AppendMessage(ctx context.Context, id string, msg []byte) (AppendResult, error) {
	if err := refuseNotText("append", id, string(msg)); err != nil {
		return AppendResult{}, err
	}
	obj, err := jsonedit.ParseObject(msg)
	if err != nil {
		return AppendResult{}, &Error{Code: Invalid, Op: "append", Session: id, Err: err,
			Hint: `a message is one JSON object: {"role": "user", "content": "…"}`}
	}
	return s.append(ctx, id, obj, appendPlain)
}

func (s *Store) append(ctx context.Context, id string, msg *jsonedit.Object, kind appendKind) (AppendResult, error) {
	var res AppendResult
	err := s.change(ctx, "append", id, 0, func(t *tx) error {
		if kind == appendGuarded {
			if err := t.refuseActiveRun(); err != nil {
				return err
			}
		}
		var err error
		if res, err = t.append(msg); err != nil || kind != appendReply {
			return err
		}
		t.commitTurn(ctx)
		return nil
	})
	if err == nil && !res.Existed && kind != appendReply {
		s.Dirty(id)
	}
	return res, err
}

// append writes one message: the node's file first, then meta.json with the
// head and updated_at, so that a crash between the two leaves a further tip
// and nothing else (reference 6.7).
func (t *tx) append(msg *jsonedit.Object) (AppendResult, error) {
	spec, err := t.spec(msg)
	if err != nil {
		return AppendResult{}, err
	}
	if _, ok := t.sn.Index.Get(spec.ID); ok {
		return AppendResult{ID: spec.ID, Head: t.sn.Head, Existed: true}, nil
	}
	spec.Seq = t.sn.maxSeq + 1
	node := spec.Node()
	if err := t.sn.Index.CheckWrite(node); err != nil {
		return AppendResult{}, t.fail(PredecessorMissing, spec.ID, err)
	}
	if err := t.addNode(spec, node); err != nil {
		return AppendResult{}, err
	}
	m := t.editMeta()
	now := jsonedit.AppendFloat(nil, t.timestamp())
	if advances(node, t.sn.Head) {
		moveBranchEntry(m, t.sn.Head, node.ID)
		assignHead(m, node.ID)
	}
	m.Set("updated_at", now)
	if err := t.writeMeta(m); err != nil {
		return AppendResult{}, err
	}
	row := []KV{{"updated_at", now}}
	if text, ok := jsonedit.String(spec.Output); ok && node.Role == "user" && text != "" {
		row = append(row, KV{"preview", jsonedit.AppendString(nil, render.Preview(text))})
	}
	t.s.list.put(t.se.id, row...)
	return AppendResult{ID: node.ID, Head: t.sn.Head}, nil
}

// advances is the message API's rule for the head (reference 6.7, step 4): an
// empty caller, and either no head yet or a node chained on it.
func advances(n dag.Node, head string) bool {
	if n.Caller != "" {
		return false
	}
	return head == "" || n.Predecessor == head
}

// spec turns a message dict into a node. Without a predecessor key, a message
// that belongs in the chain is chained on the head, or on the ROOT sentinel
// when there is none yet: a node without predecessor could break every branch
// that runs through it (reference 5.4, 15.2).
func (t *tx) spec(msg *jsonedit.Object) (nodefile.Spec, error) {
	role := msg.Str("role")
	if role == "" {
		return nodefile.Spec{}, t.fail(Invalid, "", errors.New(`the message has no "role"`))
	}
	if _, ok := msg.Get("predecessor"); !ok {
		pred := t.sn.Head
		if pred == "" {
			pred = dag.RootID
		}
		msg = msg.Clone()
		msg.Set("predecessor", jsonedit.AppendString(nil, pred))
	}
	spec, err := nodefile.FromMessage(msg, t.timestamp(), func() string { return t.newNodeID() })
	if err != nil {
		return spec, t.fail(Invalid, "", err)
	}
	if !nodefile.ValidID(spec.ID) {
		return spec, t.fail(Invalid, spec.ID, errors.New("not usable as a node id"))
	}
	return spec, nil
}

// addNode writes a new history file durably. It is shown together with the
// meta.json that follows.
func (t *tx) addNode(spec nodefile.Spec, node dag.Node) error {
	raw := spec.Encode()
	name := nodefile.FileName(spec.Seq, spec.Role, spec.ID)
	if len(name) > maxName {
		return t.fail(Invalid, spec.ID, errors.New("the node id is too long for a file name"))
	}
	path := filepath.Join(t.place.Dir, historyDir, name)
	if err := disk.WriteAtomic(t.s.fs, path, raw, disk.WriteOptions{NoReplace: true}); err != nil {
		t.reread()
		return t.diskFail(name, err)
	}
	entry, err := t.entry(name, raw)
	if err != nil {
		t.reread()
		return t.diskFail(name, err)
	}
	next := t.sn.next()
	next.Index = t.sn.Index.Append(node)
	next.entries = append(t.sn.entries, entry)
	next.maxSeq = max(t.sn.maxSeq, node.Seq)
	t.ahead = next
	return nil
}

// maxName is the longest file name of Linux file systems, in bytes.
const maxName = 255

// entry describes a history file that was just written.
func (t *tx) entry(name string, raw []byte) (Entry, error) {
	fi, err := t.s.fs.Lstat(filepath.Join(t.place.Dir, historyDir, name))
	if err != nil {
		return Entry{}, err
	}
	p, err := nodefile.Parse(raw)
	if err != nil {
		return Entry{}, err
	}
	st := stampOf(fi)
	return Entry{File: name, Size: int64(len(raw)), TextLen: p.TextLen, MTime: st.time(), stamp: st, sum: crcOf(raw), noSeq: p.SeqMissing}, nil
}

// ExtendMessage replaces the text of a message, as long as it is the head and
// has no child; else Conflict. It is how a message that was written in several
// flushes of one open file becomes whole.
func (s *Store) ExtendMessage(ctx context.Context, id, node, text string) error {
	if err := refuseNotText("append", id, text); err != nil {
		return err
	}
	err := s.change(ctx, "append", id, 0, func(t *tx) error {
		n, ok := t.sn.Index.Get(node)
		switch {
		case !ok:
			return t.fail(NotFound, node, errNoNode)
		case t.sn.Head != node, len(t.sn.Index.Children(node)) > 0:
			return t.fail(Conflict, node, errors.New("the conversation has gone on since this message was written"))
		}
		return t.rewriteOutput(n, text)
	})
	if err == nil {
		s.Dirty(id)
	}
	return err
}

// rewriteOutput puts another text into a message's file, in place of the old
// one and of nothing else.
func (t *tx) rewriteOutput(n dag.Node, text string) error {
	if err := t.rewriteNode(n.ID, jsonedit.EncodeString(text), nil); err != nil {
		return err
	}
	if n.Role == "user" && text != "" {
		t.s.list.put(t.se.id, KV{"preview", jsonedit.EncodeString(render.Preview(text))})
	}
	return nil
}

// rewriteNode replaces a node's output (nil keeps it) and merges metadata into
// it, durably and by rename; nothing else of the file changes (reference 6.9).
func (t *tx) rewriteNode(id string, output []byte, metadata map[string][]byte) error {
	i, ok := t.sn.Index.Position(id)
	if !ok {
		return t.fail(NotFound, id, errNoNode)
	}
	name := t.sn.entries[i].File
	raw, err := t.sn.Raw(name)
	if err != nil {
		return t.asOp(err)
	}
	if raw, err = nodefile.SetOutput(raw, output, metadata); err != nil {
		return t.fail(Corrupt, id, err)
	}
	path := filepath.Join(t.place.Dir, historyDir, name)
	if err := disk.WriteAtomic(t.s.fs, path, raw, disk.WriteOptions{}); err != nil {
		t.reread()
		return t.diskFail(name, err)
	}
	entry, err := t.entry(name, raw)
	if err != nil {
		t.reread()
		return t.diskFail(name, fmt.Errorf("after rewriting: %w", err))
	}
	p, err := nodefile.Parse(raw)
	if err != nil {
		t.reread()
		return t.fail(Corrupt, id, err)
	}
	n := t.sn.Index.At(i)
	n.Status, n.Flags, n.Name = p.Node.Status, p.Node.Flags, p.Node.Name
	next := t.sn.next()
	next.Index = t.sn.Index.Replace(n)
	next.entries = append([]Entry(nil), t.sn.entries...)
	next.entries[i] = entry
	t.become(next)
	return nil
}
