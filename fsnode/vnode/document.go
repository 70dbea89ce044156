package vnode

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Doc is the writing side of a file whose content is collected a handle and
// applied as a whole: at flush, which every close of a descriptor sends, and
// at fsync. A flush after which more is written is followed by another, so
// Apply may come several times with a text that has grown. What a writer
// leaves behind that dies by a signal is not applied.
type Doc struct {
	// Begin makes the early checks and returns the place to collect in.
	Begin func(ctx context.Context) (Draft, error)
	// Killed reports whether the process of a request is dying by a signal;
	// nil asks the kernel.
	Killed func(pid uint32) bool
	// Unfinished, when not nil, reports whether an error of Apply may be due
	// to a text of which more is to come: the handle then goes on, and the
	// next flush applies all of it.
	Unfinished func(err error) bool
	// InPlace tells that a draft begins with the file's text, as its Size and
	// ReadAt say, and that the handle reads what it has written.
	InPlace bool
}

// Draft is what one handle collects.
type Draft interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	Truncate(size int64) error
	Size() int64
	// Apply makes the text so far what it is meant to become.
	Apply(ctx context.Context) error
	// Abandon keeps the text where its writer can find it: why says why it
	// could not be applied. After an error that Unfinished knows, it may be
	// followed by Apply again.
	Abandon(ctx context.Context, why error)
	// Close ends the draft.
	Close()
}

// Writer begins a handle's writing.
func (d Doc) Writer(ctx context.Context) (Writer, error) {
	draft, err := d.Begin(ctx)
	if err != nil {
		return nil, err
	}
	killed := d.Killed
	if killed == nil {
		killed = dyingBySignal
	}
	return &docWriter{doc: d, d: draft, killed: killed}, nil
}

type docWriter struct {
	doc    Doc
	d      Draft
	killed func(pid uint32) bool
	own    bool  // something was written at some time
	dirty  bool  // something was written since the last Apply
	broken error // why this handle takes no more
}

func (w *docWriter) Write(_ context.Context, data []byte, off int64, appending bool) error {
	if w.broken != nil {
		return w.broken
	}
	if appending {
		off = w.d.Size()
	}
	if len(data) > 0 {
		w.dirty, w.own = true, true
	}
	if _, err := w.d.WriteAt(data, off); err != nil {
		w.broken = err // a text with a hole is not what was meant
		return err
	}
	return nil
}

func (w *docWriter) Flush(ctx context.Context) error {
	if c, ok := fuse.FromContext(ctx); ok && w.dirty && w.killed(c.Pid) {
		return w.abandon(ctx, Killed)
	}
	return w.Sync(ctx)
}

func (w *docWriter) Sync(ctx context.Context) error {
	if !w.dirty {
		return nil
	}
	if w.broken != nil {
		return w.abandon(ctx, w.broken)
	}
	w.dirty = false
	err := w.d.Apply(ctx)
	switch {
	case err == nil:
		return nil
	case w.doc.Unfinished != nil && w.doc.Unfinished(err):
		w.d.Abandon(ctx, err)
		return err
	}
	return w.abandon(ctx, err)
}

// InPlace reports whether the draft begins with the file's text.
func (w *docWriter) InPlace() bool { return w.doc.InPlace }

// Size is the size of the draft.
func (w *docWriter) Size() int64 { return w.d.Size() }

// ReadAt reads what the handle has written, once it has.
func (w *docWriter) ReadAt(_ context.Context, dest []byte, off int64) (n int, ok bool, err error) {
	if !w.doc.InPlace || !w.own {
		return 0, false, nil
	}
	n, err = w.d.ReadAt(dest, off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, true, err
}

// Served tells the draft what its handle has read, if it wants to know.
func (w *docWriter) Served(text []byte) {
	if d, ok := w.d.(servedText); ok {
		d.Served(text)
	}
}

// abandon gives the text up. The handle takes no more: half a text would
// look like a whole one.
func (w *docWriter) abandon(ctx context.Context, why error) error {
	w.dirty, w.broken = false, why
	w.d.Abandon(ctx, why)
	return why
}

func (w *docWriter) Truncate(size uint64) error {
	if w.broken != nil {
		return w.broken
	}
	if int64(size) == w.d.Size() {
		return nil
	}
	w.dirty, w.own = true, true
	return w.d.Truncate(int64(size))
}

// Release keeps what was never flushed: a connection that ends takes the
// flushes with it.
func (w *docWriter) Release(ctx context.Context) {
	if w.dirty {
		why := w.broken
		if why == nil {
			why = Killed
		}
		_ = w.abandon(ctx, why)
	}
	w.d.Close()
}

// killed reports whether the process of a request is dying by a signal.
func killed(ctx context.Context) bool {
	c, ok := fuse.FromContext(ctx)
	return ok && dyingBySignal(c.Pid)
}

// dyingBySignal reads the last field of /proc/<pid>/stat, the exit code of a
// task that is ending: the signal in its low seven bits. Flush comes for such
// a process too. A task that cannot be read counts as alive, and so does one
// that has its memory: in the middle of an exec, which closes files, its stat
// would wait for the very answer that is being made.
func dyingBySignal(pid uint32) bool {
	if pid == 0 {
		return false
	}
	dir := "/proc/" + strconv.FormatUint(uint64(pid), 10)
	if b, err := os.ReadFile(dir + "/status"); err != nil || bytes.Contains(b, []byte("\nVmSize:")) {
		return false
	}
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return false
	}
	b = bytes.TrimSpace(b)
	code, err := strconv.Atoi(string(b[bytes.LastIndexByte(b, ' ')+1:]))
	return err == nil && code&0x7f != 0
}
