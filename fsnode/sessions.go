package fsnode

import (
	"context"
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// newSessions makes sessions/ or archived/: the sessions of one kind.
func (t *tree) newSessions(name string, archived bool) *vnode.List {
	l := &vnode.FuncList{
		Spec:    vnode.Spec{Number: vnode.Ino("root/" + name), Policy: policyOf(kindDirectory, true)},
		List:    vnode.List{Up: t.root},
		Entries: func(context.Context) ([]fuse.DirEntry, error) { return t.entriesOf(archived), nil },
		Find:    func(_ context.Context, name string) (vnode.Found, error) { return t.find(archived, name) },
	}
	l.Stat = func(context.Context) (vnode.Stat, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return vnode.Stat{Perm: 0o700, MTime: t.lists[listIndex(archived)].mtime, UID: t.uid, GID: t.gid}, nil
	}
	verbs := &vnode.Verbs{
		Rmdir: func(ctx context.Context, name string) error {
			return t.rmdir(holdingMore(ctx, []*vnode.List{&l.List}, t.dirsOf(name)), archived, name)
		},
		Rename: t.rename,
	}
	if !archived {
		verbs.Mkdir = func(ctx context.Context, name string) (vnode.Found, error) {
			return t.mkdir(holding(ctx, &l.List), name)
		}
	}
	l.Verbs = verbs
	t.place(t.root, l)
	return &l.List
}

// writable reports why nothing can be changed.
func (t *tree) writable(op string) error {
	if t.readOnly {
		return &store.Error{Code: store.ReadOnly, Op: op, Err: errors.New("the mount is read-only")}
	}
	return nil
}

// mkdir creates a session.
func (t *tree) mkdir(ctx context.Context, name string) (vnode.Found, error) {
	if err := t.writable("create session"); err != nil {
		return vnode.Found{}, err
	}
	id := render.UnescapeName(name)
	if render.EscapeName(id) != name {
		return vnode.Found{}, &store.Error{Code: store.Invalid, Op: "create session", Session: id, Err: errors.New("not usable as a session id")}
	}
	if t.fresh.again(id, processOf(ctx), t.now()) {
		return vnode.Found{}, &store.Error{Code: store.Immutable, Op: "create session", Session: id, Err: errNoCopy}
	}
	err := t.st.CreateSession(ctx, store.NewSession{ID: id, AgentID: "main", Source: "sessionfs", Root: true})
	if err != nil {
		return vnode.Found{}, err
	}
	t.fresh.note(id, processOf(ctx), t.now())
	t.refreshRow(ctx, id)
	return t.find(false, name)
}

// dirsOf is the directory of a session, which the kernel holds while it is
// removed or moved; none when it does not know it.
func (t *tree) dirsOf(name string) []*vnode.List {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[t.ids[name]]; s != nil {
		return []*vnode.List{s.dir}
	}
	return nil
}

// rmdir removes a session that holds nothing.
func (t *tree) rmdir(ctx context.Context, archived bool, name string) error {
	if err := t.writable("remove session"); err != nil {
		return err
	}
	t.mu.Lock()
	id, ok := t.ids[name]
	ok = ok && t.rows[id].archived == archived
	s := t.sessions[id]
	t.mu.Unlock()
	if !ok {
		return vnode.NotFound
	}
	if s != nil && s.hasScratch() {
		return &store.Error{Code: store.NotEmpty, Op: "remove session", Session: id, Err: errors.New("somebody's temporary files are in it")}
	}
	if h := heldBy(ctx); h != nil && s != nil { // the kernel holds what goes, too
		ctx = holdingMore(ctx, h.dirs, []*vnode.List{s.dir})
	}
	if err := t.st.RemoveEmpty(ctx, id); err != nil {
		return err
	}
	t.dropRow(id)
	return nil
}

// rename archives a session, or takes it back.
func (t *tree) rename(ctx context.Context, name string, to *vnode.List, newName string, _ bool) error {
	if err := t.writable("archive session"); err != nil {
		return err
	}
	if to != t.active && to != t.archived || name != newName {
		return &store.Error{Code: store.Immutable, Op: "rename", Ref: name, Err: errors.New("a session keeps its id; it can only be moved between sessions and archived")}
	}
	t.mu.Lock()
	id, ok := t.ids[name]
	s := t.sessions[id]
	t.mu.Unlock()
	if !ok {
		return vnode.NotFound
	}
	var moved []*vnode.List
	if s != nil {
		moved = []*vnode.List{s.dir}
	}
	ctx = holdingMore(ctx, []*vnode.List{t.active, t.archived}, moved)
	return t.st.SetArchived(store.WithLockTimeout(ctx, renameWait), id, to == t.archived)
}
