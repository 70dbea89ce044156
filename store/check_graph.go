package store

import (
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/nodefile"
)

// coversSome marks a compaction summary that stands in for something.
const coversSome = dag.CoversSome

// files checks the history files, each for itself and against its name.
func (c *checker) files(p layout.Place, sn *Snapshot) {
	dir := filepath.Join(p.Dir, historyDir)
	for _, f := range sn.fileProblems {
		c.add("unreadable_node", Fault, p.ID, filepath.Join(p.Dir, f.Path), "%s", f.Text)
	}
	ids, seqs := map[string]string{}, map[int64]string{}
	for i, e := range sn.entries {
		n := sn.Index.At(i)
		path := filepath.Join(dir, e.File)
		if want := nodefile.FileName(n.Seq, n.Role, n.ID); e.File != want {
			c.add("name_mismatch", Warning, p.ID, path, "its fields belong into %s", want)
		}
		if first, ok := ids[n.ID]; ok {
			c.add("duplicate_id", Fault, p.ID, path, "%s has the same id", first)
		} else {
			ids[n.ID] = e.File
		}
		if first, ok := seqs[n.Seq]; ok {
			c.add("duplicate_seq", Warning, p.ID, path, "%s has the same seq", first)
		} else {
			seqs[n.Seq] = e.File
		}
	}
	if fi, err := c.s.fs.Lstat(dir); err != nil || !fi.IsDir() {
		return // what a symlink leads to is not the session's
	}
	entries, err := c.s.fs.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if p.HistoryRepo && e.Name() == ".git" {
			continue // told as the old layout
		}
		if !strings.HasSuffix(e.Name(), ".json") && !strings.HasSuffix(e.Name(), ".tmp") {
			c.add("stray_file", Note, p.ID, filepath.Join(dir, e.Name()), "not a history file")
		}
	}
}

// graph checks the edges.
func (c *checker) graph(p layout.Place, sn *Snapshot) {
	dir := filepath.Join(p.Dir, historyDir)
	for i, e := range sn.entries {
		n := sn.Index.At(i)
		path := filepath.Join(dir, e.File)
		if n.Predecessor != "" && n.Predecessor != dag.RootID {
			if _, ok := sn.Index.Get(n.Predecessor); !ok {
				c.add("dangling_predecessor", Warning, p.ID, path, "its predecessor is not there: %s", n.Predecessor)
			}
		}
		if n.Caller != "" && n.Caller != dag.RootID {
			if _, ok := sn.Index.Get(n.Caller); !ok {
				c.add("dangling_caller", Note, p.ID, path, "its caller is not there: %s", n.Caller)
			}
		}
	}
	for _, id := range sn.loops() {
		c.add("cycle", Fault, p.ID, dir, "the predecessors of %s lead back to it", id)
	}
	seen := map[string]bool{}
	tips := sn.Index.Tips(nil)
	if n, ok := sn.Index.Get(sn.Head); ok {
		tips = append(tips, n)
	}
	for _, n := range tips {
		if _, err := sn.BranchOf(n.ID); err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			c.add("broken_chain", Fault, p.ID, dir, "%v", err)
		}
	}
}

// loops finds one node of each loop of predecessors.
func (sn *Snapshot) loops() []string {
	const (
		walking = 1
		walked  = 2
	)
	state := map[string]int{}
	var out []string
	for n := range sn.Index.All() {
		var path []string
		id := n.ID
		for id != "" && state[id] == 0 {
			state[id] = walking
			path = append(path, id)
			next, ok := sn.Index.Get(id)
			if !ok {
				break
			}
			id = next.Predecessor
		}
		if id != "" && state[id] == walking {
			if _, ok := sn.Index.Get(id); ok {
				out = append(out, id)
			}
		}
		for _, id := range path {
			state[id] = walked
		}
	}
	return out
}

// run checks that who is said to be at work is.
func (c *checker) run(p layout.Place, sn *Snapshot) {
	lease := c.s.layout.RunLockPath(p.ID)
	c.symlink(p.ID, c.s.layout.LockPath(p.ID))
	if c.symlink(p.ID, lease) {
		return
	}
	held, err := filelock.Held(lease)
	if err != nil {
		c.add("lease_unreadable", Fault, p.ID, lease, "%v", err)
		return
	}
	alive := held || sn.workerAlive()
	taken := leaseTaken(c.s.fs, lease)
	if taken && !held {
		c.add("dead_lease", Warning, p.ID, lease, "the process that ran a turn here is gone")
	}
	if ended(sn.meta.status()) != "" && !alive {
		sev := Note // perhaps a worker that leaves no trace
		if taken {
			sev = Warning
		}
		c.add("running_without_run", sev, p.ID, filepath.Join(p.Dir, metaFile), "the status is %s, and nobody is seen at work", sn.meta.status())
	}
	for n := range sn.Index.All() {
		if ended(n.Status) != "" && !alive {
			c.add("node_without_run", Note, p.ID, filepath.Join(p.Dir, historyDir), "node %s is %s, and nobody is seen at work", n.ID, n.Status)
		}
	}
	hold := c.s.layout.HoldPath(p.ID)
	if raw, err := c.s.fs.ReadFile(hold); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(raw))); err != nil || !processAlive(pid) {
			c.add("stale_hold", Warning, p.ID, hold, "the migrating process is gone; runs are refused as long as this file is there")
		}
	}
}

// symlink reports a symlink in the place of a lock file or of a directory of the
// store's own: it would lead anywhere, and is refused.
func (c *checker) symlink(session, path string) bool {
	fi, err := c.s.fs.Lstat(path)
	if err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		return false
	}
	c.add("symlink", Fault, session, path, "it is a symbolic link, which is not followed: writes are refused")
	return true
}
