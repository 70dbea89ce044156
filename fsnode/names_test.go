package fsnode

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store"
)

func TestMessageNames(t *testing.T) {
	branch := []dag.Node{
		{ID: "7ab1e39f0011", Role: "user"}, {ID: "9f2c0d7ab1e3", Role: "llm"}, {ID: "x", Role: "code"},
		{ID: "../../etc/passwd", Role: "weird/role"}, {ID: "summary_0", Role: "llm", Flags: dag.Covers | dag.CoversSome},
		{ID: strings.Repeat("字", 20), Role: ""},
	}
	want := []string{
		"000001-user-7ab1e39f.md", "000002-assistant-9f2c0d7a.md", "000003-tool-x.md",
		"000004-weird%2Frole-%2E.%2F..%2Fet.md", "000005-summary-summary_.md",
		"000006-unknown-" + strings.Repeat("字", 8) + ".md",
	}
	for i, n := range branch {
		if got := messageName(i+1, n); got != want[i] {
			t.Errorf("message %d: %q, want %q", i+1, got, want[i])
		}
		if got, ok := messageAt(branch, want[i]); !ok || got.ID != n.ID {
			t.Errorf("%q is found as %q, %v", want[i], got.ID, ok)
		}
	}
	for _, name := range []string{
		"", "-", "x", "000001", "000001-", "000001-user-7ab1e39", "000001-user-7ab1e39f", "000002-user-7ab1e39f.md",
		"0000001-user-7ab1e39f.md", "1-user-7ab1e39f.md", "000007-user-x.md", "000000-user-7ab1e39f.md", "+00001-user-7ab1e39f.md",
		"999999999999999999999-user-x.md", "00000a-user-7ab1e39f.md",
	} {
		if n, ok := messageAt(branch, name); ok {
			t.Errorf("%q is found as %q", name, n.ID)
		}
	}
}

func FuzzMessageAt(f *testing.F) {
	f.Add("000001-user-7ab1e39f.md", "id", "user")
	f.Add("1-", "", "")
	f.Fuzz(func(t *testing.T, name, id, role string) {
		branch := []dag.Node{{ID: id, Role: role}}
		if _, ok := messageAt(branch, name); ok && name != messageName(1, branch[0]) {
			t.Errorf("%q is taken for %q", name, messageName(1, branch[0]))
		}
		own := messageName(1, branch[0])
		if _, ok := messageAt(branch, own); !ok {
			t.Errorf("%q is not found", own)
		}
		if strings.ContainsAny(own, "/\x00") || len(own) > 255 {
			t.Errorf("not a file name: %q", own)
		}
	})
}

func TestBranchNames(t *testing.T) {
	long := strings.Repeat("é", 200)
	rows := []store.Branch{
		{Head: "aaaabbbbcccc", Name: "main", Named: true},
		{Head: "ddddeeeeffff"},
		{Head: "111122223333", Name: "twice", Named: true},
		{Head: "444455556666", Name: "twice", Named: true},
		{Head: "ddddeeee0000"},
		{Head: "777788889999", Name: "a/b", Named: true},
		{Head: "abcdabcdabcd", Name: "", Named: true},
		{Head: "l1", Name: long, Named: true},
		{Head: "l2", Name: long, Named: true},
	}
	got := branchNames(rows)
	want := []string{"main", "ddddeeee~ddddeeeeffff", "twice~111122223333", "twice~444455556666", "ddddeeee~ddddeeee0000", "a%2Fb", "abcdabcd"}
	for i, w := range want {
		if got[i].name != w || got[i].tip != rows[i].Head {
			t.Errorf("branch %d: %+v, want %q", i, got[i], w)
		}
	}
	seen := map[string]bool{}
	for i, b := range got {
		if seen[b.name] || len(b.name) > 255 || !utf8.ValidString(b.name) {
			t.Errorf("branch %d: bad name %q", i, b.name)
		}
		seen[b.name] = true
		if b.named != (rows[i].Name != "") {
			t.Errorf("branch %d: named %v", i, b.named)
		}
	}
}

func TestRelativeTo(t *testing.T) {
	for target, want := range map[string]string{"../nodes/x": "nodes/x", "a": "branch/a", "/abs": "/abs", "../../x": "../x"} {
		if got := relativeTo("branch", target); got != want {
			t.Errorf("%q: %q, want %q", target, got, want)
		}
	}
}
