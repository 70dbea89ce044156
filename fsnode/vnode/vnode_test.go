package vnode

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

func TestInoIsInRangeAndStable(t *testing.T) {
	seen := map[uint64]string{}
	for i := range 100000 {
		id := fmt.Sprintf("session/s%d/node/%d", i%7, i)
		n := Ino(id)
		if n < 2 || n >= 1<<63 || n != Ino(id) {
			t.Fatalf("Ino(%q) = %d", id, n)
		}
		if other, ok := seen[n]; ok {
			t.Fatalf("Ino(%q) = Ino(%q)", id, other)
		}
		seen[n] = id
	}
}

func TestAttributes(t *testing.T) {
	y := newToy(t, func(y *toy) Table {
		link := &FuncLink{Spec: y.base("link", 0), Target: func(context.Context) (string, error) { return "text", nil }}
		link.Stat = func(context.Context) (Stat, error) { return Stat{Size: 4, MTime: toyTime}, nil }
		PlaceFunc(context.Background(), &y.root.Inode, link)
		dir := &FuncList{Spec: y.base("dir", 0o700), Entries: Table{}.Entries, Find: Table{}.Find}
		PlaceFunc(context.Background(), &y.root.Inode, dir)
		return Table{y.file("text", "hello\n", nil), {Name: "link", Found: Found{Node: link}}, {Name: "dir", Found: Found{Node: dir}}}
	})
	for _, c := range []struct {
		name        string
		mode, nlink uint32
		size        uint64
	}{
		{"text", syscall.S_IFREG | 0o400, 1, 6},
		{"link", syscall.S_IFLNK | 0o777, 1, 4},
		{"dir", syscall.S_IFDIR | 0o700, 2, dirSize},
	} {
		e := y.must(1, c.name)
		var a fuse.AttrOut
		if st := y.fs.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(e.NodeId)}, &a); !st.Ok() {
			t.Fatalf("%s: getattr: %v", c.name, st)
		}
		for from, got := range map[string]fuse.Attr{"lookup": e.Attr, "getattr": a.Attr} {
			if got.Mode != c.mode || got.Nlink != c.nlink || got.Size != c.size || got.Ino != Ino(c.name) {
				t.Errorf("%s by %s: mode %o nlink %d size %d ino %d, want %o %d %d %d", c.name, from, got.Mode, got.Nlink, got.Size, got.Ino, c.mode, c.nlink, c.size, Ino(c.name))
			}
			if !got.ModTime().Equal(toyTime) || !got.ChangeTime().Equal(toyTime) {
				t.Errorf("%s by %s: times %v %v, want %v", c.name, from, got.ModTime(), got.ChangeTime(), toyTime)
			}
		}
		if e.AttrTimeout() != 0 {
			t.Errorf("%s: attributes from lookup are kept for %v", c.name, e.AttrTimeout())
		}
		if a.Timeout() == 0 {
			t.Errorf("%s: attributes from getattr are not kept", c.name)
		}
	}
}

// readdir lists a directory in pages of a given size, each with a handle of
// its own, as a mount without OPENDIR does.
func (y *toy) readdir(node uint64, size int) []fuse.DirEntry {
	y.t.Helper()
	var all []fuse.DirEntry
	var off uint64
	for {
		var o fuse.OpenOut
		if st := y.fs.OpenDir(nil, &fuse.OpenIn{InHeader: header(node)}, &o); !st.Ok() {
			y.t.Fatal(st)
		}
		out := fuse.NewDirEntryList(make([]byte, size), off)
		if st := y.fs.ReadDir(nil, &fuse.ReadIn{InHeader: header(node), Fh: o.Fh, Offset: off, Size: uint32(size)}, out); !st.Ok() {
			y.t.Fatal(st)
		}
		y.fs.ReleaseDir(&fuse.ReleaseIn{InHeader: header(node), Fh: o.Fh})
		page := parseDirents(out.Bytes())
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		off = page[len(page)-1].Off
	}
}

// parseDirents reads struct fuse_dirent: ino, off, namelen, type, name, padded
// to 8 bytes.
func parseDirents(b []byte) (out []fuse.DirEntry) {
	le := func(p []byte, n int) (v uint64) {
		for i := n - 1; i >= 0; i-- {
			v = v<<8 | uint64(p[i])
		}
		return v
	}
	for len(b) >= 24 {
		n := int(le(b[16:], 4))
		out = append(out, fuse.DirEntry{Ino: le(b, 8), Off: le(b[8:], 8), Mode: uint32(le(b[20:], 4)) << 12, Name: string(b[24 : 24+n])})
		b = b[(24+n+7)&^7:]
	}
	return out
}

