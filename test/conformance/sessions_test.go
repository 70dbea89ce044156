package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/store"
)

// checkSession compares every answer about one session.
func (c *check) checkSession(id string, want *expectedSession) {
	c.checkPlace(id, want)
	if want.DeletedByOpen && !c.gone[id] && c.disk.sessions[id] != nil {
		// The peer removed it and this store keeps it, with all that is in it.
		c.checkRestored(c.disk.sessions[id])
		c.differs(keptSession, func() { c.ruleAll(id, want) })
		c.checkAttachments(id, want)
		return
	}
	c.checkGetSession(id, want)
	c.checkMessages(id, want.GetMessages)
	sn, err := c.s.Load(c.ctx, id)
	c.known("load "+id, err)
	if want.GetNodes != nil {
		c.checkNodes(id, sn, want.GetNodes)
	}
	c.checkBranches(id, want.GetBranch)
	c.checkListBranches(id, want)
	c.checkLatestUser(id, want.LatestUserText)
	c.checkLeaves(id, sn, want.DeepestLeaf)
	if want.Descendants != nil {
		c.checkDescendants(id, sn, want.Descendants)
	}
	switch {
	case want.MergedHeads == nil: // a shorter recording
	case unanswered(want.MergedHeads):
		c.differs(damaged, func() { c.ruleMerged(id) })
	default:
		got, err := c.s.MergedHeads(c.ctx, id)
		c.answer("merged_heads of "+id, want.MergedHeads, err, func() any { return nonNil(got) }, &[]string{})
	}
	c.checkCommits(id, want)
	c.checkAttachments(id, want)
}

// checkPlace compares where a session is and what it is, after opening.
func (c *check) checkPlace(id string, want *expectedSession) {
	s := c.disk.sessions[id]
	kept := want.DeletedByOpen && s != nil && !c.gone[id]
	if want.Dir != nil {
		path := filepath.Join(c.root, *want.Dir)
		st, err := os.Stat(path)
		// What is left of a deleted session goes at the next start.
		c.y.check("on disk: "+id, err == nil && st.IsDir(), (want.OnDisk || kept) && !c.disk.tombstone(id))
		link, _ := os.Readlink(path)
		c.y.check("where the link leads: "+id, link, want.Symlink)
		if s != nil {
			c.y.check("the directory of "+id, s.dir, path)
		}
	}
	sn, err := c.s.Load(c.ctx, id)
	c.known("load "+id, err)
	if sn != nil && s != nil {
		c.y.check("the directory that is opened of "+id, sn.Dir, s.dir)
	}
	if !kept { // else ruleAll asks
		c.y.check("openable: "+id, sn != nil && sn.Openable, want.Openable)
	}
}

// answer compares a simple answer: into has the recorded form.
func (c *check) answer(what string, raw json.RawMessage, err error, got func() any, into any) {
	c.t.Helper()
	if err != nil {
		c.y.checkThat(false, "%s: %v", what, err)
		return
	}
	c.decode(what, raw, into)
	c.y.check(what, got(), deref(into))
}

// deref is the value behind a pointer that answer was given.
func deref(p any) any {
	switch p := p.(type) {
	case *[]string:
		return nonNil(*p)
	case *[]nodeAnswer:
		return *p
	case **string:
		return *p
	}
	return p
}

func nonNil(s []string) []string { return append([]string{}, s...) }

func (c *check) checkGetSession(id string, want *expectedSession) {
	if unanswered(want.GetSession) {
		c.differs(damaged, func() { c.ruleSession(id) })
		return
	}
	what := "get_session of " + id
	got, err := c.s.GetSession(c.ctx, id)
	if string(want.GetSession) == "null" {
		c.y.checkThat(store.CodeOf(err) == store.NotFound, "%s = %s, %v; want not_found", what, got, err)
		return
	}
	if err != nil {
		c.y.checkThat(false, "%s: %v", what, err)
		return
	}
	row := c.value(want.GetSession).(map[string]any)
	c.override(row, "get_session", id)
	c.interrupt(id, row)
	c.y.check(what, pyObject(got), row)
}

