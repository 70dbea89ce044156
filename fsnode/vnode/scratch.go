package vnode

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Scratch is a file that belongs to whoever made it: it is written in place,
// it has the mode and the times that it is given, and nothing but the kernel's
// own requests changes it, so that the kernel's pages of it are always right.
type Scratch struct {
	Base
	Spec
	// Blob is the content.
	Blob Blob
	// Wrote is called after each change of the content.
	Wrote func()
	// Settle is called when a descriptor that may have written is closed, and
	// for fsync; its error is the caller's.
	Settle func(ctx context.Context, sync bool) error
	// SetAttr takes over what was asked for.
	SetAttr func(AttrChange)
	// Closed is called when the last handle is gone.
	Closed func()

	mu   sync.Mutex // leaf
	open int
}

// Blob is the content of a Scratch. Its methods are safe for concurrent use.
type Blob interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
}

// AttrChange is what a setattr asks for; what is nil stays.
type AttrChange struct {
	Perm, UID, GID *uint32
	MTime          *time.Time
}

func (s *Scratch) fileType() uint32 { return syscall.S_IFREG }

// HeldOpen reports whether a handle is open.
func (s *Scratch) HeldOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open > 0
}

// scratchHandle is an open Scratch.
type scratchHandle struct {
	s      *Scratch
	writes bool
}

// Open begins a handle.
func (s *Scratch) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_TRUNC != 0 {
		if err := s.resize(0); err != nil {
			return nil, 0, s.fail(ctx, "open", "", err)
		}
	}
	s.mu.Lock()
	s.open++
	s.mu.Unlock()
	return &scratchHandle{s: s, writes: flags&syscall.O_ACCMODE != syscall.O_RDONLY}, 0, 0
}

func (s *Scratch) resize(size int64) error {
	if err := s.Blob.Truncate(size); err != nil {
		return err
	}
	s.Wrote()
	return nil
}

// Getattr answers with the file's attributes.
func (s *Scratch) Getattr(ctx context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	return s.getattr(ctx, syscall.S_IFREG, out)
}

// Setattr takes over size, mode, owner and times.
func (s *Scratch) Setattr(ctx context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if n, ok := in.GetSize(); ok {
		if err := s.resize(int64(n)); err != nil {
			return s.fail(ctx, "truncate", "", err)
		}
	}
	var c AttrChange
	if mode, ok := in.GetMode(); ok {
		mode &= 0o7777
		c.Perm = &mode
	}
	if uid, ok := in.GetUID(); ok {
		c.UID = &uid
	}
	if gid, ok := in.GetGID(); ok {
		c.GID = &gid
	}
	if t, ok := in.GetMTime(); ok {
		c.MTime = &t
	}
	s.SetAttr(c)
	return s.getattr(ctx, syscall.S_IFREG, out)
}

// Fsync settles the content.
func (s *Scratch) Fsync(ctx context.Context, _ fs.FileHandle, _ uint32) syscall.Errno {
	return s.settle(ctx, "fsync", true)
}

func (s *Scratch) settle(ctx context.Context, op string, sync bool) syscall.Errno {
	ctx, stop := patient(ctx)
	defer stop()
	if err := s.Settle(ctx, sync); err != nil {
		return s.fail(ctx, op, "", err)
	}
	return 0
}

// Read answers with a piece of the content.
func (h *scratchHandle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := h.s.Blob.ReadAt(dest, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, h.s.fail(ctx, "read", "", err)
	}
	return fuse.ReadResultData(dest[:n]), 0
}

// Write puts data into the content.
func (h *scratchHandle) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	n, err := h.s.Blob.WriteAt(data, off)
	if n > 0 {
		h.s.Wrote()
	}
	if err != nil {
		return 0, h.s.fail(ctx, "write", "", err)
	}
	return uint32(n), 0
}

// Flush settles the content when a descriptor is closed.
func (h *scratchHandle) Flush(ctx context.Context) syscall.Errno {
	if !h.writes {
		return 0
	}
	return h.s.settle(ctx, "close", false)
}

// Release ends the handle.
func (h *scratchHandle) Release(context.Context) syscall.Errno {
	h.s.mu.Lock()
	h.s.open--
	last := h.s.open == 0
	h.s.mu.Unlock()
	if last {
		h.s.Closed()
	}
	return 0
}

var (
	_ Node             = (*Scratch)(nil)
	_ fs.NodeOpener    = (*Scratch)(nil)
	_ fs.NodeGetattrer = (*Scratch)(nil)
	_ fs.NodeSetattrer = (*Scratch)(nil)
	_ fs.NodeFsyncer   = (*Scratch)(nil)
	_ fs.NodeStatfser  = (*Scratch)(nil)

	_ fs.FileReader   = (*scratchHandle)(nil)
	_ fs.FileWriter   = (*scratchHandle)(nil)
	_ fs.FileFlusher  = (*scratchHandle)(nil)
	_ fs.FileReleaser = (*scratchHandle)(nil)
)
