package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/storetest"
)

// hostileMeta is a meta.json that Python reads and many others would not write
// again as it is: unknown keys, odd spacing, numbers beyond a float, constants
// that are no JSON, lone surrogates, a key twice, escapes that need not be.
const hostileMeta = "{ \"id\":\"h1\",\"a\\u0000b\" : 1 ,\"title\":\"caf\\u00e9 \u00e9 \\ud800\",\n\t\"big\":123456789012345678901234567890,\"exp\":1e400," +
	"\"tiny\":-1E-400,\"nan\":NaN,\"inf\":[-Infinity,  Infinity],\"created_at\":1735000000,\"dup\":1,\"dup\":[2],\"head_id\" : \"a1\" ," +
	" \"n\u00e9sted\":{\"z\":1,\"a\":{\"\u00e9\":\"\\u00e9\\/\"} ,\"q\":[ ]}, \"branches\":{\"a2\":\"old \\udfff name\" , \"a1\":{\"name\":\"x\",\"odd\":1e400,\"name_locked\":null}}," +
	"\"status\":\"idle\",\"merged_heads\":[ \"gone\",7 ],\"updated_at\":1735000001.50 }\n"

// hostileNode is a reply that follows u1 and is the head.
const hostileNode = "{\"seq\": 2,\"id\":\"a1\" ,\"created_at\":1735000000, \"role\":\"llm\",\"name\":null,\"input\":null,\n \"output\":\"old \\ud83d text\"," +
	"\"caller\":\"\",\"predecessor\":\"u1\",\"reads\":[],\"later\":{\"k\":NaN},\"metadata\":{ \"status\":\"running\",\"tokens\":1e400,\"dup\":1,\"dup\":2,\"x\\u0041\":\"\\/\" } , \"extra\":[1 ,2]}"

// hostileIndex lists the session between two rows of somebody else's.
const hostileIndex = "{\"ghost \\ud800\":{ \"id\":\"ghost\",\"status\":\"idle\" ,\"big\":123456789012345678901234567890,\"x\":[NaN]},\n" +
	"  \"h1\" : {\"title\":\"caf\\u00e9 \u00e9 \\ud800\", \"id\":\"h1\",\"unknown\":{\"a\" :1e400},\"created_at\":1735000000,\"status\":\"idle\",\"updated_at\":1735000001.50,\"dup\":1,\"dup\":2 },\n" +
	"\t\"other\":{\"id\":\"other\",\"preview\":\"\\u00e9\",\"dup\":1,\"dup\":2} }"

