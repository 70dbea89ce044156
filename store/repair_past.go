package store

import (
	"context"
	"errors"
	"path"
	"strings"

	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/nodefile"
)

// beforeDelete begins the message of the commit that keeps what is deleted on
// purpose, here as in the peer (reference 6.12): what is there in such a commit
// and not in the next was deleted, and was not lost.
const beforeDelete = "before delete: "

// deletedPrefix begins a line of such a commit of ours that names a node, as a
// JSON string: a label or an id may hold anything.
const deletedPrefix = "node "

// deletedList is the list of deleted nodes in a commit's message.
func deletedList(ids []string) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(deletedPrefix)
		b.Write(jsonedit.EncodeString(id))
		b.WriteByte('\n')
	}
	return b.String()
}

// deletion is what a commit says of what follows it.
type deletion struct {
	follows bool            // something was deleted on purpose
	ids     map[string]bool // which nodes; nil when the commit does not say
}

// deletionAfter reads a commit's message.
func deletionAfter(repo *gitrepo.Repo, c gitrepo.Commit) deletion {
	if !strings.HasPrefix(c.Message, beforeDelete) {
		return deletion{}
	}
	d := deletion{follows: true}
	text, err := repo.Message(c.Hash)
	if err != nil {
		return d
	}
	for line := range strings.Lines(text) {
		raw, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), deletedPrefix)
		if !ok {
			continue
		}
		if id, ok := jsonedit.String([]byte(raw)); ok {
			if d.ids == nil {
				d.ids = map[string]bool{}
			}
			d.ids[id] = true
		}
	}
	return d
}

// took reports whether a node that the commit has was deleted on purpose.
func (d deletion) took(id string) bool { return d.follows && (d.ids == nil || d.ids[id]) }

// commitsBack lists a repository's commits, the newest first. Where the older
// ones cannot be read, the newest alone is better than none.
func commitsBack(ctx context.Context, repo *gitrepo.Repo) ([]gitrepo.Commit, error) {
	log, err := repo.Log(ctx, 0)
	if err == nil || ctx.Err() != nil {
		return log, err
	}
	return repo.Log(ctx, 1)
}

// lastSound returns the newest committed content of a file that can take the
// place of a damaged one, nil when there is none. The newest commit alone does
// not do: any commit that follows the damage has taken it in. A file of
// history/ that was deleted on purpose has no content before that.
func lastSound(ctx context.Context, repo *gitrepo.Repo, file string) ([]byte, error) {
	log, err := commitsBack(ctx, repo)
	if err != nil {
		return nil, err
	}
	seen, gone := "", false
	_, _, id, isNode := nodefile.ParseName(path.Base(file))
	for _, c := range log {
		e, err := repo.Stat(ctx, c.Hash, file)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil: // not there, or an object is damaged: an older one may be whole
			gone = gone || errors.Is(err, gitrepo.ErrNotFound)
			continue
		case gone && isNode && deletionAfter(repo, c).took(id):
			return nil, nil
		}
		gone = false
		if e.Hash == seen || !e.FileMode().IsRegular() {
			continue
		}
		seen = e.Hash
		if content, err := repo.Blob(ctx, e.Hash); err == nil && sound(file, content) {
			return content, nil
		}
	}
	return nil, nil
}

// goneNode is a history file that was committed once and is gone.
type goneNode struct {
	file   string
	commit string   // the newest that has it
	blobs  []string // what it held, the newest first
	// deleted is set when what followed that commit was a deletion, certain when
	// that commit lists the node.
	deleted, certain bool
}

// goneNodes finds, by id, the nodes that the session's commits have and a
// snapshot has not.
func goneNodes(ctx context.Context, repo *gitrepo.Repo, sn *Snapshot) (map[string]*goneNode, error) {
	log, err := commitsBack(ctx, repo)
	if err != nil {
		return nil, err
	}
	out := map[string]*goneNode{}
	seen := "" // the tree that was looked at last
	for _, c := range log {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		dir, err := repo.Stat(ctx, c.Hash, historyDir)
		if err != nil || !dir.IsDir() || dir.Hash == seen {
			continue
		}
		seen = dir.Hash
		files, err := repo.Tree(ctx, dir.Hash)
		if err != nil {
			continue // damaged: an older one may be whole
		}
		after := deletionAfter(repo, c)
		for _, f := range files {
			if _, _, id, ok := nodefile.ParseName(f.Name); ok && f.FileMode().IsRegular() {
				noteGone(out, sn, id, f, c, after)
			}
		}
	}
	return out, nil
}

// noteGone notes that a commit has a node, if the snapshot has it not.
func noteGone(out map[string]*goneNode, sn *Snapshot, id string, f gitrepo.Entry, c gitrepo.Commit, after deletion) {
	if _, ok := sn.Index.Get(id); ok {
		return
	}
	g := out[id]
	if g == nil {
		g = &goneNode{file: f.Name, commit: c.Hash, deleted: after.took(id), certain: after.ids != nil}
		out[id] = g
	}
	if n := len(g.blobs); f.Name == g.file && (n == 0 || g.blobs[n-1] != f.Hash) {
		g.blobs = append(g.blobs, f.Hash)
	}
}

// lost reports whether the node went by accident: it was not deleted, or the
// commit before does not say what was and this one has a follower.
func (g *goneNode) lost(ctx context.Context, repo *gitrepo.Repo, sn *Snapshot, id string) bool {
	return !g.deleted || !g.certain && g.hasFollower(ctx, repo, sn, id)
}

// hasFollower reports whether a node that followed this one before the deletion
// is still there. Whoever deletes a node deletes its followers too, so that
// this one was lost by itself.
func (g *goneNode) hasFollower(ctx context.Context, repo *gitrepo.Repo, sn *Snapshot, id string) bool {
	for n := range sn.Index.All() {
		if n.Predecessor != id {
			continue
		}
		e, ok := sn.Entry(n.ID)
		if !ok {
			continue
		}
		if _, err := repo.Stat(ctx, g.commit, path.Join(historyDir, e.File)); err == nil {
			return true
		}
	}
	return false
}

// lastSound returns the newest content that is a node, nil when there is none.
func (g *goneNode) lastSound(ctx context.Context, repo *gitrepo.Repo) ([]byte, error) {
	for _, hash := range g.blobs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if content, err := repo.Blob(ctx, hash); err == nil && sound(g.file, content) {
			return content, nil
		}
	}
	return nil, nil
}
