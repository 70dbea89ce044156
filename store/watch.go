package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/sessionfs/sessionfs/store/layout"
)

// watchedSessions bounds how many sessions are watched that nobody looks
// into; above it only those that somebody pinned are.
const watchedSessions = 50000

// watcher follows what other processes do to the root: the root directory
// itself (sessions come and go, index.json), every session's directory
// (meta.json), and the history/ of the sessions that somebody looks into. An
// event says only where to look; what changed is found by comparing.
type watcher struct {
	s  *Store
	fw *fsnotify.Watcher

	addMu sync.Mutex // one watch is set at a time; taken before mu

	mu       sync.Mutex          // leaf
	refs     map[string]int      // pins of a session's history/ watch
	dirs     map[string]watched  // by directory
	inside   map[string][]string // session -> those of dirs that lie in its own
	real     realFiles
	hints    map[string][]string // session -> files that events named since
	busy     map[string]bool     // a session's refresh is running or queued
	moved    map[string]bool     // directories that events named; true: one was taken away
	rootBusy bool
	rootMore bool
	closed   bool
	closing  chan struct{} // closed by close

	done sync.WaitGroup
}

// watched is a directory with a watch of ours.
type watched struct {
	id string // of its session
	// checked: what changed before the watch was on has been looked for.
	checked bool
	// inside: it lies in the session's own directory.
	inside bool
	// files: a directory of real files, see follow_files.go.
	files bool
}

// newWatcher watches the root; nil when the system has no inotify
// instance left, which costs only freshness without asking.
func newWatcher(s *Store) *watcher {
	fw, err := fsnotify.NewWatcher()
	if err == nil {
		err = fw.Add(s.root)
		if err != nil {
			_ = fw.Close()
		}
	}
	if err != nil {
		s.log.Warn("changes by other processes are not followed", "err", err)
		return nil
	}
	w := &watcher{s: s, fw: fw, refs: map[string]int{}, dirs: map[string]watched{}, inside: map[string][]string{}, hints: map[string][]string{}, busy: map[string]bool{}, moved: map[string]bool{},
		real: realFiles{max: maxFileWatches(), hints: map[string]filesHint{}, busy: map[string]bool{}}, closing: make(chan struct{})}
	w.followParents()
	return w
}

// addSession watches a session and its history; false when that is not
// possible.
func (w *watcher) addSession(id, dir string) bool {
	if fi, err := w.s.fs.Lstat(dir); err != nil || !fi.IsDir() {
		return false // a symlinked session is not followed
	}
	if w.watchDir(dir, id) != nil {
		return false
	}
	w.mu.Lock()
	w.refs[id]++
	w.mu.Unlock()
	history := filepath.Join(dir, historyDir)
	if _, err := w.s.fs.Lstat(history); err != nil {
		return true // its coming is an event of dir
	}
	if w.watchInside(history, id) != nil || !w.watchRefs(id, dir) {
		w.dropSession(id)
		return false
	}
	return true
}

// gitDir is the name of a session's repository.
const gitDir = ".git"

// watchRefs watches where a commit in a session's repository shows: HEAD and
// packed-refs, refs/heads, and the directory of the ref that HEAD names. A
// repository that is not there, or not a directory, has no commits.
func (w *watcher) watchRefs(id, dir string) bool {
	git := filepath.Join(dir, gitDir)
	heads := filepath.Join(git, "refs", "heads")
	dirs := []string{git, heads}
	head, _ := w.s.fs.ReadFile(filepath.Join(git, "HEAD"))
	if ref, ok := strings.CutPrefix(strings.TrimSpace(string(head)), "ref: "); ok && filepath.IsLocal(ref) {
		if d := filepath.Join(git, filepath.Dir(ref)); d != heads {
			dirs = append(dirs, d)
		}
	}
	for _, d := range dirs {
		if fi, err := w.s.fs.Lstat(d); err == nil && fi.IsDir() && w.watchInside(d, id) != nil {
			return false
		}
	}
	return true
}

// inGit reports whether a path lies in a session's .git.
func inGit(path string) bool { return strings.Contains(path, "/"+gitDir+"/") }

// tellsOfCommit reports whether an event in a session's .git may mean that its
// branch has got another commit.
func tellsOfCommit(path string) bool {
	if !inGit(path) || strings.HasSuffix(path, ".lock") {
		return false
	}
	name := filepath.Base(path)
	return name == "HEAD" || name == "packed-refs" || strings.Contains(path, "/"+gitDir+"/refs/")
}

