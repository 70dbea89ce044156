package dag

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ids returns the ids of nodes, never nil, so that results compare.
func ids(nodes []Node) []string {
	out := []string{}
	for _, n := range nodes {
		out = append(out, n.ID)
	}
	return out
}

// graph builds nodes from lines "id role predecessor caller [flag…]", in which
// "-" is an empty field; seq counts the lines. name=… sets the name.
func graph(t testing.TB, text string) []Node {
	t.Helper()
	flags := map[string]Flags{
		"input": HasInput, "root": DisplayRoot, "runtime": DisplayRuntime, "structural": Structural,
		"rewound": Rewound, "spawn": SpawnRoot, "covers": Covers, "some": CoversSome, "attach": Attach, "function": Function,
	}
	var nodes []Node
	for line := range strings.Lines(text) {
		f := strings.Fields(strings.ReplaceAll(line, " -", " \x00"))
		if len(f) == 0 {
			continue
		}
		n := Node{ID: f[0], Role: f[1], Predecessor: f[2], Caller: f[3], Seq: int64(len(nodes))}
		n.Predecessor = strings.Trim(n.Predecessor, "\x00")
		n.Caller = strings.Trim(n.Caller, "\x00")
		for _, word := range f[4:] {
			if name, ok := strings.CutPrefix(word, "name="); ok {
				n.Name = name
				continue
			}
			flag, ok := flags[word]
			if !ok {
				t.Fatalf("unknown word %q in %q", word, line)
			}
			n.Flags |= flag
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func TestBranch(t *testing.T) {
	const chat = `
ROOT user - - root
u1 user ROOT ROOT
a1 llm u1 -
u2 user a1 ROOT
a2 llm u2 -
u2b user a1 ROOT
`
	tests := []struct {
		name, graph, head string
		want              []string
		broken            string
	}{
		{"to the root, which is dropped", chat, "a2", []string{"u1", "a1", "u2", "a2"}, ""},
		{"fork", chat, "u2b", []string{"u1", "a1", "u2b"}, ""},
		{"the root itself", chat, "ROOT", []string{}, ""},
		{"no head", chat, "", []string{}, ""},
		{"unknown head", chat, "nobody", []string{}, ""},
		{"root as a sentinel", "u user ROOT ROOT\na llm u -", "a", []string{"u", "a"}, ""},
		{"first turn without predecessor", "u user - -\na llm u -", "a", []string{"u", "a"}, ""},
		{"second turn without predecessor", "u user - -\na llm u -\nv user - -\nb llm v -", "b", nil, "v"},
		{"its sibling branch stays readable", "u user - -\na llm u -\nv user - -", "a", []string{"u", "a"}, ""},
		{"an answer is no start", "u user - -\nv user - a input", "v", nil, "v"},
		{"a called reply is no start", "u user - -\nc code - u\ni llm - c", "i", nil, "i"},
		{"a called reply does not count as first", "c code - -\ni llm - c\nu user - -", "u", []string{"u"}, ""},
		{"spawned branch", "u user - -\ns user - u spawn\nb llm s -", "b", []string{"s", "b"}, ""},
		{"code is a legal start", "u user - -\nc code - u\na llm c -", "a", []string{"c", "a"}, ""},
		{"summary is a legal start", "u user - -\nsummary_1 llm - - covers\na llm summary_1 -", "a", []string{"summary_1", "a"}, ""},
		{"dangling predecessor", "u user - -\nv user gone -\na llm v -", "a", []string{"v", "a"}, ""},
		{"loop", "u user - -\nv user b -\nb llm v -\nw user b -", "w", []string{"v", "b", "w"}, ""},
		{"loop of one", "v user v -\nb llm v -", "b", []string{"v", "b"}, ""},
		{"rewound is dropped", "u user - -\na llm u - rewound\nv user a -", "v", []string{"u", "v"}, ""},
		{"structural and context stay", "u user - -\ns llm u - structural\nc llm s - name=context/x", "c", []string{"u", "s", "c"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := NewIndex(graph(t, tt.graph)).Branch(tt.head)
			if tt.broken == "" {
				if diff := cmp.Diff(tt.want, ids(got)); err != nil || diff != "" {
					t.Errorf("Branch(%q): error %v, difference (-want +got):\n%s", tt.head, err, diff)
				}
				return
			}
			var broken *BrokenChainError
			if !errors.As(err, &broken) || broken.Node != tt.broken || !strings.Contains(err.Error(), `"`+tt.broken+`"`) {
				t.Errorf("Branch(%q) = %v, %v; want a broken chain at %q, named in its text", tt.head, ids(got), err, tt.broken)
			}
		})
	}
}

// The first conversational node is looked for in stored order, and only up to
// the first node that does not have a lower seq.
func TestBranchFirstBySeqAndOrder(t *testing.T) {
	nodes := graph(t, "late user - -\nearly user - -\na llm early -")
	nodes[0].Seq, nodes[1].Seq, nodes[2].Seq = 5, 1, 6
	if got, err := NewIndex(nodes).Branch("a"); err != nil || len(got) != 2 {
		t.Errorf("a start with a lower seq than what is stored before it: %v, %v", ids(got), err)
	}
	nodes[0].Seq = 0
	if _, err := NewIndex(nodes).Branch("a"); err == nil {
		t.Error("a start after a conversational node with a lower seq was accepted")
	}
}

func TestCheckWrite(t *testing.T) {
	const begun = "ROOT user - - root\nu1 user ROOT ROOT\n"
	tests := []struct {
		name, before, node string
		refused            bool
	}{
		{"the first node", "", "n user - -", false},
		{"only the root before it", "ROOT user - - root", "n llm - -", false},
		{"only called nodes before it", "ROOT user - - root\nc code - ROOT\ni llm - c", "n user - -", false},
		{"second user", begun, "n user - -", true},
		{"second user called by the root", begun, "n user - ROOT", true},
		{"second reply", begun, "n llm - -", true},
		{"with the root as predecessor", begun, "n user ROOT ROOT", false},
		{"with a dangling predecessor", begun, "n user nobody ROOT", false},
		{"an answer", begun, "n user - - input", false},
		{"input of a reply is no answer", begun, "n llm - - input", true},
		{"called", begun, "n llm - c1", false},
		{"display root", begun, "n user - - root", false},
		{"spawn root", begun, "n user - ROOT spawn", false},
		{"summary", begun, "n llm - - covers", false},
		{"code", begun, "n code - -", false},
		{"another role", begun, "n system - -", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := NewIndex(graph(t, tt.before)).CheckWrite(graph(t, tt.node)[0])
			if !tt.refused {
				if err != nil {
					t.Errorf("CheckWrite(%s) = %v, want nil", tt.node, err)
				}
				return
			}
			var missing *PredecessorMissingError
			if !errors.As(err, &missing) || missing.Node != "n" || !strings.Contains(err.Error(), `"n"`) {
				t.Errorf("CheckWrite(%s) = %v, want a refusal that names the node", tt.node, err)
			}
		})
	}
}

func TestIsConversation(t *testing.T) {
	ix := NewIndex(graph(t, "u user - -\na llm u -\nc code - a"))
	tests := []struct {
		node string
		want bool
	}{
		{"n user u -", true},
		{"n user u ROOT", true},
		{"n llm u a", true},    // called by a model: a spawned branch
		{"n llm u c", false},   // called by code: inside a run
		{"n llm u gone", true}, // caller unknown
		{"n code u -", false},  // neither name nor function
		{"n code u - name=run", true},
		{"n code u ROOT function", true},
		{"n code u a name=run", false}, // a tool call
		{"n system u -", false},
		{"n user u - structural", false},
		{"n user u - root", false},
		{"n llm u - runtime", false},
		{"n llm u - attach", false},
		{"n llm u - name=context/summary", false},
		{"n llm u - name=contextual", true},
		{"n llm u - rewound", true},
		{"n user u c spawn", false},
		{"n user u a spawn", true},
	}
	for _, tt := range tests {
		if got := ix.IsConversation(graph(t, tt.node)[0]); got != tt.want {
			t.Errorf("IsConversation(%s) = %v, want %v", tt.node, got, tt.want)
		}
	}
}

func TestTips(t *testing.T) {
	ix := NewIndex(graph(t, `
ROOT user - - root
u1 user ROOT ROOT
a1 llm u1 -
u2 user a1 ROOT
tool code - a1 name=run
u3 user a1 ROOT rewound
p1 llm u2 u2 attach
summary_1 llm u1 - covers
gone llm a1 -
x code a1 - name=program
`))
	if diff := cmp.Diff([]string{"u2", "u3", "gone", "x"}, ids(ix.Tips(nil))); diff != "" {
		t.Errorf("Tips (-want +got):\n%s", diff)
	}
	skip := func(id string) bool { _, ok := ix.Get(id); return ok && id == "gone" }
	if diff := cmp.Diff([]string{"u2", "u3", "x"}, ids(ix.Tips(skip))); diff != "" {
		t.Errorf("Tips without the merged head (-want +got):\n%s", diff)
	}
}

func TestMessagesAndLatestUser(t *testing.T) {
	ix := NewIndex(graph(t, `
ROOT user - - root
sys code - ROOT name=context/system_prompt
u1 user ROOT ROOT
a1 llm u1 -
t1 code - a1
old llm u1 - rewound
hid llm u1 - structural
summary_1 llm u1 - covers name=context/summary
q user - t1 input
`))
	if diff := cmp.Diff([]string{"u1", "a1", "t1", "summary_1", "q"}, ids(ix.Messages())); diff != "" {
		t.Errorf("Messages (-want +got):\n%s", diff)
	}
	if n, ok := ix.LatestUser(); !ok || n.ID != "q" {
		t.Errorf("LatestUser = %q, %v, want the answer", n.ID, ok)
	}
	if n, ok := NewIndex(graph(t, "a llm - -")).LatestUser(); ok {
		t.Errorf("LatestUser without any = %q", n.ID)
	}
}

func TestSiblings(t *testing.T) {
	nodes := graph(t, `
u1 user - -
a1 llm u1 -
u2 user a1 ROOT
u3 user a1 ROOT
v1 user ROOT ROOT
c1 code a1 - name=run
t1 code - a1
s1 user - a1 spawn
a2 llm u1 -
u4 user a1 ROOT structural
`)
	nodes[2].Seq, nodes[3].Seq = 3, 2 // u3 before u2
	ix := NewIndex(nodes)
	for id, want := range map[string][]string{
		"u2": {"u3", "u2"},
		"u3": {"u3", "u2"},
		"a1": {"a1", "a2"},
		"u1": {"u1", "v1"},
		"v1": {"u1", "v1"},
		"t1": {"t1"},
		"s1": {"s1"},
		"u4": {"u4"},
		"??": {},
	} {
		if diff := cmp.Diff(want, ids(ix.Siblings(id))); diff != "" {
			t.Errorf("Siblings(%q) (-want +got):\n%s", id, diff)
		}
	}
}

func TestSubtrees(t *testing.T) {
	ix := NewIndex(graph(t, `
u1 user - -
a1 llm u1 -
t1 code - a1
t2 code - a1
i1 llm - t1
u2 user a1 -
u3 user a1 -
a3 llm u3 -
a2 llm u2 -
h1 llm a2 - structural
h2 llm h1 -
x1 code y1 y1
y1 code x1 x1
`))
	for from, want := range map[string]string{
		"u1": "a3", "u2": "a2", "a2": "a2", "t1": "t1", "": "a3", "x1": "y1", "h1": "h2",
	} {
		if got, ok := ix.DeepestLeaf(from); !ok || got != want {
			t.Errorf("DeepestLeaf(%q) = %q, %v, want %q", from, got, ok, want)
		}
	}
	if got, ok := ix.DeepestLeaf("nobody"); ok {
		t.Errorf("DeepestLeaf of an unknown node = %q", got)
	}
	if got, ok := NewIndex(graph(t, "a llm ROOT -")).DeepestLeaf(""); ok {
		t.Errorf("DeepestLeaf without a start = %q", got)
	}
	for of, want := range map[string][]string{
		"a1": {"t2", "t1", "i1"}, "t1": {"i1"}, "u1": nil, "x1": {"y1", "x1"}, "nobody": nil, "": nil,
	} {
		if diff := cmp.Diff(want, ix.Descendants(of)); diff != "" {
			t.Errorf("Descendants(%q) (-want +got):\n%s", of, diff)
		}
	}
	for of, want := range map[string][]string{
		"u2": {"u2", "a2", "h1", "h2"}, "x1": {"x1", "y1"}, "nobody": nil, "": nil,
		"a1": {"a1", "t2", "t1", "i1", "u3", "a3", "u2", "a2", "h1", "h2"},
	} {
		if diff := cmp.Diff(want, ix.Closure(of)); diff != "" {
			t.Errorf("Closure(%q) (-want +got):\n%s", of, diff)
		}
	}
}

func TestAncestor(t *testing.T) {
	ix := NewIndex(graph(t, "u user ROOT -\na llm u -\nb llm a -\nx llm y -\ny llm x -"))
	tests := []struct {
		id   string
		n    int
		want string
		ok   bool
	}{
		{"b", 0, "b", true}, {"b", 1, "a", true}, {"b", 2, "u", true}, {"b", 3, "", false},
		{"b", -1, "", false}, {"b", 1 << 60, "", false}, {"nobody", 0, "", false},
		{"x", 1, "y", true}, {"x", 2, "", false},
	}
	for _, tt := range tests {
		if got, ok := ix.Ancestor(tt.id, tt.n); got != tt.want || ok != tt.ok {
			t.Errorf("Ancestor(%q, %d) = %q, %v, want %q, %v", tt.id, tt.n, got, ok, tt.want, tt.ok)
		}
	}
}
