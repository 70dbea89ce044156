package mounted

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// view is what a process sees of a session's head in one look.
type view struct {
	Link       string   // readlink head
	HeadID     string   // cat head_id
	Messages   []string // ls messages
	Transcript string   // the hash of transcript.md
	MetaHead   string   // head_id in meta.json
	Through    string   // the hash of what `cat head` gives
	Err        string
}

// look reads everything that says where the head is, through the path and so
// through the kernel's caches.
func look(session string) view {
	var v view
	var errs []error
	get := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(session, name))
		errs = append(errs, err)
		return b
	}
	link, err := os.Readlink(filepath.Join(session, "head"))
	errs = append(errs, err)
	v.Link = link
	v.HeadID = string(get("head_id"))
	entries, err := os.ReadDir(filepath.Join(session, "messages"))
	errs = append(errs, err)
	for _, e := range entries {
		v.Messages = append(v.Messages, e.Name())
	}
	v.Transcript = digest(get("transcript.md"))
	var meta struct {
		Head string `json:"head_id"`
	}
	errs = append(errs, json.Unmarshal(get("meta.json"), &meta))
	v.MetaHead = meta.Head
	v.Through = digest(get("head"))
	if err := errors.Join(errs...); err != nil {
		v.Err = err.Error()
	}
	return v
}

func digest(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:8])
}

// lookRole looks whenever it is asked to: the other process.
func lookRole([]string) int { return harness.Serve(look) }

// differs says in what a view is not the expected one.
func (v view) differs(want view) string {
	var out []string
	add := func(what string, got, want any) {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			out = append(out, fmt.Sprintf("%s is %v, want %v", what, got, want))
		}
	}
	add("error", v.Err, want.Err)
	add("readlink head", v.Link, want.Link)
	add("head_id", v.HeadID, want.HeadID)
	add("ls messages", v.Messages, want.Messages)
	add("transcript.md", v.Transcript, want.Transcript)
	add("head_id in meta.json", v.MetaHead, want.MetaHead)
	add("cat head", v.Through, want.Through)
	return strings.Join(out, "; ")
}

// storedNode is a history file as the tests read it, with its name.
type storedNode struct {
	ID          string         `json:"id"`
	Role        string         `json:"role"`
	Predecessor string         `json:"predecessor"`
	Output      any            `json:"output"`
	Metadata    storedMetadata `json:"metadata"`
	Stem        string         `json:"-"`
}

// storedMetadata are the keys of a node's metadata that its place depends on;
// a value of another type counts as absent.
type storedMetadata struct {
	Display any `json:"display"`
	Rewound any `json:"rewound"`
	Role    any `json:"role"`
}

// storedNodes reads a session's history from the store, by id.
func storedNodes(t testing.TB, m *harness.Mount, session string) map[string]storedNode {
	t.Helper()
	files, err := filepath.Glob(m.Repo(session, "history", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no history of %s: %v", session, err)
	}
	out := map[string]storedNode{}
	for _, f := range files {
		var n storedNode
		if err := json.Unmarshal([]byte(read(t, f)), &n); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		n.Stem = strings.TrimSuffix(filepath.Base(f), ".json")
		out[n.ID] = n
	}
	return out
}

// expected is the view of a session whose head is the node, computed from the
// store's files; transcript.md is only known to differ, see learn.
func expected(nodes map[string]storedNode, head string) view {
	chain := chainOf(nodes, head)
	v := view{Link: "nodes/" + nodes[head].Stem + ".md", HeadID: head + "\n", MetaHead: head, Through: digest([]byte(textOf(nodes[head])))}
	for i, n := range chain {
		v.Messages = append(v.Messages, messageName(i+1, n))
	}
	return v
}

// messageName is the name of a message: position, role, start of its id.
func messageName(position int, n storedNode) string {
	role := map[string]string{"user": "user", "llm": "assistant", "code": "tool"}[n.Role]
	if r, ok := n.Metadata.Role.(string); ok && n.Role == "llm" {
		role = r
	}
	return fmt.Sprintf("%06d-%s-%.8s.md", position, role, n.ID)
}

// textOf is a node's text as nodes/ shows it: with a final newline.
func textOf(n storedNode) string {
	text, _ := n.Output.(string)
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// chainOf is the branch that ends in head, oldest first.
func chainOf(nodes map[string]storedNode, head string) []storedNode {
	var out []storedNode
	for n, ok := nodes[head]; ok; n, ok = nodes[n.Predecessor] {
		if n.Metadata.Display != "root" && n.Metadata.Rewound != true {
			out = append(out, n)
		}
	}
	slices.Reverse(out)
	return out
}

// learn moves the head to each node once, by the plainest gesture, and takes
// the hash of each transcript after it was held to the branch's texts: what
// the rounds afterwards compare with.
func learn(t testing.TB, m *harness.Mount, session string, heads []string) map[string]view {
	t.Helper()
	nodes := storedNodes(t, m, session)
	out := map[string]view{}
	seen := map[string]string{}
	for _, head := range heads {
		want := expected(nodes, head)
		if err := put(m.Session(session, "head_id"), head+"\n"); err != nil {
			t.Fatalf("head_id = %s: %v", head, err)
		}
		transcript := read(t, m.Session(session, "transcript.md"))
		checkTranscript(t, transcript, nodes, head)
		want.Transcript = digest([]byte(transcript))
		if other := seen[want.Transcript]; other != "" {
			t.Fatalf("the transcripts of %s and %s are the same", head, other)
		}
		seen[want.Transcript] = head
		if d := look(m.Session(session)).differs(want); d != "" {
			t.Fatalf("with head %s: %s", head, d)
		}
		out[head] = want
	}
	return out
}

// checkTranscript: every text of the branch is there, in order, and the text
// of no other node that has one of its own.
func checkTranscript(t testing.TB, transcript string, nodes map[string]storedNode, head string) {
	t.Helper()
	at, on := 0, map[string]bool{}
	for _, n := range chainOf(nodes, head) {
		text := strings.TrimSpace(textOf(n))
		k := strings.Index(transcript[at:], text)
		if k < 0 {
			t.Fatalf("transcript.md of %s lacks %.60q", head, text)
		}
		at += k
		on[text] = true
	}
	for _, n := range nodes {
		text := strings.TrimSpace(textOf(n))
		if len(text) > 20 && !on[text] && n.Role != "code" && strings.Contains(transcript, text) {
			t.Fatalf("transcript.md of %s has the text of %s, which is on another branch", head, n.ID)
		}
	}
}
