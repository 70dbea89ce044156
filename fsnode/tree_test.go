package fsnode

import (
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestTreeOfASession(t *testing.T) {
	b := newBench(t, nil)
	b.chat("s1")
	if got, want := b.list(""), []string{"README.txt", "index.json", "sessions", "archived", "views", ".sessionfs"}; !slices.Equal(got, want) {
		t.Errorf("root: %q, want %q", got, want)
	}
	want := []string{"head", "head_id", "messages", "branch", "nodes", "history", "fields", "meta.json", "transcript.md", "append", "ctl", "attachments", "workdir",
		"dag", "transcript.jsonl", "graph.txt", "graph.dot", "context", "commits"}
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
