package vnode

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Disk is a read-only file whose content is a file of the daemon's own, of any
// size. It does not change.
type Disk struct {
	Base
	Spec
	// Path is where the content is.
	Path string
}

func (f *Disk) fileType() uint32 { return syscall.S_IFREG }

type diskHandle struct {
	f    *Disk
	file *os.File
}

// Open opens the file beneath.
func (f *Disk) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		return nil, 0, f.fail(ctx, "open", "", Immutable)
	}
	file, err := os.OpenFile(f.Path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, f.env().Hush(Stale)
	}
	if err != nil {
		return nil, 0, f.fail(ctx, "open", "", err)
	}
	return &diskHandle{f, file}, fuse.FOPEN_NOFLUSH, 0
}

// Read answers with a piece of the file.
func (h *diskHandle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := h.file.ReadAt(dest, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, h.f.fail(ctx, "read", "", err)
	}
	return fuse.ReadResultData(dest[:n]), 0
}

// Release closes the file beneath.
func (h *diskHandle) Release(context.Context) syscall.Errno {
	_ = h.file.Close() // it was only read
	return 0
}

// Getattr answers with the attributes.
func (f *Disk) Getattr(ctx context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	return f.getattr(ctx, syscall.S_IFREG, out)
}

// Setattr accepts times and refuses the rest.
func (f *Disk) Setattr(ctx context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return f.setattr(ctx, in, syscall.S_IFREG, out, refuseSize)
}

var (
	_ Node             = (*Disk)(nil)
	_ fs.NodeOpener    = (*Disk)(nil)
	_ fs.NodeGetattrer = (*Disk)(nil)
	_ fs.NodeSetattrer = (*Disk)(nil)
	_ fs.NodeStatfser  = (*Disk)(nil)
	_ fs.FileReader    = (*diskHandle)(nil)
	_ fs.FileReleaser  = (*diskHandle)(nil)
)
