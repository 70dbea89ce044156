package crash

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/storetest"
	"github.com/sessionfs/sessionfs/test/harness"
)

// leaseRole begins a run in the session of a root and answers its node.
func leaseRole([]string) int {
	var s *store.Store
	return harness.Serve(func(q loadRequest) string {
		var err error
		if s, err = store.Open(context.Background(), store.Options{Root: q.Root}); err != nil {
			return "error: " + err.Error()
		}
		run, err := s.BeginTurn(context.Background(), "s1", store.Turn{Placeholder: true})
		if err != nil {
			return "error: " + err.Error()
		}
		return run.Node()
	})
}

// TestDeadRun: a run is active as long as its process lives, and dead the
// moment it does not, to a store that was open all the time as to a new one.
func TestDeadRun(t *testing.T) {
	root := filepath.Join(scratch(t), rootName)
	storetest.Build(t, root, talk)
	ctx := t.Context()
	s, err := store.Open(ctx, store.Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := harness.Spawn(t, "lease")
	var node string
	if err := p.Call(loadRequest{Root: root}, &node); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetHead(ctx, "s1", "a1", store.HeadMove{}); store.CodeOf(err) != store.RunActive {
		t.Fatalf("a move while the run lives (%s): %v", node, err)
	}
	p.Kill()
	if active, err := s.RunIsActive(ctx, "s1"); err != nil || active {
		t.Fatalf("active after the kill: %v, %v", active, err)
	}
	if _, err := s.SetHead(ctx, "s1", "a1", store.HeadMove{}); err != nil {
		t.Fatalf("a move after the kill: %v", err)
	}
	again, err := store.Open(ctx, store.Options{Root: root, Reconcile: store.ReconcileAuto})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	// Open itself ends both: what the lease proves of the one it proves of the
	// other, and it forgets the run then.
	raw, err := filepath.Glob(filepath.Join(root, "s1", "history", "*-"+node+".json"))
	if err != nil || len(raw) != 1 {
		t.Fatalf("files of %s: %v, %v", node, raw, err)
	}
	if b, err := os.ReadFile(raw[0]); err != nil || !strings.Contains(string(b), `"status": "interrupted"`) {
		t.Fatalf("the reply after Open: %s, %v", b, err)
	}
	sn, err := again.Load(ctx, "s1")
	if err != nil || sn.Status() != "interrupted" {
		t.Fatalf("status after the kill: %q, %v", sn.Status(), err)
	}
	if n, ok := sn.Index.Get(node); !ok || n.Status != "interrupted" {
		t.Fatalf("the reply after the kill: %+v, %v", n, ok)
	}
}
