package vnode

import (
	"context"
	"errors"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// File is a file whose content is a text that the tree can tell at any time:
// what embeds it is a Text.
type File struct{ Base }

// Writer is the writing side of one open handle. Its methods are called one
// at a time. See Value, Lines and Doc for what they do.
type Writer interface {
	// Write takes data at an offset; appending tells that the handle was
	// opened with O_APPEND, where the offset means nothing.
	Write(ctx context.Context, data []byte, off int64, appending bool) error
	// Flush is called at every close of a descriptor of the handle.
	Flush(ctx context.Context) error
	// Sync is called for fsync.
	Sync(ctx context.Context) error
	// Truncate sets the size of what this handle writes.
	Truncate(size uint64) error
	// Release ends the handle.
	Release(ctx context.Context)
}

// ownReader is a Writer whose handle reads what it has written itself.
type ownReader interface {
	// ReadAt reads at an offset; ok is false when the handle shows the file's
	// own text.
	ReadAt(ctx context.Context, dest []byte, off int64) (n int, ok bool, err error)
	// Size is the size of what the handle reads.
	Size() int64
}

// whole is a Writer that begins with the file's text, so that cutting it to a
// size means something without an open handle.
type whole interface{ InPlace() bool }

func (f *File) fileType() uint32 { return syscall.S_IFREG }

// handle is an open file.
type handle struct {
	f         *File
	appending bool

	mu      sync.Mutex // level 0: held while the tree reads or applies
	w       Writer     // nil: opened for reading
	opened  Stat       // of a handle for writing, at its open
	memo    []byte
	version any
	reading reading // of a WholeText
}

// Open begins a handle. A handle for writing bypasses the page cache: the
// errno of a refusal must come out of write(2), and the kernel may then be
// notified of the file from within the write.
func (f *File) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if f.env().Handleless {
		return &glimpse{f}, 0, 0
	}
	h := &handle{f: f, appending: flags&syscall.O_APPEND != 0}
	if flags&syscall.O_ACCMODE == syscall.O_RDONLY {
		if _, err := f.stat(ctx); err != nil {
			return nil, 0, f.env().Hush(err)
		}
		if f.whole() {
			return h, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH, 0
		}
		if f.Policy.Keep {
			return h, fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH, 0
		}
		return h, fuse.FOPEN_NOFLUSH, 0
	}
	ctx, stop := patient(ctx)
	defer stop()
	w, err := f.writer(ctx)
	if err != nil {
		return nil, 0, f.fail(ctx, "open", "", err)
	}
	h.w = w
	h.opened, err = f.stat(ctx)
	if err == nil && flags&syscall.O_TRUNC != 0 {
		err = w.Truncate(0)
	}
	if err != nil {
		w.Release(ctx)
		return nil, 0, f.fail(ctx, "open", "", err)
	}
	return h, fuse.FOPEN_DIRECT_IO, 0
}

// Getattr answers with the file's attributes. A file that is not part of the
// tree any more, because of what a handle wrote, still has those of its open
// for that handle: programs look at what they have written.
func (f *File) Getattr(ctx context.Context, fh fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if _, err := f.stat(ctx); errors.Is(err, Stale) {
		if h, ok := fh.(*handle); ok && h.w != nil {
			h.stat().fill(&out.Attr, syscall.S_IFREG, f.number())
			return 0
		}
	}
	return f.getattr(ctx, syscall.S_IFREG, out)
}

// stat is what a handle for writing knows of its file.
func (h *handle) stat() Stat {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.opened
	if r, ok := h.w.(ownReader); ok {
		st.Size = r.Size()
	}
	return st
}

// Setattr accepts times, and of a file that can be written a new size: as a
// handle's writer says. Without a handle, 0 changes nothing by itself, as
// open's O_TRUNC does not, and another size is for a document.
func (f *File) Setattr(ctx context.Context, fh fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	ctx, stop := patient(ctx)
	defer stop()
	return f.setattr(ctx, in, syscall.S_IFREG, out, func(size uint64) error {
		if h, ok := fh.(*handle); ok && h.w != nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.w.Truncate(size)
		}
		w, err := f.writer(ctx)
		if err != nil {
			return err
		}
		defer w.Release(ctx)
		if size == 0 {
			return nil
		}
		if d, ok := w.(whole); !ok || !d.InPlace() {
			return BadSize
		}
		if err := w.Truncate(size); err != nil {
			return err
		}
		return w.Sync(ctx)
	})
}

// Fsync applies what a handle holds back.
func (f *File) Fsync(ctx context.Context, fh fs.FileHandle, _ uint32) syscall.Errno {
	h, ok := fh.(*handle)
	if !ok || h.w == nil {
		return 0
	}
	ctx, stop := patient(ctx)
	defer stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.w.Sync(ctx); err != nil {
		return f.fail(ctx, "fsync", "", err)
	}
	return 0
}

// text returns the file's text, of this very moment.
func (h *handle) text(ctx context.Context) ([]byte, error) {
	v, ok := h.f.version()
	if !ok {
		return h.f.read(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.memo != nil && h.version == v {
		return h.memo, nil
	}
	b, err := h.f.read(ctx)
	if err != nil {
		return nil, err
	}
	// Kept under the version from before the reading: a newer text under an
	// older version is only read once more.
	h.memo, h.version = b, v
	return b, nil
}

// Read answers with a piece of the text.
func (h *handle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if r, ok := h.w.(ownReader); ok {
		h.mu.Lock()
		n, own, err := r.ReadAt(ctx, dest, off)
		h.mu.Unlock()
		switch {
		case err != nil:
			return nil, h.f.fail(ctx, "read", "", err)
		case own:
			return fuse.ReadResultData(dest[:n]), 0
		}
	}
	if h.f.whole() {
		r, err := h.readWhole(ctx, dest, off)
		if err != nil {
			return nil, h.f.fail(ctx, "read", "", err)
		}
		return r, 0
	}
	b, err := h.text(ctx)
	if err != nil {
		return nil, h.f.fail(ctx, "read", "", err)
	}
	return piece(b, dest, off), 0
}

// Write gives the data to the writer.
func (h *handle) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.w == nil {
		return 0, h.f.fail(ctx, "write", "", Immutable)
	}
	ctx, stop := patient(ctx)
	defer stop()
	if err := h.w.Write(ctx, data, off, h.appending); err != nil {
		return 0, h.f.fail(ctx, "write", "", err)
	}
	return uint32(len(data)), 0
}

// Flush tells the writer that a descriptor was closed.
func (h *handle) Flush(ctx context.Context) syscall.Errno {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.w == nil {
		return 0
	}
	ctx, stop := patient(ctx)
	defer stop()
	if err := h.w.Flush(ctx); err != nil {
		return h.f.fail(ctx, "close", "", err)
	}
	return 0
}

// Release ends the handle.
func (h *handle) Release(ctx context.Context) syscall.Errno {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.w != nil {
		h.w.Release(context.WithoutCancel(ctx))
	}
	h.endReading(ctx)
	return 0
}

var (
	_ Node             = (*File)(nil)
	_ fs.NodeOpener    = (*File)(nil)
	_ fs.NodeGetattrer = (*File)(nil)
	_ fs.NodeSetattrer = (*File)(nil)
	_ fs.NodeFsyncer   = (*File)(nil)
	_ fs.NodeStatfser  = (*File)(nil)

	_ fs.FileReader   = (*handle)(nil)
	_ fs.FileWriter   = (*handle)(nil)
	_ fs.FileFlusher  = (*handle)(nil)
	_ fs.FileReleaser = (*handle)(nil)
)
