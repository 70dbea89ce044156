package conformance

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionfs/sessionfs/store"
)

// checkSweep finds what opening removed: the empty shells, found before it,
// and nothing else.
func (c *check) checkSweep() {
	for _, id := range c.disk.order {
		if _, err := os.Lstat(c.disk.sessions[id].dir); err != nil {
			c.gone[id] = true
			c.t.Logf("opening removed the shell %s", id)
		}
		c.y.checkThat(c.gone[id] == c.shells[id], "opening removed %s: %v; an empty shell: %v", id, c.gone[id], c.shells[id])
	}
}

// checkKept compares a session that the peer removed at open and this store
// keeps with its own files: nothing in it is lost, and history that had
// vanished is back from Git.
func (c *check) checkKept(id string) {
	s := c.disk.sessions[id]
	c.checkRestored(s)
	nodes := s.nodes()
	sn, err := c.s.Load(c.ctx, id)
	if err != nil {
		c.y.checkThat(false, "load %s: %v", id, err)
		return
	}
	c.y.check("openable: "+id, sn.Openable, true)
	want := []string{}
	for _, n := range nodes {
		want = append(want, n.ID)
	}
	got := []string{}
	for n := range sn.Index.All() {
		got = append(got, n.ID)
	}
	c.y.check("nodes of "+id, got, want)
	head, _ := s.meta["head_id"].(string)
	branch, err := c.s.GetBranch(c.ctx, id, "")
	c.y.checkThat(err == nil, "get_branch of %s: %v", id, err)
	c.y.check("get_branch of "+id, nodeIDs(branch), s.chain(head))
	text, _, err := c.s.LatestUserText(c.ctx, id)
	c.y.checkThat(err == nil, "latest_user_text of %s: %v", id, err)
	c.y.check("latest_user_text of "+id, text, s.latestUser())
	session, err := c.s.GetSession(c.ctx, id)
	c.y.checkThat(err == nil, "get_session of %s: %v", id, err)
	c.y.check("title of "+id, pyObject(session)["title"], s.meta["title"])
}

// checkRestored: history/ had vanished and Git has it, so every file of the
// newest commit is back with its bytes, and the session says so.
func (c *check) checkRestored(s *diskSession) {
	if c.hadHistory(s) {
		return
	}
	list, ok := git(c.t, s.dir, "ls-tree", "-r", "--name-only", "HEAD", "history/")
	c.y.checkThat(ok, "git ls-tree in %s", s.id)
	names := strings.Fields(list)
	for _, name := range names {
		blob, ok := git(c.t, s.dir, "cat-file", "blob", "HEAD:"+name)
		got, err := os.ReadFile(filepath.Join(s.dir, name))
		c.y.checkThat(ok && err == nil && string(got) == blob, "%s of %s is not restored: %v", name, s.id, err)
	}
	if len(names) == 0 {
		return
	}
	sn, err := c.s.Load(c.ctx, s.id)
	reported := err == nil && slices.ContainsFunc(sn.Problems, func(p store.Problem) bool {
		return strings.Contains(p.Path, "history") || strings.Contains(p.Text, "history")
	})
	c.y.checkThat(reported, "%s: that its history was restored is not reported", s.id)
}

func (c *check) hadHistory(s *diskSession) bool {
	rel, err := filepath.Rel(c.root, s.dir)
	return err == nil && c.before[rel+"/history/"] != ""
}

// checkDisk: opening and reading change nothing but what the start-up's rules
// name, byte for byte: the registry, the locks, the status of a run whose
// process is dead, a history that had vanished, a removed shell.
func (c *check) checkDisk() {
	for id, want := range c.want.Sessions {
		if s := c.disk.sessions[id]; s != nil && want.Files != nil && !s.symlink {
			c.checkRecordedFiles(id, want.Files)
		}
	}
	after := manifest(c.t, c.root)
	paths := maps.Clone(c.before)
	maps.Copy(paths, after)
	for path := range paths {
		if c.before[path] == after[path] {
			c.y.checkThat(true, "unchanged")
			continue
		}
		c.y.checkThat(c.mayChange(path, after[path] != ""), "opening or reading changed %s (there before: %v, after: %v)",
			path, c.before[path] != "", after[path] != "")
	}
}

// checkRecordedFiles holds the extracted files to the recorded hashes: what is
// compared below is what the peer wrote.
func (c *check) checkRecordedFiles(id string, want *expectedFiles) {
	rel, err := filepath.Rel(c.root, c.disk.sessions[id].dir)
	if err != nil {
		c.t.Fatal(err)
	}
	if want.Meta != nil {
		c.y.check("meta.json of "+id+" as extracted", c.before[rel+"/meta.json"], *want.Meta)
	}
	var lines []string
	for path, hash := range c.before {
		if name, ok := strings.CutPrefix(path, rel+"/history/"); ok && name != "" && !strings.Contains(name, "/") {
			lines = append(lines, name+"\x00"+hash+"\n")
		}
	}
	slices.Sort(lines)
	c.y.check("number of history files of "+id, len(lines), want.HistoryCount)
	if want.HistorySHA256 != nil && c.before[rel+"/history/"] != "" {
		c.y.check("history of "+id+" as extracted", sum([]byte(strings.Join(lines, ""))), *want.HistorySHA256)
	}
	for name, hash := range want.History {
		c.y.check("history/"+name+" of "+id+" as extracted", c.before[rel+"/history/"+name], hash)
	}
	for name, hash := range want.Other {
		c.y.check(name+" of "+id+" as extracted", c.before[rel+"/"+name], hash)
	}
}

// mayChange reports whether a path may differ from the extracted one.
func (c *check) mayChange(path string, there bool) bool {
	if path == "index.json" || path == ".locks/" || strings.HasPrefix(path, ".locks/") {
		return true
	}
	for id, s := range c.disk.sessions {
		rel, err := filepath.Rel(c.root, s.dir)
		if err != nil || path != rel+"/" && !strings.HasPrefix(path, rel+"/") {
			continue
		}
		switch {
		case c.gone[id]:
			return !there
		case path == rel+"/meta.json":
			return c.onlyInterrupted(s)
		case strings.HasPrefix(path, rel+"/history/"):
			return there && c.before[path] == "" && !c.hadHistory(s)
		}
	}
	return false
}

// onlyInterrupted: the new meta.json is the old one with the value of status
// replaced, and nothing else, not even a space.
func (c *check) onlyInterrupted(s *diskSession) bool {
	if s.symlink || s.meta["status"] != "running" {
		return false
	}
	got, err := os.ReadFile(filepath.Join(s.dir, "meta.json"))
	undone := bytes.Replace(got, []byte(`"status": "interrupted"`), []byte(`"status": "running"`), 1)
	rel, relErr := filepath.Rel(c.root, s.dir)
	return err == nil && relErr == nil && sum(undone) == c.before[rel+"/meta.json"]
}
