package fsnode

import (
	"context"
	"slices"
	"sync"

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
	all  bool
	dirs []*vnode.List
}

type heldKey struct{}

// holding notes that the request holds directories.
func holding(ctx context.Context, dirs ...*vnode.List) context.Context {
	return context.WithValue(ctx, heldKey{}, &held{dirs: dirs})
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
	if h.all || slices.Contains(h.dirs, dir) {
		return false
	}
	for up := dir.Up; up != nil; up = up.Up {
		if slices.Contains(h.dirs, up) {
			return true
		}
	}
	return false
}

// changer is a node whose content may have changed.
type changer interface{ Changed() }

// attrChanger is a node of which only attributes may have changed.
type attrChanger interface{ AttrChanged() }

// goneName is a name that is not in a directory any more.
type goneName struct {
	dir  *vnode.List
	name string
}

// record is what one change made wrong in the kernel's caches.
type record struct {
	listings []*vnode.List // what they list changed
	changed  []changer
	attrs    []attrChanger
	gone     []goneName
	// late, when not nil, is asked when the record is sent: what needs more
	// than memory to be found out.
	late func() []changer
	// known, when not nil, is asked when the record is sent for listings of
	// which only the kernel's own knowledge tells that they were handed out.
	known func() []*vnode.List
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

// send notifies the kernel of records, in the order that coherence needs:
// names and barriers first, then directories and fixed files, then the rest.
func (t *tree) send(h *held, recs []*record) {
	var dirs []*vnode.List
	var after []goneName
	for _, r := range recs {
		for _, g := range r.gone {
			if h.mayWait(g.dir) {
				g.dir.NameChanged(g.name)
			} else {
				after = append(after, g)
			}
		}
		listings := r.listings
		if r.known != nil {
			listings = slices.Concat(listings, r.known())
		}
		for _, d := range listings {
			if !slices.Contains(dirs, d) {
				dirs = append(dirs, d)
			}
		}
	}
	for _, d := range dirs {
		if h.mayWait(d) {
			d.NameChanged(barrier)
		} else {
			after = append(after, goneName{d, barrier})
		}
	}
	for _, d := range dirs {
		d.Changed()
	}
	t.meter.notified.Add("listing", uint64(len(dirs)))
	sent := map[changer]bool{}
	for _, r := range recs {
		changed := r.changed
		if r.late != nil {
			changed = append(slices.Clone(changed), r.late()...)
		}
		for _, n := range changed {
			if !sent[n] {
				sent[n] = true
				n.Changed()
			}
		}
		for _, n := range r.attrs {
			n.AttrChanged()
		}
		t.meter.notified.Add("attributes", uint64(len(r.attrs)))
		t.meter.notified.Add("name", uint64(len(r.gone)))
	}
	t.meter.notified.Add("content", uint64(len(sent)))
	t.later.add(after)
}

// later sends, after the reply, the name notifications that had to wait for
// it. One goroutine does, until close.
type later struct {
	mu     sync.Mutex // leaf
	queue  []goneName
	wake   chan struct{}
	closed bool
	done   chan struct{}
}

func newLater() *later {
	l := &later{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go l.run()
	return l
}

func (l *later) add(names []goneName) {
	if len(names) == 0 {
		return
	}
	l.mu.Lock()
	for _, n := range names {
		if !slices.Contains(l.queue, n) {
			l.queue = append(l.queue, n)
		}
	}
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
		names, closed := l.queue, l.closed
		l.queue = nil
		l.mu.Unlock()
		if closed {
			return
		}
		for _, n := range names {
			n.dir.NameChanged(n.name)
			n.dir.Changed()
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
