package fsnode

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// The kernel is notified of a change after the state in memory has changed
// and before the system call that made the change returns:
//
//  1. Swapped, under the session's lock: the new view takes the old one's
//     place, and what the kernel has been handed out and is now wrong goes
//     into a record on the session's pending list.
//  2. Published, on the request's goroutine, with no lock held: all pending
//     records are copied, notified and dropped. Whoever comes first sends what
//     is pending, so no mover returns before the caches are right, and none
//     waits for another.
//
// A content notification takes no directory lock in the kernel and may be
// sent from any request. A name notification waits for everything that holds
// the directory: it is sent only where the request holds no directory, or a
// proper ancestor of this one. The others are sent after the reply.

// held is what the kernel has locked for the request that is being answered.
type held struct {
	all  bool          // perhaps any directory, but none for sure
	dirs []*vnode.List // these
	more []*vnode.List // perhaps these, too
}

type heldKey struct{}

// holding notes that the request holds directories.
func holding(ctx context.Context, dirs ...*vnode.List) context.Context {
	return context.WithValue(ctx, heldKey{}, &held{dirs: dirs})
}

// holdingMore notes that the request holds directories, and perhaps some more.
func holdingMore(ctx context.Context, dirs, more []*vnode.List) context.Context {
	return context.WithValue(ctx, heldKey{}, &held{dirs: dirs, more: more})
}

// holdingAny notes that the request may hold any directory: a lookup, a
// listing, a question about attributes. Such a request is answered, also when
// its process gets a signal.
func holdingAny(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), heldKey{}, &held{all: true})
}

func heldBy(ctx context.Context) *held {
	h, _ := ctx.Value(heldKey{}).(*held)
	return h
}

// mayWait reports whether a request that holds h may wait for whoever holds
// dir. Downwards is safe, since the kernel locks ancestors first; upwards and
// sideways are not.
func (h *held) mayWait(dir *vnode.List) bool {
	if h == nil {
		return true
	}
	if h.all || slices.Contains(h.dirs, dir) || slices.Contains(h.more, dir) {
		return false
	}
	for up := dir.Up; up != nil; up = up.Up {
		if slices.Contains(h.dirs, up) {
			return true
		}
	}
	return false
}

// alone reports whether the request holds dir for itself: nobody else is being
// told of what is in it.
func (h *held) alone(dir *vnode.List) bool {
	return h != nil && slices.Contains(h.dirs, dir)
}

// within reports whether the request holds dir or a directory below it: then
// the kernel knows dir.
func (h *held) within(dir *vnode.List) bool {
	if h == nil {
		return false
	}
	for _, d := range h.dirs {
		for ; d != nil; d = d.Up {
			if d == dir {
				return true
			}
		}
	}
	return false
}

// changer is a node whose content may have changed.
type changer interface{ Changed() }

// attrChanger is a node of which only attributes may have changed.
type attrChanger interface{ AttrChanged() }

// goneName is a name that is not in a directory any more, or not what it was.
type goneName struct {
	dir  *vnode.List
	name string
}

// record is what one change made wrong in the kernel's caches.
type record struct {
	listings []*vnode.List // what they list changed
	parents  []*vnode.List // attributes changed of what is in them
	dirs     []*vnode.List // what a row tells of these sessions' directories changed
	changed  []changer
	attrs    []attrChanger
	gone     []goneName
	// late, when not nil, is asked when the record is sent: what needs more
	// than memory to be found out.
	late func() *record
	// known, when not nil, is asked when the record is sent, for listings of
	// which only the kernel's own knowledge tells that they were handed out.
	// Before it looks into a directory it has the barrier sent to it.
	known func(barrier func(*vnode.List)) *record
}

// pending is a list of records that may not have been sent yet. Its methods
// require the lock that guards it.
type pending struct {
	next uint64
	recs map[uint64]*record
}

func (p *pending) add(r *record) {
	if p.recs == nil {
		p.recs = map[uint64]*record{}
	}
	p.next++
	p.recs[p.next] = r
}

// copy returns all records, and their keys for drop.
func (p *pending) copy() (recs []*record, keys []uint64) {
	for k, r := range p.recs {
		recs, keys = append(recs, r), append(keys, k)
	}
	return recs, keys
}

func (p *pending) drop(keys []uint64) {
	for _, k := range keys {
		delete(p.recs, k)
	}
}

// barrier is a name that no directory has. Its notification waits for every
// reading of the directory that began before the change.
const barrier = "\x01"

// Swapped takes a session's new state over. It is called with the session's
// lock held and touches only memory.
func (t *tree) Swapped(c store.Change) {
	t.mu.Lock()
	if c.New != nil {
		t.noteRowLocked(c.ID, c.New.Archived, c.New.Updated, t.rows[c.ID].after(c.Old, c.New))
	}
	s := t.sessions[c.ID]
	t.mu.Unlock()
	if s != nil && c.New != nil {
		if c.Old != nil {
			t.seen.state(c.ID, c.Old.MetaJSON())
		}
		s.swap(c.New)
	}
}

// Published makes the kernel forget what a change made wrong.
func (t *tree) Published(ctx context.Context, c store.Change) {
	if c.Files {
		t.filesChanged(ctx, c.ID)
		return
	}
	if c.New == nil && (c.Listing || c.Row) {
		t.refreshRow(ctx, c.ID)
	}
	if c.Listing || c.Row {
		t.touchIndex()
	}
	h := heldBy(ctx)
	t.mu.Lock()
	s := t.sessions[c.ID]
	if s != nil && c.Commit {
		s.noteCommit()
	}
	recs, keys := t.pend.copy()
	t.mu.Unlock()
	var own []uint64
	if s != nil {
		s.mu.Lock()
		r, k := s.pend.copy()
		s.mu.Unlock()
		recs, own = append(recs, r...), k
	}
	t.send(h, recs)
	t.mu.Lock()
	t.pend.drop(keys)
	t.mu.Unlock()
	if s != nil {
		s.mu.Lock()
		s.pend.drop(own)
		s.mu.Unlock()
	}
}

