package dag

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// randomNodes returns up to limit nodes of every kind, with dangling edges,
// loops and a few duplicate ids. Any node may precede or call any other.
func randomNodes(r *rand.Rand, limit int) []Node {
	count := 1 + r.IntN(limit)
	roles := []string{roleUser, roleUser, roleLLM, roleLLM, roleCode, "system"}
	names := []string{"", "", "run", "context/summary", "context/x"}
	pick := func() string {
		switch r.IntN(12) {
		case 0:
			return ""
		case 1:
			return RootID
		case 2:
			return "gone" + strconv.Itoa(r.IntN(3))
		}
		return "n" + strconv.Itoa(r.IntN(count))
	}
	nodes := make([]Node, count)
	for i := range nodes {
		n := Node{ID: "n" + strconv.Itoa(i), Seq: int64(i), Role: roles[r.IntN(len(roles))], Name: names[r.IntN(len(names))]}
		if r.IntN(30) == 0 {
			n.ID = "n" + strconv.Itoa(r.IntN(count))
		}
		if r.IntN(20) == 0 {
			n.ID = "summary_" + strconv.Itoa(i)
		}
		if n.Predecessor = pick(); i > 0 && r.IntN(3) > 0 {
			n.Predecessor = "n" + strconv.Itoa(r.IntN(i))
		}
		if r.IntN(3) == 0 {
			n.Caller = pick()
		}
		for bit := range 10 {
			if r.IntN(15) == 0 {
				n.Flags |= 1 << bit
			}
		}
		nodes[i] = n
	}
	return nodes
}

// The model: the rules said again over a plain list, with no regard to speed.
type model []Node

func (m model) get(id string) (Node, bool) {
	for _, n := range slices.Backward(m) {
		if n.ID == id {
			return n, true
		}
	}
	return Node{}, false
}

func (m model) branch(head string) (out []string, broken string) {
	n, ok := m.get(head)
	if head == "" || !ok {
		return []string{}, ""
	}
	out = []string{}
	visited := map[string]bool{}
	for {
		visited[n.ID] = true
		if n.Flags&DisplayRoot == 0 && n.Flags&Rewound == 0 {
			out = append([]string{n.ID}, out...)
		}
		if n.Predecessor == "" {
			if !m.mayStart(n) {
				return nil, n.ID
			}
			return out, ""
		}
		next, ok := m.get(n.Predecessor)
		if !ok || visited[next.ID] {
			return out, ""
		}
		n = next
	}
}

func (m model) mayStart(n Node) bool {
	if n.Flags&SpawnRoot != 0 || n.Flags&DisplayRoot != 0 || n.Flags&Covers != 0 {
		return true
	}
	if n.Role != "user" && n.Role != "llm" {
		return true
	}
	for _, o := range m {
		if o.Seq >= n.Seq {
			break
		}
		if (o.Role == "user" || o.Role == "llm") && o.Flags&DisplayRoot == 0 && (o.Caller == "" || o.Caller == "ROOT") {
			return false
		}
	}
	return true
}

func (m model) conversation(n Node) bool {
	top := n.Caller == "" || n.Caller == "ROOT"
	switch {
	case n.Flags&Structural != 0, n.Flags&DisplayRoot != 0, n.Flags&DisplayRuntime != 0, n.Flags&Attach != 0:
		return false
	case strings.HasPrefix(n.Name, "context/"):
		return false
	case n.Role == "code":
		return top && (n.Name != "" || n.Flags&Function != 0)
	case n.Role != "user" && n.Role != "llm":
		return false
	case top:
		return true
	}
	caller, ok := m.get(n.Caller)
	return !ok || caller.Role == "user" || caller.Role == "llm"
}

func (m model) tips() []string {
	out := []string{}
	for _, n := range m {
		followed := slices.ContainsFunc(m, func(o Node) bool { return o.Predecessor == n.ID && m.conversation(o) })
		if m.conversation(n) && !followed && !strings.HasPrefix(n.ID, "summary_") {
			out = append(out, n.ID)
		}
	}
	return out
}

