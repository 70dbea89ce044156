package fsnode

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/fsnode/spool"
	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// Store is what the tree needs of the session store. *store.Store is one; a
// test may put another in front of it.
type Store interface {
	Root() string
	ReadOnly() bool
	Watching() bool
	Subscribe(o store.Observer) (cancel func())
	IndexJSON(ctx context.Context) ([]byte, error)
	ListSessions(ctx context.Context, q store.ListQuery) ([]store.Row, error)
	Row(ctx context.Context, id string) (store.Row, error)
	Load(ctx context.Context, id string) (*store.Snapshot, error)
	Pin(ctx context.Context, id string) (sn *store.Snapshot, watched bool, release func(), err error)
	Reload(ctx context.Context, id string) error
	SetHead(ctx context.Context, id string, ref store.Ref, mv store.HeadMove) (node string, err error)
	AppendText(ctx context.Context, id, role, text string) (store.AppendResult, error)
	AppendMessage(ctx context.Context, id string, msg []byte) (store.AppendResult, error)
	ExtendMessage(ctx context.Context, id, node, text string) error
	RunIsActive(ctx context.Context, id string) (bool, error)
	CreateSession(ctx context.Context, n store.NewSession) error
	SetField(ctx context.Context, id, name, text string) error
	SetArchived(ctx context.Context, id string, archived bool) error
	DeleteSession(ctx context.Context, id string) error
	RemoveEmpty(ctx context.Context, id string) error
	SetBranchName(ctx context.Context, id, node, name string) error
	DeleteBranchName(ctx context.Context, id, node string) error
	Begin(ctx context.Context, id string) (*store.Run, error)
	CommitTurn(ctx context.Context, id, message string) (c store.Commit, ok bool, err error)
	Dirty(id string)
	FollowFiles(id, dir, rel string) bool
	FollowNow(ctx context.Context, id string)
	Dir(id string) (string, error)
	SavedFiles(id string) (*store.SavedFiles, error)
	ProjectNames(known any) (names map[string]string, version any)
	Rest()
	Retry(ctx context.Context, id string, ref store.Ref) (node string, err error)
	Edit(ctx context.Context, id string, ref store.Ref, text string) (node string, err error)
	EditOnBranch(ctx context.Context, id, node, text string) (made string, err error)
	MergeMeta(ctx context.Context, id string, seen store.MetaSeen, text []byte) error
	Sibling(ctx context.Context, id string, ref store.Ref, which string) (node string, err error)
	Leaf(ctx context.Context, id string, ref store.Ref) (node string, err error)
	Checkout(ctx context.Context, id string, ref store.Ref) (node string, err error)
	DeleteBranch(ctx context.Context, id string, ref store.Ref) (store.DeletedBranch, error)
	Attach(ctx context.Context, a store.AttachSpec) (store.Attached, error)
	Rewind(ctx context.Context, id string, ref store.Ref, confirm string) (*store.RewindPlan, error)
}

var (
	_ Store          = (*store.Store)(nil)
	_ store.Observer = (*tree)(nil)
	_ store.Meter    = (*tree)(nil)
)

// tree is one mounted tree: what all its nodes share.
type tree struct {
	st       Store
	sp       *spool.Spool
	log      *slog.Logger
	now      func() time.Time
	env      *vnode.Env
	readOnly bool
	version  string
	started  time.Time
	made     time.Time // of the store's root
	uid, gid uint32    // owner of the store's root

	root, active, archived *vnode.List
	index                  *vnode.File
	refused                *refusals
	later                  *later
	reaper                 *reaper
	seen                   seen
	fresh                  made
	meter                  meter
	texts                  *textCache
	held                   *vnode.PassHeld // directories of real files
	fixed                  []fixedEntry
	commitTrees            bool // commits/ shows directories
	follows                bool // the store follows what other processes do
	maxOpen                int
	serving                atomic.Bool  // requests are answered, so that the kernel may hold something
	opened, told           atomic.Int64 // open sessions, and those that the kernel was told to forget

	rowMu sync.Mutex // level 0: one reading of a row at a time

	mu       sync.Mutex // leaf: guards what follows
	sessions map[string]*session
	rows     map[string]row
	ids      map[string]string // name in sessions/ or archived/ -> id
	lists    [2]listState      // of sessions/ and archived/
	missed   map[goneName]bool // names that the kernel may hold to be missing
	indexAt  time.Time         // when index.json last changed
	indexGen uint64
	gen      uint64 // numbers the session objects
	views    [len(viewKinds)]viewState
	projects any // the version of the project registry that rows follow
	pend     pending
}

