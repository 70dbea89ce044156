package fsnode

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// maxScratch bounds the scratch files and links of one directory.
const maxScratch = 1000

// shelf is what programs keep beside the files of one directory of a session
// under names of their own: temporary files, backups, locks. It is visible,
// and never part of the session.
type shelf struct {
	s    *session
	dir  *vnode.List
	name string // "", "fields" or "messages"
	// ours reports whether a name has the form of one of the directory's own,
	// there at the moment or not.
	ours func(name string) bool
	// target returns the writing side of a file of the directory's own that
	// can be written: NotFound when there is none of the name, Immutable when
	// it cannot be written.
	target func(ctx context.Context, name string) (target, error)
	// create opens a name of ours that is not there; nil refuses all.
	create func(ctx context.Context, name string) (vnode.Found, error)

	items map[string]*scratch // guarded by s.mu
}

// target is a file whose text can be replaced as a whole.
type target interface {
	// shown is the text that the file has.
	shown(ctx context.Context) ([]byte, error)
	// apply makes raw the text. It may be called again with a text that has
	// grown.
	apply(ctx context.Context, raw []byte) error
	// document reports whether a text that is refused must be kept.
	document() bool
}

func (s *session) newShelf(dir *vnode.List, name string) *shelf {
	s.top() // comes first
	h := &shelf{s: s, dir: dir, name: name}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shelves = append(s.shelves, h)
	return h
}

// Verbs are what can be done in a directory with a shelf.
func (h *shelf) Verbs() *vnode.Verbs {
	return &vnode.Verbs{Symlink: h.symlink, Unlink: h.unlink, Create: h.makeFile, Rename: h.rename, Exchange: h.exchange}
}

// entries lists the shelf, by name. A name that has become one of the
// directory's own meanwhile is that one.
func (h *shelf) entries() []fuse.DirEntry {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	names := make([]string, 0, len(h.items))
	for n := range h.items {
		if !h.ours(n) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	out := make([]fuse.DirEntry, len(names))
	for i, n := range names {
		out[i] = vnode.Found{Node: h.items[n].node}.Entry(n)
	}
	return out
}

func (h *shelf) find(name string) (vnode.Found, error) {
	if c, ok := h.item(name); ok {
		return vnode.Found{Node: c.node}, nil
	}
	return vnode.Found{}, vnode.NotFound
}

func (h *shelf) item(name string) (*scratch, bool) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	c, ok := h.items[name]
	return c, ok
}

// put puts an item on the shelf.
func (h *shelf) put(op, name string, c *scratch, replace bool) error {
	h.s.mu.Lock()
	old, there := h.items[name]
	switch {
	case there && !replace:
		h.s.mu.Unlock()
		return &store.Error{Code: store.Exists, Op: op, Session: h.s.id, Ref: name}
	case !there && len(h.items) >= maxScratch:
		h.s.mu.Unlock()
		return &store.Error{Code: store.NoSpace, Op: op, Session: h.s.id, Ref: name, Err: errors.New("too many scratch files")}
	}
	if h.items == nil {
		h.items = map[string]*scratch{}
	}
	h.items[name] = c
	h.s.mu.Unlock()
	c.setNamed(true, h.hint(name))
	if there && old != c {
		old.drop()
	}
	return nil
}

// take takes an item off the shelf, if it is the one.
func (h *shelf) take(name string, c *scratch) bool {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.items[name] != c {
		return false
	}
	delete(h.items, name)
	return true
}

// hint says in a file name what a text was.
func (h *shelf) hint(name string) string {
	if h.name == "" {
		return h.s.id + "-" + name
	}
	return h.s.id + "-" + h.name + "-" + name
}

// refuseName is why a name of ours that is not there cannot be made.
func (h *shelf) refuseName(op, name string) error {
	return &store.Error{Code: store.NotFound, Op: op, Session: h.s.id, Ref: name,
		Err: errors.New("this name is the session's own, and it is not there now")}
}

