package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
	"github.com/sessionfs/sessionfs/store/internal/stamp"
)

// overtakings is how often a flush begins anew because another writer replaced
// the file meanwhile. Whoever writes all the time does not keep others from it.
const overtakings = 5

// errOvertaken ends a write whose base is no longer what the file holds.
var errOvertaken = errors.New("the file was replaced meanwhile")

// Flush writes the changes into the file, durably: it is read again, the
// changed rows and fields are put in, and all else is left byte for byte. The
// caller holds a lock that the other writers who take one take too. Nothing to
// write is no error and no I/O. On error the changes stay, and the next Flush
// tries again; the file may hold them nevertheless, when only the sync of its
// directory failed.
//
// The peer takes no lock: a file that it replaced while this one was being
// written is read again, so that its rows are not lost. Refresh, if not nil, is
// called after each reading of the file, and brings the changes up to date by
// Put and Delete: a row that the file holds by then is no newer than what
// refresh finds.
//
// A file that is gone or damaged by now is replaced by what is in memory.
func (r *Registry) Flush(ctx context.Context, refresh func()) error {
	r.ioMu.Lock()
	defer r.ioMu.Unlock()
	if !r.Dirty() {
		return nil
	}
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("registry: %w", err)
		}
		err := r.flushOnce(refresh, try < overtakings)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errOvertaken):
			return fmt.Errorf("registry: %w", err)
		}
	}
}

// flushOnce is one attempt of Flush. Careful, it ends with errOvertaken rather
// than replace what it has not read. Requires r.ioMu.
func (r *Registry) flushOnce(refresh func(), careful bool) error {
	base, _ := r.snapshot()
	now, err := r.look(base)
	if err != nil {
		return err
	}
	if refresh != nil {
		refresh()
	}
	_, pending := r.snapshot()
	merged := merge(now.file, pending)
	if r.unsynced || now.state != Loaded || !bytes.Equal(merged.text, now.file.text) {
		opt := disk.WriteOptions{}
		if careful {
			opt.Ready = func() error { return r.unchanged(now) }
		}
		r.unsynced = true
		if err := disk.WriteAtomic(r.fs, r.path, merged.text, opt); err != nil {
			return err
		}
		r.unsynced = false
	}
	r.noteForeign(base, now.file)
	if r.stamp, err = stamp.Take(r.fs, r.path, time.Now()); err != nil {
		r.stamp = stamp.Stamp{} // the next Reload looks for itself
	}
	r.install(merged, pending)
	return nil
}

// looked is what the file held when it was looked at.
type looked struct {
	stamp stamp.Stamp // taken before the reading
	text  []byte      // as it was read
	file  *file       // its rows; those in memory when nothing usable was read
	state State
}

// look reads the file; base is what it held the last time. Requires r.ioMu.
func (r *Registry) look(base *file) (looked, error) {
	now := looked{file: base, state: Missing}
	var err error
	if now.stamp, err = stamp.Take(r.fs, r.path, time.Now()); err != nil {
		return now, err
	}
	now.text, err = safefile.ReadRegular(r.fs, r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return now, nil
	}
	if err != nil {
		return now, err
	}
	if bytes.Equal(now.text, base.text) {
		now.state = Loaded
		return now, nil
	}
	parsed, state := parse(now.text)
	if now.state = state; state == Loaded {
		now.file = parsed
	}
	return now, nil
}

// unchanged reports, by errOvertaken, that the file no longer is what was seen.
func (r *Registry) unchanged(seen looked) error {
	now, err := stamp.Take(r.fs, r.path, time.Now())
	if err != nil || seen.stamp.Same(now) {
		return err
	}
	text, err := safefile.ReadRegular(r.fs, r.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if there := err == nil; there != (seen.state != Missing) || !bytes.Equal(text, seen.text) {
		return errOvertaken
	}
	return nil
}

// merge puts the pending changes into a text. Rows that another writer dropped
// while we changed them come back.
func merge(f *file, pending map[string]*change) *file {
	rows := make(map[string][]byte, len(pending))
	for id, c := range pending {
		rows[id] = nil
		if row := c.onto(f, id).row; row != nil {
			rows[id] = row.Bytes()
		}
	}
	return compose(f, rows, newRows(f, pending))
}

// onto returns the change with the row that it makes of f's.
func (c *change) onto(f *file, id string) *change {
	if c.row == nil || c.whole {
		return c
	}
	theirs, ok := rowOf(f, nil, id)
	if !ok {
		return c // dropped by them, or no row at all: ours as it is
	}
	return &change{row: apply(theirs, c.fields), seq: c.seq, fields: c.fields}
}

// install makes next the base, drops the changes that it holds, and puts those
// that came since on top of it.
func (r *Registry) install(next *file, written map[string]*change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.base = next
	for id, c := range r.pending {
		if written[id] == c {
			delete(r.pending, id)
			continue
		}
		if _, there := rowOf(next, nil, id); there && c.row != nil && !c.whole && len(c.fields) == 0 {
			delete(r.pending, id) // adopted, and there by now
			continue
		}
		r.pending[id] = c.onto(next, id)
	}
}

// noteForeign remembers what others changed between two texts. Requires
// r.ioMu.
func (r *Registry) noteForeign(old, next *file) {
	if old == next {
		return
	}
	for _, id := range diff(old, next) {
		r.foreign[id] = true
	}
}

// Reload reads the file again if it changed, and returns the ids of the
// sessions whose rows other writers changed, added or removed since the last
// Reload, sorted. Changes not yet flushed stay on top.
//
// A file that is gone or damaged changes nothing in memory; the error then
// wraps fs.ErrNotExist or ErrDamaged.
func (r *Registry) Reload() (changed []string, err error) {
	r.ioMu.Lock()
	defer r.ioMu.Unlock()
	now, err := stamp.Take(r.fs, r.path, time.Now())
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	if !r.stamp.Same(now) {
		if err := r.reload(); err != nil {
			return nil, err
		}
	}
	changed = slices.Sorted(maps.Keys(r.foreign))
	clear(r.foreign)
	return changed, nil
}

// reload reads the file. Requires r.ioMu.
func (r *Registry) reload() error {
	now, err := stamp.Take(r.fs, r.path, time.Now())
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	text, err := safefile.ReadRegular(r.fs, r.path)
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	base, _ := r.snapshot()
	if !bytes.Equal(text, base.text) {
		next, state := parse(text)
		if state != Loaded {
			return fmt.Errorf("%w: %s", ErrDamaged, state)
		}
		r.noteForeign(base, next)
		r.install(next, nil)
	}
	r.stamp = now
	return nil
}
