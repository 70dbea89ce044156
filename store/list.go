package store

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/nodefile"
	"github.com/sessionfs/sessionfs/store/registry"
)

// flushDelay is how long a change of the registry may wait to be written: the
// change itself is durable in meta.json by then (docs/store-format.md). The
// registry is written whole, so where one write takes long, the next waits
// flushRest times as long, and never longer than maxFlushDelay.
const (
	flushDelay    = time.Second
	flushRest     = 10
	maxFlushDelay = 5 * time.Second
)

// listing is the list of sessions: the registry (index.json) joined with what
// is on disk. What is on disk decides what is listed, and meta.json wins over
// a row; the row adds what only the registry knows, the preview and the order.
type listing struct {
	s *Store

	flushMu sync.Mutex // one flush at a time; taken before mu

	mu    sync.Mutex // leaf: guards what follows
	reg   *registry.Registry
	state registry.State
	metas map[string]metaRow // by directory; replaced, or added to by the watcher
	read  atomic.Int64       // meta.json files read since the cache was written
	// cached is the number of sessions that the cache holds.
	cached int
	shown  shown
	// scanned is what the rows of the last scan were made from.
	scanned registry.Version
	kept    *keptRows
	wrote   time.Duration // how long the last write of the registry took
	timer   *time.Timer
	// adopted are the sessions that got a row just now, see adopted.go.
	adopted    map[string]*adoption
	adoptTimer *time.Timer
	done       bool // closed: every change is written at once
}

// metaRow is what a listing needs of a meta.json, kept while the file stays
// the same.
type metaRow struct {
	stamp stamp
	// settled: a change since would show in the stamp.
	settled bool
	trusted bool
	fields  []KV // the registry's fields that it holds
	mtime   float64
}

func openListing(s *Store) (*listing, error) {
	l := &listing{s: s, metas: map[string]metaRow{}}
	var cached sync.WaitGroup
	cached.Go(l.loadCache)
	reg, state, err := registry.Open(s.fs, filepath.Join(s.root, "index.json"))
	cached.Wait()
	if err != nil && !s.opt.ReadOnly {
		return nil, registryUnreadable(err)
	}
	switch state {
	case registry.Unreadable: // what is on disk can be listed without it
		s.log.Warn("the registry cannot be read", "err", err)
	case registry.Loaded:
	case registry.Missing: // as in a new root
		s.log.Info("registry is rebuilt", "state", state.String())
	default:
		s.log.Warn("registry is rebuilt", "state", state.String())
	}
	l.reg, l.state = reg, state
	return l, nil
}

func registryField(key string) bool { return registry.IsField(key) }

// load brings the registry up to what is on disk: sessions that it lacks get
// a row, and rows that lag behind meta.json catch up. Read-only, the rows live
// in memory alone.
//
// Places are those of all sessions, as they have just been discovered.
func (l *listing) load(ctx context.Context, places []layout.Place) ([]listed, error) {
	rows, err := l.scanPlaces(ctx, places)
	l.s.opt.Progress = nil // of Open alone: nothing else runs yet
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown.begin(len(rows))
	for _, r := range rows {
		l.shown.set(r)
		l.catchUpLocked(r)
	}
	l.keepLocked(rows)
	return rows, nil
}

// catchUpLocked brings the registry's row up to meta.json, which wins: a crash
// may have come between the two (docs/store-format.md).
//
// Requires l.mu.
func (l *listing) catchUpLocked(r listed) {
	if !r.lagged || l.s.opt.ReadOnly {
		return
	}
	row, ok := l.reg.Row(r.place.ID)
	if !ok {
		return
	}
	if stale := differing(row, r.row); len(stale) > 0 {
		l.reg.Put(r.place.ID, stale)
		l.flushSoonLocked()
	}
}

// differing returns the fields in which a row is behind another one; nil is a
// field that it has too many.
func differing(old, cur *jsonedit.Object) map[string][]byte {
	stale := map[string][]byte{}
	for key, raw := range cur.All() {
		if was, had := old.Get(key); !had || !jsonedit.Equal(was, raw) {
			stale[key] = raw
		}
	}
	for key := range old.All() {
		if _, has := cur.Get(key); !has {
			stale[key] = nil
		}
	}
	return stale
}

// newRow makes a row from what is on disk (reference 8.2).
func (l *listing) newRow(p layout.Place, m metaRow) *jsonedit.Object {
	src := jsonedit.NewObject()
	for _, f := range m.fields {
		src.Set(f.Key, f.Raw)
	}
	row := registry.RowFromMeta(p.ID, src, m.mtime)
	if text, ok := l.latestUserText(p); ok && text != "" {
		row.Set("preview", jsonedit.AppendString(nil, render.Preview(text)))
	}
	return row
}

