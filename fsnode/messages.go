package fsnode

import (
	"context"
	"errors"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// messagesKind is messages/: the active branch, oldest first.
var messagesKind = &listKind{
	name: "messages",
	list: func(_ context.Context, _ *session, v *view) ([]fuse.DirEntry, error) {
		if _, err := v.sn.Branch(); err != nil {
			return nil, err
		}
		return v.messages(), nil
	},
	find: func(_ context.Context, l *sessionList, name string) (vnode.Found, error) {
		found, err := l.s.findMessage(&l.List, name, l.s.watched())
		if err == nil {
			return found, nil
		}
		if found, err = l.shelf().find(name); err == nil {
			return found, nil
		}
		return l.s.miss(&l.List, name, func(v *view) bool {
			_, _, there := v.message(name)
			return there
		})
	},
	verbs: shelfVerbs,
}

// newMessages makes messages/, with its shelf.
func (s *session) newMessages(watched bool) *vnode.List {
	l := s.newList(watched, messagesKind)
	h := s.newShelf(&l.List, "messages")
	h.ours = messageForm
	h.target = func(_ context.Context, name string) (target, error) { return s.messageTarget(name) }
	return &l.List
}

// messageForm reports whether a name has the form of a message's. What begins
// like one and goes on behind its end is a backup or a temporary file of it.
func messageForm(name string) bool {
	digits, _, ok := strings.Cut(name, "-")
	if !ok || len(digits) < 6 || !strings.HasSuffix(name, ".md") {
		return false
	}
	return strings.Trim(digits, "0123456789") == ""
}

// messageTarget is the writing side of a message of the active branch.
func (s *session) messageTarget(name string) (target, error) {
	v := s.v.Load()
	n, _, ok := v.message(name)
	switch {
	case ok && v.sn.Editable(n.ID):
		return &messageText{s: s, name: name, node: n.ID}, nil
	case ok:
		return nil, &store.Error{Code: store.Immutable, Op: "edit", Session: s.id, Ref: n.ID,
			Err: errors.New("only a user's message can be edited")}
	case v.knows(name):
		return nil, &store.Error{Code: store.Conflict, Op: "edit", Session: s.id, Ref: name,
			Err: errors.New("the message is not on the active branch any more")}
	}
	return nil, vnode.NotFound
}

// knows reports whether a name was that of a message, whatever the branch.
func (v *view) knows(name string) bool {
	_, tail, ok := strings.Cut(name, "-")
	if !ok || !messageForm(name) {
		return false
	}
	for n := range v.sn.Index.All() {
		if tail == roleWord(n)+"-"+short(n.ID)+".md" {
			return true
		}
	}
	return false
}

// newEdit begins the writing of a message.
func (s *session) newEdit(ctx context.Context, name string) (target, error) {
	if err := s.refuseRun(ctx, "edit"); err != nil {
		return nil, err
	}
	tg, err := s.messageTarget(name)
	if store.CodeOf(err) == store.Conflict {
		return nil, vnode.Stale // the kernel asks for the name again
	}
	return tg, err
}

// nodeAt is the id of the node at a position of the active branch, "" when
// there is none.
func (v *view) nodeAt(pos int) string {
	branch, err := v.sn.Branch()
	if err != nil || pos > len(branch) {
		return ""
	}
	return branch[pos-1].ID
}

// findMessage returns the slot of a name. A slot is one inode for a name,
// whatever node the name means; the lock that guards the set of slots is the
// one under which views are swapped, so that a change finds every slot that
// was handed out before it.
func (s *session) findMessage(dir *vnode.List, name string, watched bool) (vnode.Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, _, ok := s.v.Load().message(name)
	if !ok {
		return vnode.Found{}, vnode.NotFound
	}
	m, ok := s.slots.get(name)
	if !ok {
		m = s.newMessage(name, s.v.Load().sn.Editable(n.ID), watched)
		vnode.Place(context.Background(), &dir.Inode, m, vnode.Ino(s.ident("message", name)), s.gen)
		s.slots.put(m)
	}
	return vnode.Found{Node: m}, nil
}

// newMessage makes messages/<k>-<role>-<id>.md, not placed yet.
func (s *session) newMessage(name string, editable, watched bool) *message {
	kind := kindMessage
	if editable {
		kind = kindEditable
	}
	m := &message{s: s, name: name, editable: editable}
	m.Policy = policyOf(kind, watched)
	pos, _ := messagePos(name)
	m.pos = int32(pos)
	return m
}

// message is a file in messages/. Off the active branch it is stale: the VFS
// then walks the path again and finds no such name.
type message struct {
	vnode.File
	s        *session
	name     string
	pos      int32 // on the branch, from 1
	editable bool
}

func (m *message) label() string { return m.name }

// Version differs whenever the message's file does.
func (m *message) Version() any {
	_, e, ok := m.s.v.Load().message(m.name)
	if !ok {
		return nil
	}
	return e
}

// Read returns the message's text.
func (m *message) Read(context.Context) ([]byte, error) {
	v := m.s.v.Load()
	_, e, ok := v.message(m.name)
	if !ok {
		return nil, vnode.Stale
	}
	return v.sn.TextOfFile(e.File)
}

// Stat tells the attributes, with the node's time.
func (m *message) Stat(ctx context.Context) (vnode.Stat, error) {
	v, err := m.s.current(ctx)
	if err != nil {
		return vnode.Stat{}, err
	}
	n, e, ok := v.message(m.name)
	if !ok {
		return vnode.Stat{}, vnode.Stale
	}
	perm := uint32(0o400)
	if m.editable {
		perm = 0o600
	}
	st := m.s.stat(v, perm, int(e.TextLen))
	st.MTime = nodeTime(n, e, m.s.t.now())
	return st, nil
}

// Writer begins an edit.
func (m *message) Writer(ctx context.Context) (vnode.Writer, error) {
	if !m.editable {
		return nil, vnode.Immutable
	}
	begin := func(ctx context.Context) (target, error) { return m.s.newEdit(ctx, m.name) }
	return m.s.newDocument(m.s.id+"-messages-"+m.name, begin)(ctx)
}
