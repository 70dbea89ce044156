package fsnode

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// session is what the tree keeps of one session that the kernel knows. Its
// directory exists as soon as its name was looked up; the rest, and the pin in
// the store, when the kernel looks into it.
type session struct {
	t    *tree
	id   string
	gen  uint64
	dir  *vnode.List // sessions/<id>/ or archived/<id>/
	gone atomic.Bool // it is not listed any more

	openMu sync.Mutex                   // level 0: one opening at a time
	unpin  func()                       // guarded by openMu
	files  atomic.Pointer[sessionFiles] // set once it is open
	v      atomic.Pointer[view]         // written with mu held
	used   atomic.Int64                 // when it was last looked into, Unix ns
	told   atomic.Bool                  // the kernel was told to forget it, see pins.go

	mu     sync.Mutex        // leaf: guards what follows
	bump   int64             // ns added to the directory's time for each other listing
	missed map[goneName]bool // names that the kernel may hold to be missing
	pend   pending
	*opened
}

// opened is what a session has beside once it was looked into: a listing of
// the sessions makes the kernel know all of them. It is set with mu held, before
// files; nobody who has not seen files uses it without mu. mu guards what is
// in it, if it has no lock of its own.
type opened struct {
	slots    few[*message]    // what was handed out, here and below
	nodes    few[*nodeText]   // by history file
	records  few[*nodeRecord] // by history file
	fields   few[*field]
	branches few[*branchDir]
	shelves  []*shelf // scratch files; the session's own directory first

	ctl outcomes

	unsaved unsaved
}

// sessionIdent is the identity of a session's directory.
func sessionIdent(id string) string { return "session/" + id }

// ident is the identity of an object of the session.
func (s *session) ident(kind, name string) string {
	return sessionIdent(s.id) + "/" + kind + "/" + name
}

// newSession makes a session's directory. Requires t.mu.
func newSession(t *tree, id, name string, gen uint64) *session {
	s := &session{
		t: t, id: id, gen: gen,
	}
	d := &sessionDir{List: vnode.List{Base: vnode.Base{Policy: policyOf(kindSession, true)}, Up: t.active}, s: s}
	s.dir = &d.List
	vnode.Place(context.Background(), &t.active.Inode, d, vnode.Ino(sessionIdent(id)), gen)
	return s
}

// sessionDir is a session's directory.
type sessionDir struct {
	vnode.List
	s *session
}

// owner is the session that the directory belongs to.
func (d *sessionDir) owner() *session { return d.s }

// Stat tells the attributes.
func (d *sessionDir) Stat(ctx context.Context) (vnode.Stat, error) { return d.s.dirStat(ctx) }

// Entries lists the directory.
func (d *sessionDir) Entries(ctx context.Context) ([]fuse.DirEntry, error) { return d.s.entries(ctx) }

// Find finds a name in the directory.
func (d *sessionDir) Find(ctx context.Context, name string) (vnode.Found, error) {
	return d.s.find(ctx, name)
}

// Forgot has the session released, if the kernel has let go of it.
func (d *sessionDir) Forgot() { d.s.t.reaper.add(d.s) }

// Verbs are what can be done to the names in the directory.
func (d *sessionDir) Verbs() *vnode.Verbs {
	v := d.s.top().Verbs()
	v.Symlink = d.s.symlink
	return v
}

// dirStat answers from the listing alone: `ls -l sessions` opens nothing.
func (s *session) dirStat(context.Context) (vnode.Stat, error) {
	if s.gone.Load() {
		return vnode.Stat{}, vnode.Stale
	}
	st := vnode.Stat{Perm: 0o700, UID: s.t.uid, GID: s.t.gid}
	s.t.mu.Lock()
	st.MTime = s.t.rows[s.id].updated
	s.t.mu.Unlock()
	if v := s.v.Load(); v != nil {
		st.UID, st.GID = v.sn.UID, v.sn.GID
	}
	s.mu.Lock()
	st.MTime = st.MTime.Add(time.Duration(s.bump))
	s.mu.Unlock()
	return st, nil
}

