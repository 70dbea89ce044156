package store

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sessionfs/sessionfs/store/layout"
)

// A mount answers before the directories of all its sessions are watched: to
// watch so many takes as long as the rest of a start. Until a session's watch is
// on nobody is told of what changes in it; so once it is on, the session is
// compared with what was listed, and looked at when it differs. Somebody who
// looks into a session before has it watched first (addSession).

// firstListWait is how long the watching of the sessions waits for the first
// list: whoever starts a mount waits for that one, and there may be no more than
// two processors.
const firstListWait = 250 * time.Millisecond

// start begins to follow the events, those since newWatcher first, and to watch
// the sessions, of which rows tell what was listed. Listed is closed with the
// first list.
func (w *watcher) start(rows []listed, listed <-chan struct{}) {
	w.done.Add(2)
	go w.loop()
	go func() {
		defer w.done.Done()
		select {
		case <-listed:
		case <-time.After(firstListWait):
		case <-w.closing:
			return
		}
		w.s.list.dropKept()
		w.follow(context.Background(), rows)
		if !w.ended() {
			w.s.list.saveCache()
		}
	}()
}

// ended reports whether the watching has come to its end.
func (w *watcher) ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// followParents watches the directories in which the sessions of projects come
// and go.
func (w *watcher) followParents() {
	projects := filepath.Join(w.s.root, "projects")
	if fi, err := w.s.fs.Lstat(projects); err != nil || !fi.IsDir() {
		return
	}
	_ = w.fw.Add(projects)
	entries, _ := w.s.fs.ReadDir(projects)
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			_ = w.fw.Add(filepath.Join(projects, e.Name()))
		}
	}
}

// follow watches the directories of sessions that are not watched yet. Rows are
// what the observers were told of them: what has changed since, before the watch
// was on, is looked for here, as no event tells of it.
func (w *watcher) follow(ctx context.Context, rows []listed) {
	w.followMoved(ctx, rows)
	files := &metaFiles{s: w.s}
	if dir, err := w.s.fs.OpenDir(w.s.root); err == nil {
		defer dir.Close()
		files.dir = dir
	}
	for i, r := range rows {
		if i >= watchedSessions {
			return
		}
		if p := r.place; p.Symlink || p.Unreachable || !p.Present {
			continue
		}
		checked, closed := w.checked(r.place.Dir)
		if closed {
			return
		}
		if checked {
			continue
		}
		err := w.watchDir(r.place.Dir, r.place.ID)
		if errors.Is(err, syscall.ENOSPC) {
			return // no watch is left
		}
		w.check(r.place.Dir)
		if err != nil || !r.current(files) {
			w.s.look(ctx, r.place.ID, []string{""})
		}
	}
}

// followMoved looks at the sessions in use that are somewhere else than their
// snapshots have them. Nothing that was listed need differ in them, nor need they
// lack a watch: a project's directory that is moved takes those in it along.
func (w *watcher) followMoved(ctx context.Context, rows []listed) {
	known := w.s.pinnedDirs()
	if len(known) == 0 {
		return
	}
	for _, r := range rows {
		if dir, ok := known[r.place.ID]; ok && dir != r.place.Dir {
			w.s.look(ctx, r.place.ID, nil)
		}
	}
}

// pinnedDirs is where the snapshots of the sessions in use have them.
func (s *Store) pinnedDirs() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	dirs := make(map[string]string, len(s.pinned))
	for id, se := range s.pinned {
		if sn := se.cur.Load(); sn != nil {
			dirs[id] = sn.Dir
		}
	}
	return dirs
}

// move sets the watches of a session anew that is at another place than before. A
// watch stays with the directory that it was set on, which may be the one at the
// new place, and goes by the name that it had then; so both names are given up
// first.
func (w *watcher) move(id, from string, place layout.Place) {
	w.forget(id, from)
	if !place.Present || place.Symlink {
		return
	}
	w.forget(id, place.Dir)
	if !w.full() {
		_ = w.watchDir(place.Dir, id)
	}
	w.rewatch(id, place)
}

