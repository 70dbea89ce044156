package vnode

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Snap is a read-only file whose text differs at every moment: a handle keeps
// the text of its open, with its size. It bypasses the page cache, as the
// pages would be everybody's.
type Snap struct {
	Base
	Spec
	// Take returns the text of now.
	Take func() []byte

	look lookText // where nobody opens it
}

func (f *Snap) fileType() uint32 { return syscall.S_IFREG }

type snapHandle struct{ text []byte }

// Open takes the text.
func (f *Snap) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		return nil, 0, f.fail(ctx, "open", "", Immutable)
	}
	if f.env().Handleless {
		return &f.look, 0, 0
	}
	return &snapHandle{f.Take()}, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH, 0
}

// Read answers with a piece of the handle's text.
func (h *snapHandle) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	off = min(off, int64(len(h.text)))
	return fuse.ReadResultData(h.text[off:min(off+int64(len(dest)), int64(len(h.text)))]), 0
}

// Getattr answers with the attributes, with the size of a handle's own text.
func (f *Snap) Getattr(ctx context.Context, fh fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	errno := f.getattr(ctx, syscall.S_IFREG, out)
	if f.env().Handleless && errno == 0 {
		size, at := f.look.take(f.Take())
		out.Size, out.Blocks = uint64(size), uint64(size+511)/512
		out.SetTimes(&at, &at, &at)
		return 0
	}
	if h, ok := fh.(*snapHandle); ok && errno == 0 {
		out.Size = uint64(len(h.text))
		out.Blocks = (out.Size + 511) / 512
	}
	return errno
}

// Setattr accepts times and refuses the rest.
func (f *Snap) Setattr(ctx context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return f.setattr(ctx, in, syscall.S_IFREG, out, refuseSize)
}

var (
	_ Node             = (*Snap)(nil)
	_ fs.NodeOpener    = (*Snap)(nil)
	_ fs.NodeGetattrer = (*Snap)(nil)
	_ fs.NodeSetattrer = (*Snap)(nil)
	_ fs.NodeStatfser  = (*Snap)(nil)
	_ fs.FileReader    = (*snapHandle)(nil)
)
