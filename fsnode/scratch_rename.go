package fsnode

import (
	"context"
	"errors"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// What a rename means where files of ours and scratch files stand side by
// side: between scratch names it is a rename; a scratch file renamed over a
// file of ours is the new text of that file; a file of ours renamed away is a
// copy, and stays. The kernel holds both directories and a lock of the whole
// mount meanwhile, so no lock is waited for longer than renameWait.

// renaming is the context of a change that a rename makes.
func (h *shelf) renaming(ctx context.Context, to *vnode.List) context.Context {
	return store.WithLockTimeout(holding(ctx, h.dir, to), renameWait)
}

// owned is a directory that belongs to a session and may have a shelf.
type owned interface{ owner() *session }

// shelfOf returns the shelf of a directory: of this session, or an error that
// says what a rename to there is.
func (h *shelf) shelfOf(to *vnode.List) (*shelf, error) {
	dir, ok := to.Operations().(owned)
	if !ok {
		return nil, vnode.Immutable
	}
	other := dir.owner()
	other.top()
	other.mu.Lock()
	if other.opened == nil {
		other.mu.Unlock()
		return nil, vnode.CrossDevice // another session, of which nothing is shown
	}
	shelves := other.shelves
	other.mu.Unlock()
	for _, x := range shelves {
		if x.dir != to {
			continue
		}
		if other != h.s {
			return nil, vnode.CrossDevice // mv copies
		}
		return x, nil
	}
	return nil, vnode.Immutable
}

// rename moves a name of this directory.
func (h *shelf) rename(ctx context.Context, name string, to *vnode.List, newName string, noReplace bool) error {
	if err := h.s.writable(holdingAny(ctx)); err != nil {
		return err
	}
	dest, err := h.shelfOf(to)
	if err != nil {
		return err
	}
	if dest == h && name == newName {
		return nil
	}
	ctx = h.renaming(ctx, to)
	c, ok := h.item(name)
	switch {
	case !ok:
		return h.copyAway(ctx, name, dest, newName, noReplace)
	case dest.ours(newName):
		return h.consume(ctx, name, c, dest, newName, noReplace)
	}
	if err := dest.put("rename", newName, c, !noReplace); err != nil {
		return err
	}
	h.take(name, c)
	return nil
}

// copyAway copies a file of ours to a scratch name.
func (h *shelf) copyAway(ctx context.Context, name string, dest *shelf, newName string, noReplace bool) error {
	tg, err := h.target(holdingAny(ctx), name)
	if err != nil {
		return err
	}
	if dest.ours(newName) {
		return &store.Error{Code: store.Immutable, Op: "rename", Session: h.s.id, Ref: name,
			Err: errors.New("a file of the session keeps its name; to a name of your own it is copied")}
	}
	raw, err := tg.shown(ctx)
	if err != nil {
		return err
	}
	c, err := dest.newFile(newName, 0o600)
	if err != nil {
		return err
	}
	if _, err = c.buf.WriteAt(raw, 0); err == nil {
		err = c.buf.Persist()
	}
	if err == nil {
		err = dest.put("rename", newName, c, !noReplace)
	}
	if err != nil {
		c.buf.Discard()
	}
	return err
}

// consume makes a scratch file's content the text of a file of ours. The
// scratch file is gone afterwards; when the text is refused it stays, and a
// document's text is kept as well, since programs remove what they could not
// rename.
func (h *shelf) consume(ctx context.Context, name string, c *scratch, dest *shelf, newName string, noReplace bool) error {
	if c.buf == nil {
		return h.consumeLink(ctx, name, c, dest, newName, noReplace)
	}
	tg, err := dest.target(holdingAny(ctx), newName)
	if err != nil && errors.Is(err, vnode.NotFound) {
		err = dest.refuseName("rename", newName)
	}
	if err == nil && noReplace {
		return &store.Error{Code: store.Exists, Op: "rename", Session: h.s.id, Ref: newName}
	}
	var raw []byte
	document := tg == nil && dest.name == "messages"
	if tg != nil {
		document = tg.document()
	}
	if err == nil || document {
		var bad error
		if raw, bad = c.text(); bad != nil {
			return bad
		}
	}
	if err == nil {
		err = tg.apply(ctx, raw)
	}
	if err != nil {
		if document {
			c.keepOnce(dest.hint(newName), raw, err)
		}
		return err
	}
	c.mu.Lock()
	c.into, c.dirty, c.hint = tg, false, dest.hint(newName)
	c.mu.Unlock()
	h.take(name, c)
	c.drop()
	return nil
}

// keepOnce keeps a text in failed/, unless it is there: the kernel asks twice
// where the answer is ESTALE.
func (c *scratch) keepOnce(hint string, raw []byte, why error) {
	c.mu.Lock()
	kept := c.kept
	c.kept = true
	c.mu.Unlock()
	if !kept {
		c.s.keep(hint, raw, why)
	}
}

// consumeLink moves the head to what a link that is renamed onto it means.
func (h *shelf) consumeLink(ctx context.Context, name string, c *scratch, dest *shelf, newName string, noReplace bool) error {
	if dest.name != "" || newName != "head" {
		return vnode.Immutable
	}
	if _, there := h.s.v.Load().headTarget(); there && noReplace {
		return &store.Error{Code: store.Exists, Op: "rename", Session: h.s.id, Ref: newName}
	}
	if err := h.s.linkHead(ctx, c.link); err != nil {
		return err
	}
	h.take(name, c)
	return nil
}

// exchange lets two names change places: two scratch files, or the texts of a
// scratch file and a file of ours.
func (h *shelf) exchange(ctx context.Context, name string, to *vnode.List, newName string) error {
	if err := h.s.writable(holdingAny(ctx)); err != nil {
		return err
	}
	dest, err := h.shelfOf(to)
	if err != nil {
		return err
	}
	a, okA := h.item(name)
	b, okB := dest.item(newName)
	switch {
	case okA && okB:
		h.s.mu.Lock()
		defer h.s.mu.Unlock()
		if h.items[name] == a && dest.items[newName] == b {
			h.items[name], dest.items[newName] = b, a
		}
		return nil
	case okA:
		return dest.swapText(h.renaming(ctx, to), newName, a)
	case okB:
		return h.swapText(h.renaming(ctx, to), name, b)
	}
	return vnode.Immutable
}

// swapText gives a file of ours a scratch file's text, and that one the text
// that the file had.
func (h *shelf) swapText(ctx context.Context, name string, c *scratch) error {
	tg, err := h.target(holdingAny(ctx), name)
	if err != nil {
		return err
	}
	if c.buf == nil {
		return vnode.Immutable
	}
	old, err := tg.shown(ctx)
	if err != nil {
		return err
	}
	raw, err := c.text()
	if err != nil {
		return err
	}
	if err := tg.apply(ctx, raw); err != nil {
		if tg.document() {
			h.s.keep(h.hint(name), raw, err)
		}
		return err
	}
	if err := c.buf.Truncate(0); err != nil {
		return err
	}
	_, err = c.buf.WriteAt(old, 0)
	return err
}