// checked reports whether what changed in a session's directory before it was
// watched has been looked for.
func (w *watcher) checked(dir string) (checked, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dirs[dir].checked, w.closed
}

// check notes that what changed is being looked for.
func (w *watcher) check(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of, ok := w.dirs[dir]; ok {
		of.checked = true
		w.dirs[dir] = of
	}
}

// current reports whether a session's meta.json is known to be what was listed.
func (r *listed) current(files *metaFiles) bool {
	st, err := files.lstat(r.place)
	return err == nil && r.seen != (stamp{}) && stampOfStat(st) == r.seen
}

// watchDir watches a session's own directory. The error is that of the system,
// ENOSPC when no watch is left. When it returns nil the watch is on, whoever has
// set it.
func (w *watcher) watchDir(dir, id string) error { return w.watchAs(dir, watched{id: id}) }

// watchInside is watchDir for a directory in a session's own.
func (w *watcher) watchInside(dir, id string) error {
	return w.watchAs(dir, watched{id: id, inside: true})
}

func (w *watcher) watchAs(dir string, as watched) error {
	w.addMu.Lock()
	defer w.addMu.Unlock()
	w.mu.Lock()
	_, known := w.dirs[dir]
	if !known {
		w.noteLocked(dir, as)
	}
	w.mu.Unlock()
	if known {
		return nil
	}
	err := w.fw.Add(dir)
	if err != nil {
		w.mu.Lock()
		w.deleteLocked(dir)
		w.mu.Unlock()
	}
	return err
}

// noteLocked notes a directory as watched. Requires w.mu.
func (w *watcher) noteLocked(dir string, as watched) {
	w.dirs[dir] = as
	if as.inside {
		w.inside[as.id] = append(w.inside[as.id], dir)
	}
	if as.files {
		w.real.watched++
	}
}

// deleteLocked forgets a directory. Requires w.mu.
func (w *watcher) deleteLocked(dir string) {
	of, ok := w.dirs[dir]
	if !ok {
		return
	}
	delete(w.dirs, dir)
	if of.files {
		w.real.watched--
	}
	if !of.inside {
		return
	}
	rest := slices.DeleteFunc(w.inside[of.id], func(d string) bool { return d == dir })
	if len(rest) == 0 {
		delete(w.inside, of.id)
		return
	}
	w.inside[of.id] = rest
}

// holdsSessions reports whether a directory is one that sessions lie in.
func (w *watcher) holdsSessions(dir string) bool {
	return dir == w.s.root || filepath.Dir(dir) == filepath.Join(w.s.root, "projects")
}

// renew sets the watches of a directory that came, or that came in the place of
// another one, before anybody looks into it: what is not a session yet becomes
// one while it is copied. A watch stays with the directory that it was set on,
// wherever that is moved.
func (w *watcher) renew(dir string, gone bool) {
	id := filepath.Base(dir)
	if gone {
		w.forget(id, dir)
	}
	fi, err := w.s.fs.Lstat(dir)
	if err != nil || !fi.IsDir() || dir == filepath.Join(w.s.root, "projects") || w.full() {
		return
	}
	if w.watchDir(dir, id) == nil && gone {
		w.session(id, "")
	}
}

// full reports whether as many directories are watched as may be.
func (w *watcher) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.dirs) >= watchedSessions
}

// forget drops the watches of a session's directory and of those below it.
func (w *watcher) forget(id, dir string) {
	w.addMu.Lock()
	defer w.addMu.Unlock()
	w.mu.Lock()
	drop := []string{dir}
	for _, d := range w.inside[id] {
		if strings.HasPrefix(d, dir+"/") {
			drop = append(drop, d)
		}
	}
	for _, d := range drop {
		w.deleteLocked(d)
	}
	w.mu.Unlock()
	for _, d := range drop {
		_ = w.fw.Remove(d)
	}
}
