package fsnode

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
)

// newMessages makes messages/: the active branch, oldest first.
func (s *session) newMessages(watched bool) *vnode.List {
	l := s.newList(watched, "messages", func(_ context.Context, v *view) ([]fuse.DirEntry, error) {
		if _, err := v.sn.Branch(); err != nil {
			return nil, err
		}
		return v.messages(), nil
	})
	l.Find = func(ctx context.Context, name string) (vnode.Found, error) {
		if _, err := s.current(ctx); err != nil {
			return vnode.Found{}, err
		}
		return s.findMessage(l, name, watched)
	}
	return l
}

// slot is a name in messages/ that was handed out.
type slot struct {
	file *vnode.File
	pos  int // its position on the branch, from 1
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
	if _, _, ok := s.v.Load().message(name); !ok {
		return vnode.Found{}, vnode.NotFound
	}
	sl, ok := s.slots[name]
	if !ok {
		sl = &slot{file: s.newMessage(name, watched)}
		sl.pos, _ = messagePos(name)
		vnode.Place(context.Background(), &dir.Inode, sl.file)
		s.slots[name] = sl
	}
	return vnode.Found{Node: sl.file}, nil
}

// newMessage makes messages/<k>-<role>-<id>.md. Off the active branch it is
// stale: the VFS then walks the path again and finds no such name.
func (s *session) newMessage(name string, watched bool) *vnode.File {
	f := &vnode.File{
		Base: vnode.Base{Env: s.t.env, ID: s.ident("message", name), Gen: s.gen, Policy: policyOf(kindMessage, watched)},
		Version: func() any {
			_, e, ok := s.v.Load().message(name)
			if !ok {
				return nil
			}
			return e
		},
	}
	f.Read = func(context.Context) ([]byte, error) {
		v := s.v.Load()
		_, e, ok := v.message(name)
		if !ok {
			return nil, vnode.Stale
		}
		return v.sn.TextOfFile(e.File)
	}
	f.Stat = func(ctx context.Context) (vnode.Stat, error) {
		v, err := s.current(ctx)
		if err != nil {
			return vnode.Stat{}, err
		}
		n, e, ok := v.message(name)
		if !ok {
			return vnode.Stat{}, vnode.Stale
		}
		st := s.stat(v, 0o400, int(e.TextLen))
		st.MTime = nodeTime(n, e, s.t.now())
		return st, nil
	}
	return f
}
