package recovery

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Keep is how many directories of undo data a session keeps (reference 11).
const Keep = 100

// Retain removes the oldest turns' undo data beyond keep directories, by the
// time of their last change, and returns the turns removed. The intents'
// directories count but are not removed; of final intents the oldest beyond
// keep are. While a restoration is unfinished, nothing is removed. It is to be
// called when a turn has ended, under the session's lock.
func (t *Tree) Retain(keep int) (removed []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.nothingPending(); err != nil {
		if errors.Is(err, ErrUnfinished) {
			return nil, nil
		}
		return nil, fmt.Errorf("undo data: %w", err)
	}
	old, err := t.beyond(t.opt.Dir, keep, fs.DirEntry.IsDir)
	if err != nil {
		return nil, fmt.Errorf("undo data: %w", err)
	}
	for _, name := range old {
		if checkTurn(name) != nil {
			continue
		}
		if err := t.fs.RemoveAll(filepath.Join(t.opt.Dir, name)); err != nil {
			return removed, fmt.Errorf("undo data: %w", err)
		}
		removed = append(removed, name)
	}
	return removed, t.retainIntents(keep)
}

// retainIntents forgets the oldest intents, all of which are final.
func (t *Tree) retainIntents(keep int) error {
	dir := filepath.Join(t.opt.Dir, intentsName)
	old, err := t.beyond(dir, keep, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".json") })
	if err != nil {
		return fmt.Errorf("undo data: %w", err)
	}
	for _, name := range old {
		r, err := t.readIntent(strings.TrimSuffix(name, ".json"))
		if err != nil {
			return fmt.Errorf("undo data: %w", err)
		}
		if r == nil || !r.Clean {
			continue // another program's, or Replay is not done with it
		}
		if err := t.fs.Remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("undo data: %w", err)
		}
	}
	return nil
}

// beyond lists what is in a directory beyond the newest, oldest last.
func (t *Tree) beyond(dir string, keep int, which func(fs.DirEntry) bool) ([]string, error) {
	entries, err := t.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	type aged struct {
		name string
		time time.Time
	}
	var all []aged
	for _, e := range entries {
		if !which(e) {
			continue
		}
		fi, err := t.fs.Lstat(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, aged{e.Name(), fi.ModTime()})
	}
	slices.SortFunc(all, func(a, b aged) int {
		return cmp.Or(b.time.Compare(a.time), cmp.Compare(b.name, a.name))
	})
	var names []string
	for _, a := range all[min(max(keep, 0), len(all)):] {
		names = append(names, a.name)
	}
	return names, nil
}