// interrupt applies the start-up's rule where no override spells it out: a
// meta.json that says running speaks of a dead process (reference 8.3).
func (c *check) interrupt(id string, row map[string]any) {
	status, changed := c.disk.statusAfter(id)
	if !changed {
		return
	}
	row["status"] = status
	extra, ok := row["extra_meta"].(map[string]any)
	if !ok {
		extra = map[string]any{}
	}
	extra["status"] = status
	row["extra_meta"] = extra
}

func (c *check) checkMessages(id string, raw json.RawMessage) {
	if unanswered(raw) {
		c.differs(damaged, func() { c.ruleMessages(id, raw) })
		return
	}
	what := "get_messages of " + id
	all, err := c.s.GetMessages(c.ctx, id, 0)
	if err != nil && store.CodeOf(err) != store.NotFound {
		c.y.checkThat(false, "%s: %v", what, err)
		return
	}
	var want messagesAnswer
	c.decode(what, raw, &want)
	c.y.check(what+": count", len(all), want.Count)
	for i, item := range want.Items {
		if i < len(all) && !c.checkDeadMessage(fmt.Sprintf("%s: item %d", what, i), id, all[i], item.ID) {
			c.checkItem(fmt.Sprintf("%s: item %d", what, i), id, all[i], item)
		}
	}
	for i, full := range want.Full {
		msg := c.value(full).(map[string]any)
		if i < len(all) && !c.checkDeadMessage(fmt.Sprintf("%s: message %d", what, i), id, all[i], msg["id"]) {
			c.overrideMessage(msg, id, pyObject(all[i]))
			c.y.check(fmt.Sprintf("%s: message %d", what, i), pyObject(all[i]), msg)
		}
	}
	for _, l := range want.Limits {
		some, err := c.s.GetMessages(c.ctx, id, l.Limit)
		c.y.checkThat(err == nil, "%s with limit %d: %v", what, l.Limit, err)
		c.y.checkIDs(fmt.Sprintf("%s: limit %d", what, l.Limit), messageIDs(some), l.idList)
	}
}

func messageIDs(messages [][]byte) []string {
	out := []string{}
	for _, m := range messages {
		id, _ := pyObject(m)["id"].(string)
		out = append(out, id)
	}
	return out
}

// checkDeadMessage compares the message of a node that a dead worker left; an
// override that names it, optional for who does not sweep, must agree.
func (c *check) checkDeadMessage(what, id string, raw []byte, nodeID any) (dead bool) {
	want, dead := c.sweptMessage(id, nodeID)
	if !dead {
		return false
	}
	c.differs(deadRuns, func() {
		c.y.check(what+", swept", decoded(c.dead[id][nodeID.(string)], pyObject(raw)), want)
		for _, o := range c.want.SeedOverrides {
			if o.API == "get_messages" && o.Session == id && any(o.Node) == nodeID {
				c.y.check(what+", swept: "+o.Field, pyObject(raw)[o.Field], c.value(o.Seed))
			}
		}
	})
	return true
}

// overrideMessage lets a field that an optional override names have either
// value.
func (c *check) overrideMessage(want map[string]any, id string, got map[string]any) {
	for _, o := range c.want.SeedOverrides {
		if o.API != "get_messages" || o.Session != id || o.Node != want["id"] {
			continue
		}
		if seed := c.value(o.Seed); !o.Optional || equal(got[o.Field], seed) {
			want[o.Field] = seed
		}
	}
}