// serial numbers what has no identity of its own.
func (t *tree) serial() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gen++
	return strconv.FormatUint(t.gen, 10)
}

// base is what the nodes of scratch files and links have in common.
func (h *shelf) base(c *scratch) vnode.Spec {
	return vnode.Spec{Number: vnode.Ino(h.s.ident("scratch", h.s.t.serial())), Gen: h.s.gen,
		Policy: policyOf(kindScratch, true), Stat: c.stat}
}

// symlink makes a scratch link.
func (h *shelf) symlink(ctx context.Context, to, name string) (vnode.Found, error) {
	if err := h.s.writable(holdingAny(ctx)); err != nil {
		return vnode.Found{}, err
	}
	if h.ours(name) {
		return vnode.Found{}, h.refuseName("symlink", name)
	}
	c := h.newLink(name, to)
	if err := h.put("symlink", name, c, false); err != nil {
		return vnode.Found{}, err
	}
	return vnode.Found{Node: c.node}, nil
}

// makeFile makes a scratch file.
func (h *shelf) makeFile(ctx context.Context, name string, flags, mode uint32) (vnode.Found, error) {
	if err := h.s.writable(holdingAny(ctx)); err != nil {
		return vnode.Found{}, err
	}
	if there, err := h.dir.Look(holdingAny(ctx), name); err == nil { // since the kernel looked
		if flags&syscall.O_EXCL != 0 {
			return vnode.Found{}, &store.Error{Code: store.Exists, Op: "create", Session: h.s.id, Ref: name}
		}
		return there, nil
	}
	if h.ours(name) {
		if h.create == nil {
			return vnode.Found{}, h.refuseName("create", name)
		}
		return h.create(ctx, name)
	}
	c, err := h.newFile(name, mode)
	if err != nil {
		return vnode.Found{}, err
	}
	if err := h.put("create", name, c, false); err != nil {
		c.buf.Discard()
		return vnode.Found{}, err
	}
	return vnode.Found{Node: c.node}, nil
}

// unlink removes a scratch file or link.
func (h *shelf) unlink(_ context.Context, name string) error {
	c, ok := h.item(name)
	if !ok || !h.take(name, c) {
		return vnode.Immutable
	}
	c.drop()
	return nil
}

// keep puts a text that was refused into failed/.
func (s *session) keep(hint string, raw []byte, why error) string {
	if len(raw) == 0 {
		return ""
	}
	kept, err := s.t.sp.FailBytes(hint, raw)
	if err != nil {
		s.t.log.Error("a text could not be kept", "session", s.id, "file", hint, "err", err)
		return ""
	}
	s.t.log.Info("a text was not applied and is kept", "session", s.id, "file", kept, "reason", string(store.CodeOf(why)))
	return kept
}

// hasScratch reports whether a shelf of the session holds anything.
func (s *session) hasScratch() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened == nil {
		return false
	}
	for _, h := range s.shelves {
		if len(h.items) > 0 {
			return true
		}
	}
	return false
}

// clearScratch moves what is on the session's shelves to failed/: the session
// is gone, or the mount is.
func (s *session) clearScratch() {
	s.mu.Lock()
	if s.opened == nil {
		s.mu.Unlock()
		return
	}
	var all []*scratch
	for _, h := range s.shelves {
		for _, c := range h.items {
			all = append(all, c)
		}
		h.items = nil
	}
	s.mu.Unlock()
	for _, c := range all {
		if c.buf == nil {
			continue
		}
		if c.buf.Size() == 0 {
			c.buf.Discard()
			continue
		}
		c.mu.Lock()
		hint := c.hint
		c.mu.Unlock()
		if _, err := c.buf.Fail(hint); err != nil {
			s.t.log.Error("a text could not be kept", "session", s.id, "file", hint, "err", err)
		}
	}
}
