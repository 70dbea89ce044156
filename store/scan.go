package store

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/registry"
)

// listed is one session of the list.
type listed struct {
	place layout.Place
	row   *jsonedit.Object
	kept  bool // of keptRows: as it was when the store was opened
	// lagged: meta.json had other values than the registry.
	lagged bool
	// seen is the state of meta.json that row shows, zero when a later one
	// could have the same stamp, or there is none.
	seen    stamp
	updated float64 // updated_at, when the list is sorted by it
}

// keptRows are the rows that a start has made, for the first that asks for the
// list: those that nothing has changed since need not be made again.
type keptRows struct {
	version registry.Version
	rows    map[string]listed // by directory
	taken   chan struct{}     // closed when they are kept no longer
}

// discover finds the places of all sessions.
func (s *Store) discover() ([]layout.Place, error) {
	places, err := s.layout.Discover()
	if err != nil {
		return nil, &Error{Code: Corrupt, Op: "list sessions", Err: err}
	}
	return places, nil
}

// scan lists what is on disk, in the registry's order and then in that of
// discovery, archived sessions included.
func (l *listing) scan(ctx context.Context) ([]listed, error) {
	places, err := l.s.discover()
	if err != nil {
		return nil, err
	}
	return l.scanPlaces(ctx, places)
}

// scanPlaces is scan with the places that have just been discovered.
func (l *listing) scanPlaces(ctx context.Context, places []layout.Place) ([]listed, error) {
	rows, err := l.readMetas(ctx, places)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]int, len(places))
	metas := make(map[string]metaRow, len(places))
	for i, p := range places {
		if !p.Deleted {
			byID[p.ID], metas[p.Dir] = i, rows[i]
		}
	}
	l.adopt(places, byID, metas)
	l.mu.Lock()
	l.metas = metas
	view, kept := l.reg.View(), l.kept
	l.scanned = view.Version()
	l.dropKeptLocked()
	l.mu.Unlock()
	if kept != nil && kept.version != view.Version() {
		kept = nil
	}
	out := make([]listed, 0, len(byID))
	for id := range view.IDs() {
		if i, ok := byID[id]; ok {
			out = append(out, listed{place: places[i]})
		}
	}
	layout.SideBySide(len(out), func(i int) {
		p := out[i].place
		out[i].fill(view, kept, rows[byID[p.ID]])
	})
	return slices.DeleteFunc(out, func(r listed) bool { return r.row == nil }), nil
}

// fill makes a session's row; it stays nil when the registry has none.
func (r *listed) fill(view registry.View, kept *keptRows, m metaRow) {
	if m.settled {
		r.seen = m.stamp
	}
	if kept != nil {
		if old := kept.rows[r.place.Dir]; old.place == r.place && old.seen == r.seen && r.seen != (stamp{}) {
			*r = old
			r.kept = true
			return
		}
	}
	row, ok := view.Row(r.place.ID)
	if !ok {
		return
	}
	r.lagged = overlay(row, m, r.place)
	r.row = row
}

// keepLocked holds the rows of the last scan for the first that asks for the
// list. They are as old as the scan: what start has put right since made another
// version.
//
// Requires l.mu.
func (l *listing) keepLocked(rows []listed) {
	if l.s.watch == nil {
		return // who opened the store to change it mostly asks for no list
	}
	l.kept = &keptRows{version: l.scanned, rows: make(map[string]listed, len(rows)), taken: make(chan struct{})}
	for _, r := range rows {
		l.kept.rows[r.place.Dir] = r
	}
}

// dropKeptLocked ends the keeping. Requires l.mu.
func (l *listing) dropKeptLocked() {
	if l.kept != nil {
		close(l.kept.taken)
		l.kept = nil
	}
}

// firstList returns a channel that is closed with the first list.
func (l *listing) firstList() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == nil {
		return nil
	}
	return l.kept.taken
}

// metaFiles reads meta.json files, one at a time; those of sessions right below
// the root by the root's descriptor, so that no path is walked.
type metaFiles struct {
	s   *Store
	dir disk.Dir // the root, nil when it cannot be opened
	buf []byte
}

// name is the name of a session's meta.json in the root.
func (f *metaFiles) name(p layout.Place) (string, bool) {
	if f.dir == nil || filepath.Dir(p.Dir) != f.s.root {
		return "", false
	}
	return filepath.Base(p.Dir) + "/" + metaFile, true
}

// lstat is lstat of a session's meta.json.
func (f *metaFiles) lstat(p layout.Place) (disk.Stat, error) {
	if name, ok := f.name(p); ok {
		return f.dir.Lstat(name)
	}
	fi, err := f.s.fs.Lstat(filepath.Join(p.Dir, metaFile))
	if err != nil {
		return disk.Stat{}, err
	}
	return disk.StatOf(fi), nil
}

