package fsnode

import (
	"context"
	"slices"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
)

// sessionList is a directory of a session that is always there.
type sessionList struct {
	vnode.List
	s  *session
	as *listKind
}

// listKind is what such a directory has of its own.
type listKind struct {
	name string
	// list lists what is the session's own in it.
	list func(ctx context.Context, s *session, v *view) ([]fuse.DirEntry, error)
	// find finds a name; it is asked with the session up to date.
	find func(ctx context.Context, l *sessionList, name string) (vnode.Found, error)
	// stat, when not nil, tells the attributes in the place of dirOf.
	stat func(ctx context.Context, s *session) (vnode.Stat, error)
	// verbs, when not nil, are what can be done to the names.
	verbs func(l *sessionList) *vnode.Verbs
}

// newList makes a directory of the session, placed.
func (s *session) newList(watched bool, as *listKind) *sessionList {
	l := &sessionList{List: vnode.List{Base: vnode.Base{Policy: policyOf(kindDirectory, watched)}, Up: s.dir}, s: s, as: as}
	s.put(l, s.ident("dir", as.name))
	return l
}

// Stat tells the attributes.
func (l *sessionList) Stat(ctx context.Context) (vnode.Stat, error) {
	if l.as.stat != nil {
		return l.as.stat(ctx, l.s)
	}
	return l.s.dirOf(ctx)
}

// Entries lists the directory, with what programs keep beside its files.
func (l *sessionList) Entries(ctx context.Context) ([]fuse.DirEntry, error) {
	v, err := l.s.current(ctx)
	if err != nil {
		return nil, err
	}
	list, err := l.as.list(ctx, l.s, v)
	if err != nil {
		return nil, err
	}
	if h := l.shelf(); h != nil {
		if more := h.entries(); len(more) > 0 {
			list = append(slices.Clip(list), more...)
		}
	}
	return list, nil
}

// Find finds a name in the directory.
func (l *sessionList) Find(ctx context.Context, name string) (vnode.Found, error) {
	if _, err := l.s.current(ctx); err != nil {
		return vnode.Found{}, err
	}
	return l.as.find(ctx, l, name)
}

// Verbs are what can be done to the names in the directory.
func (l *sessionList) Verbs() *vnode.Verbs {
	if l.as.verbs == nil {
		return &vnode.Verbs{}
	}
	return l.as.verbs(l)
}

// owner is the session that the directory belongs to.
func (l *sessionList) owner() *session { return l.s }

// shelf is the directory's shelf, nil when it has none.
func (l *sessionList) shelf() *shelf {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	for _, h := range l.s.shelves {
		if h.dir == &l.List {
			return h
		}
	}
	return nil
}

// shelfVerbs are the verbs of a directory with a shelf.
func shelfVerbs(l *sessionList) *vnode.Verbs { return l.shelf().Verbs() }

// watched reports whether the session's changes by others are seen.
func (s *session) watched() bool {
	f := s.files.Load()
	return f != nil && f.watched
}
