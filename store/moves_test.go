package store_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

func load(t *testing.T, s *store.Store, id string) *store.Snapshot {
	t.Helper()
	sn, err := s.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return sn
}

func branchIDs(t *testing.T, s *store.Store, id string) []string {
	t.Helper()
	nodes, err := s.GetBranch(t.Context(), id, "")
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.ID
	}
	return out
}

func TestRetryMakesTheNextReplyASibling(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "q1", "a1", "q2", "a2")
	got, err := s.Retry(t.Context(), "x", ids[3])
	if err != nil || got != ids[2] || head(t, s, "x") != ids[2] {
		t.Fatalf("retry = %s, %v; head %s; want %s", got, err, head(t, s, "x"), ids[2])
	}
	res, err := s.AppendText(t.Context(), "x", "assistant", "a2 again")
	if err != nil {
		t.Fatal(err)
	}
	sn := load(t, s, "x")
	var sib []string
	for _, n := range sn.Index.Siblings(res.ID) {
		sib = append(sib, n.ID)
	}
	if want := []string{ids[3], res.ID}; !slices.Equal(sib, want) {
		t.Errorf("siblings = %v, want %v", sib, want)
	}
	if _, err := s.Retry(t.Context(), "x", ids[0]); err != nil || head(t, s, "x") != ids[0] {
		t.Errorf("retry of a user message: %v, head %s", err, head(t, s, "x"))
	}
}

func TestEditForks(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "q1", "a1", "q2", "a2")
	node, err := s.Edit(t.Context(), "x", ids[2], "q2 edited")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := branchIDs(t, s, "x"), []string{ids[0], ids[1], node}; !slices.Equal(got, want) {
		t.Errorf("branch = %v, want %v", got, want)
	}
	msg, err := load(t, s, "x").MessageJSON(node)
	if err != nil || !strings.Contains(string(msg), `"edit_of": "`+ids[2]+`"`) || !strings.Contains(string(msg), `"forked_from": "`+ids[2]+`"`) {
		t.Errorf("message = %s, %v", msg, err)
	}
	if branches, _ := s.ListBranches(t.Context(), "x"); len(branches) != 2 {
		t.Errorf("%d branches, want 2", len(branches))
	}
	_, err = s.Edit(t.Context(), "x", ids[1], "no")
	wantCode(t, err, store.Immutable)
	first, err := s.Edit(t.Context(), "x", ids[0], "another beginning")
	if err != nil || !slices.Equal(branchIDs(t, s, "x"), []string{first}) {
		t.Errorf("edit of the first message: %v, branch %v", err, branchIDs(t, s, "x"))
	}
}

func TestSiblingLandsOnTheDeepestLeaf(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "q1", "a1", "q2", "a2")
	ctx := t.Context()
	fork, err := s.Edit(ctx, "x", ids[2], "q2'")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Sibling(ctx, "x", fork, "prev"); err != nil || got != ids[3] {
		t.Errorf("prev = %s, %v; want %s", got, err, ids[3])
	}
	if got, err := s.Sibling(ctx, "x", ids[2], "next"); err != nil || got != fork {
		t.Errorf("next = %s, %v; want %s", got, err, fork)
	}
	if got, err := s.Sibling(ctx, "x", fork, "1"); err != nil || got != ids[3] {
		t.Errorf("1 = %s, %v; want %s", got, err, ids[3])
	}
	_, err = s.Sibling(ctx, "x", fork, "next")
	wantCode(t, err, store.NotFound)
	_, err = s.Sibling(ctx, "x", fork, "up")
	wantCode(t, err, store.Invalid)
	if got, err := s.Leaf(ctx, "x", ids[0]); err != nil || got != ids[3] {
		t.Errorf("leaf = %s, %v; want %s", got, err, ids[3])
	}
	if got, err := s.Checkout(ctx, "x", ids[1]); err != nil || got != ids[1] {
		t.Errorf("checkout = %s, %v; want exactly %s", got, err, ids[1])
	}
}

