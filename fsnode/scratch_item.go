package fsnode

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sessionfs/sessionfs/fsnode/spool"
	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// scratch is one file or link of a shelf.
type scratch struct {
	s    *session
	hint string // for the spool: what it was
	node vnode.Node
	link string // a link's target
	file *vnode.Scratch
	buf  *spool.Buf // a file's content

	mu    sync.Mutex // leaf: guards what follows
	perm  uint32
	uid   uint32
	gid   uint32
	mtime time.Time
	named bool
	// into is the file that this one was renamed over: what a handle still
	// writes belongs there.
	into  target
	dirty bool // written since it was renamed over into
	kept  bool // what it holds is in failed/
}

// newScratch describes an item that is not on a shelf yet.
func (h *shelf) newScratch(name string) *scratch {
	v := h.s.v.Load()
	return &scratch{s: h.s, hint: h.hint(name), uid: v.sn.UID, gid: v.sn.GID, mtime: h.s.t.now()}
}

// newLink makes a link.
func (h *shelf) newLink(name, to string) *scratch {
	c := h.newScratch(name)
	c.link = to
	l := &vnode.FuncLink{Spec: h.base(c), Target: func(context.Context) (string, error) { return to, nil }}
	c.node = l
	vnode.PlaceFunc(context.Background(), &h.dir.Inode, l)
	return c
}

// newFile makes a file.
func (h *shelf) newFile(name string, perm uint32) (*scratch, error) {
	c := h.newScratch(name)
	buf, err := h.s.t.sp.Create(c.hint)
	if err != nil {
		return nil, err
	}
	c.buf, c.perm = buf, perm&0o7777
	c.file = &vnode.Scratch{Spec: h.base(c), Blob: blob{buf}, Wrote: c.wrote, Settle: c.settle, SetAttr: c.setAttr, Closed: c.closed}
	c.node = c.file
	vnode.PlaceFunc(context.Background(), &h.dir.Inode, c.file)
	return c, nil
}

// blob is a scratch file's content: one that is too large has no room.
type blob struct{ *spool.Buf }

func (b blob) WriteAt(p []byte, off int64) (int, error) {
	n, err := b.Buf.WriteAt(p, off)
	return n, b.room(err)
}

func (b blob) Truncate(size int64) error { return b.room(b.Buf.Truncate(size)) }

func (b blob) room(err error) error {
	if errors.Is(err, spool.ErrTooLarge) {
		return &store.Error{Code: store.NoSpace, Op: "write", Err: errors.New("a scratch file has no room for more than 64 MiB")}
	}
	return err
}

func (c *scratch) stat(context.Context) (vnode.Stat, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := vnode.Stat{Perm: c.perm, MTime: c.mtime, UID: c.uid, GID: c.gid, Size: int64(len(c.link))}
	if c.buf != nil {
		st.Size = c.buf.Size()
	}
	return st, nil
}

func (c *scratch) wrote() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mtime, c.dirty, c.kept = c.s.t.now(), true, false
}

func (c *scratch) setAttr(a vnode.AttrChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.Perm != nil {
		c.perm = *a.Perm
	}
	if a.UID != nil {
		c.uid = *a.UID
	}
	if a.GID != nil {
		c.gid = *a.GID
	}
	if a.MTime != nil {
		c.mtime = *a.MTime
	}
}

func (c *scratch) setNamed(named bool, hint string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.named = named
	if hint != "" {
		c.hint = hint
	}
}

// settle puts the content on the spool's disk, and of a file that was renamed
// over one of ours the text into that one.
func (c *scratch) settle(ctx context.Context, sync bool) error {
	c.mu.Lock()
	into, dirty, hint := c.into, c.dirty, c.hint
	if into != nil {
		c.dirty = false
	}
	c.mu.Unlock()
	switch {
	case into == nil && sync:
		return c.buf.Sync()
	case into == nil:
		return c.buf.Persist()
	case !dirty:
		return nil
	}
	raw, err := c.buf.Bytes()
	if err == nil {
		err = into.apply(ctx, raw)
	}
	if err != nil && into.document() {
		c.s.keep(hint, raw, err)
	}
	return err
}

// text is the content. A file that nobody has open is not left open.
func (c *scratch) text() ([]byte, error) {
	raw, err := c.buf.Bytes()
	if err == nil && !c.file.HeldOpen() {
		err = c.buf.Persist()
	}
	return raw, err
}

// closed is called when the last handle is gone.
func (c *scratch) closed() {
	c.mu.Lock()
	named := c.named
	c.mu.Unlock()
	if !named {
		c.buf.Discard()
		return
	}
	// What is on disk needs no open file. That it cannot be put there was
	// said to who wrote it.
	_ = c.buf.Persist()
}

// drop ends a name; the content goes when nobody has it open.
func (c *scratch) drop() {
	c.setNamed(false, "")
	if c.buf != nil && !c.file.HeldOpen() {
		c.buf.Discard()
	}
}
