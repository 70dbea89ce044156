package dag

import (
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestZeroIndex(t *testing.T) {
	var zero Index
	if zero.Len() != 0 || zero.NextSeq() != 0 || zero.Tips(nil) != nil || zero.Children("x") != nil || zero.Chain("x") != nil {
		t.Error("the zero Index is not empty")
	}
	if _, ok := zero.DeepestLeaf(""); ok {
		t.Error("the zero Index has a leaf")
	}
	one := zero.Append(Node{ID: "a"})
	if _, ok := one.Get("a"); !ok || one.Len() != 1 || zero.Len() != 0 {
		t.Error("Append to the zero Index failed")
	}
}

func TestNextSeq(t *testing.T) {
	for _, tt := range []struct {
		seqs []int64
		want int64
	}{{nil, 0}, {[]int64{0}, 1}, {[]int64{7, 3}, 8}, {[]int64{-5}, 0}, {[]int64{math.MaxInt64}, math.MaxInt64}} {
		bulk, grown := NewIndex(nodesWithSeqs(tt.seqs)), NewIndex(nil)
		for _, n := range nodesWithSeqs(tt.seqs) {
			grown = grown.Append(n)
		}
		if bulk.NextSeq() != tt.want || grown.NextSeq() != tt.want {
			t.Errorf("NextSeq of %v = %d, appended %d, want %d", tt.seqs, bulk.NextSeq(), grown.NextSeq(), tt.want)
		}
	}
}

func nodesWithSeqs(seqs []int64) []Node {
	var nodes []Node
	for i, seq := range seqs {
		nodes = append(nodes, Node{ID: strconv.Itoa(i), Seq: seq})
	}
	return nodes
}

func TestDuplicateIDs(t *testing.T) {
	old := NewIndex(graph(t, "u user - -\nd llm u - name=first"))
	ix := old.Append(graph(t, "d llm u - name=second")[0]).Append(graph(t, "d llm u - name=third")[0])
	if n, _ := ix.Get("d"); n.Name != "third" {
		t.Errorf("Get sees %q, want the last", n.Name)
	}
	if n, _ := old.Get("d"); n.Name != "first" {
		t.Errorf("an older view sees %q, want its own", n.Name)
	}
	if got := len(ix.Children("u")); got != 3 {
		t.Errorf("%d children, want all three", got)
	}
	if got := len(ix.Messages()); got != 4 {
		t.Errorf("%d messages, want all four", got)
	}
	if got := ids(ix.Siblings("d")); !slices.Equal(got, []string{"d"}) {
		t.Errorf("Siblings = %v, want the id once", got)
	}
}

// A view never shows what was appended later, not even where the edges of the
// newer nodes point at its own.
func TestOldViews(t *testing.T) {
	nodes := randomNodes(newRand(7), 60)
	views := []*Index{NewIndex(nil)}
	for _, n := range nodes {
		views = append(views, views[len(views)-1].Append(n))
	}
	for i, view := range views {
		sameAnswers(t, NewIndex(nodes[:i]), view, nodes)
	}
}

// Two views may be appended to from the same older one.
func TestAppendFork(t *testing.T) {
	base := NewIndex(graph(t, "u user - -"))
	left := base.Append(graph(t, "l llm u -")[0])
	right := base.Append(graph(t, "r llm u -")[0])
	for view, want := range map[*Index][]string{base: {}, left: {"l"}, right: {"r"}} {
		if diff := cmp.Diff(want, ids(view.Children("u"))); diff != "" {
			t.Errorf("children (-want +got):\n%s", diff)
		}
	}
	if _, ok := left.Get("r"); ok {
		t.Error("one fork sees the other's node")
	}
}

func TestReplaceAndWithout(t *testing.T) {
	nodes := graph(t, "u user - -\na llm u -\nv user a -\nb llm v -")
	ix := NewIndex(nodes)
	moved := nodes[2]
	moved.Predecessor, moved.Status = "u", "completed"
	replaced := ix.Replace(moved)
	if pos, _ := replaced.Position("v"); pos != 2 || replaced.Len() != 4 {
		t.Errorf("position %d of %d after Replace, want 2 of 4", pos, replaced.Len())
	}
	if diff := cmp.Diff([]string{"a", "v"}, ids(replaced.Children("u"))); diff != "" {
		t.Errorf("children after Replace (-want +got):\n%s", diff)
	}
	if got := ids(ix.Children("u")); len(got) != 1 {
		t.Errorf("Replace changed the view it was called on: %v", got)
	}
	if got := ix.Replace(Node{ID: "new"}); got.Len() != 5 || ix.Len() != 4 {
		t.Errorf("Replace of an unknown id: %d nodes, want 5", got.Len())
	}
	less := ix.Without(map[string]bool{"v": true, "nobody": true})
	if diff := cmp.Diff([]string{"u", "a", "b"}, ids(slices.Collect(less.All()))); diff != "" || ix.Len() != 4 {
		t.Errorf("Without (-want +got):\n%s", diff)
	}
	if got := ids(less.Chain("b")); !slices.Equal(got, []string{"b"}) {
		t.Errorf("chain over a removed node = %v, want its end there", got)
	}
	if ix.Without(map[string]bool{"nobody": true}) != ix {
		t.Error("Without of nothing is not the same view")
	}
}

// The given slice stays the caller's.
func TestNewIndexCopies(t *testing.T) {
	nodes := graph(t, "u user - -\na llm u -")
	ix := NewIndex(nodes)
	nodes[1] = Node{ID: "z"}
	if n := ix.At(1); n.ID != "a" {
		t.Errorf("node is %q after the caller changed its slice, want a", n.ID)
	}
}

// Readers of every view run while others append: for the race detector, and
// each must see its own view only.
func TestConcurrentAppend(t *testing.T) {
	const total = 400
	nodes := linear(total)
	views := make(chan *Index, total)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for view := range views {
				last := view.At(view.Len() - 1)
				branch, err := view.Branch(last.ID)
				if err != nil || len(branch) != view.Len() {
					t.Errorf("branch of %d nodes in a view of %d, %v", len(branch), view.Len(), err)
				}
				if kids := view.Children(last.ID); len(kids) != 0 {
					t.Errorf("the last node of a view has children: %v", ids(kids))
				}
				tips := view.Tips(func(id string) bool { _, ok := view.Get(id); return !ok })
				leaf, _ := view.DeepestLeaf("")
				if len(tips) != 1 || tips[0].ID != last.ID || leaf != last.ID {
					t.Errorf("tips %v, leaf %q, want %q", ids(tips), leaf, last.ID)
				}
				view.Append(Node{ID: "fork", Predecessor: last.ID}) // an old view: copied
			}
		})
	}
	ix := NewIndex(nodes[:1])
	for _, n := range nodes[1:] {
		views <- ix
		ix = ix.Append(n)
	}
	close(views)
	wg.Wait()
}

