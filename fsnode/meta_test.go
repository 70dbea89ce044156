package fsnode

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func texts(list [][]byte) []string {
	out := []string{}
	for _, b := range list {
		out = append(out, string(b))
	}
	return out
}

func TestSeen(t *testing.T) {
	var s seen
	read := func(text string, who process) { s.note("x", seenText{who: who, text: []byte(text)}) }
	p := func(self, parent, session string) process { return process{self, parent, session} }
	if got := s.of("x", p("p", "", "")); got.Own != nil || got.Served != nil {
		t.Errorf("nothing was seen, and there is %q", got)
	}
	read("stranger", p("a", "b", "c"))
	read("terminal", p("d", "e", "tty"))
	read("sister", p("jq", "sh", "tty"))
	read("self1", p("vi", "sh", "tty"))
	read("self2", p("vi", "sh", "tty"))
	read("self1", p("vi", "sh", "tty"))
	read("nobody", process{})
	s.note("x", seenText{who: p("z", "y", ""), text: []byte("saved"), saved: true})
	s.note("x", seenText{who: p("vi", "", "")})
	for who, want := range map[process][]string{
		p("vi", "sh", "tty"):  {"self2", "self1"},
		p("mv", "sh", "tty"):  {"sister", "self2", "self1"},
		p("sh", "q", "tty"):   {"sister", "self2", "self1"}, // which started them
		p("n", "jq", ""):      {"sister"},                   // which it started
		p("n", "m", "tty"):    {"terminal", "sister", "self2", "self1"},
		p("z", "", ""):        {"saved"},
		p("n", "m", "other"):  {},
		p("", "", ""):         {"nobody"},
		p("again", "b", "no"): {"stranger"},
	} {
		if got := texts(s.of("x", who).Own); !slices.Equal(got, want) {
			t.Errorf("%q may have begun from %q, want %q", who, got, want)
		}
	}
	if got, want := texts(s.of("x", process{}).Served), []string{"stranger", "terminal", "sister", "self2", "self1", "nobody"}; !slices.Equal(got, want) {
		t.Errorf("served were %q, want %q", got, want)
	}
	for i := range 2 * seenTexts {
		read(fmt.Sprint("t", i), p("w", "", ""))
		s.state("x", fmt.Append(nil, i))
	}
	if got := s.of("x", p("vi", "", "")); got.Own != nil || len(got.Served) != seenTexts || len(got.States) != seenTexts {
		t.Errorf("kept are %q, %d served, %d states", got.Own, len(got.Served), len(got.States))
	}
	for i := range seenSessions {
		s.state(fmt.Sprint(i), []byte("t"))
	}
	if got := s.of("x", process{}); got.Served != nil || len(s.sessions) != seenSessions {
		t.Errorf("%d sessions are kept, x has %q", len(s.sessions), texts(got.Served))
	}
}

func TestProcessOf(t *testing.T) {
	who := processOf(fuse.NewContext(context.Background(), &fuse.Caller{Pid: uint32(os.Getpid())}))
	name := func(id int, got string) {
		t.Helper()
		if pid, _, ok := strings.Cut(got, "/"); !ok || pid != fmt.Sprint(id) {
			t.Errorf("process %d is %q", id, got)
		}
	}
	name(os.Getpid(), who.self)
	if parent := os.Getppid(); parent > 1 {
		name(parent, who.parent)
	}
	if sid, err := unix.Getsid(0); err != nil || sid > 0 && who.session != fmt.Sprint(sid) {
		t.Errorf("the session is %q, want %d, %v", who.session, sid, err)
	}
	for _, ctx := range []context.Context{context.Background(), fuse.NewContext(context.Background(), &fuse.Caller{}), fuse.NewContext(context.Background(), &fuse.Caller{Pid: 1 << 30})} {
		if got := processOf(ctx); got != (process{}) {
			t.Errorf("a process that is not known is %q", got)
		}
	}
}

func TestMessageForm(t *testing.T) {
	for name, want := range map[string]bool{
		"000001-user-7ab1e39f.md": true, "1234567-tool-x.md": true, "000001-.md": true,
		"000001-user-7ab1e39f.md~": false, "000001-user-7ab1e39f.md.bak": false, ".000001-user-7ab1e39f.md.swp": false,
		"00001-user-7ab1e39f.md": false, "00000a-user-x.md": false, "4913": false, "notes.md": false, "000001.md": false,
	} {
		if got := messageForm(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