func TestListingPagesAndNumbers(t *testing.T) {
	y := newToy(t, func(y *toy) Table {
		var rows Table
		for i := range 250 {
			rows = append(rows, y.file(fmt.Sprintf("file-%03d", i), "x", nil))
		}
		return rows
	})
	whole := y.readdir(1, 1<<20)
	if len(whole) != 252 || whole[0].Name != "." || whole[1].Name != ".." {
		t.Fatalf("%d entries, first %v", len(whole), whole[:2])
	}
	for _, size := range []int{64, 200, 1000} {
		paged := y.readdir(1, size)
		if len(paged) != len(whole) {
			t.Fatalf("pages of %d bytes: %d entries, want %d", size, len(paged), len(whole))
		}
		for i := range paged {
			if paged[i].Name != whole[i].Name || paged[i].Ino != whole[i].Ino {
				t.Fatalf("pages of %d bytes: entry %d is %v, want %v", size, i, paged[i], whole[i])
			}
		}
	}
	for _, e := range whole[2:] {
		if got := y.must(1, e.Name); got.Attr.Ino != e.Ino || got.Attr.Mode&syscall.S_IFMT != e.Mode {
			t.Fatalf("%s: listed as %d %o, found as %d %o", e.Name, e.Ino, e.Mode, got.Attr.Ino, got.Attr.Mode)
		}
	}
}

func TestEveryVerbIsRefused(t *testing.T) {
	y := newToy(t, func(y *toy) Table {
		dir := &FuncList{Spec: y.base("dir", 0o700), Entries: Table{}.Entries, Find: Table{}.Find}
		PlaceFunc(context.Background(), &y.root.Inode, dir)
		return Table{y.file("text", "x", nil), {Name: "dir", Found: Found{Node: dir}}}
	})
	text := y.must(1, "text")
	h := header(1)
	var e fuse.EntryOut
	var c fuse.CreateOut
	for name, got := range map[string]fuse.Status{
		"unlink":  y.fs.Unlink(nil, &h, "text"),
		"rmdir":   y.fs.Rmdir(nil, &h, "dir"),
		"mkdir":   y.fs.Mkdir(nil, &fuse.MkdirIn{InHeader: h}, "new", &e),
		"mknod":   y.fs.Mknod(nil, &fuse.MknodIn{InHeader: h}, "new", &e),
		"symlink": y.fs.Symlink(nil, &h, "text", "new", &e),
		"link":    y.fs.Link(nil, &fuse.LinkIn{InHeader: h, Oldnodeid: text.NodeId}, "new", &e),
		"create":  y.fs.Create(nil, &fuse.CreateIn{InHeader: h}, "new", &c),
		"rename":  y.fs.Rename(nil, &fuse.RenameIn{InHeader: h, Newdir: 1}, "text", "new"),
	} {
		if got != fuse.EPERM {
			t.Errorf("%s: %v, want EPERM", name, got)
		}
	}
	if got, errno := y.lookup(1, "text"); errno != 0 || got.NodeId != text.NodeId {
		t.Errorf("after all refusals the file is %v, %v", got.NodeId, errno)
	}
	if len(y.failed) != 8 {
		t.Errorf("recorded %d refusals, want 8: %v", len(y.failed), y.failed)
	}
	if _, errno := y.lookup(1, "nothing"); errno != syscall.ENOENT || len(y.failed) != 8 {
		t.Errorf("a name that is not there: %v, recorded %d", errno, len(y.failed))
	}
	long := fmt.Sprintf("%0256d", 0)
	if _, errno := y.lookup(1, long); errno != syscall.ENAMETOOLONG {
		t.Errorf("a long name: %v", errno)
	}
	if st := y.fs.Mkdir(nil, &fuse.MkdirIn{InHeader: h}, long, &e); st != fuse.Status(syscall.ENAMETOOLONG) {
		t.Errorf("mkdir of a long name: %v", st)
	}
}

func TestRenameKnowsItsTarget(t *testing.T) {
	var got []string
	y := newToy(t, func(y *toy) Table {
		sub := &FuncList{Spec: y.base("dir", 0o700), Entries: Table{}.Entries, Find: Table{}.Find}
		PlaceFunc(context.Background(), &y.root.Inode, sub)
		verbs := &Verbs{}
		y.root.Verbs = verbs
		verbs.Rename = func(_ context.Context, name string, to *List, newName string, noReplace bool) error {
			got = append(got, fmt.Sprint(name, " ", to.Path(nil), " ", newName, " ", noReplace))
			return nil
		}
		return Table{y.file("a", "x", nil), {Name: "dir", Found: Found{Node: sub}}}
	})
	a, dir := y.must(1, "a"), y.must(1, "dir")
	_ = a
	for flags, want := range map[uint32]fuse.Status{0: fuse.OK, 1: fuse.OK, 2: fuse.EINVAL} {
		st := y.fs.Rename(nil, &fuse.RenameIn{InHeader: header(1), Newdir: dir.NodeId, Flags: flags}, "a", "b")
		if st != want {
			t.Errorf("flags %d: %v, want %v", flags, st, want)
		}
	}
	if len(got) != 2 {
		t.Errorf("renames that arrived: %q", got)
	}
}

