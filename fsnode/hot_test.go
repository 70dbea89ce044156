package fsnode

import (
	"fmt"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Benchmarks of the requests that a tree answers all the time, without a
// kernel: what a request costs beside its way here and back.

// hot is a tree with some sessions and one conversation.
func hot(b *testing.B) (t *bench, ids []string) {
	t = newBench(b, nil)
	for i := range 100 {
		if errno := t.mkdir(fmt.Sprintf("sessions/s%03d", i)); errno != 0 {
			b.Fatal(errno)
		}
	}
	ids = t.chat("talk")
	b.ReportAllocs()
	b.ResetTimer()
	return t, ids
}

func BenchmarkLookupMessage(b *testing.B) {
	t, _ := hot(b)
	h := hdr(t.node("sessions/talk/messages"))
	name := t.list("sessions/talk/messages")[0]
	for b.Loop() {
		var out fuse.EntryOut
		if st := t.fs.Lookup(nil, &h, name, &out); !st.Ok() {
			b.Fatal(st)
		}
	}
}

func BenchmarkLookupMissing(b *testing.B) {
	t, _ := hot(b)
	h := hdr(t.node("sessions/talk"))
	for b.Loop() {
		var out fuse.EntryOut
		if st := t.fs.Lookup(nil, &h, ".git", &out); st.Ok() && out.NodeId != 0 {
			b.Fatal(st)
		}
	}
}

func BenchmarkListSessions(b *testing.B) {
	t, _ := hot(b)
	node := t.node("sessions")
	buf := make([]byte, 64<<10)
	for b.Loop() {
		out := fuse.NewDirEntryList(buf, 0)
		if st := t.fs.ReadDirPlus(nil, &fuse.ReadIn{InHeader: hdr(node), Size: uint32(len(buf))}, out); !st.Ok() {
			b.Fatal(st)
		}
	}
}

func BenchmarkReadMessage(b *testing.B) {
	for _, mode := range []struct {
		name       string
		handleless bool
	}{{"opened", false}, {"handleless", true}} {
		b.Run(mode.name, func(b *testing.B) {
			t, _ := hot(b)
			node := t.node("sessions/talk/messages/" + t.list("sessions/talk/messages")[0])
			t.tree.env.Handleless = mode.handleless
			raw := wire{RawFileSystem: t.fs.(wire).RawFileSystem, handleless: mode.handleless}
			buf := make([]byte, 4096)
			for b.Loop() {
				var o fuse.OpenOut
				if st := raw.Open(nil, &fuse.OpenIn{InHeader: hdr(node)}, &o); !st.Ok() && !mode.handleless {
					b.Fatal(st)
				}
				if _, st := raw.Read(nil, &fuse.ReadIn{InHeader: hdr(node), Fh: o.Fh, Size: 4096}, buf); !st.Ok() {
					b.Fatal(st)
				}
				if !mode.handleless {
					raw.Release(nil, &fuse.ReleaseIn{InHeader: hdr(node), Fh: o.Fh})
				}
			}
		})
	}
}

func BenchmarkReadlinkHead(b *testing.B) {
	t, _ := hot(b)
	h := hdr(t.node("sessions/talk/head"))
	for b.Loop() {
		if _, st := t.fs.Readlink(nil, &h); !st.Ok() {
			b.Fatal(st)
		}
	}
}

// BenchmarkMoveHead is a whole move by write, durable.
func BenchmarkMoveHead(b *testing.B) {
	t, ids := hot(b)
	for i := 0; b.Loop(); i++ {
		if errno := t.write("sessions/talk/head_id", ids[i%2]+"\n"); errno != 0 {
			b.Fatal(errno)
		}
	}
}