// latestUserText reads the newest user message of a session that need not be
// loaded (reference 5.10): the files from the end, until one is a user's.
func (l *listing) latestUserText(p layout.Place) (string, bool) {
	if !p.Openable {
		return "", false
	}
	d, err := l.s.fs.OpenDir(filepath.Join(p.Dir, historyDir))
	if err != nil {
		return "", false
	}
	defer d.Close()
	names, err := historyNames(d)
	if err != nil {
		return "", false
	}
	for _, name := range slices.Backward(names) {
		raw, err := d.ReadInto(name, nil)
		if err != nil {
			continue
		}
		parsed, err := nodefile.Parse(raw)
		if err != nil || parsed.Node.Role != "user" {
			continue
		}
		if _, _, id, _ := nodefile.ParseName(name); parsed.Node.ID == "" && (!parsed.IDMissing || id == "") {
			continue // no node: it has no id
		}
		node, err := jsonedit.ParseObject(raw)
		if err != nil {
			return "", false
		}
		return node.Str("output"), true
	}
	return "", false
}

// put changes fields of a session's row; a nil value removes one. It is
// called when meta.json holds the change already.
func (l *listing) put(id string, kv ...KV) {
	fields := make(map[string][]byte, len(kv))
	for _, f := range kv {
		if registryField(f.Key) {
			fields[f.Key] = f.Raw
		}
	}
	if len(fields) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reg.Put(id, fields)
	l.flushSoonLocked()
}

func (l *listing) setRow(id string, row *jsonedit.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reg.SetRow(id, row)
	l.flushSoonLocked()
}

func (l *listing) remove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reg.Delete(id)
	delete(l.shown.rows, id)
	l.flushSoonLocked()
}

// removeKnown is remove for a session that may have no row.
func (l *listing) removeKnown(id string) {
	l.mu.Lock()
	known := l.reg.Has(id)
	l.mu.Unlock()
	if known {
		l.remove(id)
	}
}

// dropDeleted takes out those of the rows that are of deleted sessions: who keeps
// the registry in memory may write one again. The observers are told by the scan.
func (l *listing) dropDeleted(ids []string) {
	for _, id := range ids {
		if l.s.opt.ReadOnly || !l.reg.Has(id) || !l.s.layout.Tombstone(id) {
			continue
		}
		l.mu.Lock()
		l.reg.Delete(id)
		l.flushSoonLocked()
		l.mu.Unlock()
	}
}

// forget drops what is cached of the meta.json files.
func (l *listing) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.metas = map[string]metaRow{}
	l.dropKeptLocked()
}

// flushSoonLocked starts the timer that writes the registry; a timer that
// runs already is not set back, so that a change waits a second at most.
//
// Requires l.mu.
func (l *listing) flushSoonLocked() {
	if l.s.opt.ReadOnly || l.timer != nil || l.done {
		return
	}
	l.timer = time.AfterFunc(flushAfter(l.wrote), func() {
		if err := l.flush(context.Background()); err != nil {
			l.s.log.Warn("write registry", "err", err)
		}
	})
}

// flushAfter is how long a change waits when the last write took so long.
func flushAfter(wrote time.Duration) time.Duration {
	return min(max(flushDelay, flushRest*wrote), maxFlushDelay)
}

// flush writes the registry when something in it changed.
func (l *listing) flush(ctx context.Context) error {
	if l.s.opt.ReadOnly {
		return nil
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	dirty := l.reg.Dirty()
	l.mu.Unlock()
	if !dirty {
		return nil
	}
	lock, err := filelock.Acquire(ctx, l.s.layout.RegistryLockPath("index"), l.s.lockTimeout)
	if err != nil {
		return l.s.lockError("write registry", "", err)
	}
	defer lock.Unlock()
	began := time.Now()
	err = l.reg.Flush(ctx, l.refreshPending) // without mu: nobody waits for the disk to see the list
	l.mu.Lock()
	l.wrote = time.Since(began)
	l.mu.Unlock()
	if err != nil {
		return &Error{Code: diskCode(err), Op: "write registry", Ref: "index.json", Err: err}
	}
	return nil
}

func (l *listing) close(ctx context.Context) error {
	l.renewAdopted() // what has come since
	l.mu.Lock()
	l.done = true
	if l.adoptTimer != nil {
		l.adoptTimer.Stop()
	}
	l.mu.Unlock()
	return l.flush(ctx)
}
