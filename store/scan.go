package store

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"sync"
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
	// lagged: meta.json had other values than the registry.
	lagged bool
	// seen is the state of meta.json that row shows, zero when a later one
	// could have the same stamp, or there is none.
	seen    stamp
	updated float64 // updated_at, when the list is sorted by it
}

// keptRows are the rows that a start has made, for the first that asks for the
// list as it was then (ListQuery.AsOpened).
type keptRows struct {
	version registry.Version
	turn    uint64 // of shown
	rows    []listed
	taken   chan struct{} // closed when they are kept no longer
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
	metas, err := l.readMetas(ctx, places)
	if err != nil {
		return nil, err
	}
	var noted sync.WaitGroup
	noted.Go(func() { l.noteMetas(places, metas) })
	rows, version := l.join(places, metas)
	noted.Wait()
	l.mu.Lock()
	l.scanned = version
	l.mu.Unlock()
	return rows, nil
}

// join makes the rows of what was found, in the registry's order.
func (l *listing) join(places []layout.Place, metas []metaRow) ([]listed, registry.Version) {
	view := l.reg.View()
	order, at, strangers := arrange(view, places)
	if len(strangers) > 0 {
		l.adopt(places, metas, strangers)
		view = l.reg.View()
		order, at, _ = arrange(view, places)
	}
	in := make([]int32, order.Len()) // the rows' order: the place of each, from 1
	for i, to := range at {
		if to >= 0 {
			in[to] = int32(i + 1)
		}
	}
	found := slices.DeleteFunc(in, func(i int32) bool { return i == 0 })
	out := make([]listed, len(found))
	layout.SideBySide(len(out), func(n int) {
		i := found[n] - 1
		out[n].place = places[i]
		out[n].fill(view, metas[i])
	})
	return slices.DeleteFunc(out, func(r listed) bool { return r.row == nil }), view.Version()
}

// arrange tells where in the registry's order each place's row stands, -1 for
// one that is not listed. Strangers are the places without a row.
func arrange(view registry.View, places []layout.Place) (order registry.Order, at []int32, strangers []int) {
	order, at = view.Order(), make([]int32, len(places))
	const stranger = -2
	layout.SideBySide(len(places), func(i int) {
		at[i] = -1
		if places[i].Deleted {
			return
		}
		if to, ok := order.At(places[i].ID); ok {
			at[i] = int32(to)
		} else if !places[i].Unreachable {
			at[i] = stranger
		}
	})
	for i, to := range at {
		if to == stranger {
			at[i], strangers = -1, append(strangers, i)
		}
	}
	return order, at, strangers
}

// fill makes a session's row; it stays nil when the registry has none.
func (r *listed) fill(view registry.View, m metaRow) {
	if m.settled {
		r.seen = m.stamp
	}
	row, ok := view.Peek(r.place.ID)
	if !ok {
		return
	}
	r.lagged = overlay(row, m, r.place)
	r.row = row
}

// noteMetas remembers what was read of the meta.json files, and forgets those of
// other places.
func (l *listing) noteMetas(places []layout.Place, rows []metaRow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.metas
	if len(known) != len(places) {
		known = make(map[string]metaRow, len(places))
	}
	for i, p := range places {
		if old, ok := known[p.Dir]; !ok || !old.settled || old.stamp != rows[i].stamp {
			known[p.Dir] = rows[i]
		}
	}
	if len(known) != len(places) { // some went, and as many came
		known = make(map[string]metaRow, len(places))
		for i, p := range places {
			known[p.Dir] = rows[i]
		}
	}
	l.metas = known
}

// keepLocked holds the rows of the last scan for the first that asks for the
// list as it was. They are as old as the scan: what start has put right since
// made another version.
//
// Requires l.mu.
func (l *listing) keepLocked(rows []listed) {
	if l.s.watch == nil {
		return // what changes is told to nobody
	}
	l.kept = &keptRows{version: l.scanned, turn: l.shown.turn, rows: rows, taken: make(chan struct{})}
}

// opened returns the rows that a start has made; false when they are kept no
// longer, or something was changed since or told to the observers.
func (l *listing) opened() ([]listed, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kept
	if k == nil || k.turn != l.shown.turn || k.version != l.reg.View().Version() {
		return nil, false
	}
	return slices.Clone(k.rows), true
}

// dropKept ends the keeping.
func (l *listing) dropKept() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropKeptLocked()
}

// dropKeptLocked is dropKept. Requires l.mu.
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
func (f *metaFiles) read(p layout.Place) ([]byte, error) {
	name, ok := f.name(p)
	if !ok {
		return f.s.readOwn(filepath.Join(p.Dir, metaFile))
	}
	raw, err := f.dir.ReadInto(name, f.buf)
	if err == nil {
		f.buf = raw[:0]
	}
	return raw, err
}

