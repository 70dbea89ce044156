package fsnode

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// wire is the tree as the kernel speaks to it. It refuses OPENDIR, which
// makes the kernel read directories without asking first and keep what it has
// read until it is notified. go-fuse's nodes need a handle to read a
// directory, so each READDIR gets one of its own.
//
// A handleless one refuses OPEN and FLUSH in the same way, and then the kernel
// reads files without asking first, too. That is for a mount that nothing is
// written through. Each of these answers is for the whole mount, for ever.
type wire struct {
	fuse.RawFileSystem
	handleless bool
}

// Lookup finds a name. That there is none is an answer, too, which the kernel
// keeps for the time in it.
func (w wire) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	st := w.RawFileSystem.Lookup(cancel, h, name, out)
	if st != fuse.ENOENT || out.EntryTimeout() < time.Second {
		return st
	}
	keep := out.EntryTimeout()
	*out = fuse.EntryOut{}
	out.SetEntryTimeout(keep)
	return fuse.OK
}

// Open refuses where there are no handles.
func (w wire) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if w.handleless {
		return fuse.ENOSYS
	}
	return w.RawFileSystem.Open(cancel, in, out)
}

// Flush refuses where there are no handles.
func (w wire) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	if w.handleless {
		return fuse.ENOSYS
	}
	return w.RawFileSystem.Flush(cancel, in)
}

// Lseek refuses where there are no handles: the kernel then takes a file for
// one without holes.
func (w wire) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	if w.handleless {
		return fuse.ENOSYS
	}
	return w.RawFileSystem.Lseek(cancel, in, out)
}

// Read reads a piece of a file, where there are no handles with one of its
// own.
func (w wire) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	if !w.handleless {
		return w.RawFileSystem.Read(cancel, in, buf)
	}
	var o fuse.OpenOut
	if st := w.RawFileSystem.Open(cancel, &fuse.OpenIn{InHeader: in.InHeader}, &o); !st.Ok() {
		return nil, st
	}
	defer w.RawFileSystem.Release(cancel, &fuse.ReleaseIn{InHeader: in.InHeader, Fh: o.Fh})
	page := *in
	page.Fh = o.Fh
	res, st := w.RawFileSystem.Read(cancel, &page, buf)
	if !st.Ok() {
		return nil, st
	}
	// The handle is gone before the answer is on its way.
	b, st := res.Bytes(buf)
	res.Done()
	return fuse.ReadResultData(b), st
}

// OpenDir refuses.
func (w wire) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status {
	return fuse.ENOSYS
}

// ReadDir lists names.
func (w wire) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return w.read(cancel, in, out, w.RawFileSystem.ReadDir)
}

// ReadDirPlus lists names and looks each up.
func (w wire) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return w.read(cancel, in, out, w.RawFileSystem.ReadDirPlus)
}

func (w wire) read(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList,
	list func(<-chan struct{}, *fuse.ReadIn, *fuse.DirEntryList) fuse.Status) fuse.Status {
	var o fuse.OpenOut
	if st := w.RawFileSystem.OpenDir(cancel, &fuse.OpenIn{InHeader: in.InHeader}, &o); !st.Ok() {
		return st
	}
	defer w.RawFileSystem.ReleaseDir(&fuse.ReleaseIn{InHeader: in.InHeader, Fh: o.Fh})
	page := *in
	page.Fh = o.Fh
	return list(cancel, &page, out)
}