// below returns the ids that are reached over edges, as a set.
func (m model) below(id string, callers, predecessors bool) map[string]bool {
	reached := map[string]bool{}
	for grew := true; grew; {
		grew = false
		for _, n := range m {
			from := func(edge string) bool { return edge != "" && (edge == id || reached[edge]) }
			if !reached[n.ID] && (callers && from(n.Caller) || predecessors && from(n.Predecessor)) {
				reached[n.ID], grew = true, true
			}
		}
	}
	return reached
}

func TestRandomGraphsEqualTheModel(t *testing.T) {
	for seed := range uint64(300) {
		nodes := randomNodes(newRand(seed), 40)
		ix, m := NewIndex(nodes), model(nodes)
		for _, n := range append(nodes, Node{ID: "gone0"}, Node{ID: ""}) {
			want, broken := m.branch(n.ID)
			got, err := ix.Branch(n.ID)
			var be *BrokenChainError
			if broken != "" {
				if !errors.As(err, &be) || be.Node != broken {
					t.Fatalf("seed %d: Branch(%q) = %v, %v, want broken at %q", seed, n.ID, ids(got), err, broken)
				}
			} else if diff := cmp.Diff(want, ids(got)); err != nil || diff != "" {
				t.Fatalf("seed %d: Branch(%q): %v (-want +got):\n%s", seed, n.ID, err, diff)
			}
			checkBelow(t, seed, ix, m, n.ID)
		}
		if diff := cmp.Diff(m.tips(), ids(ix.Tips(nil))); diff != "" {
			t.Fatalf("seed %d: Tips (-want +got):\n%s", seed, diff)
		}
	}
}

func checkBelow(t *testing.T, seed uint64, ix *Index, m model, id string) {
	t.Helper()
	want := m.below(id, true, false)
	if _, ok := m.get(id); !ok {
		want = map[string]bool{}
	}
	if got := set(ix.Descendants(id)); !cmp.Equal(want, got) {
		t.Fatalf("seed %d: Descendants(%q) (-want +got):\n%s", seed, id, cmp.Diff(want, got))
	}
	if _, ok := m.get(id); !ok {
		return
	}
	want = m.below(id, true, true)
	want[id] = true
	if got := set(ix.Closure(id)); !cmp.Equal(want, got) {
		t.Fatalf("seed %d: Closure(%q) (-want +got):\n%s", seed, id, cmp.Diff(want, got))
	}
}

// set makes a set of a list; an id that is listed twice counts as another.
func set(list []string) map[string]bool {
	out := map[string]bool{}
	for _, id := range list {
		if out[id] {
			id += " again"
		}
		out[id] = true
	}
	return out
}

// The deepest leaf by a recursion over trees, where the model's rule is plain:
// every node has one predecessor, stored before it.
func TestDeepestLeafOfRandomTrees(t *testing.T) {
	for seed := range uint64(200) {
		r := newRand(seed)
		nodes := make([]Node, 1+r.IntN(30))
		for i := range nodes {
			nodes[i] = Node{ID: strconv.Itoa(i), Role: roleLLM}
			if i > 0 && r.IntN(8) > 0 {
				nodes[i].Predecessor = strconv.Itoa(r.IntN(i))
			}
			if r.IntN(8) == 0 {
				nodes[i].Flags = Structural
			}
		}
		var deepest func(id string) (string, int)
		deepest = func(id string) (best string, depth int) {
			best, depth = id, 0
			for _, n := range slices.Backward(nodes) {
				if n.Predecessor != id || n.Flags&Structural != 0 {
					continue
				}
				if leaf, d := deepest(n.ID); d+1 > depth {
					best, depth = leaf, d+1
				}
			}
			return best, depth
		}
		ix := NewIndex(nodes)
		overall, most := "", -1
		for _, n := range nodes {
			want, depth := deepest(n.ID)
			if got, _ := ix.DeepestLeaf(n.ID); got != want {
				t.Fatalf("seed %d: DeepestLeaf(%q) = %q, want %q", seed, n.ID, got, want)
			}
			if n.Predecessor == "" && depth > most {
				overall, most = want, depth
			}
		}
		if got, _ := ix.DeepestLeaf(""); got != overall {
			t.Fatalf("seed %d: DeepestLeaf of all = %q, want %q", seed, got, overall)
		}
	}
}

