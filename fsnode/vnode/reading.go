package vnode

import (
	"bytes"
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// reading is what one open file is being given of a text that changes. Whoever
// reads from the beginning to the end, in whatever pieces, gets one of the
// texts that the file had, as it was when he began:
//
//   - Back at the beginning, he gets the text of now.
//   - At the end, he gets what was added to his text, if the text of now begins
//     with it. If it is another text, he is told of the end first; who still
//     asks is a follower, and gets what stands behind that place now, as he
//     would on a disk.
//
// The text is taken at the first read and not at the open, so that nothing is
// made for who only looks, and nothing is old before it is asked for. Pages of
// the kernel's (a mapping, sendfile) come from here too, but they end where the
// kernel believes that the file ends.
type reading struct {
	text  []byte
	taken bool
	as    any  // the file's Version when it was taken
	begun bool // the beginning was given away
	ended bool // the end was told
}

// at returns the text that a read at an offset is answered from; fresh tells
// that it is another one than before.
func (r *reading) at(off int64, now func() ([]byte, error)) (text []byte, fresh bool, err error) {
	again := off == 0 && r.begun
	if r.taken && !again && off < int64(len(r.text)) {
		r.begun = r.begun || off == 0
		return r.text, false, nil
	}
	cur, err := now()
	if err != nil {
		return nil, false, err
	}
	if !r.taken || again || r.ended || bytes.HasPrefix(cur, r.text) {
		fresh = !r.taken || !bytes.Equal(cur, r.text)
		r.text, r.taken = cur, true
	}
	r.begun = r.begun || off == 0
	r.ended = off >= int64(len(r.text))
	return r.text, fresh, nil
}

// servedText is a Writer that wants to know what its handle has read.
type servedText interface{ Served(text []byte) }

// readWhole answers a read of a WholeText.
func (h *handle) readWhole(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var as any
	b, fresh, err := h.reading.at(off, func() ([]byte, error) {
		as, _ = h.f.version()
		return h.f.read(ctx)
	})
	if err != nil {
		return nil, err
	}
	if fresh {
		h.reading.as = as
		if w, ok := h.w.(servedText); ok {
			w.Served(b)
		}
		if o, ok := h.f.Operations().(Serving); ok {
			o.Served(ctx, b)
		}
	}
	return piece(b, dest, off), nil
}

// endReading ends a handle's reading. A page of the kernel's that was read from
// a text which ends earlier than that of now has made the kernel believe that
// the file does.
func (h *handle) endReading(ctx context.Context) {
	r := h.reading
	h.reading = reading{}
	if !r.taken {
		return
	}
	if v, ok := h.f.version(); ok {
		if v != r.as {
			h.f.AttrChanged()
		}
		return
	}
	if cur, err := h.f.read(ctx); err != nil || !bytes.Equal(cur, r.text) {
		h.f.AttrChanged()
	}
}

// piece is what of a text an answer has room for.
func piece(b, dest []byte, off int64) fuse.ReadResult {
	off = min(off, int64(len(b)))
	return fuse.ReadResultData(b[off:min(off+int64(len(dest)), int64(len(b)))])
}
