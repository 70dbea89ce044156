package fsnode

import (
	"context"
	"errors"
	"sort"
	"strconv"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// maxScratch bounds the scratch links of a session.
const maxScratch = 1000

// scratchLink is a symbolic link that somebody made in a session's directory
// under a name of their own: `ln -sf` makes one and renames it. It is kept in
// memory and is never part of the session.
type scratchLink struct {
	node   *vnode.Link
	target string
	made   time.Time
}

// scratchEntries lists the session's scratch links.
func (s *session) scratchEntries() []fuse.DirEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.scratch))
	for n := range s.scratch {
		names = append(names, n)
	}
	sort.Strings(names)
	out := make([]fuse.DirEntry, len(names))
	for i, n := range names {
		out[i] = vnode.Found{Node: s.scratch[n].node}.Entry(n)
	}
	return out
}

func (s *session) findScratch(name string) (vnode.Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.scratch[name]; ok {
		return vnode.Found{Node: l.node}, nil
	}
	return vnode.Found{}, vnode.NotFound
}

// makeScratch makes a scratch link.
func (s *session) makeScratch(target, name string) (vnode.Found, error) {
	l := s.newScratch(target)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.scratch[name]; ok {
		return vnode.Found{}, &store.Error{Code: store.Exists, Op: "symlink", Session: s.id, Ref: name}
	}
	if len(s.scratch) >= maxScratch {
		return vnode.Found{}, &store.Error{Code: store.NoSpace, Op: "symlink", Session: s.id, Ref: name, Err: errors.New("too many scratch links")}
	}
	s.scratch[name] = l
	return vnode.Found{Node: l.node}, nil
}

// newScratch makes a link that is not listed yet, with an inode of its own.
func (s *session) newScratch(target string) *scratchLink {
	s.t.mu.Lock()
	s.t.gen++
	serial := s.t.gen
	s.t.mu.Unlock()
	l := &scratchLink{target: target, made: s.t.now()}
	l.node = &vnode.Link{
		Base: vnode.Base{
			Env: s.t.env, ID: s.ident("scratch", strconv.FormatUint(serial, 10)), Gen: s.gen, Policy: policyOf(kindScratch, true),
			Stat: func(context.Context) (vnode.Stat, error) {
				v := s.v.Load()
				return vnode.Stat{Size: int64(len(target)), MTime: l.made, UID: v.sn.UID, GID: v.sn.GID}, nil
			},
		},
		Target: func(context.Context) (string, error) { return target, nil },
	}
	s.place(l.node)
	return l
}

// dropScratch removes a scratch link.
func (s *session) dropScratch(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.scratch[name]
	delete(s.scratch, name)
	return ok
}

// dirVerbs is what can be done in a session's directory: links come and go,
// and what is renamed onto head moves the head.
func (s *session) dirVerbs() vnode.Verbs {
	return vnode.Verbs{Symlink: s.symlink, Unlink: s.unlink, Create: s.create, Rename: s.rename}
}

// ours reports whether a name has the form of one of the session's own.
func (s *session) ours(name string) bool {
	f := s.files.Load()
	return f != nil && f.table.Has(name)
}

// refuseName is why a name of ours that is not there cannot be made.
func (s *session) refuseName(op, name string) error {
	return &store.Error{Code: store.NotFound, Op: op, Session: s.id, Ref: name,
		Err: errors.New("this name is the session's own, and it is not there now")}
}

// symlink makes a scratch link, or sets a head where there is none.
func (s *session) symlink(ctx context.Context, target, name string) (vnode.Found, error) {
	ctx = holding(ctx, s.dir)
	f, err := s.open(ctx)
	if err != nil {
		return vnode.Found{}, err
	}
	if err := s.writable(ctx); err != nil {
		return vnode.Found{}, err
	}
	if name != "head" {
		if s.ours(name) {
			return vnode.Found{}, s.refuseName("symlink", name)
		}
		return s.makeScratch(target, name)
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
	l := s.newScratch(target)
	return vnode.Found{Node: l.node}, nil
}

func (s *session) unlink(_ context.Context, name string) error {
	if s.ours(name) || !s.dropScratch(name) {
		return vnode.Immutable
	}
	return nil
}

// create refuses to make a file; it says of one of ours that it is not there.
func (s *session) create(_ context.Context, name string) error {
	if s.ours(name) {
		return s.refuseName("create", name)
	}
	return vnode.Immutable
}

// rename takes a scratch link to head, where it moves the head, or to another
// name of its own.
func (s *session) rename(ctx context.Context, name string, to *vnode.List, newName string, noReplace bool) error {
	ctx = holding(ctx, s.dir, to)
	s.mu.Lock()
	l, ok := s.scratch[name]
	s.mu.Unlock()
	if !ok || to != s.dir {
		return vnode.Immutable
	}
	if newName == "head" {
		if _, there := s.v.Load().headTarget(); there && noReplace {
			return &store.Error{Code: store.Exists, Op: "rename", Session: s.id, Ref: newName}
		}
		if err := s.linkHead(ctx, l.target); err != nil {
			return err
		}
		s.dropScratch(name)
		return nil
	}
	if s.ours(newName) {
		return vnode.Immutable
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.scratch[newName]; there && noReplace {
		return &store.Error{Code: store.Exists, Op: "rename", Session: s.id, Ref: newName}
	}
	delete(s.scratch, name)
	s.scratch[newName] = l
	return nil
}
