package registry

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
	"github.com/sessionfs/sessionfs/store/internal/stamp"
)

// Registry is index.json in memory. It is safe for concurrent use.
type Registry struct {
	fs   disk.FS
	path string

	// ioMu makes Flush and Reload follow each other. It is taken before mu
	// and held across I/O, which mu never is.
	ioMu    sync.Mutex
	stamp   stamp.Stamp     // of base's file; guarded by ioMu
	foreign map[string]bool // changed by others, not yet reported; guarded by ioMu

	unsynced bool // a write failed: the file may be new, but not durable; guarded by ioMu

	mu      sync.Mutex
	base    *file              // the file as last read or written
	pending map[string]*change // by id, not yet in the file
	seq     int                // of the last new row
	gen     int                // counts the changes
}

// change is what is to become of one row. It is immutable: another Put of the
// row makes another change, so that Flush can tell what it has written from
// what came since.
type change struct {
	// row is the row as it is now, nil when deleted.
	row *jsonedit.Object
	// seq orders the rows that are new to the file.
	seq int
	// whole: the row is to be as it is here, whatever others wrote. Else only
	// fields are.
	whole  bool
	fields map[string][]byte
}

// Open reads the registry at path. Whatever the file holds is no error: see
// State. The error is that of a file which cannot be read, or is no regular file
// (a symlink is not followed); the Registry then has no rows, as if there were
// no file, and Flush fails until it can be read.
func Open(f disk.FS, path string) (*Registry, State, error) {
	r := &Registry{fs: f, path: path, foreign: map[string]bool{}, pending: map[string]*change{}}
	r.base = emptyFile()
	now, err := stamp.Take(f, path, time.Now())
	if err != nil {
		return r, Unreadable, fmt.Errorf("registry: %w", err)
	}
	text, err := safefile.ReadRegular(f, path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, Missing, nil
	}
	if err != nil {
		return r, Unreadable, fmt.Errorf("registry: %w", err)
	}
	var state State
	if r.base, state = parse(text); state == Loaded {
		r.stamp = now
	}
	return r, state, nil
}

// Row returns a copy of a session's row.
func (r *Registry) Row(id string) (*jsonedit.Object, bool) {
	r.mu.Lock()
	c, base := r.pending[id], r.base
	r.mu.Unlock()
	return rowOf(base, c, id)
}

// Has reports whether a session has a row. What is no object is none.
func (r *Registry) Has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.pending[id]; c != nil {
		return c.row != nil
	}
	raw, ok := r.base.row(id)
	return ok && raw[0] == '{'
}

// rowOf returns a row with a change applied; c may be nil.
func rowOf(base *file, c *change, id string) (*jsonedit.Object, bool) {
	if c != nil {
		if c.row == nil {
			return nil, false
		}
		return c.row.Clone(), true
	}
	raw, ok := base.row(id)
	if !ok {
		return nil, false
	}
	// A copy, so that a row kept by the caller does not keep all of the text.
	row, err := jsonedit.ParseObject(bytes.Clone(raw))
	return row, err == nil // what is no object is no row
}

// View is the registry as it was at one moment. It is safe for concurrent use.
type View struct {
	base    *file
	pending map[string]*change
	gen     int
}

// Version tells one content of a registry from another: two views with equal
// versions have the same rows. Versions are compared with ==.
type Version struct {
	base *file
	gen  int
}

// View returns the registry as it is now.
func (r *Registry) View() View {
	r.mu.Lock()
	defer r.mu.Unlock()
	return View{base: r.base, pending: maps.Clone(r.pending), gen: r.gen}
}

// Version returns the version of what the view shows.
func (v View) Version() Version { return Version{base: v.base, gen: v.gen} }

// Row returns a copy of a session's row.
func (v View) Row(id string) (*jsonedit.Object, bool) { return rowOf(v.base, v.pending[id], id) }

// IDs yields the ids of all rows in file order, new ones last. Of some it may
// turn out that their row is no object; then Row has none.
func (v View) IDs() iter.Seq[string] {
	return func(yield func(string) bool) {
		one := func(id string) bool {
			c := v.pending[id]
			return c != nil && c.row == nil || yield(id)
		}
		if !v.base.ids(one) {
			return
		}
		for _, id := range newRows(v.base, v.pending) {
			if !one(id) {
				return
			}
		}
	}
}