func TestAppendEqualsBulk(t *testing.T) {
	for seed := range uint64(100) {
		nodes := randomNodes(newRand(seed), 40)
		grown := NewIndex(nil)
		for _, n := range nodes {
			grown = grown.Append(n)
		}
		sameAnswers(t, NewIndex(nodes), grown, nodes)
	}
}

// sameAnswers compares two indexes in everything that they answer.
func sameAnswers(t *testing.T, want, got *Index, asked []Node) {
	t.Helper()
	if diff := cmp.Diff(answers(want, asked), answers(got, asked)); diff != "" {
		t.Fatalf("answers differ (-want +got):\n%s", diff)
	}
}

func answers(ix *Index, asked []Node) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	say("%d %d %v %v", ix.Len(), ix.NextSeq(), ids(ix.Messages()), ids(ix.Tips(nil)))
	leaf, ok := ix.DeepestLeaf("")
	last, _ := ix.LatestUser()
	say("%q %v %v %v", leaf, ok, last, slices.Collect(ix.All()))
	for _, n := range asked {
		got, ok := ix.Get(n.ID)
		branch, err := ix.Branch(n.ID)
		leaf, _ := ix.DeepestLeaf(n.ID)
		say("%v %v %v %v %q", got, ok, branch, err, leaf)
		say("%v %v %v", ids(ix.Children(n.ID)), ids(ix.Callees(n.ID)), ids(ix.Siblings(n.ID)))
		say("%v %v %v", ix.Descendants(n.ID), ix.Closure(n.ID), ix.CheckWrite(Node{ID: "w", Role: roleUser}))
		say("%v %v", ix.IsConversation(n), ids(ix.Chain(n.ID)))
	}
	return out
}

// Edges are the same whatever order the nodes come in.
func TestInsertionOrderDoesNotMatterForEdges(t *testing.T) {
	for seed := range uint64(100) {
		r := newRand(seed)
		nodes := randomNodes(r, 40)
		for i := range nodes {
			nodes[i].ID = "n" + strconv.Itoa(i) // of duplicates the order does matter
		}
		shuffled := slices.Clone(nodes)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		a, b := NewIndex(nodes), NewIndex(shuffled)
		for _, n := range nodes {
			for what, pair := range map[string][2][]string{
				"chain":       {ids(a.Chain(n.ID)), ids(b.Chain(n.ID))},
				"children":    {sorted(ids(a.Children(n.ID))), sorted(ids(b.Children(n.ID)))},
				"callees":     {sorted(ids(a.Callees(n.ID))), sorted(ids(b.Callees(n.ID)))},
				"siblings":    {ids(a.Siblings(n.ID)), ids(b.Siblings(n.ID))},
				"descendants": {sorted(a.Descendants(n.ID)), sorted(b.Descendants(n.ID))},
				"closure":     {sorted(a.Closure(n.ID)), sorted(b.Closure(n.ID))},
				"tips":        {sorted(ids(a.Tips(nil))), sorted(ids(b.Tips(nil)))},
			} {
				if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
					t.Fatalf("seed %d: %s of %q (-in order +shuffled):\n%s", seed, what, n.ID, diff)
				}
			}
		}
	}
}

func sorted(list []string) []string { slices.Sort(list); return list }

// Ancestor and Chain are one walk.
func TestAncestorIsChain(t *testing.T) {
	for seed := range uint64(50) {
		nodes := randomNodes(newRand(seed), 30)
		ix := NewIndex(nodes)
		for _, n := range nodes {
			chain := ix.Chain(n.ID)
			for i := range len(nodes) + 2 {
				got, ok := ix.Ancestor(n.ID, i)
				if ok != (i < len(chain)) || ok && got != chain[i].ID {
					t.Fatalf("seed %d: Ancestor(%q, %d) = %q, %v, chain %v", seed, n.ID, i, got, ok, ids(chain))
				}
			}
		}
	}
}