// dropSession ends one addSession: with the last, only the session's directory
// is watched.
func (w *watcher) dropSession(id string) {
	w.addMu.Lock()
	defer w.addMu.Unlock()
	w.mu.Lock()
	w.refs[id]--
	var unwatch []string
	if w.refs[id] <= 0 {
		delete(w.refs, id)
		unwatch = slices.Clone(w.inside[id])
		for _, dir := range unwatch {
			w.deleteLocked(dir)
		}
	}
	w.mu.Unlock()
	for _, dir := range unwatch {
		_ = w.fw.Remove(dir)
	}
}

func (w *watcher) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	close(w.closing)
	_ = w.fw.Close()
	w.done.Wait()
}

func (w *watcher) loop() {
	defer w.done.Done()
	for {
		select {
		case ev, ok := <-w.fw.Events:
			if !ok {
				return
			}
			w.event(ev)
		case err, ok := <-w.fw.Errors:
			if !ok {
				return
			}
			switch {
			case errors.Is(err, fsnotify.ErrEventOverflow):
				w.everything()
			case errors.Is(err, syscall.EINVAL):
				// A directory that is gone took its watch with it before ours
				// could be removed.
			default:
				w.s.log.Warn("watch", "err", err)
			}
		}
	}
}

// event looks where an event points.
func (w *watcher) event(ev fsnotify.Event) {
	if w.filesEvent(ev) {
		return
	}
	if strings.HasSuffix(ev.Name, ".tmp") || ev.Op == fsnotify.Chmod {
		return // a writer's temporary file; its rename is an event of its own
	}
	dir, name := filepath.Split(ev.Name)
	dir = filepath.Clean(dir)
	w.mu.Lock()
	of, inSession := w.dirs[dir]
	id := of.id
	mine := w.holdsSessions(dir)
	if self, ok := w.dirs[ev.Name]; ok && ev.Op&(fsnotify.Remove|fsnotify.Rename) != 0 {
		w.deleteLocked(ev.Name) // the watched directory itself went away
		id, inSession = self.id, true
		if !self.inside && !mine { // it lay outside of the root
			defer w.session(id, ev.Name)
		}
	}
	if mine && !strings.HasPrefix(name, ".") && ev.Op&(fsnotify.Create|fsnotify.Remove|fsnotify.Rename) != 0 {
		w.moved[ev.Name] = w.moved[ev.Name] || ev.Op&fsnotify.Create == 0
		defer w.root()
	}
	w.mu.Unlock()
	if !inSession {
		if mine || dir == filepath.Join(w.s.root, "projects") {
			if !strings.HasPrefix(name, ".") || name == ".deleted" {
				w.root()
			}
		}
		return
	}
	if inGit(dir + "/") {
		if tellsOfCommit(ev.Name) {
			w.session(id, ev.Name)
		}
		return
	}
	if filepath.Base(dir) == historyDir || name == metaFile || name == historyDir || name == gitDir {
		w.session(id, ev.Name)
	}
}

// everything looks at all that is watched, after events were lost.
func (w *watcher) everything() {
	w.mu.Lock()
	ids := make([]string, 0, len(w.refs))
	for id := range w.refs {
		ids = append(ids, id)
	}
	w.mu.Unlock()
	for _, id := range ids {
		w.session(id, "")
	}
	w.root()
}

// session queues a look at a session; file is what an event named. One look
// runs at a time, and one more follows it when events came meanwhile.
func (w *watcher) session(id, file string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if file == "" || filepath.Base(file) == id {
		w.filesLocked(id, replacedFiles) // the whole directory, or what events were lost
	}
	w.hints[id] = append(w.hints[id], file)
	if w.busy[id] {
		return
	}
	w.busy[id] = true
	w.done.Add(1)
	go w.lookSession(id)
}

func (w *watcher) lookSession(id string) {
	defer w.done.Done()
	for {
		w.mu.Lock()
		files := w.hints[id]
		delete(w.hints, id)
		if len(files) == 0 || w.closed {
			delete(w.busy, id)
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		w.s.look(context.Background(), id, files)
		if slices.ContainsFunc(files, tellsOfCommit) {
			w.s.publish(context.Background(), &Change{ID: id, Commit: true, Foreign: true})
		}
	}
}

// rootPause gathers the events of one registry write.
const rootPause = 2 * time.Millisecond

// root queues a look at the list of sessions.
func (w *watcher) root() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.rootMore = true
	if w.rootBusy {
		return
	}
	w.rootBusy = true
	w.done.Add(1)
	go w.lookRoot()
}