// open pins the session and makes its fixed files, the first time.
func (s *session) open(ctx context.Context) (*sessionFiles, error) {
	s.used.Store(s.t.now().UnixNano())
	if f := s.files.Load(); f != nil {
		return f, s.follow(ctx, f)
	}
	s.openMu.Lock()
	defer s.openMu.Unlock()
	if f := s.files.Load(); f != nil {
		return f, nil
	}
	if s.gone.Load() {
		return nil, vnode.Stale
	}
	sn, watched, release, err := s.t.st.Pin(holdingAny(ctx), s.id)
	if err != nil {
		return nil, err
	}
	s.unpin = release
	s.mu.Lock()
	s.opened = &opened{ctl: outcomes{help: ctlHelp}}
	s.mu.Unlock()
	s.swap(sn)
	f := s.newFiles(watched)
	s.mu.Lock()
	s.files.Store(f)
	s.mu.Unlock()
	if sn.UID != s.t.uid || sn.GID != s.t.gid {
		s.dir.Changed() // its owner was told to be the store's
	}
	s.t.noteOpen()
	return f, nil
}

// follow brings a session up to date that nobody watches.
func (s *session) follow(ctx context.Context, f *sessionFiles) error {
	if s.gone.Load() {
		return vnode.Stale
	}
	if f.watched {
		return nil
	}
	sn, err := s.t.st.Load(holdingAny(ctx), s.id)
	switch {
	case errors.Is(err, store.NotFound):
		return vnode.Stale
	case err != nil:
		return err
	}
	s.swap(sn)
	return nil
}

// current returns the session's view for an answer about one of its files.
func (s *session) current(ctx context.Context) (*view, error) {
	f := s.files.Load()
	if f == nil { // being opened: the view is there
		if v := s.v.Load(); v != nil {
			return v, nil
		}
		return nil, vnode.Stale
	}
	if err := s.follow(ctx, f); err != nil {
		return nil, err
	}
	return s.v.Load(), nil
}

// swap makes a snapshot the current view, unless a newer one is, and records
// what the kernel holds of the old one. It only touches memory.
func (s *session) swap(sn *store.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.v.Load()
	if old != nil && sn.Version <= old.sn.Version {
		return
	}
	v := newView(s, sn, old)
	s.v.Store(v)
	if f := s.files.Load(); f != nil && old != nil {
		s.pend.add(s.recordLocked(f, old, v))
	}
}

// recordLocked finds what of the old view the kernel may hold that is not so
// in the new one. Requires s.mu.
func (s *session) recordLocked(f *sessionFiles, old, cur *view) *record {
	r := &record{changed: f.live(), parents: []*vnode.List{s.dir}}
	if !sameBranch(old, cur) {
		r.listings = append(r.listings, f.messages)
	}
	r.listings = append(r.listings, f.branches, f.fields)
	if !sameReal(old.sn, cur.sn) {
		for _, p := range f.real {
			r.changed = append(r.changed, p)
		}
	}
	same := sameRecord(old.sn, cur.sn)
	if !same {
		r.listings = append(r.listings, f.nodes, f.history, f.derived.dag)
		r.known = f.knownDAG(old, cur)
	}
	if f.shown(old) != f.shown(cur) {
		s.bump++
		r.listings = append(r.listings, s.dir)
		// Which of the names went is not worth finding out: it happens when a
		// session is damaged or mended, and a name that stays is asked again.
		for _, e := range s.t.fixed {
			if e.show != nil {
				r.gone = append(r.gone, goneName{s.dir, e.name})
			}
		}
	}
	s.recordSlotsLocked(r, f, old, cur, same)
	s.recordNodesLocked(r, f, old, cur, same)
	for n := range s.fields.all() {
		r.changed = append(r.changed, n)
		if s.t.env.Handleless {
			r.gone = append(r.gone, goneName{f.fields, n.name})
		}
	}
	if s.branches.len() > 0 {
		r.late = s.staleBranches
	}
	for m := range s.missed {
		r.gone = append(r.gone, m)
	}
	clear(s.missed)
	return r
}

// recordSlotsLocked finds the messages that are not what they were. Whoever
// opens one that has gone is told so, and the kernel then asks for the name;
// where nobody is asked, it must be told. Requires s.mu.
func (s *session) recordSlotsLocked(r *record, f *sessionFiles, old, cur *view, same bool) {
	told := len(r.changed)
	for m := range s.slots.all() {
		if same && old.nodeAt(int(m.pos)) == cur.nodeAt(int(m.pos)) {
			continue
		}
		a, ea, okA := old.message(m.name)
		b, eb, okB := cur.message(m.name)
		if okA == okB && a.ID == b.ID && ea == eb {
			continue
		}
		r.changed = append(r.changed, m)
		if okA && !okB && s.t.env.Handleless {
			r.gone = append(r.gone, goneName{f.messages, m.name})
		}
	}
	if len(r.changed) > told {
		r.parents = append(r.parents, f.messages)
	}
}

