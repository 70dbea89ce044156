package dag

import (
	"math/rand/v2"
	"testing"
)

// TestCheckBranchAgrees asks every view that comes to be while nodes are
// appended, in random order, so that what one question leaves behind meets
// the next.
func TestCheckBranchAgrees(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		nodes := randomNodes(r, 40)
		views := []*Index{NewIndex(nil)}
		for _, n := range nodes {
			views = append(views, views[len(views)-1].Append(n))
			for range 6 {
				ix, head := views[r.IntN(len(views))], nodes[r.IntN(len(nodes))].ID
				if r.IntN(4) == 0 {
					ix = views[len(views)-1]
				}
				_, want := ix.Branch(head)
				got := ix.CheckBranch(head)
				if (got == nil) != (want == nil) || want != nil && got.Error() != want.Error() {
					t.Fatalf("seed %d, %d nodes, head %s: %v, want %v", seed, ix.Len(), head, got, want)
				}
			}
		}
	}
	if err := new(Index).CheckBranch("x"); err != nil {
		t.Error(err)
	}
}

// TestCheckBranchRemembers: a question about a chain that was asked about
// before does not walk it again.
func TestCheckBranchRemembers(t *testing.T) {
	ix := NewIndex(nil)
	pred := RootID
	for i := range 1000 {
		n := Node{ID: string(rune('a'+i%26)) + string(rune(1000+i)), Seq: int64(i), Role: roleUser, Predecessor: pred}
		pred, ix = n.ID, ix.Append(n)
	}
	if err := ix.CheckBranch(pred); err != nil {
		t.Fatal(err)
	}
	next := ix.Append(Node{ID: "next", Seq: 1000, Role: roleLLM, Predecessor: pred})
	if n := testing.AllocsPerRun(100, func() { _ = ix.CheckBranch(pred) }); n != 0 {
		t.Errorf("%v allocations for what is known", n)
	}
	if err := next.CheckBranch("next"); err != nil || len(next.s.ends) != 1001 || next.s.ends[1000] != 0 {
		t.Errorf("%v, %d ends", err, len(next.s.ends))
	}
}