func (w *watcher) lookRoot() {
	defer w.done.Done()
	for {
		time.Sleep(rootPause)
		w.mu.Lock()
		if !w.rootMore || w.closed {
			w.rootBusy = false
			w.mu.Unlock()
			return
		}
		w.rootMore = false
		moved := w.moved
		w.moved = map[string]bool{}
		w.mu.Unlock()
		for dir, gone := range moved {
			w.renew(dir, gone)
		}
		w.s.reloadRegistry()
		w.s.rescan(context.Background())
	}
}

// reloadRegistry reads index.json again when another process wrote it.
func (s *Store) reloadRegistry() {
	// Without the list's mutex: a flush, which this waits for, takes it.
	changed, err := s.list.reg.Reload()
	if err != nil {
		s.log.Warn("read registry", "err", err)
	}
	s.list.dropDeleted(changed)
}

// look follows what events told of a session: a loaded one is read again when
// it differs from its snapshot, and its row is compared.
func (s *Store) look(ctx context.Context, id string, files []string) {
	place, err := s.place("follow session", id)
	if err != nil {
		s.vanished(ctx, id)
		return
	}
	se := s.pin(id)
	defer s.unpin(se)
	if s.watch != nil && place.Present {
		s.watch.rewatch(id, place) // first, so that nothing is missed
	}
	if sn := se.cur.Load(); sn != nil && !s.differs(sn, place, files) {
		s.rescanOne(ctx, id)
		return
	}
	if se.cur.Load() == nil {
		s.rescanOne(ctx, id)
		return
	}
	if err := se.acquire(ctx, s.lockTimeout); err != nil {
		s.log.Warn("follow session", "session", id, "err", err)
		return
	}
	var c *Change
	if sn := se.cur.Load(); sn != nil && s.differs(sn, place, files) {
		_, c = s.rereadLocked(ctx, se, place, false)
	}
	se.release()
	s.publish(ctx, c)
	s.rescanOne(ctx, id)
}

// rewatch watches a history/ that came after the session was pinned.
func (w *watcher) rewatch(id string, place layout.Place) {
	w.mu.Lock()
	pinned := w.refs[id] > 0
	w.mu.Unlock()
	if !pinned {
		return
	}
	_ = w.watchDir(place.Dir, id)
	history := filepath.Join(place.Dir, historyDir)
	if fi, err := os.Lstat(history); err == nil && fi.IsDir() {
		_ = w.watchInside(history, id)
	}
	w.watchRefs(id, place.Dir)
}

// differs reports whether the disk is not what the snapshot shows: by its
// fingerprint, and where that is the same by the files that events named, for
// a file that was written in place, or within our own write.
func (s *Store) differs(sn *Snapshot, place layout.Place, files []string) bool {
	if !s.fresh(sn, place) {
		return true
	}
	for _, f := range files {
		if f == "" || filepath.Base(f) == metaFile && s.metaDiffers(sn, place) {
			return true
		}
		if filepath.Base(filepath.Dir(f)) != historyDir || !strings.HasSuffix(f, ".json") {
			continue
		}
		fi, err := s.fs.Lstat(f)
		e, known := sn.EntryByFile(filepath.Base(f))
		if (err == nil) != known || known && e.stamp != stampOf(fi) {
			return true
		}
	}
	return false
}

// metaDiffers compares meta.json itself: on a file system whose clock ticks
// slowly, several writes within a tick leave the same stamp.
func (s *Store) metaDiffers(sn *Snapshot, place layout.Place) bool {
	m := s.readMeta(place)
	return m.missing != sn.meta.missing || !bytes.Equal(m.raw, sn.meta.raw)
}

// vanished tells the observers that a session is no longer there.
func (s *Store) vanished(ctx context.Context, id string) {
	se := s.pin(id)
	defer s.unpin(se)
	if err := se.acquire(ctx, s.lockTimeout); err != nil {
		return
	}
	old := se.cur.Load()
	var c *Change
	if _, err := s.place("follow session", id); err != nil && old != nil {
		se.cur.Store(nil)
		c = &Change{ID: id, Old: old, Foreign: true, Listing: true, Row: true}
		s.swapped(*c)
	}
	se.release()
	s.publish(ctx, c)
	s.rescan(ctx)
}