// linear returns a conversation of n nodes, with ids as long as real ones.
func linear(n int) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{ID: nodeID(i), Seq: int64(i), Role: roleUser}
		if i%2 == 1 {
			nodes[i].Role = roleLLM
		}
		if i > 0 {
			nodes[i].Predecessor = nodeID(i - 1)
		}
	}
	return nodes
}

func nodeID(i int) string { return "n" + strconv.Itoa(100_000_000_000 + i)[1:] }

// Long chains, in both directions and as a loop, take a loop and no stack.
func TestLongWalks(t *testing.T) {
	const n = 100_000
	for _, looped := range []bool{false, true} {
		nodes := linear(n)
		for i := range nodes {
			nodes[i].Caller = nodes[i].Predecessor
		}
		if looped {
			nodes[0].Predecessor, nodes[0].Caller = nodeID(n-1), nodeID(n-1)
		}
		ix := NewIndex(nodes)
		if branch, err := ix.Branch(nodeID(n - 1)); err != nil || len(branch) != n {
			t.Errorf("looped %v: branch of %d, %v", looped, len(branch), err)
		}
		if leaf, _ := ix.DeepestLeaf(nodeID(0)); leaf != nodeID(n-1) {
			t.Errorf("looped %v: leaf %q", looped, leaf)
		}
		if got := len(ix.Closure(nodeID(0))); got != n {
			t.Errorf("looped %v: closure of %d", looped, got)
		}
		if got := len(ix.Descendants(nodeID(0))); got < n-1 {
			t.Errorf("looped %v: %d descendants", looped, got)
		}
	}
}

// The index costs at most 250 bytes a node beside the nodes' own strings.
func TestMemory(t *testing.T) {
	const n = 10_000
	nodes := linear(n)
	before := heap()
	ix := NewIndex(nodes)
	used := heap() - before
	runtime.KeepAlive(nodes)
	if ix.Len() != n || used > 250*n {
		t.Errorf("%d bytes a node, want at most 250", used/n)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
