package layout

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
	"github.com/sessionfs/sessionfs/store/internal/stamp"
)

// damagedName is where the text of an unreadable locations.json is kept when
// it has to be replaced.
const damagedName = ".locations.json.damaged"

// locations caches locations.json.
type locations struct {
	path string
	mu   sync.Mutex // one reader of the file at a time
	cur  atomic.Pointer[locationState]
}

// locationState is what is known of recorded places; immutable. An entry that
// vanished from the file stays known (reference 1.5), so that a file damaged
// for a moment misplaces no session.
type locationState struct {
	stamp stamp.Stamp
	dirs  map[string]string
	order []string // ids, as they came
	err   error    // the file is there and could not be used
}

// load returns what is known now, with the file read again if it changed.
func (c *locations) load(f disk.FS, log *slog.Logger) *locationState {
	now, err := stamp.Take(f, c.path, time.Now())
	if cur := c.cur.Load(); err == nil && cur.good(now) {
		return cur
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reloadLocked(f, log)
}

// good reports whether there is no need to read again. What could not be read
// is tried again each time.
func (s *locationState) good(now stamp.Stamp) bool {
	return s != nil && s.err == nil && s.stamp.Same(now)
}

// reloadLocked reads the file if it changed. Requires c.mu.
func (c *locations) reloadLocked(f disk.FS, log *slog.Logger) *locationState {
	now, err := stamp.Take(f, c.path, time.Now())
	cur := c.cur.Load()
	if err == nil && cur.good(now) {
		return cur
	}
	if cur == nil {
		cur = &locationState{dirs: map[string]string{}}
	}
	next := &locationState{stamp: now, dirs: maps.Clone(cur.dirs), order: slices.Clone(cur.order)}
	var text *jsonedit.Object
	if err == nil {
		text, err = readLocations(f, c.path)
	}
	if next.err = err; err == nil {
		for id, raw := range text.All() {
			next.put(id, raw)
		}
	} else if cur.err == nil {
		log.Warn("locations.json cannot be used; known places stay", "err", err)
	}
	c.cur.Store(next)
	return next
}

// readLocations returns the file as it is; a missing one is an empty object. A
// symlink, which could show and copy a file that its maker may not read, is an
// error.
func readLocations(f disk.FS, path string) (*jsonedit.Object, error) {
	data, err := safefile.ReadRegular(f, path)
	if errors.Is(err, fs.ErrNotExist) {
		return jsonedit.NewObject(), nil
	}
	if err != nil {
		return nil, err
	}
	o, err := jsonedit.ParseObject(data)
	if err != nil {
		return nil, &damagedError{path: path, text: data, err: err}
	}
	return o, nil
}

// damagedError is a locations.json that can be read but not understood.
type damagedError struct {
	path string
	text []byte
	err  error
}

func (e *damagedError) Error() string { return fmt.Sprintf("%s: %v", e.path, e.err) }
func (e *damagedError) Unwrap() error { return e.err }

// put enters one member; what is no absolute path records nothing.
func (s *locationState) put(id string, raw []byte) {
	dir, ok := jsonedit.String(raw)
	if !ok || !filepath.IsAbs(dir) {
		return
	}
	if _, known := s.dirs[id]; !known {
		s.order = append(s.order, id)
	}
	s.dirs[id] = filepath.Clean(dir)
}

// RecordLocation makes dir, an absolute path, the recorded place of a session,
// durably. All other entries keep their bytes. The caller holds the registry
// lock "locations".
//
// A file that cannot be understood counts as empty (reference 2.7): it is
// replaced by what this process knows, after its text was put aside under
// another name. A file that cannot be read is an error and is left alone.
func (l *Layout) RecordLocation(id, dir string) error {
	if err := ValidID(id); err != nil {
		return err
	}
	if !filepath.IsAbs(dir) || !utf8.ValidString(dir) || !utf8.ValidString(id) {
		return fmt.Errorf("record location: %q is not an absolute path in UTF-8", dir)
	}
	dir = filepath.Clean(dir)
	return l.editLocations(func(o *jsonedit.Object) {
		o.Set(id, jsonedit.EncodeString(dir))
	}, func(s *locationState) { s.put(id, jsonedit.EncodeString(dir)) })
}

// Recorded returns the ids of the sessions whose places are recorded, in the
// order of the file.
func (l *Layout) Recorded() []string { return slices.Clone(l.view().locations.order) }

// ForgetLocation removes the recorded place of a session, durably; no entry is
// no error. The caller holds the registry lock "locations".
func (l *Layout) ForgetLocation(id string) error {
	return l.editLocations(func(o *jsonedit.Object) {
		o.Delete(id)
	}, func(s *locationState) {
		delete(s.dirs, id)
		s.order = slices.DeleteFunc(s.order, func(known string) bool { return known == id })
	})
}

// editLocations changes the file by edit, and then what is known by learn.
func (l *Layout) editLocations(edit func(*jsonedit.Object), learn func(*locationState)) error {
	c := &l.locations
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.reloadLocked(l.fs, l.log)
	o, err := readLocations(l.fs, c.path)
	var damaged *damagedError
	if errors.As(err, &damaged) {
		o, err = l.replaceDamaged(damaged, known)
	}
	if err != nil {
		return fmt.Errorf("locations: %w", err)
	}
	before, members := o.Bytes(), o.Len()
	edit(o)
	if damaged != nil || !bytes.Equal(before, o.Bytes()) {
		text := o.Bytes()
		if members == 0 { // it had no layout to follow
			text = jsonedit.Indent(text, "")
		}
		if err := disk.WriteAtomic(l.fs, c.path, text, disk.WriteOptions{}); err != nil {
			return err
		}
	}
	// With no stamp of its own, this state is good until the next look.
	next := &locationState{dirs: maps.Clone(known.dirs), order: slices.Clone(known.order)}
	learn(next)
	c.cur.Store(next)
	return nil
}

// replaceDamaged puts the damaged text aside and returns what is known
// instead.
func (l *Layout) replaceDamaged(d *damagedError, known *locationState) (*jsonedit.Object, error) {
	if len(d.text) > 0 {
		aside := filepath.Join(l.root, damagedName)
		if err := disk.WriteAtomic(l.fs, aside, d.text, disk.WriteOptions{}); err != nil {
			return nil, err
		}
		l.log.Warn("locations.json was damaged; its text was put aside", "kept", aside, "err", d.err)
	}
	o := jsonedit.NewObject()
	var members []jsonedit.Member
	for _, id := range known.order {
		members = append(members, jsonedit.Member{Key: id, Raw: jsonedit.EncodeString(known.dirs[id])})
	}
	o.SetAll(members)
	return jsonedit.ParseObject(jsonedit.Indent(o.Bytes(), ""))
}
