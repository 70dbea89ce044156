package fsnode

import (
	"context"
	"encoding/binary"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/spool"
	"github.com/sessionfs/sessionfs/store"
)

// bench is a tree without a mount, on a real store in a temporary directory:
// requests are sent to it as the kernel would.
type bench struct {
	t    testing.TB
	tree *tree
	st   *store.Store
	fs   fuse.RawFileSystem
}

// faulty is a store of which one operation fails.
type faulty struct {
	*store.Store
	mu   sync.Mutex
	head error
}

func (f *faulty) SetHead(ctx context.Context, id string, ref store.Ref, mv store.HeadMove) (string, error) {
	f.mu.Lock()
	err := f.head
	f.mu.Unlock()
	if err != nil {
		return "", err
	}
	return f.Store.SetHead(ctx, id, ref, mv)
}

func newBench(t testing.TB, wrap func(*store.Store) Store) *bench {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(context.Background(), store.Options{Root: filepath.Join(dir, "store"), Create: true, Watch: true, GitSync: "off"})
	if err != nil {
		t.Fatal(err)
	}
	sp, err := spool.Open(filepath.Join(dir, "spool"), spool.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var s Store = st
	if wrap != nil {
		s = wrap(st)
	}
	tr, err := newTree(Config{Store: s, Version: "test"}, sp)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, tree: tr, st: st}
	b.fs = wire{RawFileSystem: tr.newRoot(fuse.MountOptions{})}
	tr.later, tr.reaper = newLater(), newReaper(tr)
	tr.serving.Store(true)
	cancel := st.Subscribe(tr)
	if err := tr.loadRows(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		tr.later.close()
		tr.reaper.close()
		if err := errors.Join(st.Close(), sp.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func hdr(node uint64) fuse.InHeader { return fuse.InHeader{NodeId: node} }

// find walks a path; the last name may be missing.
func (b *bench) find(path string) (fuse.EntryOut, syscall.Errno) {
	out := fuse.EntryOut{NodeId: 1}
	for _, name := range strings.Split(path, "/") {
		h := hdr(out.NodeId)
		out = fuse.EntryOut{}
		if st := b.fs.Lookup(nil, &h, name, &out); !st.Ok() {
			return out, syscall.Errno(st)
		}
		if out.NodeId == 0 { // that there is none, to be kept
			return out, syscall.ENOENT
		}
	}
	return out, 0
}

func (b *bench) node(path string) uint64 {
	b.t.Helper()
	out, errno := b.find(path)
	if errno != 0 {
		b.t.Fatalf("%s: %v", path, errno)
	}
	return out.NodeId
}

func (b *bench) list(path string) []string {
	b.t.Helper()
	var names []string
	var off uint64
	node := uint64(1)
	if path != "" {
		node = b.node(path)
	}
	for {
		out := fuse.NewDirEntryList(make([]byte, 4096), off)
		if st := b.fs.ReadDir(nil, &fuse.ReadIn{InHeader: hdr(node), Offset: off, Size: 4096}, out); !st.Ok() {
			b.t.Fatalf("readdir %s: %v", path, st)
		}
		p := out.Bytes()
		if len(p) == 0 {
			return names
		}
		for len(p) >= 24 {
			n := int(p[16]) | int(p[17])<<8
			if name := string(p[24 : 24+n]); name != "." && name != ".." {
				names = append(names, name)
			}
			off = binary.LittleEndian.Uint64(p[8:])
			p = p[(24+n+7)&^7:]
		}
	}
}

func (b *bench) read(path string) string {
	b.t.Helper()
	node := b.node(path)
	var o fuse.OpenOut
	if st := b.fs.Open(nil, &fuse.OpenIn{InHeader: hdr(node)}, &o); !st.Ok() {
		b.t.Fatalf("open %s: %v", path, st)
	}
	defer b.fs.Release(nil, &fuse.ReleaseIn{InHeader: hdr(node), Fh: o.Fh})
	buf := make([]byte, 1<<16)
	res, st := b.fs.Read(nil, &fuse.ReadIn{InHeader: hdr(node), Fh: o.Fh, Size: 1 << 16}, buf)
	if !st.Ok() {
		b.t.Fatalf("read %s: %v", path, st)
	}
	text, _ := res.Bytes(buf)
	var a fuse.AttrOut
	if st := b.fs.GetAttr(nil, &fuse.GetAttrIn{InHeader: hdr(node)}, &a); !st.Ok() || a.Size != uint64(len(text)) {
		b.t.Errorf("%s: size %d (%v), text of %d bytes", path, a.Size, st, len(text))
	}
	return string(text)
}

// write opens, writes and closes; it returns the first errno.
func (b *bench) write(path, text string) syscall.Errno {
	b.t.Helper()
	node, errno := b.find(path)
	if errno != 0 {
		return errno
	}
	h, errno := b.openWrite(node.NodeId)
	if errno != 0 {
		return errno
	}
	defer h.release()
	if errno := h.write(text, 0); errno != 0 {
		return errno
	}
	return h.flush()
}

type benchFile struct {
	b        *bench
	node, fh uint64
}

func (b *bench) openWrite(node uint64) (*benchFile, syscall.Errno) {
	var o fuse.OpenOut
	st := b.fs.Open(nil, &fuse.OpenIn{InHeader: hdr(node), Flags: syscall.O_WRONLY | syscall.O_TRUNC}, &o)
	if st.Ok() && o.OpenFlags&fuse.FOPEN_DIRECT_IO == 0 {
		b.t.Error("opened for writing through the page cache")
	}
	return &benchFile{b, node, o.Fh}, syscall.Errno(st)
}

func (f *benchFile) write(text string, off int) syscall.Errno {
	_, st := f.b.fs.Write(nil, &fuse.WriteIn{InHeader: hdr(f.node), Fh: f.fh, Offset: uint64(off)}, []byte(text))
	return syscall.Errno(st)
}

func (f *benchFile) flush() syscall.Errno {
	return syscall.Errno(f.b.fs.Flush(nil, &fuse.FlushIn{InHeader: hdr(f.node), Fh: f.fh}))
}

func (f *benchFile) release() {
	f.b.fs.Release(nil, &fuse.ReleaseIn{InHeader: hdr(f.node), Fh: f.fh})
}

func (b *bench) readlink(path string) string {
	b.t.Helper()
	h := hdr(b.node(path))
	out, st := b.fs.Readlink(nil, &h)
	if !st.Ok() {
		b.t.Fatalf("readlink %s: %v", path, st)
	}
	return string(out)
}

func (b *bench) rename(from, to string) syscall.Errno {
	b.t.Helper()
	d1, d2 := filepath.Dir(from), filepath.Dir(to)
	if _, errno := b.find(from); errno != 0 { // as the kernel does
		return errno
	}
	return syscall.Errno(b.fs.Rename(nil, &fuse.RenameIn{InHeader: hdr(b.node(d1)), Newdir: b.node(d2)}, filepath.Base(from), filepath.Base(to)))
}

func (b *bench) symlink(target, path string) syscall.Errno {
	b.t.Helper()
	h := hdr(b.node(filepath.Dir(path)))
	var out fuse.EntryOut
	st := b.fs.Symlink(nil, &h, target, filepath.Base(path), &out)
	if st.Ok() && out.Mode&syscall.S_IFMT != syscall.S_IFLNK {
		b.t.Errorf("a symlink was answered with mode %o", out.Mode)
	}
	return syscall.Errno(st)
}

func (b *bench) mkdir(path string) syscall.Errno {
	b.t.Helper()
	var out fuse.EntryOut
	return syscall.Errno(b.fs.Mkdir(nil, &fuse.MkdirIn{InHeader: hdr(b.node(filepath.Dir(path)))}, filepath.Base(path), &out))
}

func (b *bench) rmdir(path string) syscall.Errno {
	b.t.Helper()
	h := hdr(b.node(filepath.Dir(path)))
	return syscall.Errno(b.fs.Rmdir(nil, &h, filepath.Base(path)))
}

// chat makes a session with a branching conversation and returns its node ids
// in the order in which they were written: u1, a1, u2, then a second answer's
// branch u3 from a1.
func (b *bench) chat(id string) []string {
	b.t.Helper()
	if errno := b.mkdir("sessions/" + id); errno != 0 {
		b.t.Fatal(errno)
	}
	var ids []string
	say := func(role, text string) {
		b.t.Helper()
		if errno := b.write("sessions/"+id+"/append/"+role, text+"\n"); errno != 0 {
			b.t.Fatal(errno)
		}
		ids = append(ids, strings.TrimSpace(b.read("sessions/"+id+"/head_id")))
	}
	say("user", "first question")
	say("assistant", "first answer")
	say("user", "second question")
	if errno := b.write("sessions/"+id+"/head_id", ids[1]+"\n"); errno != 0 {
		b.t.Fatal(errno)
	}
	say("user", "another second question")
	return ids
}

// agree checks that everything that shows the head shows this one.
func (b *bench) agree(session, id, text string) {
	b.t.Helper()
	p := "sessions/" + session + "/"
	if got := b.read(p + "head_id"); got != id+"\n" {
		b.t.Errorf("head_id is %q, want %q", got, id)
	}
	target := b.readlink(p + "head")
	if !strings.HasPrefix(target, "nodes/") || !strings.HasSuffix(target, id+".md") {
		b.t.Errorf("head points to %q, want %s", target, id)
	}
	if got := b.read(p + target); got != text+"\n" {
		b.t.Errorf("the head's text is %q, want %q", got, text)
	}
	names := b.list(p + "messages")
	if got := b.read(p + "messages/" + names[len(names)-1]); got != text+"\n" {
		b.t.Errorf("the last message is %q, want %q", got, text)
	}
	if meta := b.read(p + "meta.json"); !strings.Contains(meta, `"head_id": "`+id+`"`) {
		b.t.Errorf("meta.json: %s", meta)
	}
	if tr := b.read(p + "transcript.md"); !strings.Contains(tr, text) {
		b.t.Errorf("transcript.md lacks %q:\n%s", text, tr)
	}
	if got := b.read(p + "fields/head_id"); got != id+"\n" {
		b.t.Errorf("fields/head_id is %q", got)
	}
}
