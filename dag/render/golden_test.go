package render

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionfs/sessionfs/dag"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// golden compares got with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// at returns a time in a zone that must not show.
func at(minute int) time.Time {
	return time.Date(2025, 3, 1, 9, minute, 30, 500, time.FixedZone("far", 5*3600))
}

func TestTranscript(t *testing.T) {
	msgs := []Message{
		{Role: "user", Text: "Which files are large?\n\n# not a heading of ours\n", Time: at(0), Status: "done"},
		{Role: "assistant", Model: "model-7", Text: "Let me look.", Time: at(1), Status: "completed", Calls: []Call{
			{Name: "run_shell", Args: `{"cmd": "du -sh *"}`, Result: "12M\tvideo.mp4\n4K\tnotes.md", OK: true},
			{Name: "odd`name", Args: "", Result: "```\nfenced\n```\n", OK: false},
			{Name: "", OK: true},
		}},
		{Role: "user", Text: "", Time: time.Time{}},
		{Role: "assistant", Model: "model\n7", Text: "标题\r\nno final newline 🚀", Time: at(3), Status: "interrupted"},
		{Role: "summary", Text: "Earlier: files were listed.", Time: at(4)},
	}
	golden(t, "transcript.md", Transcript("Disk\nspace ", "local_1234567890", msgs))
	golden(t, "transcript_empty.md", Transcript(" ", "local_`1`", nil))
}

func TestTranscriptJSONL(t *testing.T) {
	lines := [][]byte{[]byte(`{"id": "a"}`), []byte("{\n  \"id\": \"b\\n\"\r\n}\n"), nil, []byte(" ")}
	want := `{"id": "a"}` + "\n" + `{   "id": "b\n"  }` + "\n"
	if got := string(TranscriptJSONL(lines)); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if string(lines[1]) != "{\n  \"id\": \"b\\n\"\r\n}\n" {
		t.Error("the given text was changed")
	}
}

// nodes builds an index from lines "id role predecessor caller", "-" for empty.
func nodes(text string, flags map[string]dag.Flags) *dag.Index {
	var list []dag.Node
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		for i := range f {
			if f[i] == "-" {
				f[i] = ""
			}
		}
		if len(f) == 4 {
			list = append(list, dag.Node{ID: f[0], Role: f[1], Predecessor: f[2], Caller: f[3], Seq: int64(len(list)), Flags: flags[f[0]]})
		}
	}
	return dag.NewIndex(list)
}

func label(n dag.Node) string { return n.Role + ": text of\n" + n.ID }

func TestGraph(t *testing.T) {
	tests := []struct {
		name, text string
		flags      map[string]dag.Flags
		head       string
		names      map[string][]string
	}{
		{name: "empty"},
		{
			name: "branches", head: "u3_reply",
			names: map[string][]string{"u2b_reply": {"try again", "draft"}, "u3_reply": {"main"}, "u1": {"start"}},
			flags: map[string]dag.Flags{"ROOT": dag.DisplayRoot},
			text: `
ROOT user - -
u1 user ROOT ROOT
u1_reply llm u1 -
u2 user u1_reply ROOT
u2_reply llm u2 -
u2b user u1_reply ROOT
u2b_reply llm u2b -
u2c user u1_reply ROOT
u2c_reply llm u2c -
u2c_other llm u2c -
v1 user ROOT ROOT
u3 user u2_reply ROOT
u3_reply llm u3 -
`,
		},
		{
			name: "calls", head: "r2",
			flags: map[string]dag.Flags{"s1": dag.SpawnRoot, "p1": dag.Attach},
			names: map[string][]string{"t2": {"odd"}},
			text: `
u1 user - -
r1 llm u1 -
t1 code - r1
t2 code - r1
i1 llm - t2
t3 code - i1
u1b user - -
u2 user r1 -
r2 llm u2 -
t4 code - r2
s1 user - t4
s1_reply llm s1 -
p1 llm r2 r2
`,
		},
		{
			name: "damaged", head: "nobody",
			text: `
u1 user - -
a llm d -
b user a -
c llm b -
d user c -
e user b -
lost llm gone -
self user self -
x code - y
y code - x
z code - y
k code - u1
l user k -
dup llm u1 -
dup llm lost -
`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ix := nodes(tt.text, tt.flags)
			golden(t, "graph_"+tt.name+".txt", Graph(ix, tt.head, label, tt.names))
			golden(t, "graph_"+tt.name+".dot", DOT(ix, tt.head, label, tt.names))
		})
	}
}

func TestGraphWithoutLabel(t *testing.T) {
	ix := nodes("u user - -", nil)
	if got := string(Graph(ix, "", nil, nil)); got != "* u user\n" {
		t.Errorf("got %q", got)
	}
	if got := string(DOT(ix, "", nil, nil)); !strings.Contains(got, `label="u\nuser"`) {
		t.Errorf("got %q", got)
	}
}

