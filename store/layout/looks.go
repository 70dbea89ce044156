package layout

import (
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// looks remembers of which directories it is known that they hold an openable
// session. What is in a directory, under which name and of which kind, changes
// only together with the directory's own times; so a directory whose lstat is
// the same needs no further look. Only openable sessions are remembered: of
// them neither history/ nor .git is a symlink, whose target changes without a
// trace here.
type looks struct {
	mu    sync.RWMutex
	known map[string]disk.Stat
}

func (k *looks) same(dir string, st disk.Stat) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	old, ok := k.known[dir]
	return ok && old == st
}

// note remembers a look that began at a time, unless the directory could still
// change within the tick of its times.
func (k *looks) note(dir string, st disk.Stat, began time.Time) {
	if !st.Settled(began) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known = map[string]disk.Stat{}
	}
	k.known[dir] = st
}

// noteAll is note for the looks at many directories that began at a time. A stat
// that is zero tells nothing.
func (k *looks) noteAll(places []Place, stats []disk.Stat, began time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) == 0 {
		k.known = make(map[string]disk.Stat, len(places))
	}
	for i, st := range stats {
		if st != (disk.Stat{}) && st.Settled(began) {
			k.known[places[i].Dir] = st
		}
	}
}

// prune forgets all but the given places, so that what is remembered does not
// grow with sessions that come and go.
func (k *looks) prune(places []Place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) <= len(places)+len(places)/4+64 {
		return
	}
	kept := make(map[string]disk.Stat, len(places))
	for _, p := range places {
		if st, ok := k.known[p.Dir]; ok {
			kept[p.Dir] = st
		}
	}
	k.known = kept
}

// Looked returns the lstat of a directory that was found to hold an openable
// session, for a cache that outlives the process. It reports false when the
// directory is not known, or changed too recently to be.
func (l *Layout) Looked(dir string) (disk.Stat, bool) {
	l.looks.mu.RLock()
	defer l.looks.mu.RUnlock()
	st, ok := l.looks.known[dir]
	return st, ok
}

// Seed gives back what Looked told an earlier process. It is believed only as
// long as the directory's lstat is the same.
func (l *Layout) Seed(dirs map[string]disk.Stat) {
	l.looks.mu.Lock()
	defer l.looks.mu.Unlock()
	if l.looks.known == nil {
		l.looks.known = dirs
	}
}

// lstatFunc is lstat of a name in a directory that is to be looked at, of the
// directory itself when the name is "".
type lstatFunc func(name string) (disk.Stat, error)

func (l *Layout) lstatIn(dir string) lstatFunc {
	return func(name string) (disk.Stat, error) {
		fi, err := l.fs.Lstat(filepath.Join(dir, name))
		if err != nil {
			return disk.Stat{}, err
		}
		return disk.StatOf(fi), nil
	}
}

// manyDirs is the number of directories from which it pays to look at them side
// by side.
const manyDirs = 64

// inspectAll looks at many directories right below root, side by side. What it
// cannot look at that way it leaves out: nil, or a place without an id.
func (l *Layout) inspectAll(ids []string) []Place {
	if len(ids) < manyDirs {
		return nil
	}
	d, err := l.fs.OpenDir(l.root)
	if err != nil {
		return nil // root is a symlink, or gone
	}
	defer d.Close()
	places, stats := make([]Place, len(ids)), make([]disk.Stat, len(ids))
	began, prefix := time.Now(), strings.TrimSuffix(l.root, "/")+"/"
	SideBySide(len(ids), func(i int) {
		places[i], stats[i] = l.inspectChild(d, ids[i], prefix+ids[i])
	})
	l.looks.noteAll(places, stats, began)
	return places
}

// inspectChild looks at a directory right below root, which is open as d. The
// stat is that of a directory that turned out to hold an openable session, else
// zero.
func (l *Layout) inspectChild(d disk.Dir, id, dir string) (Place, disk.Stat) {
	st, err := d.Lstat(id)
	if err == nil && l.looks.same(dir, st) {
		return Place{ID: id, Dir: dir, Present: true, Openable: true}, disk.Stat{}
	}
	if err == nil && st.Mode.IsDir() && openable(func(name string) (disk.Stat, error) { return d.Lstat(id + "/" + name) }) {
		return Place{ID: id, Dir: dir, Present: true, Openable: true}, st
	}
	return l.inspect(id, dir), disk.Stat{}
}

// SideBySide calls fn for 0 to n-1 from a few goroutines at once, and returns
// when all calls have.
func SideBySide(n int, fn func(i int)) {
	none := func(bool) (struct{}, func(), bool) { return struct{}{}, func() {}, true }
	SideBySideWith(n, none, func(_ struct{}, i int) { fn(i) })
}

// SideBySideWith is SideBySide with something of its own for each goroutine:
// open makes it and done ends it. If open fails for another than the first, the
// others do that one's work.
func SideBySideWith[T any](n int, open func(first bool) (own T, done func(), ok bool), fn func(own T, i int)) {
	const block = 32
	var next atomic.Int64
	work := func(first bool) {
		if int(next.Load()) >= n {
			return
		}
		own, done, ok := open(first)
		if !ok {
			return
		}
		defer done()
		for {
			from := int(next.Add(block)) - block
			if from >= n {
				return
			}
			for i := from; i < min(from+block, n); i++ {
				fn(own, i)
			}
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 4, (n+block-1)/block) - 1 {
		wg.Go(func() { work(false) })
	}
	work(true)
	wg.Wait()
}
