package fsnode

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

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
		recorded := func() (n int) {
			for _, f := range b.tree.refused.last {
				n += f.times
			}
			return n
		}
		before := recorded()
		if got := c.do(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if recorded() == before {
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