// row is what a listing shows of a session.
type row struct {
	name     string
	archived bool
	updated  time.Time
	facets
}

// listState is the state of sessions/ or archived/.
type listState struct {
	mtime   time.Time
	entries []fuse.DirEntry // nil when not made yet
}

func newTree(cfg Config, sp *spool.Spool) (*tree, error) {
	t := &tree{
		st: cfg.Store, sp: sp, log: cfg.Log, now: time.Now, readOnly: cfg.ReadOnly || cfg.Store.ReadOnly(), follows: cfg.Store.Watching(),
		version: cfg.Version, refused: &refusals{}, commitTrees: cfg.CommitTrees, maxOpen: maxOpen,
		sessions: map[string]*session{}, rows: map[string]row{}, ids: map[string]string{}, missed: map[goneName]bool{},
	}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	t.started = t.now()
	t.texts, t.held = newTextCache(maxTexts, &t.meter), vnode.NewPassHeld()
	t.meter.tidier.rest = func() {
		t.texts.rest()
		t.st.Rest()
	}
	t.fixed = fixedEntries()
	var st syscall.Stat_t
	if err := syscall.Stat(t.st.Root(), &st); err != nil {
		return nil, err
	}
	t.uid, t.gid = st.Uid, st.Gid
	t.made = time.Unix(st.Mtim.Unix())
	t.lists[0].mtime, t.lists[1].mtime, t.indexAt = t.made, t.made, t.made
	t.env = &vnode.Env{Fail: t.fail, Hush: t.hush, Beneath: t.st.Root()}
	return t, nil
}

// loadRows fills the listings. The tree is subscribed before, so that a
// change in between is not missed; whoever is told of one waits with reading the
// row until the list is in, which may be older.
func (t *tree) loadRows(ctx context.Context) error {
	t.rowMu.Lock()
	defer t.rowMu.Unlock()
	rows, err := t.st.ListSessions(ctx, store.ListQuery{IncludeArchived: true, AsOpened: true})
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range rows {
		if _, told := t.rows[r.ID]; told {
			continue // of a later change
		}
		n := row{name: render.EscapeName(r.ID), archived: r.Archived, updated: t.rowTime(r).Truncate(time.Microsecond), facets: facetsOf(r)}
		t.rows[r.ID], t.ids[n.name] = n, r.ID
	}
	t.pend = pending{} // nothing is known to the kernel yet
	// Nothing changed: the times are those of what is shown.
	t.lists[0].mtime, t.lists[1].mtime, t.indexAt = t.made, t.made, t.made
	for _, r := range t.rows {
		l := &t.lists[listIndex(r.archived)]
		l.mtime = latest(l.mtime, r.updated)
		t.indexAt = latest(t.indexAt, r.updated)
	}
	for i := range t.views {
		t.views[i].mtime = latest(t.made, t.lists[0].mtime)
		t.views[i].first, t.views[i].times = t.views[i].mtime, nil
	}
	return nil
}

// noteRow takes over what a listing shows of a session.
func (t *tree) noteRow(id string, archived bool, updated time.Time, f facets) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noteRowLocked(id, archived, updated, f)
}

// noteRowLocked is noteRow. Requires t.mu.
func (t *tree) noteRowLocked(id string, archived bool, updated time.Time, f facets) {
	updated = updated.Truncate(time.Microsecond)
	old, known := t.rows[id]
	n := row{name: old.name, archived: archived, updated: updated, facets: f}
	if !known {
		n.name = render.EscapeName(id)
	}
	if known && old == n {
		return
	}
	t.rows[id], t.ids[n.name] = n, id
	r := &record{}
	if known && old.archived != archived {
		r.gone = append(r.gone, goneName{t.listOf(old.archived), n.name})
		t.touchListLocked(r, old.archived)
	}
	if !known || old.archived != archived {
		t.touchListLocked(r, archived)
		t.cameLocked(r, goneName{t.listOf(archived), n.name})
	}
	t.touchViewsLocked(r, id, old, n)
	t.touchRowLocked(r, id)
	t.pend.add(r)
}

// rowTime is when a session was last active; that of a row without a
// possible time is the store's own.
func (t *tree) rowTime(r store.Row) time.Time {
	for _, f := range []float64{r.UpdatedAt, r.CreatedAt} {
		if f > 0 && f < float64(t.now().Add(24*time.Hour).Unix()) {
			sec := int64(f)
			return time.Unix(sec, int64((f-float64(sec))*1e9))
		}
	}
	return t.made
}