// Text from a session cannot break out of its line or its quotes.
func TestHostileText(t *testing.T) {
	ix := dag.NewIndex([]dag.Node{{ID: "a\n\x1b[31m\"\\"}})
	bad := func(dag.Node) string { return "x\r\n\x1b]0;title\a\"];\\" }
	if got := string(Graph(ix, "", bad, nil)); got != `* a [31m"\ x ]0;title"];\`+"\n" {
		t.Errorf("Graph: %q", got)
	}
	want := `  "a [31m\"\\" [label="a [31m\"\\\nx ]0;title\"];\\"];`
	if got := string(DOT(ix, "", bad, nil)); !strings.Contains(got, want) {
		t.Errorf("DOT: %q\nwant in it %q", got, want)
	}
}

// Whatever the edges, every node is drawn once, and below a node that is not
// on its own stands the node it continues.
func TestGraphOfRandomNodes(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		list := make([]dag.Node, 1+r.IntN(40))
		roles := []string{"user", "llm", "llm", "code"}
		for i := range list {
			edge := func() string {
				if r.IntN(3) == 0 {
					return ""
				}
				return "n" + strconv.Itoa(r.IntN(len(list)+2))
			}
			list[i] = dag.Node{ID: "n" + strconv.Itoa(i), Seq: int64(i), Role: roles[r.IntN(4)], Predecessor: edge()}
			if r.IntN(2) == 0 {
				list[i].Caller = edge()
			}
		}
		drawn := map[string]int{}
		for line := range strings.Lines(string(Graph(dag.NewIndex(list), "n0", nil, nil))) {
			if _, text, ok := cutAny(line, "* ", "> "); ok {
				drawn[strings.Fields(text)[0]]++
			}
		}
		for _, n := range list {
			if drawn[n.ID] != 1 {
				t.Fatalf("seed %d: node %s is drawn %d times", seed, n.ID, drawn[n.ID])
			}
		}
	}
}

func cutAny(s string, seps ...string) (before, after string, ok bool) {
	for _, sep := range seps {
		if before, after, ok = strings.Cut(s, sep); ok {
			return before, after, ok
		}
	}
	return s, "", false
}

// Reading the rails back gives the predecessor of every node.
func TestRailsSayThePredecessor(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		list := make([]dag.Node, 2+r.IntN(60))
		for i := range list {
			list[i] = dag.Node{ID: fmt.Sprint("n", i), Seq: int64(i), Role: "llm"}
			if i > 0 {
				list[i].Predecessor = fmt.Sprint("n", r.IntN(i))
			}
		}
		ix := dag.NewIndex(list)
		waiting := map[int][]string{} // rail → nodes whose predecessor comes next on it
		for line := range strings.Lines(string(Graph(ix, "", nil, nil))) {
			before, text, isNode := strings.Cut(line, "* ")
			rail := len(before) / 2
			if !isNode {
				rail = strings.Count(line, "|")
				waiting[rail-1] = append(waiting[rail-1], waiting[rail]...)
				delete(waiting, rail)
				continue
			}
			id := strings.Fields(text)[0]
			for _, above := range waiting[rail] {
				if n, _ := ix.Get(above); n.Predecessor != id {
					t.Fatalf("seed %d: %s is drawn above %s, its predecessor is %s", seed, above, id, n.Predecessor)
				}
			}
			waiting[rail] = []string{id}
		}
		if len(waiting) != 1 || len(waiting[0]) != 1 || waiting[0][0] != "n0" {
			t.Fatalf("seed %d: left over %v, want the root alone", seed, waiting)
		}
	}
}

// A comb, whose every node has a newer sibling that is a leaf, would need as
// many rails as it has nodes; calls may be as deep.
func TestGraphWidthIsBounded(t *testing.T) {
	const depth = 20_000
	var list []dag.Node
	for i := range depth {
		list = append(list, dag.Node{ID: fmt.Sprint("n", i), Seq: int64(i), Role: "llm", Predecessor: fmt.Sprint("n", i-1)})
		list = append(list, dag.Node{ID: fmt.Sprint("c", i), Seq: int64(i), Role: "code", Caller: fmt.Sprint("c", i-1)})
	}
	for i := range depth {
		list = append(list, dag.Node{ID: fmt.Sprint("leaf", i), Seq: int64(2*depth - i), Role: "llm", Predecessor: fmt.Sprint("n", i)})
	}
	list[0].Predecessor, list[1].Caller = "", "n0"
	for line := range strings.Lines(string(Graph(dag.NewIndex(list), "", func(dag.Node) string { return "" }, nil))) {
		if len(line) > 250 {
			t.Fatalf("a line of %d bytes", len(line))
		}
	}
}
