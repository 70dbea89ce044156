package fsnode

import (
	"github.com/hanwen/go-fuse/v2/fuse"
)

// wire is the tree as the kernel speaks to it. It refuses OPENDIR, which
// makes the kernel read directories without asking first and keep what it has
// read until it is notified; this is the one ENOSYS of the mount. go-fuse's
// nodes need a handle to read a directory, so each READDIR gets one of its
// own.
type wire struct{ fuse.RawFileSystem }

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
