package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/test/harness"
)

// unanswered reports whether the peer gave no answer: it failed, or nothing is
// recorded.
func unanswered(raw json.RawMessage) bool {
	return len(raw) == 0 || peerFailed(raw) != ""
}

// model is the model of a session as it is after opening.
func (c *check) model(id string) *model {
	if m := c.models[id]; m != nil {
		return m
	}
	s := c.disk.sessions[id]
	if s == nil || c.gone[id] { // nothing can be asked about it
		s = &diskSession{id: id, dir: filepath.Join(c.root, id), symlink: true}
	}
	meta := maps.Clone(s.meta)
	if status, changed := c.disk.statusAfter(id); changed && s.openable() {
		meta["status"] = status
	}
	c.models[id] = modelOf(s, meta)
	return c.models[id]
}

// ruleAll compares everything that can be asked about a session with the
// model: the recorded questions and those about each of its nodes.
func (c *check) ruleAll(id string, want *expectedSession) {
	c.ruleSession(id)
	c.ruleMessages(id, want.GetMessages)
	c.ruleNodes(id)
	c.ruleBranches(id, want.GetBranch)
	c.ruleListBranches(id)
	c.ruleArchived(id)
	c.ruleLatestUser(id)
	c.ruleLeaves(id, want.DeepestLeaf)
	c.ruleDescendants(id, want.Descendants)
	c.ruleMerged(id)
	c.ruleCommits(id)
}

func (c *check) ruleSession(id string) {
	got, err := c.s.GetSession(c.ctx, id)
	m := c.model(id)
	if !m.s.openable() {
		c.y.check("get_session of "+id+" by rule", store.CodeOf(err), store.NotFound)
		return
	}
	c.y.checkThat(err == nil, "get_session of %s: %v", id, err)
	c.y.check("get_session of "+id+" by rule", pyObject(got), m.session())
}

// known lets "no such session" be no answer: an empty list.
func (c *check) known(what string, err error) {
	c.t.Helper()
	c.y.checkThat(err == nil || store.CodeOf(err) == store.NotFound, "%s: %v", what, err)
}

// asked reads the questions of a recorded list, under the given key; none
// where none are recorded.
func asked(raw json.RawMessage, key string) []string {
	var entries []map[string]any
	if json.Unmarshal(raw, &entries) != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		s, _ := e[key].(string)
		out = append(out, s)
	}
	return out
}

