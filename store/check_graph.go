package store

import (
	"bytes"
	"context"
	"crypto/sha1"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/gitrepo"
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

// git checks the repository as far as it can be without reading every object:
// that it opens, that its newest commit and tree are there, that no lock was
// left, and that what was committed is not missing from history/.
func (c *checker) git(ctx context.Context, p layout.Place) {
	dir := filepath.Join(p.Dir, ".git")
	if c.symlink(p.ID, dir) {
		return
	}
	if fi, err := os.Lstat(dir); err != nil || !fi.IsDir() {
		return
	}
	if name := gitrepo.SymlinkedPart(c.s.fs, dir); name != "" {
		c.symlink(p.ID, filepath.Join(dir, filepath.FromSlash(name)))
	}
	for _, name := range []string{"index.lock", "HEAD.lock", "refs/heads/main.lock"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if fi, err := c.s.fs.Lstat(path); err == nil && c.s.now().Sub(fi.ModTime()) > youngTemp {
			c.add("git_lock", Warning, p.ID, path, "a process that is gone left Git's lock behind")
		}
	}
	if ref := filepath.Join(dir, "refs", "heads", "main"); c.isBlank(ref) {
		c.add("empty_ref", Warning, p.ID, ref, "a crash emptied the branch's ref; its log says what it named")
	}
	if index := filepath.Join(dir, "index"); c.damagedIndex(index) {
		c.add("git_index_damaged", Warning, p.ID, index, "Git's index is cut off or damaged; it can be made anew")
	}
	r, err := gitrepo.Open(p.Dir, c.s.git)
	if err != nil {
		c.add("git_broken", Fault, p.ID, dir, "%v", err)
		return
	}
	defer r.Close()
	if _, err := r.Log(ctx, 1); err != nil {
		c.add("git_broken", Fault, p.ID, dir, "%v", err)
		return
	}
	has, err := r.HeadHasPath(ctx, historyDir)
	if err != nil {
		c.add("git_broken", Fault, p.ID, dir, "%v", err)
		return
	}
	if _, err := c.s.fs.Lstat(filepath.Join(p.Dir, historyDir)); err != nil && has {
		c.add("history_only_in_git", Fault, p.ID, p.Dir, "history/ is missing and can be restored from Git")
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

// isBlank reports whether a file is there and holds nothing but white space.
func (c *checker) isBlank(path string) bool {
	raw, err := c.s.fs.ReadFile(path)
	return err == nil && len(bytes.TrimSpace(raw)) == 0
}

// damagedIndex reports whether Git's index is there and does not end in the
// checksum of what comes before it (gitformat-index).
func (c *checker) damagedIndex(path string) bool {
	raw, err := c.s.fs.ReadFile(path)
	if err != nil {
		return false
	}
	if len(raw) < 12+sha1.Size || !bytes.HasPrefix(raw, []byte("DIRC")) {
		return true
	}
	at := len(raw) - sha1.Size
	sum := sha1.Sum(raw[:at])
	// A sum of zeros means that it was not computed (index.skipHash).
	return !bytes.Equal(raw[at:], sum[:]) && !bytes.Equal(raw[at:], make([]byte, sha1.Size))
}
