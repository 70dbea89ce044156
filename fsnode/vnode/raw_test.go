package vnode

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// toy is a tree without a mount: requests are sent to go-fuse's bridge as the
// kernel would.
type toy struct {
	t    *testing.T
	fs   fuse.RawFileSystem
	root *FuncList
	env  *Env
	// failed are the operations that were recorded as refused.
	failed []string
}

var toyTime = time.Unix(1700000000, 5)

func newToy(t *testing.T, build func(y *toy) Table) *toy {
	t.Helper()
	y := &toy{t: t}
	errno := func(err error) syscall.Errno {
		var r Refusal
		switch {
		case !errors.As(err, &r):
			return syscall.EIO
		case r == Immutable:
			return syscall.EPERM
		case r == NotFound:
			return syscall.ENOENT
		case r == Stale:
			return syscall.ESTALE
		case r == TooLarge:
			return syscall.EFBIG
		case r == CrossDevice:
			return syscall.EXDEV
		case r == Killed:
			return syscall.EINTR
		}
		return syscall.EINVAL
	}
	y.env = &Env{
		Fail: func(_ context.Context, op, path string, err error) syscall.Errno {
			y.failed = append(y.failed, op+" "+path)
			return errno(err)
		},
		Hush:    errno,
		Beneath: t.TempDir(),
	}
	y.root = &FuncList{Spec: y.base("root", 0o700), Env: y.env}
	y.fs = NewFS(y.root, fuse.MountOptions{})
	table := build(y)
	y.root.Entries, y.root.Find = table.Entries, table.Find
	return y
}

func (y *toy) base(id string, perm uint32) Spec {
	return Spec{Number: Ino(id), Policy: Policy{Entry: For(time.Hour), Attr: For(time.Hour)}, Stat: func(context.Context) (Stat, error) {
		return Stat{Perm: perm, MTime: toyTime, UID: 12, GID: 34}, nil
	}}
}

// file adds a file with a text to a table.
func (y *toy) file(name, text string, writer func(context.Context) (Writer, error)) Row {
	f := &FuncFile{
		Spec:   Spec{Number: Ino(name), Policy: Policy{Entry: For(time.Hour), Attr: For(time.Minute), Keep: true}},
		Read:   func(context.Context) ([]byte, error) { return []byte(text), nil },
		Writer: writer,
	}
	perm := uint32(0o400)
	if writer != nil {
		perm = 0o600
	}
	f.Stat = func(context.Context) (Stat, error) {
		return Stat{Perm: perm, Size: int64(len(text)), MTime: toyTime, UID: 12, GID: 34}, nil
	}
	PlaceFunc(context.Background(), &y.root.Inode, f)
	return Row{Name: name, Found: Found{Node: f}}
}

func header(node uint64) fuse.InHeader { return fuse.InHeader{NodeId: node} }

func (y *toy) lookup(parent uint64, name string) (fuse.EntryOut, syscall.Errno) {
	var out fuse.EntryOut
	h := header(parent)
	st := y.fs.Lookup(nil, &h, name, &out)
	return out, syscall.Errno(st)
}

func (y *toy) must(parent uint64, name string) fuse.EntryOut {
	y.t.Helper()
	out, errno := y.lookup(parent, name)
	if errno != 0 {
		y.t.Fatalf("lookup %s: %v", name, errno)
	}
	return out
}

func (y *toy) open(node uint64, flags uint32) (fuse.OpenOut, syscall.Errno) {
	var out fuse.OpenOut
	st := y.fs.Open(nil, &fuse.OpenIn{InHeader: header(node), Flags: flags}, &out)
	return out, syscall.Errno(st)
}

func (y *toy) write(node, fh uint64, text string, off uint64) syscall.Errno {
	_, st := y.fs.Write(nil, &fuse.WriteIn{InHeader: header(node), Fh: fh, Offset: off}, []byte(text))
	return syscall.Errno(st)
}

func (y *toy) flush(node, fh uint64) syscall.Errno {
	return syscall.Errno(y.fs.Flush(nil, &fuse.FlushIn{InHeader: header(node), Fh: fh}))
}

func (y *toy) read(node, fh uint64, off uint64, size int) (string, syscall.Errno) {
	buf := make([]byte, size)
	res, st := y.fs.Read(nil, &fuse.ReadIn{InHeader: header(node), Fh: fh, Offset: off, Size: uint32(size)}, buf)
	if !st.Ok() {
		return "", syscall.Errno(st)
	}
	b, _ := res.Bytes(buf)
	return string(b), 0
}

func (y *toy) release(node, fh uint64) {
	y.fs.Release(nil, &fuse.ReleaseIn{InHeader: header(node), Fh: fh})
}