// dropRow forgets a session that is not there any more.
func (t *tree) dropRow(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.rows[id]
	if !known {
		return
	}
	delete(t.rows, id)
	delete(t.ids, old.name)
	r := &record{gone: []goneName{{t.listOf(old.archived), old.name}}}
	t.touchListLocked(r, old.archived)
	t.touchViewsLocked(r, id, old, row{})
	t.touchRowLocked(r, id)
	t.pend.add(r)
	if s := t.sessions[id]; s != nil {
		delete(t.sessions, id)
		s.gone.Store(true)
		t.reaper.add(s)
	}
}

// touchListLocked notes that a listing changed. Requires t.mu.
func (t *tree) touchListLocked(r *record, archived bool) {
	l := &t.lists[listIndex(archived)]
	l.entries = nil
	l.mtime = tick(l.mtime, t.now())
	r.listings = append(r.listings, t.listOf(archived))
}

// maxMissed bounds how many names of sessions/ and archived/ the kernel may
// keep as missing at a time.
const maxMissed = 1024

// missedLocked is the answer to a question for a name that is in neither.
// Requires t.mu.
func (t *tree) missedLocked(archived bool, name string) (vnode.Found, error) {
	if !t.follows || len(t.missed) >= maxMissed {
		return vnode.Found{}, vnode.NotFound
	}
	t.missed[goneName{t.listOf(archived), name}] = true
	return vnode.Found{Absent: long}, vnode.NotFound
}

// cameLocked notes that a name came that the kernel may hold to be missing.
// Requires t.mu.
func (t *tree) cameLocked(r *record, n goneName) {
	if t.missed[n] {
		delete(t.missed, n)
		r.gone = append(r.gone, n)
	}
}

// touchIndex notes that index.json changed. The registry takes a change over
// after the session has, so this is part of publishing.
func (t *tree) touchIndex() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.indexAt = tick(t.indexAt, t.now())
	t.indexGen++
	t.pend.add(&record{changed: []changer{t.index}})
}

// touchRowLocked notes that a session's directory shows something else.
// Requires t.mu.
func (t *tree) touchRowLocked(r *record, id string) {
	if s := t.sessions[id]; s != nil {
		r.dirs = append(r.dirs, s.dir)
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// tick is now, or a nanosecond after a time that is not before now.
func tick(last, now time.Time) time.Time {
	if now.After(last) {
		return now
	}
	return last.Add(1)
}

func listIndex(archived bool) int {
	if archived {
		return 1
	}
	return 0
}

func (t *tree) listOf(archived bool) *vnode.List {
	if archived {
		return t.archived
	}
	return t.active
}

// refreshRow asks the store what a listing shows of a session now.
func (t *tree) refreshRow(ctx context.Context, id string) {
	t.rowMu.Lock()
	defer t.rowMu.Unlock()
	r, err := t.st.Row(context.WithoutCancel(ctx), id)
	switch {
	case err == nil:
		t.noteRow(id, r.Archived, t.rowTime(r), facetsOf(r))
	case errors.Is(err, store.NotFound):
		t.dropRow(id)
	default:
		t.log.Warn("read row", "session", id, "err", err)
	}
}

// session returns the object of a listed session, making it when the kernel
// has not seen it yet. Requires t.mu.
func (t *tree) sessionLocked(id string) *session {
	s, ok := t.sessions[id]
	if !ok {
		t.gen++
		s = newSession(t, id, t.rows[id].name, t.gen)
		t.sessions[id] = s
	}
	return s
}

// entriesOf lists sessions/ or archived/, by name.
func (t *tree) entriesOf(archived bool) []fuse.DirEntry {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := &t.lists[listIndex(archived)]
	if l.entries == nil {
		l.entries = make([]fuse.DirEntry, 0, len(t.rows))
		for id, r := range t.rows {
			if r.archived == archived {
				l.entries = append(l.entries, vnode.DirEntry(r.name, sessionIdent(id)))
			}
		}
		slices.SortFunc(l.entries, func(a, b fuse.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	}
	return l.entries
}

// find returns a session's directory.
func (t *tree) find(archived bool, name string) (vnode.Found, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.ids[name]
	if !ok || t.rows[id].archived != archived {
		return t.missedLocked(archived, name)
	}
	s := t.sessionLocked(id)
	t.noteUsed(s)
	return vnode.Found{Node: s.dir}, nil
}
