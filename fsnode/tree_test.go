package fsnode

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/spool"
	"github.com/sessionfs/sessionfs/store"
)

// bench is a tree without a mount, on a real store in a temporary directory:
// requests are sent to it as the kernel would.
type bench struct {
	t    *testing.T
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

func newBench(t *testing.T, wrap func(*store.Store) Store) *bench {
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
	b.fs = wire{tr.newRoot(fuse.MountOptions{})}
	tr.later, tr.reaper = newLater(), newReaper(tr)
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
			off = uint64(p[8]) | uint64(p[9])<<8 | uint64(p[10])<<16
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

func TestTreeOfASession(t *testing.T) {
	b := newBench(t, nil)
	b.chat("s1")
	if got, want := b.list(""), []string{"README.txt", "index.json", "sessions", "archived", ".sessionfs"}; !slices.Equal(got, want) {
		t.Errorf("root: %q, want %q", got, want)
	}
	want := []string{"head", "head_id", "messages", "branch", "nodes", "history", "fields", "meta.json", "transcript.md", "append", "ctl", "attachments"}
	if got := b.list("sessions/s1"); !slices.Equal(got, want) {
		t.Errorf("session: %q, want %q", got, want)
	}
	if got := b.list("sessions/s1/append"); !slices.Equal(got, []string{"user", "assistant", "system", "message.json"}) {
		t.Errorf("append: %q", got)
	}
	if n, h := b.list("sessions/s1/nodes"), b.list("sessions/s1/history"); len(n) != 5 || len(h) != 5 || stem(h[3])+".md" != n[3] {
		t.Errorf("nodes %q, history %q", n, h)
	}
	if got := b.list("sessions/s1/branch"); len(got) != 2 {
		t.Errorf("branches %q", got)
	}
	for _, br := range b.list("sessions/s1/branch") {
		for _, m := range b.list("sessions/s1/branch/" + br) {
			target := b.readlink("sessions/s1/branch/" + br + "/" + m)
			b.read("sessions/s1/" + strings.TrimPrefix(target, "../../"))
		}
	}
	if got := b.read("index.json"); !strings.Contains(got, `"s1"`) {
		t.Errorf("index.json: %s", got)
	}
	for _, p := range []string{"sessions/nope", "sessions/s1/nope", "sessions/s1/messages/000099-user-x.md", "sessions/s1/nodes/x.md", "sessions/s1/nodes/.md",
		"sessions/s1/history/x.json", "sessions/s1/branch/nope", "sessions/s1/fields/nope", "sessions/s1/fields/_user_titled", "sessions/s1/problems.txt", "archived/s1"} {
		if _, errno := b.find(p); errno != syscall.ENOENT {
			t.Errorf("%s: %v, want ENOENT", p, errno)
		}
	}
}

func TestFiveGesturesMoveTheHead(t *testing.T) {
	b := newBench(t, nil)
	ids := b.chat("s1")
	texts := map[string]string{ids[0]: "first question", ids[1]: "first answer", ids[2]: "second question", ids[3]: "another second question"}
	p := "sessions/s1/"
	node := func(id string) string {
		for _, n := range b.list(p + "nodes") {
			if strings.HasSuffix(n, id+".md") {
				return n
			}
		}
		t.Fatalf("no node %s", id)
		return ""
	}
	branch := func(id string) string { return short(id) }
	gestures := []struct {
		name string
		move func(id string) syscall.Errno
	}{
		{"write head_id", func(id string) syscall.Errno { return b.write(p+"head_id", id+"\n") }},
		{"write head_id without newline", func(id string) syscall.Errno { return b.write(p+"head_id", id) }},
		{"write a prefix", func(id string) syscall.Errno { return b.write(p+"head_id", id[:9]+"\n") }},
		{"write head", func(id string) syscall.Errno { return b.write(p+b.readlink(p+"head"), id+"\n") }},
		{"rename", func(id string) syscall.Errno { return b.rename(p+"nodes/"+node(id), p+"head") }},
		{"ln to a node", func(id string) syscall.Errno {
			if errno := b.symlink("nodes/"+node(id), p+"CuAAAAAA"); errno != 0 {
				return errno
			}
			return b.rename(p+"CuAAAAAA", p+"head")
		}},
		{"ctl", func(id string) syscall.Errno { return b.write(p+"ctl", "head "+id+"\n") }},
	}
	for _, g := range gestures {
		for _, id := range []string{ids[2], ids[0], ids[3], ids[1]} {
			if errno := g.move(id); errno != 0 {
				t.Errorf("%s: %v", g.name, errno)
			}
			b.agree("s1", id, texts[id])
		}
	}
	for _, id := range []string{ids[2], ids[3]} {
		if errno := b.symlink("branch/"+branch(id), p+"CuBBBBBB"); errno != 0 {
			t.Fatal(errno)
		}
		if errno := b.rename(p+"CuBBBBBB", p+"head"); errno != 0 {
			t.Errorf("ln to a branch: %v", errno)
		}
		b.agree("s1", id, texts[id])
	}
	if got := b.list("sessions/s1"); slices.Contains(got, "CuAAAAAA") || slices.Contains(got, "CuBBBBBB") {
		t.Errorf("scratch links are left: %q", got)
	}
}

func TestRefusedGestures(t *testing.T) {
	b := newBench(t, nil)
	ids := b.chat("s1")
	head := ids[3]
	p := "sessions/s1/"
	nodes := b.list(p + "nodes")
	link := func(target string) func() syscall.Errno {
		return func() syscall.Errno {
			h := hdr(b.node("sessions/s1"))
			defer b.fs.Unlink(nil, &h, "tmp")
			if errno := b.symlink(target, p+"tmp"); errno != 0 {
				return errno
			}
			return b.rename(p+"tmp", p+"head")
		}
	}
	unlink := func(path string) func() syscall.Errno {
		return func() syscall.Errno {
			h := hdr(b.node(filepath.Dir(path)))
			return syscall.Errno(b.fs.Unlink(nil, &h, filepath.Base(path)))
		}
	}
	for name, c := range map[string]struct {
		do   func() syscall.Errno
		want syscall.Errno
	}{
		"an unknown node":            {func() syscall.Errno { return b.write(p+"head_id", "nonsense\n") }, syscall.ENOENT},
		"an empty head_id":           {func() syscall.Errno { return b.write(p+"head_id", "\n") }, syscall.EINVAL},
		"text into head":             {func() syscall.Errno { return b.write(p+b.readlink(p+"head"), "some text\n") }, syscall.EPERM},
		"text into another node":     {func() syscall.Errno { return b.write(p+"nodes/"+nodes[1], ids[0]+"\n") }, syscall.EPERM},
		"an absolute link":           {link("/nodes/" + nodes[1]), syscall.EINVAL},
		"a link out of the session":  {link("../s2/nodes/" + nodes[1]), syscall.EINVAL},
		"a link to nothing":          {link("nodes/nope.md"), syscall.ENOENT},
		"a link to no branch":        {link("branch/nope"), syscall.ENOENT},
		"rename of another file":     {func() syscall.Errno { return b.rename(p+"meta.json", p+"head") }, syscall.EPERM},
		"rename of a node elsewhere": {func() syscall.Errno { return b.rename(p+"nodes/"+nodes[1], p+"other") }, syscall.EPERM},
		"rename of head away":        {func() syscall.Errno { return b.rename(p+"head", p+"head2") }, syscall.EPERM},
		"a second head":              {func() syscall.Errno { return b.symlink("nodes/"+nodes[1], p+"head") }, syscall.EEXIST},
		"a name of ours":             {func() syscall.Errno { return b.symlink("x", p+"problems.txt") }, syscall.ENOENT},
		"unlink of head":             {unlink(p + "head"), syscall.EPERM},
		"unlink of a node":           {unlink(p + "nodes/" + nodes[1]), syscall.EPERM},
		"unlink of a message":        {unlink(p + "messages/" + b.list(p + "messages")[0]), syscall.EPERM},
		"rmdir of messages":          {func() syscall.Errno { return b.rmdir(p + "messages") }, syscall.EPERM},
		"rmdir of the session":       {func() syscall.Errno { return b.rmdir("sessions/s1") }, syscall.ENOTEMPTY},
		"rmdir of an unnamed branch": {func() syscall.Errno { return b.rmdir(p + "branch/" + short(head)) }, syscall.EPERM},
		"an unknown command":         {func() syscall.Errno { return b.write(p+"ctl", "frobnicate\n") }, syscall.EINVAL},
		"end without begin":          {func() syscall.Errno { return b.write(p+"ctl", "end\n") }, syscall.EINVAL},
		"a field that is fixed":      {func() syscall.Errno { return b.write(p+"fields/id", "x\n") }, syscall.EPERM},
		"a bad boolean":              {func() syscall.Errno { return b.write(p+"fields/pinned", "maybe\n") }, syscall.EINVAL},
		"a run's own status":         {func() syscall.Errno { return b.write(p+"fields/status", "running\n") }, syscall.EINVAL},
		"too long a title":           {func() syscall.Errno { return b.write(p+"fields/title", strings.Repeat("x", maxValue+1)) }, syscall.EFBIG},
		"bad JSON":                   {func() syscall.Errno { return b.write(p+"append/message.json", "{bad\n") }, syscall.EINVAL},
		"mkdir of a reserved name":   {func() syscall.Errno { return b.mkdir("sessions/projects") }, syscall.EINVAL},
		"mkdir of an escape":         {func() syscall.Errno { return b.mkdir("sessions/%41") }, syscall.EINVAL},
		"mkdir of what is there":     {func() syscall.Errno { return b.mkdir("sessions/s1") }, syscall.EEXIST},
		"mkdir in archived":          {func() syscall.Errno { return b.mkdir("archived/s9") }, syscall.EPERM},
		"rename of a session":        {func() syscall.Errno { return b.rename("sessions/s1", "sessions/s2") }, syscall.EPERM},
	} {
		before := len(b.tree.refused.last)
		if got := c.do(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if len(b.tree.refused.last) == before && before < maxRefusals {
			t.Errorf("%s: the refusal was not recorded", name)
		}
		b.agree("s1", head, "another second question")
	}
	if text := b.read(".sessionfs/errors"); !strings.Contains(text, "\tENOENT\tnot_found\t") {
		t.Errorf(".sessionfs/errors:\n%s", text)
	}
	kept, err := os.ReadDir(b.tree.sp.FailedDir())
	if err != nil || len(kept) != 1 {
		t.Fatalf("failed/ holds %d files (%v), want the bad JSON alone", len(kept), err)
	}
	if got := b.read(".sessionfs/failed/" + kept[0].Name()); got != "{bad\n" {
		t.Errorf("kept %q", got)
	}
}

func TestRunBelongsToItsFile(t *testing.T) {
	b := newBench(t, nil)
	ids := b.chat("s1")
	p := "sessions/s1/"
	f, errno := b.openWrite(b.node(p + "ctl"))
	if errno != 0 {
		t.Fatal(errno)
	}
	if errno := f.write("begin\n", 0); errno != 0 {
		t.Fatal(errno)
	}
	if got := b.read(p + "fields/status"); got != "running\n" {
		t.Errorf("status %q", got)
	}
	node := b.list(p + "nodes")[1]
	for name, got := range map[string]syscall.Errno{
		"write head_id": b.write(p+"head_id", ids[0]+"\n"),
		"write head":    b.write(p+b.readlink(p+"head"), ids[0]+"\n"),
		"rename":        b.rename(p+"nodes/"+node, p+"head"),
		"append user":   b.write(p+"append/user", "x\n"),
		"second begin":  b.write(p+"ctl", "begin\n"),
		"set status":    b.write(p+"fields/status", "idle\n"),
	} {
		if got != syscall.EBUSY {
			t.Errorf("%s while a run is active: %v, want EBUSY", name, got)
		}
	}
	b.agree("s1", ids[3], "another second question")
	if errno := b.write(p+"append/assistant", "the run's own\n"); errno != 0 {
		t.Errorf("append assistant: %v", errno)
	}
	f.release()
	if got := b.read(p + "fields/status"); got != "interrupted\n" {
		t.Errorf("status %q after the file was closed without end", got)
	}
	f, _ = b.openWrite(b.node(p + "ctl"))
	defer f.release()
	if errno := f.write("begin\nend\n", 0); errno != 0 {
		t.Errorf("begin, end: %v", errno)
	}
	if got := b.read(p + "fields/status"); got != "idle\n" {
		t.Errorf("status %q after end", got)
	}
	if text := b.read(p + "ctl"); !strings.HasSuffix(text, "ok begin\nok end\n") {
		t.Errorf("ctl reads\n%s", text)
	}
}

func TestOneFileIsOneMessage(t *testing.T) {
	b := newBench(t, nil)
	b.chat("s1")
	p := "sessions/s1/"
	f, errno := b.openWrite(b.node(p + "append/user"))
	if errno != 0 {
		t.Fatal(errno)
	}
	before := len(b.list(p + "nodes"))
	for _, piece := range []struct {
		text string
		off  int
	}{{"one\n", 0}, {"two\n", 4}} {
		if errno := f.write(piece.text, piece.off); errno != 0 {
			t.Fatal(errno)
		}
		if errno := f.flush(); errno != 0 {
			t.Fatal(errno)
		}
	}
	if n := len(b.list(p + "nodes")); n != before+1 {
		t.Errorf("two flushes made %d messages", n-before)
	}
	id := strings.TrimSpace(b.read(p + "head_id"))
	b.agree("s1", id, "one\ntwo")
	if errno := b.write(p+"append/assistant", "an answer\n"); errno != 0 {
		t.Fatal(errno)
	}
	if errno := f.write("three\n", 8); errno != 0 {
		t.Fatal(errno)
	}
	if errno := f.flush(); errno != syscall.ESTALE {
		t.Errorf("completing a message that was answered: %v, want ESTALE", errno)
	}
	f.release()
	kept, _ := os.ReadDir(b.tree.sp.FailedDir())
	if len(kept) != 1 {
		t.Fatalf("failed/ holds %d files", len(kept))
	}
	if got := b.read(".sessionfs/failed/" + kept[0].Name()); got != "three\n" {
		t.Errorf("kept %q, want what came after", got)
	}
}

func TestSessionsComeAndGo(t *testing.T) {
	b := newBench(t, nil)
	for range 3 { // the same id again and again
		if errno := b.mkdir("sessions/x"); errno != 0 {
			t.Fatal(errno)
		}
		if got := b.read("sessions/x/head_id"); got != "" {
			t.Errorf("head_id %q", got)
		}
		if _, errno := b.find("sessions/x/head"); errno != syscall.ENOENT {
			t.Errorf("head of a new session: %v", errno)
		}
		if errno := b.rmdir("sessions/x"); errno != 0 {
			t.Fatal(errno)
		}
		if _, errno := b.find("sessions/x"); errno != syscall.ENOENT {
			t.Errorf("after rmdir: %v", errno)
		}
		if got := b.list("sessions"); len(got) != 0 {
			t.Errorf("after rmdir: %q", got)
		}
	}
	b.chat("y")
	if errno := b.rename("sessions/y", "archived/y"); errno != 0 {
		t.Fatal(errno)
	}
	if s, a := b.list("sessions"), b.list("archived"); len(s) != 0 || !slices.Equal(a, []string{"y"}) {
		t.Errorf("sessions %q, archived %q", s, a)
	}
	if got := b.read("archived/y/fields/archived"); got != "true\n" {
		t.Errorf("archived is %q", got)
	}
	if errno := b.write("archived/y/fields/archived", "no\n"); errno != 0 {
		t.Fatal(errno)
	}
	if s, a := b.list("sessions"), b.list("archived"); len(a) != 0 || !slices.Equal(s, []string{"y"}) {
		t.Errorf("sessions %q, archived %q", s, a)
	}
}

func TestIndexFollowsFields(t *testing.T) {
	b := newBench(t, nil)
	b.chat("s1")
	for _, title := range []string{"one", "two", "three"} {
		if errno := b.write("sessions/s1/fields/title", title+"\n"); errno != 0 {
			t.Fatal(errno)
		}
		if got := b.read("index.json"); !strings.Contains(got, `"title": "`+title+`"`) {
			t.Errorf("index.json lacks the title %s:\n%s", title, got)
		}
	}
}

func TestBranchGestures(t *testing.T) {
	b := newBench(t, nil)
	ids := b.chat("s1")
	p := "sessions/s1/"
	if errno := b.mkdir(p + "branch/mine"); errno != 0 {
		t.Fatal(errno)
	}
	if got := b.list(p + "branch"); !slices.Contains(got, "mine") || slices.Contains(got, short(ids[3])) {
		t.Errorf("branches %q", got)
	}
	if errno := b.mkdir(p + "branch/mine"); errno != syscall.EEXIST {
		t.Errorf("mkdir again: %v", errno)
	}
	if errno := b.rename(p+"branch/mine", p+"branch/a b"); errno != 0 {
		t.Errorf("rename: %v", errno)
	}
	var n0 string
	for _, n := range b.list(p + "nodes") {
		if strings.HasSuffix(n, ids[0]+".md") {
			n0 = n
		}
	}
	if errno := b.symlink("../nodes/"+n0, p+"branch/start"); errno != 0 {
		t.Errorf("ln -s: %v", errno)
	}
	if got := b.list(p + "branch/start"); len(got) != 1 {
		t.Errorf("branch/start: %q", got)
	}
	if errno := b.rmdir(p + "branch/start"); errno != 0 {
		t.Errorf("rmdir: %v", errno)
	}
	if errno := b.rename(p+"nodes/"+n0, p+"branch/again"); errno != 0 {
		t.Errorf("mv nodes branch: %v", errno)
	}
	if got := b.list(p + "branch"); !slices.Contains(got, "again") || slices.Contains(got, "start") || !slices.Contains(got, "a b") {
		t.Errorf("branches %q", got)
	}
	if errno := b.write(p+"append/user", "more\n"); errno != 0 {
		t.Fatal(errno)
	}
	if got := b.list(p + "branch/a b"); len(got) != 4 {
		t.Errorf("the name did not move along: %q", got)
	}
	b.agree("s1", strings.TrimSpace(b.read(p+"head_id")), "more")
}

func TestStoreErrorsReachTheCaller(t *testing.T) {
	var f *faulty
	b := newBench(t, func(st *store.Store) Store { f = &faulty{Store: st}; return f })
	ids := b.chat("s1")
	for code, want := range contract {
		f.mu.Lock()
		f.head = &store.Error{Code: code, Op: "set head"}
		f.mu.Unlock()
		if got := b.write("sessions/s1/head_id", ids[0]+"\n"); got != want {
			t.Errorf("%s: %v, want %v", code, got, want)
		}
	}
}

func TestForeignChangeShows(t *testing.T) {
	b := newBench(t, nil)
	ids := b.chat("s1")
	b.agree("s1", ids[3], "another second question")
	dir := filepath.Join(b.st.Root(), "s1")
	raw, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(raw), ids[3], ids[0], 1)
	if err := os.WriteFile(filepath.Join(dir, "meta.json.tmp"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "meta.json.tmp"), filepath.Join(dir, "meta.json")); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); b.read("sessions/s1/head_id") != ids[0]+"\n" && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	b.agree("s1", ids[0], "first question")
}

func TestReadOnlyRefusesEverything(t *testing.T) {
	b := newBench(t, nil)
	ids := b.chat("s1")
	b.tree.readOnly = true
	p := "sessions/s1/"
	node := b.list(p + "nodes")[1]
	for name, got := range map[string]syscall.Errno{
		"head_id": b.write(p+"head_id", ids[0]+"\n"),
		"rename":  b.rename("sessions/s1", "archived/s1"),
		"mkdir":   b.mkdir("sessions/s2"),
		"rmdir":   b.rmdir("sessions/s1"),
		"append":  b.write(p+"append/user", "x\n"),
		"ctl":     b.write(p+"ctl", "commit\n"),
		"field":   b.write(p+"fields/title", "x\n"),
		"symlink": b.symlink("nodes/"+node, p+"x"),
		"branch":  b.mkdir(p + "branch/x"),
	} {
		if got != syscall.EROFS {
			t.Errorf("%s: %v, want EROFS", name, got)
		}
	}
	if e, _ := b.find(p + "head_id"); e.Attr.Mode&0o777 != 0o400 {
		t.Errorf("head_id has mode %o", e.Attr.Mode)
	}
}

// blind is a store that has no watch left.
type blind struct{ *store.Store }

func (b blind) Pin(ctx context.Context, id string) (*store.Snapshot, bool, func(), error) {
	sn, _, release, err := b.Store.Pin(ctx, id)
	return sn, false, release, err
}

func TestUnwatchedSessionIsAskedEachTime(t *testing.T) {
	b := newBench(t, func(st *store.Store) Store { return blind{st} })
	ids := b.chat("s1")
	b.agree("s1", ids[3], "another second question")
	for _, p := range []string{"head", "head_id", "messages", "nodes", "meta.json", "transcript.md"} {
		out, errno := b.find("sessions/s1/" + p)
		if errno != 0 || out.EntryTimeout() != 0 || out.AttrTimeout() != 0 {
			t.Errorf("%s: %v, kept for %v and %v", p, errno, out.EntryTimeout(), out.AttrTimeout())
		}
	}
	old := b.node("sessions/s1/head")
	dir := filepath.Join(b.st.Root(), "s1")
	for i, id := range []string{ids[0], ids[2], ids[0]} {
		raw, err := os.ReadFile(filepath.Join(dir, "meta.json"))
		if err != nil {
			t.Fatal(err)
		}
		head := strings.TrimSpace(b.read("sessions/s1/head_id"))
		if err := os.WriteFile(filepath.Join(dir, "tmp"), []byte(strings.Replace(string(raw), head, id, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "meta.json")); err != nil {
			t.Fatal(err)
		}
		b.agree("s1", id, map[string]string{ids[0]: "first question", ids[2]: "second question"}[id])
		if i == 0 && b.node("sessions/s1/head") == old {
			t.Error("another target has the same inode, and the kernel keeps a link's target")
		}
	}
}

func TestSessionIsReleasedWhenForgotten(t *testing.T) {
	b := newBench(t, nil)
	b.chat("s1")
	s := b.tree.sessions["s1"]
	if s.release(false) {
		t.Fatal("released while the kernel knows it")
	}
	if !s.release(true) || s.unpin != nil {
		t.Fatal("not released")
	}
	if _, errno := b.find("sessions/s1/head_id"); errno != 0 {
		t.Errorf("looked up again: %v", errno)
	}
	if b.tree.sessions["s1"] == s {
		t.Error("the released object is used again")
	}
}
