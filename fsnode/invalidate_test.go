package fsnode

import (
	"context"
	"testing"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
)

func TestWhoMayBeWaitedFor(t *testing.T) {
	root := &vnode.List{}
	sessions := &vnode.List{Up: root}
	session := &vnode.List{Up: sessions}
	nodes, messages := &vnode.List{Up: session}, &vnode.List{Up: session}
	ctx := context.Background()
	for _, c := range []struct {
		name string
		held *held
		dir  *vnode.List
		want bool
	}{
		{"a write holds nothing", heldBy(ctx), messages, true},
		{"a lookup may hold anything", heldBy(holdingAny(ctx)), messages, false},
		{"a rename onto head waits for messages", heldBy(holding(ctx, nodes, session)), messages, true},
		{"but not for what it holds", heldBy(holding(ctx, nodes, session)), nodes, false},
		{"and not for itself", heldBy(holding(ctx, nodes, session)), session, false},
		{"nor upward", heldBy(holding(ctx, nodes, session)), sessions, false},
		{"a sibling is not waited for", heldBy(holding(ctx, nodes)), messages, false},
		{"mkdir of a session waits for what is inside", heldBy(holding(ctx, sessions)), messages, true},
		{"but not for the root", heldBy(holding(ctx, sessions)), root, false},
	} {
		if got := c.held.mayWait(c.dir); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPendingRecordsAreSentByWhoeverComesFirst(t *testing.T) {
	var p pending
	a, b := &record{}, &record{}
	p.add(a)
	recs, keys := p.copy()
	p.add(b) // another change, before the first has been sent
	if len(recs) != 1 || recs[0] != a {
		t.Fatalf("copied %d", len(recs))
	}
	all, more := p.copy()
	if len(all) != 2 {
		t.Fatalf("the second mover sends %d records, want both", len(all))
	}
	p.drop(keys)
	if rest, _ := p.copy(); len(rest) != 1 || rest[0] != b {
		t.Errorf("after the first was sent %d are pending", len(rest))
	}
	p.drop(more)
	if rest, _ := p.copy(); len(rest) != 0 {
		t.Errorf("after all were sent %d are pending", len(rest))
	}
}

// What changes while a mount is being made is not sent: the mount's server does
// not know yet how to.
func TestNothingIsSentBeforeTheFirstRequest(t *testing.T) {
	tr := &tree{}
	tr.send(nil, []*record{{
		late:  func() *record { t.Error("a record was looked at"); return &record{} },
		known: func(func(*vnode.List)) *record { t.Error("a listing was asked for"); return &record{} },
	}})
}