func (c *check) checkItem(what, id string, raw []byte, want messageItem) {
	got := pyObject(raw)
	status := map[string]any{"id": want.ID, "status": c.value(want.Status)}
	c.overrideMessage(status, id, got)
	c.y.check(what+": id, role and status", []any{got["id"], got["role"], got["status"]}, []any{want.ID, want.Role, status["status"]})
	text, ok := got["content"].(string)
	if want.Content != nil {
		c.y.check(what+": content", got["content"], c.value(want.Content))
		return
	}
	c.y.check(what+": content is text", ok, true)
	c.y.check(what+": sha256 of the content", sum([]byte(text)), want.SHA256)
	if want.Bytes != nil {
		c.y.check(what+": bytes", len(text), *want.Bytes)
	}
	if want.Chars != nil {
		c.y.check(what+": characters", utf8.RuneCountInString(text), *want.Chars)
	}
}

func (c *check) checkNodes(id string, sn *store.Snapshot, raw json.RawMessage) {
	if unanswered(raw) {
		c.differs(damaged, func() { c.ruleNodes(id) })
		return
	}
	c.answer("get_nodes of "+id, raw, nil, func() any { return nodeAnswers(sn) }, &[]nodeAnswer{})
}

func (c *check) checkDescendants(id string, sn *store.Snapshot, raw json.RawMessage) {
	if unanswered(raw) {
		c.differs(damaged, func() { c.ruleDescendants(id, raw) })
		return
	}
	var want []descendantsAnswer
	c.decode("get_descendants of "+id, raw, &want)
	for _, w := range want {
		if w.Error != "" {
			c.differs(damaged, func() { c.ruleDescendantsOf(id, w.Of) })
			continue
		}
		c.y.checkIDs("get_descendants of "+id+" of "+w.Of, descendants(sn, w.Of), w.idList)
	}
}

func (c *check) checkCommits(id string, want *expectedSession) {
	what := "session_commits of " + id
	raw := want.SessionCommits
	if unanswered(raw) {
		c.differs(damaged, func() { c.ruleCommits(id) })
		return
	}
	var w commitsAnswer
	c.decode(what, raw, &w)
	got, err := c.s.SessionCommits(c.ctx, id, w.Limit)
	if err != nil && store.CodeOf(err) != store.NotFound {
		c.y.checkThat(false, "%s: %v", what, err)
		return
	}
	c.y.check(what+": count", len(got), w.Count)
	items := []commitItem{}
	for _, g := range got[:min(len(got), len(w.Items))] {
		items = append(items, commitItem{g.Hash, g.Short, float64(g.Time.Unix()), g.Message})
	}
	c.y.check(what, items, append([]commitItem{}, w.Items...))
	if want.Git != nil && want.Openable {
		c.checkGit(id, want.Git)
	}
	if w.Limit2 == nil {
		return // a shorter recording
	}
	two, err := c.s.SessionCommits(c.ctx, id, 2)
	c.y.checkThat(err == nil || store.CodeOf(err) == store.NotFound, "%s with limit 2: %v", what, err)
	messages := []string{}
	for _, g := range two {
		messages = append(messages, g.Message)
	}
	c.y.check(what+": limit 2", messages, w.Limit2)
}

func (c *check) checkGit(id string, want *expectedGit) {
	all, err := c.s.SessionCommits(c.ctx, id, 0)
	c.y.checkThat(err == nil, "all commits of %s: %v", id, err)
	if want.Commits != nil {
		c.y.check("number of commits of "+id, len(all), *want.Commits)
	}
	if len(all) > 0 {
		c.y.check("newest commit of "+id, all[0].Hash, want.Head)
	}
	ref, err := os.ReadFile(filepath.Join(c.disk.sessions[id].dir, ".git", "HEAD"))
	c.y.checkThat(err == nil, "HEAD of %s: %v", id, err)
	c.y.check("branch of "+id, strings.TrimSpace(string(ref)), "ref: refs/heads/"+want.Branch)
	c.checkWithGit(id, want)
}

