package fsnode

import (
	"context"
	"strings"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// newTop makes the shelf of the session's own directory, where a link that is
// made or renamed onto head moves the head.
func (s *session) newTop() *shelf {
	h := &shelf{s: s, dir: s.dir, ours: s.ours, target: s.topTarget}
	h.create = func(ctx context.Context, name string) (vnode.Found, error) {
		if name != "head" {
			return vnode.Found{}, h.refuseName("create", name)
		}
		return s.createHead(), nil
	}
	return h
}

// top is the shelf of the session's own directory.
func (s *session) top() *shelf {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened == nil {
		return s.newTop() // nothing can be put on it: that needs the files
	}
	if len(s.shelves) == 0 {
		s.shelves = []*shelf{s.newTop()}
	}
	return s.shelves[0]
}

// ours reports whether a name has the form of one of the session's own.
func (s *session) ours(name string) bool {
	return s.files.Load() != nil && s.t.hasFixed(name)
}

// topTarget is the writing side of a file in the session's directory.
func (s *session) topTarget(ctx context.Context, name string) (target, error) {
	f := s.files.Load()
	switch {
	case name == "meta.json":
		if s.v.Load().sn.MetaJSON() != nil {
			return &metaText{s: s}, nil
		}
	case name == "head_id":
		return valueText{read: func(context.Context) ([]byte, error) { return headIDText(s.v.Load()) }, set: func(ctx context.Context, text string) error {
			return s.setHead(ctx, strings.TrimSpace(text), 0)
		}}, nil
	case name == "head":
		return valueText{set: s.writeHead().Set, read: func(context.Context) ([]byte, error) { return nil, vnode.Immutable }}, nil
	}
	if _, err := s.findFixed(f, name); err == nil {
		return nil, vnode.Immutable
	}
	return nil, vnode.NotFound
}

// symlink makes a scratch link, or sets a head where there is none.
func (s *session) symlink(ctx context.Context, target, name string) (vnode.Found, error) {
	f, err := s.open(holdingAny(ctx))
	if err != nil {
		return vnode.Found{}, err
	}
	if name != "head" {
		return s.top().symlink(ctx, target, name)
	}
	ctx = holding(ctx, s.dir)
	if err := s.writable(ctx); err != nil {
		return vnode.Found{}, err
	}
	if _, there := s.v.Load().headTarget(); there {
		return vnode.Found{}, &store.Error{Code: store.Exists, Op: "symlink", Session: s.id, Ref: name}
	}
	if err := s.linkHead(ctx, target); err != nil {
		return vnode.Found{}, err
	}
	if _, there := s.v.Load().headTarget(); there {
		return f.findHead(s), nil
	}
	// The link meant the start of the conversation, and a head before the
	// first message does not show. The kernel wants a link all the same.
	return vnode.Found{Node: s.top().newLink(name, target).node}, nil
}

// createHead is what `echo <ref> > head` opens where there is no head. It has
// a name for no longer than it takes to open it.
func (s *session) createHead() vnode.Found {
	f := &vnode.FuncFile{
		Spec: vnode.Spec{Number: vnode.Ino(s.ident("create", s.t.serial())), Gen: s.gen, Policy: policyOf(kindScratch, true),
			Stat: func(context.Context) (vnode.Stat, error) { return s.stat(s.v.Load(), 0o600, 0), nil }},
		Read:   func(context.Context) ([]byte, error) { return nil, nil },
		Writer: s.guarded(s.writeHead().Writer),
	}
	s.place(f)
	return vnode.Found{Node: f}
}