// Rows yields copies of all rows in file order, new ones last. It is a view of
// the moment it starts.
func (r *Registry) Rows() iter.Seq2[string, *jsonedit.Object] {
	return func(yield func(string, *jsonedit.Object) bool) {
		v := r.View()
		for id := range v.IDs() {
			if row, ok := v.Row(id); ok && !yield(id, row) {
				return
			}
		}
	}
}

func (r *Registry) snapshot() (*file, map[string]*change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.base, maps.Clone(r.pending)
}

// newRows returns the ids of the changed rows that a text lacks, in the order
// in which they came.
func newRows(f *file, pending map[string]*change) []string {
	var ids []string
	for id, c := range pending {
		if _, there := f.last[id]; !there && c.row != nil {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(pending[a].seq, pending[b].seq) })
	return ids
}

// Len returns the number of rows.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.base.last)
	for id, c := range r.pending {
		_, had := r.base.last[id]
		if had && c.row == nil {
			n--
		}
		if !had && c.row != nil {
			n++
		}
	}
	return n
}

// Put sets fields of a session's row to raw JSON values, in memory; nil
// removes a field. A session without a row gets a fresh one, at the end. Keys
// that are not among Fields are ignored: a row never has them. Values that are
// in memory already are changes, too: another writer may have replaced them in
// the file since it was read.
func (r *Registry) Put(id string, fields map[string][]byte) {
	fields = usable(fields)
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.pending[id]
	row, had := rowOf(r.base, old, id)
	if !had {
		row = newRow(id)
	}
	if had && len(fields) == 0 {
		return
	}
	next := &change{row: apply(row, fields), fields: fields}
	if old != nil {
		next.whole = old.whole
		next.fields = maps.Clone(old.fields)
		if next.fields == nil {
			next.fields = map[string][]byte{}
		}
		maps.Copy(next.fields, fields)
	}
	r.setLocked(id, next)
}

// SetRow makes a session's row as given, in memory, whatever it was.
func (r *Registry) SetRow(id string, row *jsonedit.Object) {
	row = relaid(row)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setLocked(id, &change{row: row, whole: true})
}

// Adopt gives a session that has no row one that was made from what is on
// disk, in memory. It yields to a row that another writer puts into the file
// before this one is there: whoever made the session knows more of it. A
// session that has a row keeps it; Adopt then reports false.
func (r *Registry) Adopt(id string, row *jsonedit.Object) bool {
	row = relaid(row)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, had := rowOf(r.base, r.pending[id], id); had {
		return false
	}
	r.setLocked(id, &change{row: row})
	return true
}

// Pending returns the rows that are not yet in the file, with the fields that
// are to replace what the file has: those that Put has changed, all of a row
// that SetRow made, none of one that was adopted. Deleted rows are left out.
func (r *Registry) Pending() map[string][]string {
	_, pending := r.snapshot()
	out := make(map[string][]string, len(pending))
	for id, c := range pending {
		switch {
		case c.row == nil:
		case c.whole:
			out[id] = slices.Clone(Fields)
		default:
			out[id] = slices.Sorted(maps.Keys(c.fields))
		}
	}
	return out
}

// Delete removes a session's row, in memory; Flush removes it from the file
// also when another writer has put it there meanwhile.
func (r *Registry) Delete(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setLocked(id, &change{whole: true})
}

// Revert drops what was to become of a session's row: it is again what the file
// has.
func (r *Registry) Revert(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, changed := r.pending[id]; changed {
		delete(r.pending, id)
		r.gen++
	}
}

// setLocked makes c the change of a row. Requires r.mu.
func (r *Registry) setLocked(id string, c *change) {
	r.gen++
	if old := r.pending[id]; old != nil && old.row != nil {
		c.seq = old.seq
	} else {
		r.seq++
		c.seq = r.seq
	}
	r.pending[id] = c
}

// Dirty reports whether there is something to Flush.
func (r *Registry) Dirty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending) > 0
}

// Bytes returns the text that the file would have now: as it was read or
// written last, with the changes since. The caller must not write to it.
func (r *Registry) Bytes() []byte {
	base, pending := r.snapshot()
	if len(pending) == 0 {
		return base.text
	}
	return merge(base, pending).text
}