func TestSetattr(t *testing.T) {
	value := Value{Max: 10, Set: func(context.Context, string) error { return nil }}
	y := newToy(t, func(y *toy) Table {
		return Table{y.file("text", "hello", nil), y.file("value", "hello", value.Writer)}
	})
	for _, c := range []struct {
		name string
		in   fuse.SetAttrInCommon
		want fuse.Status
	}{
		{"text", fuse.SetAttrInCommon{Valid: fuse.FATTR_MTIME, Mtime: 1}, fuse.OK},
		{"text", fuse.SetAttrInCommon{Valid: fuse.FATTR_MODE, Mode: 0o100400}, fuse.OK},
		{"text", fuse.SetAttrInCommon{Valid: fuse.FATTR_MODE, Mode: 0o100644}, fuse.EPERM},
		{"text", fuse.SetAttrInCommon{Valid: fuse.FATTR_UID, Owner: fuse.Owner{Uid: 12}}, fuse.OK},
		{"text", fuse.SetAttrInCommon{Valid: fuse.FATTR_UID, Owner: fuse.Owner{Uid: 13}}, fuse.EPERM},
		{"text", fuse.SetAttrInCommon{Valid: fuse.FATTR_SIZE, Size: 0}, fuse.EPERM},
		{"value", fuse.SetAttrInCommon{Valid: fuse.FATTR_SIZE, Size: 0}, fuse.OK},
		{"value", fuse.SetAttrInCommon{Valid: fuse.FATTR_SIZE, Size: 3}, fuse.EINVAL},
	} {
		e := y.must(1, c.name)
		in := &fuse.SetAttrIn{SetAttrInCommon: c.in}
		in.NodeId = e.NodeId
		var out fuse.AttrOut
		st := y.fs.SetAttr(nil, in, &out)
		if st != c.want {
			t.Errorf("%s %+v: %v, want %v", c.name, c.in, st, c.want)
		}
		if st.Ok() && (out.Size != 5 || !out.ModTime().Equal(toyTime)) {
			t.Errorf("%s: after setattr size %d time %v", c.name, out.Size, out.ModTime())
		}
	}
}

func TestReadAnswersTheCurrentText(t *testing.T) {
	text := "one"
	reads := 0
	y := newToy(t, func(y *toy) Table {
		row := y.file("f", "", nil)
		f := row.Found.Node.(*FuncFile)
		f.Read = func(context.Context) ([]byte, error) { reads++; return []byte(text), nil }
		f.Version = func() any { return text }
		return Table{row}
	})
	e := y.must(1, "f")
	o, errno := y.open(e.NodeId, syscall.O_RDONLY)
	if errno != 0 || o.OpenFlags != fuse.FOPEN_KEEP_CACHE|fuse.FOPEN_NOFLUSH {
		t.Fatalf("open: %v, flags %x", errno, o.OpenFlags)
	}
	for _, c := range []struct {
		off  uint64
		size int
		want string
	}{{0, 10, "one"}, {1, 1, "n"}, {3, 5, ""}, {99, 5, ""}} {
		if got, errno := y.read(e.NodeId, o.Fh, c.off, c.size); errno != 0 || got != c.want {
			t.Errorf("read %d at %d: %q, %v", c.size, c.off, got, errno)
		}
	}
	if reads != 1 {
		t.Errorf("the text was made %d times for one version", reads)
	}
	text = "two!"
	if got, _ := y.read(e.NodeId, o.Fh, 0, 10); got != "two!" {
		t.Errorf("an old handle reads %q", got)
	}
	if _, errno := y.open(e.NodeId, syscall.O_WRONLY); errno != syscall.EPERM {
		t.Errorf("open for writing: %v", errno)
	}
}

func TestWhatIsMissingIsKeptWhereItNeverComes(t *testing.T) {
	y := newToy(t, func(y *toy) Table { return Table{{Name: "hidden", Show: func() bool { return false }}} })
	if out, errno := y.lookup(1, "x"); errno != syscall.ENOENT || out.EntryTimeout() == 0 {
		t.Errorf("a name that is not in the table: %v, kept for %v", errno, out.EntryTimeout())
	}
	if out, errno := y.lookup(1, "hidden"); errno != syscall.ENOENT || out.EntryTimeout() != 0 {
		t.Errorf("a name that may come: %v, kept for %v", errno, out.EntryTimeout())
	}
}

func TestNamesThatMoveNeedAnEpoch(t *testing.T) {
	p, env := Policy{Entry: For(time.Hour), Moves: true}, &Env{}
	if got := p.entry(env); got != 0 {
		t.Errorf("without an epoch kept for %v", got)
	}
	env.Epoch = func() {}
	if got := p.entry(env); got != time.Hour {
		t.Errorf("with one kept for %v", got)
	}
}

func TestUnplacedNodesAreNotNotified(t *testing.T) {
	f := &FuncFile{Spec: Spec{Number: Ino("x")}}
	f.Changed() // go-fuse would panic
	f.AttrChanged()
	f.NameChanged("y")
}

var _ fs.InodeEmbedder = (*FuncFile)(nil)
