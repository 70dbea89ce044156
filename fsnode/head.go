package fsnode

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

const (
	// maxValue bounds a value of a small control file, in bytes.
	maxValue = 64 << 10
	// renameWait bounds the wait for a session's lock under a rename or a
	// symlink, for which the kernel holds a lock on the whole mount.
	renameWait = time.Second
)

// headLink is head, the link to the active head's node.
type headLink struct {
	vnode.Link
	s *session
}

// newHead makes head.
func (s *session) newHead(watched bool) *vnode.Link {
	l := &headLink{s: s}
	l.Policy = policyOf(kindLive, watched)
	s.put(l, s.ident("file", "head"))
	return &l.Link
}

// Target returns the head's node.
func (l *headLink) Target(context.Context) (string, error) {
	if t, ok := l.s.v.Load().headTarget(); ok {
		return t, nil
	}
	return "", vnode.Stale
}

// Stat tells the attributes.
func (l *headLink) Stat(ctx context.Context) (vnode.Stat, error) { return l.s.headStat(ctx) }

func (s *session) headStat(ctx context.Context) (vnode.Stat, error) {
	v, err := s.current(ctx)
	if err != nil {
		return vnode.Stat{}, err
	}
	t, ok := v.headTarget()
	if !ok {
		return vnode.Stat{}, vnode.Stale // the VFS asks for the name again
	}
	return s.stat(v, 0o777, len(t)), nil
}

// findHead returns the node of head. The kernel keeps a link's target until it
// is notified, so in a session that nobody watches each target has an inode of
// its own.
func (f *sessionFiles) findHead(s *session) vnode.Found {
	if f.watched {
		return vnode.Found{Node: f.head}
	}
	target, _ := s.v.Load().headTarget()
	l := &vnode.FuncLink{
		Spec:   vnode.Spec{Number: vnode.Ino(s.ident("head", target)), Gen: s.gen, Stat: s.headStat},
		Target: func(context.Context) (string, error) { return target, nil },
	}
	s.place(l)
	return vnode.Found{Node: l}
}

// headIDKind is head_id.
var headIDKind = &textKind{name: "head_id", kind: kindWritable, perm: 0o600,
	text: func(_ *session, v *view) ([]byte, error) { return headIDText(v) },
	writer: func(s *session) func(context.Context) (vnode.Writer, error) {
		return s.guarded(vnode.Value{Max: maxValue, Legal: s.isRef, Set: func(ctx context.Context, text string) error {
			return s.setHead(ctx, strings.TrimSpace(text), 0)
		}}.Writer)
	},
}

func headIDText(v *view) ([]byte, error) {
	if v.sn.Head == "" {
		return nil, nil
	}
	return []byte(v.sn.Head + "\n"), nil
}

// guarded refuses to begin a writing that no session could take.
func (s *session) guarded(begin func(context.Context) (vnode.Writer, error)) func(context.Context) (vnode.Writer, error) {
	return func(ctx context.Context) (vnode.Writer, error) {
		if err := s.writable(ctx); err != nil {
			return nil, err
		}
		return begin(ctx)
	}
}

// writable reports why nothing can be written in the session.
func (s *session) writable(ctx context.Context) error {
	v, err := s.current(ctx)
	switch {
	case err != nil:
		return err
	case s.t.readOnly:
		return &store.Error{Code: store.ReadOnly, Op: "write", Session: s.id, Err: errors.New("the mount is read-only")}
	case v.sn.Legacy:
		return &store.Error{Code: store.ReadOnly, Op: "write", Session: s.id, Err: errors.New("the session has not been migrated and is only read")}
	case !v.sn.Openable:
		return &store.Error{Code: store.Corrupt, Op: "write", Session: s.id, Err: errors.New("the session has no repository or no history")}
	}
	return nil
}

// isRef reports whether a text is a whole reference, which a part of an id is
// not.
func (s *session) isRef(text string) bool { return s.v.Load().sn.IsRef(text) }

// setHead moves the head to what ref names.
func (s *session) setHead(ctx context.Context, ref string, wait time.Duration) error {
	_, err := s.t.st.SetHead(ctx, s.id, ref, store.HeadMove{LockTimeout: wait})
	return err
}

// writeHead is the writing side of the active head's own node file, which a
// write to head reaches through the link. The record is immutable: what is
// written is a reference, or nothing that can be done.
func (s *session) writeHead() vnode.Value {
	return vnode.Value{Max: maxValue, Legal: s.isRef, Set: func(ctx context.Context, text string) error {
		err := s.setHead(ctx, strings.TrimSpace(text), 0)
		switch store.CodeOf(err) {
		case store.NotFound, store.Ambiguous, store.Invalid:
			return &store.Error{Code: store.Immutable, Op: "write head", Session: s.id, Err: err,
				Hint: "a message is not edited here; to move the head, write a node id or a branch name"}
		}
		return err
	}}
}

// lexical finds the node that a link target means, seen from the session's
// directory and without looking at the disk: a node, a branch (its tip), or a
// message of either.
func (s *session) lexical(target string) (string, error) {
	invalid := func(why string) error {
		return &store.Error{Code: store.Invalid, Op: "set head", Session: s.id, Ref: target, Err: errors.New(why),
			Hint: "link to nodes/<n> or branch/<name>"}
	}
	if path.IsAbs(target) {
		return "", invalid("an absolute target names no node of this session")
	}
	parts := strings.Split(path.Clean(target), "/")
	v := s.v.Load()
	found, ok := "", false
	switch {
	case len(parts) == 1 && parts[0] == "head":
		found, ok = v.sn.Head, v.sn.Head != ""
	case len(parts) == 2 && parts[0] == "nodes":
		found, ok = v.nodeID(parts[1])
	case len(parts) == 2 && parts[0] == "branch":
		var b branchRef
		b, ok = v.tip(parts[1])
		found = b.tip
	case len(parts) == 2 && parts[0] == "messages":
		n, _, there := v.message(parts[1])
		found, ok = n.ID, there
	case len(parts) == 3 && parts[0] == "branch":
		n, there := v.branchMessage(parts[1], parts[2])
		found, ok = n.ID, there
	default:
		return "", invalid("the target is no node, branch or message of this session")
	}
	if !ok {
		return "", &store.Error{Code: store.NotFound, Op: "set head", Session: s.id, Ref: target, Err: errors.New("no such node or branch")}
	}
	return found, nil
}

// linkHead moves the head to what a link's target means.
func (s *session) linkHead(ctx context.Context, target string) error {
	node, err := s.lexical(target)
	if err != nil {
		return err
	}
	return s.setHead(ctx, node, renameWait)
}