// recordNodesLocked finds the history files that are not what they were; same
// tells that none is. Requires s.mu.
func (s *session) recordNodesLocked(r *record, f *sessionFiles, old, cur *view, same bool) {
	if old.sn.Head != cur.sn.Head { // the head's node can be written, see head.go
		for _, id := range []string{old.sn.Head, cur.sn.Head} {
			e, ok := cur.sn.Entry(id)
			if !ok {
				continue
			}
			if n, ok := s.nodes.get(e.File); ok {
				r.attrs = append(r.attrs, n)
				r.parents = append(r.parents, f.nodes)
			}
		}
	}
	if same {
		return
	}
	for n := range s.nodes.all() {
		a, okA := old.node(n.file)
		b, okB := cur.node(n.file)
		if okA != okB || a != b {
			r.changed = append(r.changed, n)
		}
		if okA && !okB && s.t.env.Handleless {
			r.gone = append(r.gone, goneName{f.nodes, nodeName(n.file)})
		}
	}
	for n := range s.records.all() {
		a, okA := old.sn.EntryByFile(n.file)
		b, okB := cur.sn.EntryByFile(n.file)
		if okA != okB || a != b {
			r.changed = append(r.changed, n)
		}
		if okA && !okB && s.t.env.Handleless {
			r.gone = append(r.gone, goneName{f.history, n.file})
		}
	}
}

// maxMissedHere bounds how many names of a session the kernel may keep as
// missing at a time; each costs a notification at the next change.
const maxMissedHere = 64

// miss is the answer to a question for a name that is not in a directory of
// the session. Whoever changes the session tells the kernel of the names that
// it holds to be missing, if they were noted before that change.
func (s *session) miss(dir *vnode.List, name string, there func(*view) bool) (vnode.Found, error) {
	f := s.files.Load()
	if f == nil || !f.watched {
		return vnode.Found{}, vnode.NotFound
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.missed) >= maxMissedHere || there(s.v.Load()) {
		return vnode.Found{}, vnode.NotFound
	}
	if s.missed == nil {
		s.missed = map[goneName]bool{}
	}
	s.missed[goneName{dir, name}] = true
	return vnode.Found{Absent: long}, vnode.NotFound
}

// stat is the attributes of one of the session's own files.
func (s *session) stat(v *view, perm uint32, size int) vnode.Stat {
	if perm == 0o600 && (s.t.readOnly || v.sn.Legacy || !v.sn.Openable) {
		perm = 0o400
	}
	return vnode.Stat{Perm: perm, Size: int64(size), MTime: v.sn.MTime, UID: v.sn.UID, GID: v.sn.GID}
}

// dirOf is the Stat of a directory of the session.
func (s *session) dirOf(ctx context.Context) (vnode.Stat, error) {
	v, err := s.current(ctx)
	if err != nil {
		return vnode.Stat{}, err
	}
	return vnode.Stat{Perm: 0o700, MTime: v.sn.MTime, UID: v.sn.UID, GID: v.sn.GID}, nil
}

// entries lists the session's directory.
func (s *session) entries(ctx context.Context) ([]fuse.DirEntry, error) {
	f, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	out := s.listFixed(f)
	for i := range out {
		if out[i].Name == "head" {
			out[i] = f.findHead(s).Entry("head")
		}
	}
	return append(out, s.top().entries()...), nil
}

// find finds a name in the session's directory.
func (s *session) find(ctx context.Context, name string) (vnode.Found, error) {
	f, err := s.open(ctx)
	if err != nil {
		return vnode.Found{}, err
	}
	found, err := s.findFixed(f, name)
	if err != nil {
		if found, err = s.top().find(name); err == nil {
			return found, nil
		}
		return s.miss(s.dir, name, func(*view) bool {
			_, err := s.findFixed(f, name)
			return err == nil
		})
	}
	if name == "head" {
		return f.findHead(s), nil
	}
	return found, nil
}

// release unpins the session and drops it from the tree, unless the kernel
// still knows it or was just given it again; always when forced. It reports
// whether it did.
func (s *session) release(force bool) bool {
	scratch := s.hasScratch()
	s.t.mu.Lock()
	idle := s.t.now().UnixNano()-s.used.Load() > int64(reapAfter/2)
	if !force && (s.dir.InUse() || !idle || !s.gone.Load() && scratch) {
		s.t.mu.Unlock()
		return false
	}
	if s.t.sessions[s.id] == s {
		delete(s.t.sessions, s.id)
	}
	s.gone.Store(true)
	s.t.mu.Unlock()
	s.openMu.Lock()
	defer s.openMu.Unlock()
	s.clearScratch()
	if s.unpin != nil {
		s.unpin()
		s.unpin = nil
		s.t.noteClosed(s)
	}
	return true
}