// read reads a session's meta.json, which was a regular file just now. What it
// returns is valid until the next read.
func (f *metaFiles) read(p layout.Place) meta {
	name, ok := f.name(p)
	if !ok {
		return f.s.readMeta(p)
	}
	raw, err := f.dir.ReadInto(name, f.buf)
	switch {
	case err == nil:
		f.buf = raw[:0]
		return parseMeta(raw, nil)
	case errors.Is(err, fs.ErrNotExist):
		return parseMeta(nil, nil)
	}
	return parseMeta(nil, err)
}

// readMetas reads what a listing needs of all sessions' meta.json, side by
// side.
func (l *listing) readMetas(ctx context.Context, places []layout.Place) ([]metaRow, error) {
	dir, err := l.s.fs.OpenDir(l.s.root)
	if err == nil {
		defer dir.Close()
	} else {
		dir = nil
	}
	rows := make([]metaRow, len(places))
	l.mu.Lock()
	for i, p := range places {
		rows[i] = l.metas[p.Dir]
	}
	l.mu.Unlock()
	files := func(bool) (*metaFiles, func(), bool) { return &metaFiles{s: l.s, dir: dir}, func() {}, true }
	layout.SideBySideWith(len(places), files, func(f *metaFiles, i int) {
		if ctx.Err() == nil {
			rows[i] = l.metaBy(f, places[i], rows[i])
		}
	})
	return rows, ctx.Err()
}

// meta reads what a listing needs of a session's meta.json, unless it is
// known already.
func (l *listing) meta(p layout.Place) metaRow {
	l.mu.Lock()
	old := l.metas[p.Dir]
	l.mu.Unlock()
	return l.metaBy(&metaFiles{s: l.s}, p, old)
}

func (l *listing) metaBy(f *metaFiles, p layout.Place, old metaRow) metaRow {
	if p.Symlink || p.Unreachable {
		return metaRow{}
	}
	began := time.Now()
	fi, err := f.lstat(p)
	if err != nil || !fi.Mode.IsRegular() {
		return metaRow{}
	}
	st := stampOfStat(fi)
	if old.settled && old.stamp == st {
		return old
	}
	m := f.read(p)
	row := metaRow{stamp: st, settled: st.settled(began), mtime: epoch(st.time())}
	l.read.Add(1)
	if failedRead(m.err) {
		row.stamp, row.settled = stamp{}, false // it may be read the next time
	}
	if m.err != nil || m.missing {
		return row
	}
	if id := m.obj.Str("id"); id != "" && id != p.ID {
		return row
	}
	row.trusted = true
	row.fields = listedFields(m.obj)
	return row
}

// listedFields copies the registry's fields out of a meta.json.
func listedFields(o *jsonedit.Object) []KV {
	fields, size := make([]KV, 0, len(registry.Fields)), 0
	for _, k := range registry.Fields {
		raw, ok := o.Get(k)
		if k == "created_at" && !jsonedit.Truthy(raw) {
			continue // meta.json does not know it (reference 8.2)
		}
		if ok && k != "id" && k != "preview" {
			fields, size = append(fields, KV{k, raw}), size+len(raw)
		}
	}
	fields = slices.Clip(slices.Clone(fields))
	text := make([]byte, 0, size) // one allocation for all
	for i, f := range fields {
		text = append(text, f.Raw...)
		fields[i].Raw = text[len(text)-len(f.Raw) : len(text) : len(text)]
	}
	return fields
}

// overlay puts meta.json's values over a row, which is a copy of the caller's.
// Mostly they are there already: an edit copies the whole row. It reports
// whether any was not. A session that cannot be changed keeps a dead run's
// status in meta.json; then the row alone says how it ended. A session goes by
// its directory's name, whatever a row says.
func overlay(row *jsonedit.Object, m metaRow, p layout.Place) (lagged bool) {
	if row.Str("id") != p.ID {
		row.Set("id", jsonedit.EncodeString(p.ID))
		lagged = true
	}
	for _, f := range m.fields {
		if raw, ok := row.Get(f.Key); ok && bytes.Equal(raw, f.Raw) {
			continue
		}
		if status, _ := jsonedit.String(f.Raw); f.Key == "status" && !p.Openable && ended(status) != "" && ended(status) == row.Str("status") {
			continue
		}
		row.Set(f.Key, f.Raw)
		lagged = true
	}
	return lagged
}

// adopt gives a row to every session on disk that the registry lacks.
func (l *listing) adopt(places []layout.Place, byID map[string]int, metas map[string]metaRow) {
	var strangers []layout.Place
	l.mu.Lock()
	for i, p := range places {
		if p.Deleted || byID[p.ID] != i || p.Unreachable {
			continue
		}
		if !l.reg.Has(p.ID) {
			strangers = append(strangers, p)
		}
	}
	l.mu.Unlock()
	for i, p := range strangers {
		row := l.newRow(p, metas[p.Dir])
		l.mu.Lock()
		if l.reg.Adopt(p.ID, row) {
			l.flushSoonLocked()
		}
		l.mu.Unlock()
		if l.s.opt.Progress != nil {
			l.s.opt.Progress(i+1, len(strangers))
		}
	}
}
