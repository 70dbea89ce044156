package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store"
)

func (c *check) checkBranches(id string, raw json.RawMessage) {
	if unanswered(raw) {
		c.differs(damaged, func() { c.ruleBranches(id, raw) })
		return
	}
	var want []branchAnswer
	c.decode("get_branch of "+id, raw, &want)
	for _, w := range want {
		head, what := orEmpty(w.Head), "get_branch of "+id+" at its head"
		if head != "" {
			what = "get_branch of " + id + " at " + head
		}
		if w.Error != "" && !definedError(w.Error) {
			c.differs(damaged, func() { c.ruleBranch(id, head) })
			continue
		}
		nodes, err := c.s.GetBranch(c.ctx, id, head)
		if w.Error != "" {
			c.checkBrokenAt(what, err, w.NodeID)
			continue
		}
		if err != nil && store.CodeOf(err) != store.NotFound {
			c.y.checkThat(false, "%s: %v", what, err)
			continue
		}
		c.y.checkIDs(what, nodeIDs(nodes), w.idList)
	}
}

func nodeIDs(nodes []dag.Node) []string {
	out := []string{}
	for _, n := range nodes {
		out = append(out, n.ID)
	}
	return out
}

// branchLine is a branch row in comparable form.
type branchLine struct {
	Head, Name           string
	Named                bool
	CreatedAt, UpdatedAt any
	Archived             bool
}

func (c *check) checkListBranches(id string, want *expectedSession) {
	got, err := c.s.ListBranches(c.ctx, id)
	lines := branchLines(got)
	switch {
	case unanswered(want.ListBranches):
		c.differs(damaged, func() { c.ruleListBranches(id) })
	case want.LaterBranches != nil && want.Openable:
		c.known("list_branches of "+id, err)
		c.differs(laterRevision, func() { c.checkLater(id, lines, want) })
	default:
		c.checkBranchRows("list_branches of "+id, lines, err, want.ListBranches)
		if want.LaterBranches != nil {
			// Derived for a session that does not open: to be read as none.
			c.y.check("list_branches of "+id+", which does not open", len(got), 0)
		}
	}
	switch {
	case want.ArchivedBranches == nil: // a shorter recording
	case unanswered(want.ArchivedBranches):
		c.differs(damaged, func() { c.ruleArchived(id) })
	default:
		archived, err := c.s.ListArchivedBranches(c.ctx, id)
		c.checkBranchRows("list_archived_branches of "+id, branchLines(archived), err, want.ArchivedBranches)
	}
}

// checkLater holds list_branches to the later revision's heads, and the rows
// that both revisions have to the recorded ones, in order.
func (c *check) checkLater(id string, got []branchLine, want *expectedSession) {
	var later laterBranches
	c.decode("later branches", want.LaterBranches, &later)
	c.y.check("list_branches of "+id+": heads of the later revision", headsOf(got), slices.Sorted(slices.Values(later.Heads)))
	rows := slices.DeleteFunc(c.branchRows(want.ListBranches), func(b branchLine) bool { return !slices.Contains(later.Heads, b.Head) })
	known := slices.DeleteFunc(slices.Clone(got), func(b branchLine) bool {
		return !slices.ContainsFunc(rows, func(r branchLine) bool { return r.Head == b.Head })
	})
	c.y.check("list_branches of "+id+": rows that both revisions have", known, rows)
}

func (c *check) checkBranchRows(what string, got []branchLine, err error, raw json.RawMessage) {
	c.known(what, err)
	c.y.check(what, got, c.branchRows(raw))
}

func branchLines(branches []store.Branch) []branchLine {
	out := []branchLine{}
	for _, b := range branches {
		line := branchLine{Head: b.Head, Name: b.Name, Named: b.Named, Archived: b.Archived}
		if b.HasCreated {
			line.CreatedAt = b.CreatedAt
		}
		if b.HasUpdated {
			line.UpdatedAt = b.UpdatedAt
		}
		out = append(out, line)
	}
	return out
}

func (c *check) branchRows(raw json.RawMessage) []branchLine {
	var rows []branchRow
	c.decode("list_branches", raw, &rows)
	out := []branchLine{}
	for _, r := range rows {
		line := branchLine{Head: r.Head, Archived: r.Archived, Named: r.Name != nil}
		if r.Name != nil {
			line.Name = *r.Name
		}
		if v := c.value(r.CreatedAt); v != nil {
			line.CreatedAt = seconds(v)
		}
		if v := c.value(r.UpdatedAt); v != nil {
			line.UpdatedAt = seconds(v)
		}
		out = append(out, line)
	}
	return out
}

func (c *check) checkLatestUser(id string, raw json.RawMessage) {
	if unanswered(raw) {
		c.differs(damaged, func() { c.ruleLatestUser(id) })
		return
	}
	what := "latest_user_text of " + id
	text, ok, err := c.s.LatestUserText(c.ctx, id)
	if err != nil && store.CodeOf(err) == store.NotFound {
		ok, err = false, nil
	}
	var long longText
	if strict(raw, &long) == nil && long.Text.SHA256 != "" {
		c.y.check(what+": sha256", sum([]byte(text)), long.Text.SHA256)
		c.y.check(what+": characters", utf8.RuneCountInString(text), long.Text.Chars)
		c.y.checkThat(strings.HasPrefix(text, long.Text.Head) && strings.HasSuffix(text, long.Text.Tail), "%s: its ends differ", what)
		return
	}
	var got *string
	if ok {
		got = &text
	}
	c.answer(what, raw, err, func() any { return got }, new(*string))
}

// checkLeaves asks for the deepest leaf; it must return also where the peer
// loops for ever.
func (c *check) checkLeaves(id string, sn *store.Snapshot, raw json.RawMessage) {
	if unanswered(raw) {
		c.differs(damaged, func() { c.ruleLeaves(id, raw) })
		return
	}
	var want []leafAnswer
	c.decode("get_deepest_leaf of "+id, raw, &want)
	for _, w := range want {
		from := orEmpty(w.From)
		switch {
		case w.NeverReturns:
			c.differs(loops, func() { c.ruleLeaf(id, from) })
			continue
		case w.Error != "":
			c.differs(damaged, func() { c.ruleLeaf(id, from) })
			continue
		}
		what := fmt.Sprintf("get_deepest_leaf of %s from %q", id, from)
		leaf, returned := deepest(sn, from)
		c.y.checkThat(returned, "%s does not return", what)
		c.y.check(what, leaf, w.Leaf)
	}
}

func deepest(sn *store.Snapshot, from string) (leaf *string, returned bool) {
	if sn == nil || !sn.Openable {
		return nil, true
	}
	done := make(chan *string, 1)
	go func() {
		if id, ok := sn.Index.DeepestLeaf(from); ok {
			done <- &id
			return
		}
		done <- nil
	}()
	select {
	case leaf := <-done:
		return leaf, true
	case <-time.After(10 * time.Second):
		return nil, false
	}
}