// hostileRoot lays the store out. a1 is a running reply, a2 its finished
// sibling.
func hostileRoot(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "sessions")
	storetest.Build(t, root, `
		session h1
		root
		user u1 question
		llm a1 x
		llm a2 <u1 two
		user u2 "go on"
		llm b2 there
		noindex
	`)
	for path, text := range map[string]string{
		"h1/meta.json": hostileMeta, "h1/history/0002-l-a1.json": hostileNode, "index.json": hostileIndex,
	} {
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// hostileOps are the operations that write, with what each may change.
var hostileOps = []struct {
	name string
	run  func(ctx context.Context, s *store.Store) error
	// meta, row and node are the keys whose values change, or that are added
	// or go, in meta.json, in the registry's row, in a1's file; branches those
	// in meta.branches, md those in a1's metadata.
	meta, row, node, branches, md []string
	rebuilds                      bool // index.json is made anew
}{
	{name: "set head", meta: []string{"head_id"}, run: func(ctx context.Context, s *store.Store) error {
		_, err := s.SetHead(ctx, "h1", "u1", store.HeadMove{})
		return err
	}},
	{name: "set head, compared", meta: []string{"head_id", "head_version"}, run: func(ctx context.Context, s *store.Store) error {
		expect := "a1"
		_, err := s.SetHead(ctx, "h1", "u1", store.HeadMove{Expect: &expect})
		return err
	}},
	{name: "retry", meta: []string{"head_id"}, run: func(ctx context.Context, s *store.Store) error { _, err := s.Retry(ctx, "h1", "@"); return err }},
	{name: "sibling", meta: []string{"head_id"}, run: func(ctx context.Context, s *store.Store) error {
		_, err := s.Sibling(ctx, "h1", "@", "next")
		return err
	}},
	{name: "leaf", meta: []string{"head_id"}, run: func(ctx context.Context, s *store.Store) error { _, err := s.Leaf(ctx, "h1", "a2"); return err }},
	{name: "checkout", meta: []string{"head_id"}, run: func(ctx context.Context, s *store.Store) error { _, err := s.Checkout(ctx, "h1", "b2"); return err }},
	{name: "rewind", meta: []string{"head_id", "head_version", "branch_refs", "active_branch_id", "writer_epoch"}, run: func(ctx context.Context, s *store.Store) error {
		_, err := s.Rewind(ctx, "h1", "u1", "")
		return err
	}},
	{name: "edit", meta: []string{"head_id", "updated_at"}, row: []string{"updated_at", "preview"}, run: func(ctx context.Context, s *store.Store) error {
		_, err := s.Edit(ctx, "h1", "u1", "new")
		return err
	}},
	{name: "append", meta: []string{"head_id", "updated_at", "branches"}, branches: []string{"a1", "*"}, row: []string{"updated_at", "preview"},
		run: func(ctx context.Context, s *store.Store) error {
			_, err := s.AppendText(ctx, "h1", "user", "new")
			return err
		}},
	{name: "extend", node: []string{"output"}, run: func(ctx context.Context, s *store.Store) error {
		return s.ExtendMessage(ctx, "h1", "a1", "longer")
	}},
	{name: "set title", meta: []string{"title", "_user_titled"}, row: []string{"title"}, run: func(ctx context.Context, s *store.Store) error {
		return s.SetField(ctx, "h1", "title", "New")
	}},
	{name: "set group", meta: []string{"group"}, row: []string{"group"}, run: func(ctx context.Context, s *store.Store) error {
		return s.SetField(ctx, "h1", "group", "G")
	}},
	{name: "archive", meta: []string{"archived"}, row: []string{"archived"}, run: func(ctx context.Context, s *store.Store) error { return s.SetArchived(ctx, "h1", true) }},
	{name: "update", meta: []string{"big", "new"}, run: func(ctx context.Context, s *store.Store) error {
		return s.UpdateSession(ctx, "h1", []store.KV{{Key: "big", Raw: []byte("NaN")}, {Key: "new", Raw: []byte("1e999")}})
	}},
	{name: "name branch", meta: []string{"branches"}, branches: []string{"a2"}, run: func(ctx context.Context, s *store.Store) error {
		return s.SetBranchName(ctx, "h1", "a2", "named")
	}},
	{name: "unname branch", meta: []string{"branches"}, branches: []string{"a1"}, run: func(ctx context.Context, s *store.Store) error {
		return s.DeleteBranchName(ctx, "h1", "a1")
	}},
	{name: "delete branch", meta: []string{"branches"}, branches: []string{"a2"}, run: func(ctx context.Context, s *store.Store) error {
		_, err := s.DeleteBranch(ctx, "h1", "b2")
		return err
	}},
	{name: "attach", meta: []string{"merged_heads", "updated_at"}, row: []string{"updated_at"}, run: func(ctx context.Context, s *store.Store) error {
		_, err := s.Attach(ctx, store.AttachSpec{Source: "h1", Target: "b2"})
		return err
	}},
	{name: "run", meta: []string{"status", "unread"}, row: []string{"status", "unread"}, run: func(ctx context.Context, s *store.Store) error {
		r, err := s.Begin(ctx, "h1")
		if err != nil {
			return err
		}
		return r.End(ctx, "done")
	}},
	{name: "sweep nodes", node: []string{"metadata"}, md: []string{"status", "error", "interrupted_at"}, run: func(ctx context.Context, s *store.Store) error {
		_, err := s.SweepNodes(ctx, "h1")
		return err
	}},
	{name: "commit", run: func(ctx context.Context, s *store.Store) error { _, _, err := s.CommitTurn(ctx, "h1", "c"); return err }},
	{name: "another session", run: func(ctx context.Context, s *store.Store) error {
		return s.CreateSession(ctx, store.NewSession{ID: "h2"})
	}},
	{name: "reindex", rebuilds: true, run: func(ctx context.Context, s *store.Store) error { _, err := s.Reindex(ctx, nil); return err }},
}

// TestHostileJSON: whatever is written, every byte that the operation does not
// mean stays, in meta.json, in the registry and in the node files.
func TestHostileJSON(t *testing.T) {
	for _, o := range hostileOps {
		t.Run(o.name, func(t *testing.T) {
			root := hostileRoot(t)
			s, err := store.Open(t.Context(), store.Options{Root: root, Clock: func() time.Time { return time.Unix(1800000000, 0) }})
			if err != nil {
				t.Fatal(err)
			}
			if err := o.run(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			read := func(name string) string {
				b, err := os.ReadFile(filepath.Join(root, name))
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			}
			same(t, "meta.json", hostileMeta, read("h1/meta.json"), o.meta, map[string][]string{"branches": o.branches})
			node := read("h1/history/0002-l-a1.json")
			same(t, "node", hostileNode, node, o.node, map[string][]string{"metadata": o.md})
			if o.rebuilds {
				return
			}
			touched := []string{}
			if o.row != nil {
				touched = []string{"h1"}
			}
			if o.name == "another session" {
				touched = []string{"h2"}
			}
			same(t, "index.json", hostileIndex, read("index.json"), touched, map[string][]string{"h1": o.row})
		})
	}
}

// same checks that two JSON objects are the same text, but for the values of
// keys and for members of these keys that were added or have gone. inner gives
// the keys within a key's value that may differ; "*" is any new one.
func same(t *testing.T, what, before, after string, keys []string, inner map[string][]string) {
	t.Helper()
	a, b := blank(t, before, keys), blank(t, after, keys)
	if a != b {
		t.Errorf("%s:\n before %q\n after  %q\n without %v they are\n        %q\n        %q", what, before, after, keys, a, b)
	}
	for k, allowed := range inner {
		if !slices.Contains(keys, k) {
			continue
		}
		if slices.Contains(allowed, "*") {
			for _, m := range split(t, value(t, after, k)) {
				if !strings.Contains(value(t, before, k), m.rawKey) {
					allowed = append(allowed, m.key)
				}
			}
		}
		same(t, what+": "+k, value(t, before, k), value(t, after, k), allowed, nil)
	}
}

// blank takes the members of some keys out of an object's text, with what
// parts each from the member before it.
func blank(t *testing.T, text string, keys []string) string {
	t.Helper()
	ms := split(t, text)
	var out strings.Builder
	out.WriteString(text[:1])
	at, first := 1, true
	for _, m := range ms {
		if slices.Contains(keys, m.key) {
			at = m.end
			continue
		}
		piece := text[at:m.end]
		if first { // whatever stood before it
			piece = text[m.start:m.end]
		}
		first = false
		out.WriteString(piece)
		at = m.end
	}
	out.WriteString(text[at:])
	return out.String()
}

func value(t *testing.T, text, key string) string {
	t.Helper()
	v := "{}"
	for _, m := range split(t, text) {
		if m.key == key {
			v = text[m.value:m.end]
		}
	}
	return v
}

// part is a member of an object: where its key begins, its value begins and
// ends.
type part struct {
	key, rawKey       string
	start, value, end int
}

// split finds the members of an object's text, with nothing but strings and
// brackets in mind: it shares no code with what it checks.
func split(t *testing.T, text string) []part {
	t.Helper()
	var out []part
	depth, inString := 0, false
	cur := part{start: -1}
	finish := func(i int) {
		if cur.start >= 0 {
			cur.end = len(strings.TrimRight(text[:i], " \t\r\n"))
			out = append(out, cur)
		}
		cur = part{start: -1}
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString:
			if c == '\\' {
				i++
			} else if c == '"' {
				inString = false
				if depth == 1 && cur.start >= 0 && cur.rawKey == "" {
					cur.rawKey = text[cur.start : i+1]
					cur.key = strings.Trim(cur.rawKey, `"`)
				}
			}
		case c == '"':
			inString = true
			if depth == 1 && cur.start < 0 {
				cur.start = i
			}
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth == 1 {
				finish(i)
			}
			depth--
		case c == ',' && depth == 1:
			finish(i)
		case c == ':' && depth == 1 && cur.value == 0:
			cur.value = i + 1 + len(text[i+1:]) - len(strings.TrimLeft(text[i+1:], " \t\r\n"))
		}
	}
	if depth != 0 || inString {
		t.Fatalf("not one whole object: %q", text)
	}
	return out
}

// TestHostileCheck: the check itself finds what it must find.
func TestHostileCheck(t *testing.T) {
	for i, c := range []struct {
		after string
		keys  []string
		same  bool
	}{
		{`{"a" : 1e400, "b":{"x":1}}`, nil, true},
		{`{"a" : 1e400,"b":{"x":1}}`, nil, false},
		{`{"a" : Infinity, "b":{"x":1}}`, nil, false},
		{`{"a" : 2, "b":{"x":1}, "c":3}`, []string{"a", "c"}, true},
		{`{"b":{"x":1}}`, []string{"a"}, true},
		{`{"b":{"x":1}, "a" : 1e400}`, nil, false},
	} {
		got := blank(t, `{"a" : 1e400, "b":{"x":1}}`, c.keys) == blank(t, c.after, c.keys)
		if got != c.same {
			t.Error(i, fmt.Sprintf("%q with %v: same is %v", c.after, c.keys, got))
		}
	}
}