// readStat reads a session's meta.json with its stamp; not ok where that takes a
// closer look.
func (f *metaFiles) readStat(p layout.Place) (raw []byte, st stamp, ok bool) {
	name, ok := f.name(p)
	if !ok {
		return nil, stamp{}, false
	}
	raw, fi, err := f.dir.ReadStat(name, f.buf)
	if err != nil {
		return nil, stamp{}, false
	}
	f.buf = raw[:0]
	return raw, stampOfStat(fi), true
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
	if !old.settled {
		// Nothing is known of it, so that it has to be read anyhow.
		if raw, st, ok := f.readStat(p); ok {
			l.read.Add(1)
			return newMetaRow(p, st, began, raw)
		}
	}
	fi, err := f.lstat(p)
	if err != nil || !fi.Mode.IsRegular() {
		return metaRow{}
	}
	st := stampOfStat(fi)
	if old.settled && old.stamp == st {
		return old
	}
	raw, err := f.read(p)
	l.read.Add(1)
	if failedRead(err) {
		return metaRow{mtime: epoch(st.time())} // it may be read the next time
	}
	if err != nil {
		return metaRow{stamp: st, settled: st.settled(began), mtime: epoch(st.time())}
	}
	return newMetaRow(p, st, began, raw)
}

// newMetaRow takes what a listing needs out of a meta.json, which was looked at
// and then read since began.
func newMetaRow(p layout.Place, st stamp, began time.Time, raw []byte) metaRow {
	row := metaRow{stamp: st, settled: st.settled(began), mtime: epoch(st.time())}
	fields, id, err := listedFields(raw)
	if err != nil || id != "" && id != p.ID {
		return row
	}
	row.trusted, row.fields = true, fields
	return row
}

// listedFields copies the registry's fields out of a meta.json, and the session's
// id there; the error is that of one that is no object.
func listedFields(text []byte) (fields []KV, id string, err error) {
	found := make([][]byte, len(registry.Fields)) // of two with one name the last
	err = jsonedit.WalkBytes(text, func(key, raw []byte) error {
		if i := slices.IndexFunc(registry.Fields, func(k string) bool { return k == string(key) }); i >= 0 {
			found[i] = raw
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	count, size := 0, 0
	for i, raw := range found {
		switch k := registry.Fields[i]; {
		case k == "id":
			id, _ = jsonedit.String(raw)
			found[i] = nil
		case k == "preview", k == "created_at" && !jsonedit.Truthy(raw):
			found[i] = nil // meta.json does not know it (reference 8.2)
		case raw != nil:
			count, size = count+1, size+len(raw)
		}
	}
	fields = make([]KV, 0, count)
	copies := make([]byte, 0, size) // one allocation for all
	for i, raw := range found {
		if raw != nil {
			copies = append(copies, raw...)
			fields = append(fields, KV{registry.Fields[i], copies[len(copies)-len(raw) : len(copies) : len(copies)]})
		}
	}
	return fields, id, nil
}

// absentField is what it means when a meta.json lacks a field, nil for nothing
// (reference 2.3). It reports false for the fields that are set when a session is
// made and never taken out: a row that has them may know more.
func absentField(key string) (means []byte, known bool) {
	switch key {
	case "status":
		return []byte(`"idle"`), true
	case "pinned", "archived", "unread":
		return []byte("false"), true
	case "title", "group":
		return nil, true
	}
	return nil, false
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
	for key, raw := range m.cleared(row, p) {
		if raw == nil {
			row.Delete(key)
		} else {
			row.Set(key, raw)
		}
		lagged = true
	}
	return lagged
}

// cleared returns the fields of a row that were taken out of meta.json, with what
// their absence means there. A run that only the row tells of is ended by who
// starts a store (reference 8.3), not by this.
func (m metaRow) cleared(row *jsonedit.Object, p layout.Place) map[string][]byte {
	if !m.trusted {
		return nil
	}
	var out map[string][]byte
	for key, raw := range row.All() {
		means, known := absentField(key)
		if !known || key == "status" && (!p.Openable || ended(row.Str(key)) != "") || bytes.Equal(raw, means) || !jsonedit.Truthy(raw) && !jsonedit.Truthy(means) {
			continue
		}
		if _, has := m.field(key); has {
			continue
		}
		if out == nil {
			out = map[string][]byte{}
		}
		out[key] = means
	}
	return out
}

// adopt gives a row to the sessions on disk that the registry lacks: those of
// places that strangers are the indices of.
func (l *listing) adopt(places []layout.Place, metas []metaRow, strangers []int) {
	for n, i := range strangers {
		row := l.newRow(places[i], metas[i])
		l.mu.Lock()
		if l.reg.Adopt(places[i].ID, row) {
			l.watchAdopted(places[i], row, time.Now())
			l.flushSoonLocked()
		}
		l.mu.Unlock()
		if l.s.opt.Progress != nil {
			l.s.opt.Progress(n+1, len(strangers))
		}
	}
}
