package fsnode

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
)

// newRoot makes the root directory and what stands directly in it, and
// returns the filesystem. Nothing is served before the table is filled.
func (t *tree) newRoot(opt fuse.MountOptions) fuse.RawFileSystem {
	root := &vnode.FuncList{Env: t.env, Spec: vnode.Spec{Number: vnode.Ino("root"), Policy: policyOf(kindDirectory, true), Stat: t.rootStat}}
	t.root = &root.List
	raw := vnode.NewFS(root, opt)
	t.active, t.archived = t.newSessions("sessions", false), t.newSessions("archived", true)
	t.index = t.newIndex()
	views := t.newViews()
	readme := t.newConstant("README.txt", readmeText)
	table := vnode.Table{
		{Name: "README.txt", Found: vnode.Found{Node: readme}},
		{Name: "index.json", Found: vnode.Found{Node: t.index}},
		{Name: "sessions", Found: vnode.Found{Node: t.active}},
		{Name: "archived", Found: vnode.Found{Node: t.archived}},
		{Name: "views", Found: vnode.Found{Node: views}},
		{Name: ".sessionfs", Found: vnode.Found{Node: t.newControlDir()}},
	}
	root.Entries, root.Find = table.Entries, table.Find
	return raw
}

// place gives a fixed node its inode.
func (t *tree) place(parent *vnode.List, n vnode.FuncNode) {
	vnode.PlaceFunc(context.Background(), &parent.Inode, n)
}

func (t *tree) rootStat(context.Context) (vnode.Stat, error) {
	return vnode.Stat{Perm: 0o700, MTime: t.made, UID: t.uid, GID: t.gid}, nil
}

// newConstant makes a file of the root that never changes.
func (t *tree) newConstant(name, text string) *vnode.File {
	f := &vnode.FuncFile{
		Spec: vnode.Spec{Number: vnode.Ino("root/" + name), Policy: policyOf(kindConstant, true),
			Stat: func(context.Context) (vnode.Stat, error) {
				return vnode.Stat{Perm: 0o400, Size: int64(len(text)), MTime: t.made, UID: t.uid, GID: t.gid}, nil
			}},
		Read: func(context.Context) ([]byte, error) { return []byte(text), nil },
	}
	t.place(t.root, f)
	return &f.File
}

// indexText is the registry's text as it was last asked for.
type indexText struct {
	mu   sync.Mutex // level 0: one rendering at a time
	gen  uint64
	text []byte
	size atomic.Int64 // of text, for who must not wait
}

// newIndex makes index.json: the registry as it is now.
func (t *tree) newIndex() *vnode.File {
	var c indexText
	text := func(ctx context.Context) ([]byte, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		t.mu.Lock()
		gen := t.indexGen
		t.mu.Unlock()
		if c.text != nil && c.gen == gen {
			return c.text, nil
		}
		b, err := t.st.IndexJSON(holdingAny(ctx))
		if err != nil {
			return nil, err
		}
		c.text, c.gen = b, gen
		c.size.Store(int64(len(b)))
		return b, nil
	}
	stat := func(size int) vnode.Stat {
		t.mu.Lock()
		defer t.mu.Unlock()
		return vnode.Stat{Perm: 0o400, Size: int64(size), MTime: t.indexAt, UID: t.uid, GID: t.gid}
	}
	f := &vnode.FuncFile{Spec: vnode.Spec{Number: vnode.Ino("root/index.json"), Policy: policyOf(kindLive, true)}, Read: text, Whole: true}
	f.Stat = func(ctx context.Context) (vnode.Stat, error) {
		b, err := text(ctx)
		return stat(len(b)), err
	}
	f.Version = func() any {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.indexGen
	}
	f.Estimate = func(context.Context) (vnode.Stat, error) {
		return stat(int(c.size.Load())), nil // an estimate, which is not kept: see policyOf
	}
	t.place(t.root, f)
	return &f.File
}

const readmeText = `This directory shows AI chat sessions as files.

  sessions/<id>/            one directory for each session; archived/ has the rest
    head                    link to the last message of the active branch
    head_id                 the same as a node id; write one to move the head
    messages/               the active branch, oldest first; edit one of your own: a new branch
    branch/<name>/          every branch, as links
    nodes/                  every message of every branch, once
    history/                the same, the exact bytes on disk
    fields/                 title, status, pinned, ...: one file each
    meta.json               all of them at once; keys that you change are written
    transcript.md           the active branch as one document
    append/user             what is written here becomes a message
    ctl                     commands; read it for a list
    attachments/, workdir/  files
    dag/<id>/               the graph: predecessor, children/, caller, callees/
    graph.txt               the same, drawn
    commits/                the session's history in Git
  views/title/, views/...   links to the sessions by title, status, date, ...
  index.json                the registry of all sessions
  .sessionfs/errors         why the last operations were refused

Worth knowing:

  ls sessions                               the sessions
  cat sessions/<id>/transcript.md           read one
  grep -r word sessions/<id>/nodes          search all its branches
  cat sessions/<id>/head                    its last message
  echo <ref> > sessions/<id>/head_id        move the head: a node id, its beginning, or a branch
  ln -sfn branch/<name> sessions/<id>/head  the same
  mv sessions/<id>/nodes/<n> sessions/<id>/head     the same
  echo hello > sessions/<id>/append/user    append a message
  mkdir sessions/<id>                       a new session
  mv sessions/<id> archived/                archive one
  vim sessions/<id>/messages/000001-user-*.md      ask a question anew
  tail .sessionfs/errors                    what was refused, and why; .sessionfs/failed/ has the texts
`
