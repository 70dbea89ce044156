package store

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/nodefile"
)

// lostNode is a node of the newest commit that history/ has not.
type lostNode struct {
	file string
	node dag.Node
}

// lostNodes reports the messages that the newest commit has and that are gone,
// though nobody deleted them.
func (c *checker) lostNodes(ctx context.Context, p layout.Place, sn *Snapshot, r *gitrepo.Repo) {
	if p.Legacy || !p.Openable || sn.unread != nil || sn.pending != nil {
		return
	}
	log, err := r.Log(ctx, 1)
	if err != nil || len(log) == 0 {
		return
	}
	missing := c.missingNodes(ctx, p, sn, r, log[0])
	if len(missing) == 0 {
		return
	}
	waited := c.waitForMeta(ctx, p)
	if !sn.meta.missing && !metaUntouched(ctx, r, log[0].Hash) {
		if waited {
			return // it may have been written meanwhile: the next check knows
		}
		missing = named(missing, sn)
	}
	for _, n := range missing {
		path := filepath.Join(p.Dir, historyDir, n.file)
		c.add("lost_node", Fault, p.ID, path, "the newest commit has this message, and nobody deleted it")
	}
}

// missingNodes are the nodes that a commit has, the session has not, and that
// the commit does not say were deleted next.
func (c *checker) missingNodes(ctx context.Context, p layout.Place, sn *Snapshot, r *gitrepo.Repo, tip gitrepo.Commit) []lostNode {
	files, err := r.List(ctx, tip.Hash, historyDir)
	if err != nil {
		return nil
	}
	after := deletionAfter(r, tip)
	var out []lostNode
	for _, f := range files {
		_, _, id, ok := nodefile.ParseName(f.Name)
		if !ok || !f.FileMode().IsRegular() || after.took(id) {
			continue
		}
		if _, ok := sn.Index.Get(id); ok {
			continue
		}
		if _, err := c.s.fs.Lstat(filepath.Join(p.Dir, historyDir, f.Name)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		content, err := r.Blob(ctx, f.Hash)
		if err != nil {
			continue
		}
		n, err := nodefile.Parse(content)
		if err != nil {
			continue
		}
		if n.IDMissing {
			n.Node.ID = id
		}
		if _, ok := sn.Index.Get(n.Node.ID); !ok && !after.took(n.Node.ID) {
			out = append(out, lostNode{f.Name, n.Node})
		}
	}
	return out
}

// metaFollows is how long OpenProgram may take from the first file that it
// removes to meta.json.
const metaFollows = time.Second

// waitForMeta waits, when history/ changed just now, until a deletion that goes
// on must have come to meta.json, and reports whether it did wait.
func (c *checker) waitForMeta(ctx context.Context, p layout.Place) bool {
	fi, err := c.s.fs.Lstat(filepath.Join(p.Dir, historyDir))
	if err != nil {
		return false
	}
	left := metaFollows - c.s.now().Sub(fi.ModTime())
	if left <= 0 || left > metaFollows {
		return false
	}
	select {
	case <-ctx.Done():
	case <-time.After(left):
	}
	return true
}

// metaUntouched reports whether nobody has written meta.json since the commit.
// OpenProgram deletes a branch without a commit, but writes meta.json anew
// (reference 6.12): where it is as it was committed, nothing was deleted.
func metaUntouched(ctx context.Context, r *gitrepo.Repo, commit string) bool {
	e, err := r.Stat(ctx, commit, metaFile)
	if err != nil {
		return false
	}
	saved, err := r.SavedFiles()
	return err == nil && saved.Untouched(metaFile, e.Hash)
}

// named are those of the missing nodes that meta.json still names, as the head
// or with a branch's name, and what these followed: whoever deletes a node takes
// the names away, and what follows it goes, too.
func named(missing []lostNode, sn *Snapshot) []lostNode {
	byID := make(map[string]dag.Node, len(missing))
	for _, m := range missing {
		byID[m.node.ID] = m.node
	}
	keep := map[string]bool{}
	todo := []string{sn.Head}
	for id := range sn.branchEntries() {
		todo = append(todo, id)
	}
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		n, ok := byID[id]
		if !ok || keep[id] {
			continue
		}
		keep[id] = true
		todo = append(todo, n.Predecessor, n.Caller)
	}
	var out []lostNode
	for _, m := range missing {
		if keep[m.node.ID] {
			out = append(out, m)
		}
	}
	return out
}
