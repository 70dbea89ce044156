package store

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
)

// repairSubject is the message of the commit of what was mended in a session.
const repairSubject = "sessionfs: repair"

// keptCopy is a copy, at to, of a file that a repair may change.
type keptCopy struct {
	path, rel string // rel is where the copy goes below the directory set aside
	to        string // "" until it is made
	content   []byte
}

// look notes what there was before the repair: the state of each session with a
// finding, to tell whether the repair has changed it, and the files of which a
// copy is to be kept.
func (r *repairer) look(s *Store, found []Finding) {
	r.fs, r.root, r.marks = s.fs, s.root, map[string]fingerprint{}
	if len(found) > 0 {
		r.copies = append(r.copies, keptCopy{path: s.layout.IndexPath(), rel: "index.json"})
	}
	running := map[string]bool{}
	for _, f := range found {
		p, err := s.place("repair", f.Session)
		if err != nil {
			continue // the root's, or of a session that is not there
		}
		r.marks[f.Session] = takeFingerprint(s.fs, p.Dir, p.Openable)
		switch f.Kind {
		case "dead_lease", "running_without_run", "node_without_run", "half_delete_nodes":
			running[f.Session] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(running)) {
		r.lookAtRun(s, id)
	}
}

// lookAtRun notes the files that the end of a session's run changes.
func (r *repairer) lookAtRun(s *Store, id string) {
	p, err := s.place("repair", id)
	if err != nil {
		return
	}
	note := func(rel string) {
		c := keptCopy{path: filepath.Join(p.Dir, rel), rel: filepath.Join(id, rel)}
		if below, err := filepath.Rel(s.root, c.path); err == nil && filepath.IsLocal(below) {
			c.rel = below
		}
		r.copies = append(r.copies, c)
	}
	note(metaFile)
	sn := s.build(id, p, s.readMeta(p), takeFingerprint(s.fs, p.Dir, p.Openable), nil)
	for i, e := range sn.entries {
		if ended(sn.Index.At(i).Status) != "" {
			note(filepath.Join(historyDir, e.File))
		}
	}
}

// keepAll copies what may be changed. A registry that is no regular file is
// moved, because Open refuses it.
func (r *repairer) keepAll() error {
	for i := range r.copies {
		c := &r.copies[i]
		if err := r.keep(c); err != nil {
			return &Error{Code: diskCode(err), Op: "set aside", Ref: c.rel, Err: err}
		}
	}
	return nil
}

func (r *repairer) keep(c *keptCopy) error {
	raw, err := safefile.ReadRegular(r.fs, c.path)
	misplaced := errors.Is(err, safefile.ErrNotRegular) && c.rel == "index.json"
	if !misplaced && (err != nil || len(raw) == 0) {
		return nil // nothing that could be lost, or be read
	}
	d, _, err := safefile.Mkdir(r.fs, r.root, filepath.Join(r.aside, filepath.Dir(c.rel)), 0o700)
	if err != nil {
		return err
	}
	defer d.Close()
	if misplaced {
		err = r.fs.RenameNoReplace(c.path, d.Path("index.json"))
		r.moved = r.moved || err == nil
		return err
	}
	c.to, c.content = filepath.Join(r.root, r.aside, c.rel), raw
	return disk.WriteAtomic(r.fs, d.Path(filepath.Base(c.rel)), raw, disk.WriteOptions{})
}

// dropCopies removes the copies of what was not changed, and the directories that
// are empty then.
func (r *repairer) dropCopies() {
	for _, c := range r.copies {
		if c.to == "" {
			continue
		}
		now, err := safefile.ReadRegular(r.fs, c.path)
		if err != nil || !bytes.Equal(now, c.content) || r.fs.Remove(c.to) != nil {
			r.moved = true
			continue
		}
		for dir := filepath.Dir(c.to); strings.HasPrefix(dir, filepath.Join(r.root, asideDir)); dir = filepath.Dir(dir) {
			if r.fs.Remove(dir) != nil {
				break // not empty
			}
		}
	}
}

// commit commits, in each session that the repair has changed, what it did.
func (r *repairer) commit(ctx context.Context) {
	for _, id := range slices.Sorted(maps.Keys(r.marks)) {
		p, err := r.s.place("repair", id)
		if err != nil || takeFingerprint(r.fs, p.Dir, p.Openable) == r.marks[id] {
			continue
		}
		r.s.commitMended(ctx, id)
	}
}

// commitMended commits what was mended in a session, where that can be done: what
// was mended is durable without it.
func (s *Store) commitMended(ctx context.Context, id string) {
	p, err := s.place("commit", id)
	if err != nil || !p.Openable || p.Legacy || s.layout.LaterIntent(p.Dir) {
		return
	}
	if _, err := s.fs.Lstat(filepath.Join(p.Dir, metaFile)); errors.Is(err, fs.ErrNotExist) {
		return // still lost: no commit of ours is to be without it
	}
	if _, _, err := s.CommitTurn(ctx, id, repairSubject); err != nil {
		s.log.Warn("commit what was mended", "session", id, "err", err)
	}
}

// commitEnded is commitMended for the sessions in which this store has ended dead
// runs or restored the history.
func (s *Store) commitEnded(ctx context.Context) {
	ids := map[string]bool{}
	s.mu.Lock()
	maps.Copy(ids, s.endedRuns)
	for id := range s.restoredFiles {
		ids[id] = true
	}
	s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		s.commitMended(ctx, id)
	}
}