// sending is one notification of records.
type sending struct {
	t      *tree
	h      *held
	waited map[*vnode.List]bool // directories to which the barrier was sent
	after  []goneName           // for when the request has been answered
	epoch  bool                 // all names must be asked for again
}

// send notifies the kernel of records, in the order that coherence needs:
// names and barriers first, then directories and fixed files, then the rest.
// What came with a name may be kept by the kernel, so that the barrier of its
// directory is before every notification about an inode.
//
// Before the first request is answered the kernel holds nothing, and the mount
// cannot be notified yet: what changed is in the state that requests will see.
func (t *tree) send(h *held, recs []*record) {
	if !t.serving.Load() {
		return
	}
	s := &sending{t: t, h: h, waited: map[*vnode.List]bool{}}
	for _, r := range slices.Clone(recs) {
		if r.late != nil {
			recs = append(recs, r.late())
		}
	}
	for _, r := range slices.Clone(recs) {
		s.names(r)
		if r.known != nil {
			k := r.known(s.barrier)
			s.names(k)
			recs = append(recs, k)
		}
	}
	again := s.contents(recs)
	if s.epoch {
		t.env.Epoch()
		t.meter.notified.Add("all names", 1)
	}
	if len(s.after) > 0 {
		t.later.add(s.after, again)
	}
}

// names sends a record's names and barriers.
func (s *sending) names(r *record) {
	for _, g := range r.gone {
		switch {
		case s.h.mayWait(g.dir):
			g.dir.NameChanged(g.name)
		case s.t.env.Epoch != nil:
			s.epoch = true
		default:
			s.after = append(s.after, g)
		}
	}
	s.t.meter.notified.Add("name", uint64(len(r.gone)))
	for _, d := range r.listings {
		s.barrier(d)
	}
	for _, d := range r.parents {
		s.barrier(d)
	}
	for _, d := range r.dirs {
		if !s.h.within(d) {
			s.barrier(s.t.active)
			s.barrier(s.t.archived)
		}
	}
}

// barrier waits for everybody who is being told of what is in a directory, or
// has that done after the reply.
func (s *sending) barrier(d *vnode.List) {
	if s.waited[d] {
		return
	}
	s.waited[d] = true
	switch {
	case s.h.mayWait(d):
		d.NameChanged(barrier)
	case !s.h.alone(d):
		s.after = append(s.after, goneName{d, barrier})
	}
}

// contents sends what the records say of inodes, each once. It returns what of
// it must be sent again after a barrier that could not be waited for.
func (s *sending) contents(recs []*record) (again []changer) {
	sent := map[changer]bool{}
	send := func(n changer, kind string) {
		if !sent[n] {
			sent[n] = true
			n.Changed()
			s.t.meter.notified.Add(kind, 1)
			again = append(again, n)
		}
	}
	for _, r := range recs {
		for _, d := range r.listings {
			send(d, "listing")
		}
	}
	for _, r := range recs {
		for _, d := range r.dirs {
			send(d, "content")
		}
		for _, n := range r.changed {
			send(n, "content")
		}
		for _, n := range r.attrs {
			n.AttrChanged()
		}
		s.t.meter.notified.Add("attributes", uint64(len(r.attrs)))
	}
	return again
}

// later sends, after the reply, what had to wait for it. One goroutine does,
// until close.
type later struct {
	mu     sync.Mutex // leaf
	names  []goneName
	again  []changer
	voided map[changer]bool // pages to be dropped, by the timer
	wake   chan struct{}
	closed bool
	done   chan struct{}
}

func newLater() *later {
	l := &later{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go l.run()
	return l
}

// add queues names, and what is to be sent again after them.
func (l *later) add(names []goneName, again []changer) {
	if len(names) == 0 {
		return
	}
	l.mu.Lock()
	for _, n := range names {
		if !slices.Contains(l.names, n) {
			l.names = append(l.names, n)
		}
	}
	for _, n := range again {
		if !slices.Contains(l.again, n) {
			l.again = append(l.again, n)
		}
	}
	l.mu.Unlock()
	l.signal()
}

// voidPause gathers the reads of one file.
const voidPause = 5 * time.Millisecond

// void queues a file whose pages the kernel shall not keep, as nothing tells
// when they change.
func (l *later) void(n changer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.voided == nil {
		l.voided = map[changer]bool{}
		time.AfterFunc(voidPause, l.takeVoided)
	}
	l.voided[n] = true
}

func (l *later) takeVoided() {
	l.mu.Lock()
	for n := range l.voided {
		l.again = append(l.again, n)
	}
	l.voided = nil
	l.mu.Unlock()
	l.signal()
}

func (l *later) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *later) run() {
	defer close(l.done)
	for range l.wake {
		l.mu.Lock()
		names, again, closed := l.names, l.again, l.closed
		l.names, l.again = nil, nil
		l.mu.Unlock()
		if closed {
			return
		}
		for _, n := range names {
			n.dir.NameChanged(n.name)
		}
		for _, n := range again {
			n.Changed()
		}
	}
}

// close ends the goroutine. The connection to the kernel must be gone, so
// that it does not wait for anybody.
func (l *later) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.signal()
	<-l.done
}