// checkWithGit asks the git binary, which must not write anything either.
func (c *check) checkWithGit(id string, want *expectedGit) {
	dir := c.disk.sessions[id].dir
	if want.Tree != "" {
		c.y.check("git tree of "+id, strings.TrimSpace(c.git(dir, "rev-parse", "HEAD^{tree}")), want.Tree)
	}
	if want.Status != nil {
		status := strings.FieldsFunc(c.git(dir, "status", "--porcelain", "--untracked-files=all"), func(r rune) bool { return r == '\n' })
		c.y.check("git status of "+id, c.withoutReconciled(id, status, want.Status), want.Status)
	}
	if want.FsckOK {
		c.y.check("git fsck of "+id, c.git(dir, "fsck", "--strict", "--no-progress"), "")
	}
}

// withoutReconciled takes out what the start-up has changed: the status of a
// dead run in meta.json, and dead nodes, which the peer had left as they were
// committed.
func (c *check) withoutReconciled(id string, got, want []string) []string {
	out := []string{}
	for _, line := range got {
		file, ok := strings.CutPrefix(line, " M ")
		_, changed := c.disk.statusAfter(id)
		ours := changed && file == "meta.json" || c.sweptFile(c.disk.sessions[id], strings.TrimPrefix(file, "history/"))
		if ok && ours && !slices.Contains(want, line) {
			continue
		}
		out = append(out, line)
	}
	return out
}

// git runs the git binary without letting it refresh the index on the way.
func (c *check) git(dir string, args ...string) string {
	cmd := exec.CommandContext(c.ctx, "git", append([]string{"-C", dir, "-c", "core.quotePath=true"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	c.y.checkThat(err == nil, "git %v in %s: %v", args, dir, err)
	return string(out)
}

// checkMissing: an id that is not there, and ids that are no names, are not
// found; nothing is created by asking.
func (c *check) checkMissing() {
	m := c.want.MissingSession
	ids := []string{m.ID}
	for _, b := range m.BadIDs {
		ids = append(ids, b.ID)
	}
	for _, id := range ids {
		_, err := c.s.GetSession(c.ctx, id)
		code := store.CodeOf(err)
		c.y.checkThat(code == store.NotFound || id != m.ID && code == store.Invalid, "get_session of %q: %v", id, err)
		messages, err := c.s.GetMessages(c.ctx, id, 0)
		c.none("get_messages", id, len(messages), err)
		branch, err := c.s.GetBranch(c.ctx, id, "")
		c.none("get_branch", id, len(branch), err)
		branches, err := c.s.ListBranches(c.ctx, id)
		c.none("list_branches", id, len(branches), err)
		text, ok, err := c.s.LatestUserText(c.ctx, id)
		c.none("latest_user_text", id, len(text), err)
		c.y.checkThat(!ok, "latest_user_text of %q is there", id)
		merged, err := c.s.MergedHeads(c.ctx, id)
		c.none("merged_heads", id, len(merged), err)
		commits, err := c.s.SessionCommits(c.ctx, id, 0)
		c.none("session_commits", id, len(commits), err)
		_, err = c.s.Load(c.ctx, id)
		c.none("load", id, 0, err)
		c.y.checkThat(err != nil, "load of %q succeeds", id)
	}
}

func (c *check) none(what, id string, n int, err error) {
	c.t.Helper()
	code := store.CodeOf(err)
	ok := n == 0 && (err == nil || code == store.NotFound || code == store.Invalid)
	c.y.checkThat(ok, "%s of %q: %d, %v; want none", what, id, n, err)
}

// checkExpectations: further required answers that are not plain reads.
func (c *check) checkExpectations() {
	for _, e := range c.want.Expectations {
		switch e.API {
		case "set_head":
			_, err := c.s.SetHead(c.ctx, e.Session, e.Head, store.HeadMove{})
			c.y.check("set_head to "+e.Head, store.CodeOf(err), store.SummaryHead)
		case "attachment_path":
			c.checkAttachmentPath(e)
		default:
			c.t.Errorf("an expectation of an unknown kind: %s", e.API)
		}
	}
}