func TestDeleteBranchKeepsWhatOthersReach(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "q1", "a1", "q2", "a2")
	ctx := t.Context()
	fork, err := s.Edit(ctx, "x", ids[2], "q2'")
	if err != nil {
		t.Fatal(err)
	}
	call, err := s.AppendMessage(ctx, "x", []byte(`{"role":"tool","function":"ls","caller":"`+fork+`","content":"out"}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetBranchName(ctx, "x", fork, "doomed"); err != nil {
		t.Fatal(err)
	}
	_, err = s.DeleteBranch(ctx, "x", ids[1])
	wantCode(t, err, store.Invalid)
	got, err := s.DeleteBranch(ctx, "x", "doomed")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got.Nodes)
	want := []string{fork, call.ID}
	slices.Sort(want)
	if !slices.Equal(got.Nodes, want) || got.Head != ids[3] {
		t.Errorf("deleted %v, head %s; want %v, head %s", got.Nodes, got.Head, want, ids[3])
	}
	sn := load(t, s, "x")
	if sn.Index.Len() != 5 || strings.Contains(string(sn.MetaJSON()), "doomed") {
		t.Errorf("%d nodes, meta %s", sn.Index.Len(), sn.MetaJSON())
	}
	commits, _ := s.SessionCommits(ctx, "x", 0)
	if commits[0].Message != "before delete: doomed" {
		t.Errorf("newest commit is %q", commits[0].Message)
	}
	if files := git(t, sn.Dir, "ls-tree", "-r", "--name-only", "HEAD"); !strings.Contains(files, fork) {
		t.Errorf("the commit does not hold the deleted node:\n%s", files)
	}
	// A file whose name merely ends alike is another node's.
	if _, err := os.Stat(filepath.Join(sn.Dir, "history", "0000-u-ROOT.json")); err != nil {
		t.Error(err)
	}
}

func TestDeleteBranchToTheForkPoint(t *testing.T) {
	s := openStore(t, store.Options{})
	newSession(t, s, "x", "q1", "a1")
	got, err := s.DeleteBranch(t.Context(), "x", "@")
	if err != nil || got.Head != "" || len(got.Nodes) != 2 {
		t.Errorf("deleted %+v, %v", got, err)
	}
	if _, err := s.AppendText(t.Context(), "x", "user", "anew"); err != nil || len(branchIDs(t, s, "x")) != 1 {
		t.Errorf("append after the deletion: %v, branch %v", err, branchIDs(t, s, "x"))
	}
}

func TestDeleteSubtree(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "q1", "a1", "q2", "a2")
	if _, err := s.Edit(t.Context(), "x", ids[2], "q2'"); err != nil {
		t.Fatal(err)
	}
	got, err := s.DeleteSubtree(t.Context(), "x", ids[1])
	if err != nil || len(got.Nodes) != 4 || got.Head != ids[0] {
		t.Errorf("deleted %+v, %v; head should be %s", got, err, ids[0])
	}
	_, err = s.DeleteSubtree(t.Context(), "x", "ROOT")
	wantCode(t, err, store.Immutable)
}

func TestAttachLeavesTheHead(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "q1", "a1", "q2", "a2")
	ctx := t.Context()
	fork, err := s.Edit(ctx, "x", ids[2], "q2'")
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Attach(ctx, store.AttachSpec{Source: "x", Target: ids[3]})
	if err != nil || got.Existed {
		t.Fatalf("attach = %+v, %v", got, err)
	}
	if head(t, s, "x") != fork {
		t.Errorf("the head moved to %s", head(t, s, "x"))
	}
	if merged, _ := s.MergedHeads(ctx, "x"); !slices.Equal(merged, []string{ids[3]}) {
		t.Errorf("merged = %v", merged)
	}
	if branches, _ := s.ListBranches(ctx, "x"); len(branches) != 1 || branches[0].Head != fork {
		t.Errorf("branches = %+v", branches)
	}
	again, err := s.Attach(ctx, store.AttachSpec{Source: "x", Target: ids[3]})
	if err != nil || !again.Existed || again.Node != got.Node {
		t.Errorf("a second attach = %+v, %v", again, err)
	}
	_, err = s.Attach(ctx, store.AttachSpec{Source: "x", Target: fork})
	wantCode(t, err, store.Invalid)

	other := newSession(t, s, "a", "hello", "there")
	across, err := s.Attach(ctx, store.AttachSpec{Source: "x", Target: ids[3], Anchor: "a"})
	if err != nil || head(t, s, "a") != other[1] {
		t.Fatalf("attach across sessions = %+v, %v", across, err)
	}
	msg, _ := load(t, s, "a").MessageJSON(across.Node)
	if !strings.Contains(string(msg), `"content": "a2"`) || !strings.Contains(string(msg), `"session_id": "x"`) {
		t.Errorf("pointer = %s", msg)
	}
}

func TestMovesAreRefusedWhileARunIsActive(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "q1", "a1", "q2", "a2")
	ctx := t.Context()
	run, err := s.Begin(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer run.End(ctx, "idle")
	before := load(t, s, "x")
	for name, move := range map[string]func() error{
		"set head": func() error { _, err := s.SetHead(ctx, "x", ids[0], store.HeadMove{}); return err },
		"retry":    func() error { _, err := s.Retry(ctx, "x", ids[3]); return err },
		"edit":     func() error { _, err := s.Edit(ctx, "x", ids[2], "no"); return err },
		"sibling":  func() error { _, err := s.Sibling(ctx, "x", ids[2], "1"); return err },
		"leaf":     func() error { _, err := s.Leaf(ctx, "x", ids[0]); return err },
		"checkout": func() error { _, err := s.Checkout(ctx, "x", ids[1]); return err },
		"delete":   func() error { _, err := s.DeleteBranch(ctx, "x", "@"); return err },
		"subtree":  func() error { _, err := s.DeleteSubtree(ctx, "x", ids[1]); return err },
		"attach":   func() error { _, err := s.Attach(ctx, store.AttachSpec{Source: "x", Target: ids[1]}); return err },
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, move(), store.RunActive) })
	}
	if after := load(t, s, "x"); after.Head != before.Head || after.Index.Len() != before.Index.Len() {
		t.Errorf("something moved: head %s, %d nodes", after.Head, after.Index.Len())
	}
}

func TestCheckOfAHealthyStore(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "q1", "a1", "q2", "a2")
	if _, err := s.Edit(t.Context(), "x", ids[2], "q2'"); err != nil {
		t.Fatal(err)
	}
	newSession(t, s, "empty")
	if err := s.DeleteSession(t.Context(), "empty"); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context(), func(f store.Finding) { t.Errorf("finding: %s", f) }); err != nil {
		t.Fatal(err)
	}
}
