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
		c.y.checkThat(ok && err == nil && (string(got) == blob || c.isRestoredDead(name, blob, got)), "%s of %s is not restored: %v", name, s.id, err)
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

// isRestoredDead: what Git had is a node that a dead worker left, and what is
// there is that, swept.
func (c *check) isRestoredDead(name, blob string, got []byte) bool {
	n, ok := readNode(filepath.Base(name), pyObject([]byte(blob)), 0)
	_, dead := ended(n.Meta["status"])
	n.Text = blob
	return ok && dead && c.isSwept(n, got)
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
		if s := c.disk.sessions[id]; s != nil && want.Files != nil {
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
	if target := c.before[rel]; err == nil && target != "" { // a link
		rel = filepath.Join(filepath.Dir(rel), target)
	}
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
	// A deletion that was cut off is finished.
	if slices.ContainsFunc(strings.Split(path, "/"), c.disk.tombstone) {
		return !there
	}
	if path == "locations.json" {
		return c.onlyUnlisted()
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
		case strings.HasPrefix(path, rel+"/history/") && c.hadHistory(s):
			return c.sweptFile(s, filepath.Base(path))
		case strings.HasPrefix(path, rel+"/history/"):
			return there && c.before[path] == ""
		}
	}
	return false
}

// onlyUnlisted: locations.json lacks deleted sessions, and nothing else.
func (c *check) onlyUnlisted() bool {
	b, err := os.ReadFile(filepath.Join(c.root, "locations.json"))
	want := maps.Clone(c.disk.locations)
	maps.DeleteFunc(want, func(id string, _ any) bool { return c.disk.tombstone(id) })
	return err == nil && equal(pyObject(b), want)
}

// onlyInterrupted: the new meta.json is the old one with the value of status
// replaced, or with the key appended, and nothing else, not even a space.
func (c *check) onlyInterrupted(s *diskSession) bool {
	status, changed := c.disk.statusAfter(s.id)
	if !changed || s.symlink {
		return false
	}
	now, before := `"status": "`+status+`"`, ""
	if was, ok := s.meta["status"].(string); ok {
		before = `"status": "` + was + `"`
	} else {
		now = ", " + now
	}
	got, err := os.ReadFile(filepath.Join(s.dir, "meta.json"))
	at := bytes.LastIndex(got, []byte(now)) // of keys that are there twice the last counts
	rel, relErr := filepath.Rel(c.root, s.dir)
	if err != nil || relErr != nil || at < 0 {
		return false
	}
	undone := slices.Concat(got[:at], []byte(before), got[at+len(now):])
	return sum(undone) == c.before[rel+"/meta.json"]
}