// questions are the recorded ones, "" and every node.
func (c *check) questions(id string, raw json.RawMessage, key string) []string {
	out := append(asked(raw, key), "")
	for _, n := range c.model(id).nodes {
		out = append(out, n.ID)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *check) ruleMessages(id string, raw json.RawMessage) {
	m := c.model(id)
	var want []map[string]any
	if m.s.openable() {
		want = m.messages()
	}
	got, err := c.s.GetMessages(c.ctx, id, 0)
	c.known("get_messages of "+id, err)
	c.y.check("get_messages of "+id+" by rule: count", len(got), len(want))
	for i := range min(len(got), len(want)) {
		c.y.check(fmt.Sprintf("get_messages of %s by rule: message %d", id, i), decoded(m.shown()[i], pyObject(got[i])), want[i])
	}
	limits := []int{1, 2, len(want), len(want) + 1}
	var recorded messagesAnswer
	if json.Unmarshal(raw, &recorded) == nil {
		for _, l := range recorded.Limits {
			limits = append(limits, l.Limit)
		}
	}
	ids := []string{}
	for _, msg := range want {
		name, _ := msg["id"].(string)
		ids = append(ids, name)
	}
	for _, n := range limits {
		some, err := c.s.GetMessages(c.ctx, id, n)
		c.known("get_messages of "+id, err)
		last := ids
		if n > 0 {
			last = ids[max(0, len(ids)-n):]
		}
		c.y.check(fmt.Sprintf("get_messages of %s by rule: limit %d", id, n), messageIDs(some), append([]string{}, last...))
	}
}

func (c *check) ruleNodes(id string) {
	sn, err := c.s.Load(c.ctx, id)
	c.known("load "+id, err)
	m := c.model(id)
	c.y.check("openable by rule: "+id, sn != nil && sn.Openable, m.s.openable())
	want := []nodeAnswer{}
	if m.s.openable() {
		want = m.rows()
	}
	c.y.check("get_nodes of "+id+" by rule", nodeAnswers(sn), want)
}

func (c *check) ruleBranches(id string, raw json.RawMessage) {
	for _, head := range c.questions(id, raw, "head") {
		c.ruleBranch(id, head)
	}
}

func (c *check) ruleBranch(id, head string) {
	what := fmt.Sprintf("get_branch of %s at %q by rule", id, head)
	m := c.model(id)
	want, brokenAt := []string{}, ""
	if m.s.openable() {
		want, brokenAt = m.branch(head)
	}
	nodes, err := c.s.GetBranch(c.ctx, id, head)
	if brokenAt != "" {
		c.checkBrokenAt(what, err, brokenAt)
		return
	}
	c.known(what, err)
	c.y.check(what, nodeIDs(nodes), want)
}

func (c *check) checkBrokenAt(what string, err error, node string) {
	var broken *dag.BrokenChainError
	if !errors.As(err, &broken) {
		c.y.checkThat(false, "%s: %v; want a broken chain at %s", what, err, node)
		return
	}
	c.y.check(what+": code", store.CodeOf(err), store.Corrupt)
	c.y.check(what+": the node where the chain breaks", broken.Node, node)
}

func (c *check) ruleListBranches(id string) {
	got, err := c.s.ListBranches(c.ctx, id)
	c.known("list_branches of "+id, err)
	want := []branchLine{}
	if m := c.model(id); m.s.openable() {
		want = m.branches()
	}
	c.y.check("list_branches of "+id+" by rule", branchLines(got), want)
}

func (c *check) ruleArchived(id string) {
	got, err := c.s.ListArchivedBranches(c.ctx, id)
	c.known("list_archived_branches of "+id, err)
	want := []branchLine{}
	if m := c.model(id); m.s.openable() {
		want = m.archived()
	}
	c.y.check("list_archived_branches of "+id+" by rule", branchLines(got), want)
}

func (c *check) ruleLatestUser(id string) {
	text, ok, err := c.s.LatestUserText(c.ctx, id)
	c.known("latest_user_text of "+id, err)
	var got, want *string
	if ok {
		got = &text
	}
	if m := c.model(id); m.s.openable() {
		want = m.latestUser()
	}
	if want != nil {
		*want = withoutHalves(*want)
	}
	c.y.check("latest_user_text of "+id+" by rule", got, want)
}

// withoutHalves puts U+FFFD for each half of a surrogate pair: a Go text has
// none.
func withoutHalves(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == 0xED && i+2 < len(s) && s[i+1] >= 0xA0 {
			b.WriteRune(utf8.RuneError)
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func (c *check) ruleLeaves(id string, raw json.RawMessage) {
	for _, from := range c.questions(id, raw, "from") {
		c.ruleLeaf(id, from)
	}
}

func (c *check) ruleLeaf(id, from string) {
	sn, err := c.s.Load(c.ctx, id)
	c.known("load "+id, err)
	leaf, returned := deepest(sn, from)
	c.y.checkThat(returned, "get_deepest_leaf of %s from %q does not return", id, from)
	var want *string
	if m := c.model(id); m.s.openable() {
		want = m.leaf(from)
	}
	c.y.check(fmt.Sprintf("get_deepest_leaf of %s from %q by rule", id, from), leaf, want)
}

func (c *check) ruleDescendants(id string, raw json.RawMessage) {
	for _, of := range c.questions(id, raw, "of") {
		c.ruleDescendantsOf(id, of)
	}
}

func (c *check) ruleDescendantsOf(id, of string) {
	sn, err := c.s.Load(c.ctx, id)
	c.known("load "+id, err)
	want := []string{}
	if m := c.model(id); m.s.openable() && of != "" {
		want = m.descendants(of)
	}
	c.y.check("get_descendants of "+id+" of "+of+" by rule", descendants(sn, of), want)
}

func (c *check) ruleMerged(id string) {
	got, err := c.s.MergedHeads(c.ctx, id)
	c.known("merged_heads of "+id, err)
	want := []string{}
	if m := c.model(id); m.s.openable() {
		want = m.merged()
	}
	c.y.check("merged_heads of "+id+" by rule", nonNil(got), want)
}

// ruleCommits compares session_commits with what the git binary tells. A
// repository that git cannot read has none, or an error of its own.
func (c *check) ruleCommits(id string) {
	what := "session_commits of " + id + " by rule"
	got, err := c.s.SessionCommits(c.ctx, id, 0)
	m := c.model(id)
	log, ok := "", false
	if m.s.openable() {
		log, ok = git(c.t, m.s.dir, "log", "--format=%H %ct %s")
	}
	if !ok {
		c.y.checkThat(len(got) == 0 && (err == nil || store.CodeOf(err) != ""), "%s: %d commits, %v", what, len(got), err)
		return
	}
	c.y.checkThat(err == nil, "%s: %v", what, err)
	var lines []string
	for _, g := range got {
		lines = append(lines, fmt.Sprintf("%s %d %s", g.Hash, g.Time.Unix(), g.Message))
	}
	c.y.check(what, strings.Join(lines, "\n"), strings.TrimSuffix(log, "\n"))
	two, err := c.s.SessionCommits(c.ctx, id, 2)
	c.y.checkThat(err == nil, "%s, limit 2: %v", what, err)
	c.y.check(what+", limit 2", two, got[:min(2, len(got))])
}

// nodeAnswers is get_nodes of a snapshot; none where it does not open.
func nodeAnswers(sn *store.Snapshot) []nodeAnswer {
	got := []nodeAnswer{}
	if sn == nil || !sn.Openable {
		return got
	}
	for n := range sn.Index.All() {
		a := nodeAnswer{Seq: n.Seq, ID: n.ID, Role: n.Role, Name: n.Name, Caller: n.Caller}
		if n.Predecessor != "" {
			a.Predecessor = &n.Predecessor
		}
		got = append(got, a)
	}
	return got
}

// descendants is get_descendants of a snapshot; none where it does not open.
func descendants(sn *store.Snapshot, of string) []string {
	if sn == nil || !sn.Openable {
		return []string{}
	}
	return nonNil(sn.Index.Descendants(of))
}

// TestModel holds the model to the peer: wherever the stores of the repository
// have an answer of the peer, the model gives it.
func TestModel(t *testing.T) {
	stores := filepath.Join(harness.ModuleDir(t), "test", "testdata", "stores")
	tarballs, err := filepath.Glob(filepath.Join(stores, "*.tar.gz"))
	if err != nil || len(tarballs) == 0 {
		t.Fatalf("no stores in %s: %v", stores, err)
	}
	for _, tarball := range tarballs {
		t.Run(strings.TrimSuffix(filepath.Base(tarball), ".tar.gz"), func(t *testing.T) {
			t.Parallel()
			c := extract(t, tarball)
			for _, id := range sortedIDs(c.want.Sessions) {
				want := c.want.Sessions[id]
				if s := c.disk.sessions[id]; s != nil && want.Openable && s.openable() {
					c.holdModel(modelOf(s, s.meta), &want)
				}
			}
			if c.y.n == 0 {
				t.Error("nothing was compared")
			}
			t.Logf("%s", c.y)
		})
	}
}

// holdModel compares a model's answers with the recorded ones.
func (c *check) holdModel(m *model, want *expectedSession) {
	c.y.check("session of "+m.s.id, m.session(), c.value(want.GetSession))
	c.holdMessages(m, want.GetMessages)
	if want.GetNodes != nil {
		var rows []nodeAnswer
		c.decode("get_nodes", want.GetNodes, &rows)
		c.y.check("nodes of "+m.s.id, m.rows(), rows)
	}
	var branches []branchAnswer
	c.decode("get_branch", want.GetBranch, &branches)
	for _, w := range branches {
		ids, brokenAt := m.branch(orEmpty(w.Head))
		c.y.check("where the chain breaks in "+m.s.id, brokenAt, w.NodeID)
		if brokenAt == "" {
			c.y.checkIDs("branch of "+m.s.id, ids, w.idList)
		}
	}
	if want.LaterBranches == nil { // the model's rule is the later one
		c.y.check("branches of "+m.s.id, m.branches(), c.branchRows(want.ListBranches))
	} else {
		var later laterBranches
		c.decode("later branches", want.LaterBranches, &later)
		c.y.check("branches of "+m.s.id, headsOf(m.branches()), slices.Sorted(slices.Values(later.Heads)))
	}
	if want.ArchivedBranches != nil {
		c.y.check("archived branches of "+m.s.id, m.archived(), c.branchRows(want.ArchivedBranches))
	}
	var leaves []leafAnswer
	c.decode("get_deepest_leaf", want.DeepestLeaf, &leaves)
	for _, w := range leaves {
		if leaf := m.leaf(orEmpty(w.From)); !w.NeverReturns {
			c.y.check("leaf of "+m.s.id+" from "+orEmpty(w.From), leaf, w.Leaf)
		}
	}
	if want.Descendants != nil {
		var descendants []descendantsAnswer
		c.decode("get_descendants", want.Descendants, &descendants)
		for _, w := range descendants {
			c.y.checkIDs("descendants of "+w.Of+" in "+m.s.id, m.descendants(w.Of), w.idList)
		}
	}
	if want.MergedHeads != nil {
		var merged []string
		c.decode("merged_heads", want.MergedHeads, &merged)
		c.y.check("merged heads of "+m.s.id, m.merged(), nonNil(merged))
	}
	c.holdLatestUser(m, want.LatestUserText)
}

func (c *check) holdMessages(m *model, raw json.RawMessage) {
	var want messagesAnswer
	c.decode("get_messages", raw, &want)
	messages := m.messages()
	c.y.check("messages of "+m.s.id, len(messages), want.Count)
	for i, full := range want.Full {
		c.y.check(fmt.Sprintf("message %d of %s", i, m.s.id), messages[i], decoded(m.shown()[i], c.value(full).(map[string]any)))
	}
	for i, item := range want.Items {
		msg := messages[i]
		c.y.check(fmt.Sprintf("message %d of %s, in short", i, m.s.id), []any{msg["id"], msg["role"], msg["status"]}, []any{item.ID, item.Role, c.value(item.Status)})
		if text, ok := msg["content"].(string); ok && item.SHA256 != "" {
			c.y.check(fmt.Sprintf("message %d of %s, its text", i, m.s.id), sum([]byte(text)), item.SHA256)
		}
	}
}

func (c *check) holdLatestUser(m *model, raw json.RawMessage) {
	text := m.latestUser()
	var long longText
	if strict(raw, &long) == nil && long.Text.SHA256 != "" {
		c.y.check("latest user's text of "+m.s.id, sum([]byte(*text)), long.Text.SHA256)
		return
	}
	var want *string
	c.decode("latest_user_text", raw, &want)
	c.y.check("latest user's text of "+m.s.id, text, want)
}

func headsOf(lines []branchLine) []string {
	heads := []string{}
	for _, l := range lines {
		heads = append(heads, l.Head)
	}
	slices.Sort(heads)
	return heads
}

// statusAfter is the status of a session whose process is dead, which is that
// of every store here: running becomes interrupted and cancelling cancelled,
// and where meta.json has no status the row's is what stands (reference 8.3).
func (d *diskStore) statusAfter(id string) (status string, changed bool) {
	s := d.sessions[id]
	if s == nil || !s.trusted() {
		return "", false
	}
	before, has := s.meta["status"]
	if !has {
		before = d.rows[id]["status"]
	}
	after, changed := ended(before)
	return after, changed
}

// ended is the status that a dead run's becomes.
func ended(status any) (after string, changed bool) {
	switch status {
	case any("running"):
		return "interrupted", true
	case any("cancelling"):
		return "cancelled", true
	}
	return "", false
}

// orEmpty is the text behind a pointer, "" without one.
func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
