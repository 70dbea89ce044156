package fsnode

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
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
	if got := s.of("x", "p"); got != nil {
		t.Errorf("nothing was seen, and there is %q", got)
	}
	for i := range 10 {
		s.note("x", fmt.Appendf(nil, "t%d", i))
	}
	s.note("x", []byte("t5")) // the newest again
	s.note("x", nil)
	if got, want := texts(s.of("x", "")), []string{"t2", "t3", "t4", "t6", "t7", "t8", "t9", "t5"}; !slices.Equal(got, want) {
		t.Errorf("seen %q, want %q", got, want)
	}
	s.reads("x", "p", []byte("old"))
	s.reads("x", "", []byte("nobody's"))
	if got := texts(s.of("x", "p")); !slices.Equal(got, []string{"old"}) {
		t.Errorf("p has %q", got)
	}
	if got := s.of("x", "q"); len(got) != seenTexts {
		t.Errorf("q may have %q", texts(got))
	}
	for i := range 10 {
		s.reads("x", fmt.Sprint(i), []byte("new"))
	}
	if got := s.of("x", "p"); len(got) != seenTexts {
		t.Errorf("p is remembered among many: %q", texts(got))
	}
	for i := range seenSessions {
		s.note(fmt.Sprint(i), []byte("t"))
	}
	if got := s.of("x", ""); got != nil || len(s.sessions) != seenSessions {
		t.Errorf("%d sessions are kept, x has %q", len(s.sessions), texts(got))
	}
}

func TestProcessOf(t *testing.T) {
	who := processOf(fuse.NewContext(context.Background(), &fuse.Caller{Pid: uint32(os.Getpid())}))
	if pid, _, ok := strings.Cut(who, "/"); !ok || pid != fmt.Sprint(os.Getpid()) {
		t.Errorf("this process is %q", who)
	}
	for _, ctx := range []context.Context{context.Background(), fuse.NewContext(context.Background(), &fuse.Caller{}), fuse.NewContext(context.Background(), &fuse.Caller{Pid: 1 << 30})} {
		if got := processOf(ctx); got != "" {
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
