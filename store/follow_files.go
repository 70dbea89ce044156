package store

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// The directories of real files of a session (workdir/, workdir/attachments/,
// context/) are no part of what a snapshot shows. Who shows them asks to have
// one followed, and is told when it comes, goes or is replaced, when names in it
// come and go, and of its own attributes; not of what is in its files and
// further down, which programs write in place.

// filesHint is what events told of a session's directories of real files, the
// strongest last.
type filesHint int

const (
	noFiles       filesHint = iota
	changedFiles            // something in one of them or of one of them, or one came
	replacedFiles           // one went or was replaced: its watch is that of another
	movedFiles              // one was renamed: perhaps to where another session has it
)

// realFiles is what the watcher keeps of directories of real files, guarded by
// its lock.
type realFiles struct {
	watched int                  // how many of its directories
	max     int                  // how many may be
	hints   map[string]filesHint // by session, not told yet
	busy    map[string]bool      // sessions that are being told of
}

// FollowFiles reports whether the observers are told, by Change.Files, of what
// changes from now on in one of a session's directories of real files, or with
// it; also when it is not there yet. Dir is the session's directory, rel the path
// from there. It is false for a session that is not pinned or watched, and where
// there are not watches enough: these directories take a quarter at most.
func (s *Store) FollowFiles(id, dir, rel string) bool {
	return s.watch != nil && s.watch.followFiles(id, dir, rel)
}

func (w *watcher) followFiles(id, dir, rel string) bool {
	path := filepath.Join(dir, rel)
	w.mu.Lock()
	_, session := w.dirs[dir]
	of, known := w.dirs[path]
	pinned := session && w.refs[id] > 0
	w.mu.Unlock()
	if !pinned || known {
		return pinned && of.files && of.id == id
	}
	if up := filepath.Dir(rel); up != "." && !w.followFiles(id, dir, up) {
		return false
	}
	fi, err := w.s.fs.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true // its coming is an event of the directory above
	}
	return err == nil && fi.IsDir() && w.watchFiles(id, path)
}

// watchFiles watches a directory of real files, of a session that is pinned.
func (w *watcher) watchFiles(id, dir string) bool {
	w.addMu.Lock()
	defer w.addMu.Unlock()
	w.mu.Lock()
	of, known := w.dirs[dir]
	add := !known && w.refs[id] > 0 && w.real.watched < w.real.max
	if add {
		w.noteLocked(dir, watched{id: id, inside: true, files: true})
	}
	w.mu.Unlock()
	if !add {
		return known && of.files && of.id == id
	}
	if w.fw.Add(dir) == nil {
		return true
	}
	w.mu.Lock()
	w.deleteLocked(dir)
	w.mu.Unlock()
	return false
}

// filesEvent takes an event that tells of a session's directories of real
// files.
func (w *watcher) filesEvent(ev fsnotify.Event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	id, hint, ok := w.filesHintLocked(ev)
	if hint != noFiles {
		w.filesLocked(id, hint)
	}
	return ok
}

// filesHintLocked is what an event tells of them; ok: it tells of nothing else.
// Requires w.mu.
func (w *watcher) filesHintLocked(ev fsnotify.Event) (id string, hint filesHint, ok bool) {
	dir, name := filepath.Dir(ev.Name), filepath.Base(ev.Name)
	self, in := w.dirs[ev.Name], w.dirs[dir]
	switch {
	case self.files && ev.Has(fsnotify.Rename):
		return self.id, movedFiles, true
	case self.files && (ev.Has(fsnotify.Create) || ev.Has(fsnotify.Remove)):
		return self.id, replacedFiles, true
	case self.files:
		return self.id, changedFiles, true
	case in.files && (ev.Has(fsnotify.Create) || ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename)):
		return in.id, changedFiles, true
	case in.files:
		return "", noFiles, true // in a file
	case (name == workDir || name == contextDir) && filepath.Base(dir) == in.id && !inGit(dir+"/") && w.refs[in.id] > 0:
		return in.id, changedFiles, true
	}
	return "", noFiles, false
}

// filesLocked has the observers told of a session's real files, and once more
// when more came meanwhile. It is not part of the look at a session: to tell may
// have to wait for whoever changes such a directory, which may take its time.
// Requires w.mu.
func (w *watcher) filesLocked(id string, hint filesHint) {
	w.real.hints[id] = max(w.real.hints[id], hint)
	if w.closed || w.real.busy[id] {
		return
	}
	w.real.busy[id] = true
	w.done.Add(1)
	go w.tellFiles(id)
}

func (w *watcher) tellFiles(id string) {
	defer w.done.Done()
	for {
		w.mu.Lock()
		hint := w.real.hints[id]
		delete(w.real.hints, id)
		if hint == noFiles || w.closed {
			delete(w.real.busy, id)
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		w.filesChanged(context.Background(), id, hint)
	}
}

// filesChanged tells the observers of a session's files. Watches that may be of
// other directories by now are dropped before: who looks sets new ones.
func (w *watcher) filesChanged(ctx context.Context, id string, hint filesHint) {
	ids := []string{id}
	if hint >= replacedFiles {
		ids = w.dropFiles(id, hint == movedFiles)
	}
	for _, id := range ids {
		w.s.publish(ctx, &Change{ID: id, Files: true, Foreign: true})
	}
}

// dropFiles drops the watches of a session's directories of real files; all: of
// those of every session, as one watch serves a directory under all its names.
// It returns the sessions, id among them.
func (w *watcher) dropFiles(id string, all bool) []string {
	w.addMu.Lock()
	defer w.addMu.Unlock()
	ids, told := []string{id}, []string{id}
	var drop []string
	w.mu.Lock()
	if all {
		ids = slices.Collect(maps.Keys(w.inside))
	}
	for _, of := range ids {
		for _, dir := range slices.Clone(w.inside[of]) {
			if w.dirs[dir].files {
				drop, told = append(drop, dir), append(told, of)
				w.deleteLocked(dir)
			}
		}
	}
	w.mu.Unlock()
	for _, dir := range drop {
		_ = w.fw.Remove(dir)
	}
	slices.Sort(told)
	return slices.Compact(told)
}

// maxFileWatches is how many directories of real files may be watched: a
// quarter of what the system gives to a user, so that they leave enough for what
// costs more without one.
func maxFileWatches() int {
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n / 4
}
