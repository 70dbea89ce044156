package store

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
	"github.com/sessionfs/sessionfs/store/layout"
)

// loadTries bounds how often a session that changes while it is read is read
// again before the last reading is taken as it is.
const loadTries = 4

// readSnapshot reads a session from disk. old, when not nil, is the snapshot
// before: what has not changed since is taken over from it without reading.
// Requires the session's in-process lock.
func (s *Store) readSnapshot(id string, place layout.Place, old *Snapshot) *Snapshot {
	for try := 0; ; try++ {
		before := takeFingerprint(s.fs, place.Dir, place.Openable)
		// meta.json first: it is written last, so a head never names a node
		// that the history read after it lacks.
		m := s.readMeta(place)
		sn := s.build(id, place, m, before, old)
		if try == loadTries-1 || takeFingerprint(s.fs, place.Dir, place.Openable) == before {
			return sn
		}
	}
}

// readMeta reads meta.json of a session's directory. A symlinked session
// directory is never followed.
func (s *Store) readMeta(place layout.Place) meta {
	if place.Symlink {
		return parseMeta(nil, errSymlinked)
	}
	raw, err := s.readOwn(filepath.Join(place.Dir, metaFile))
	switch {
	case err == nil:
		if raw == nil {
			raw = []byte{}
		}
		return parseMeta(raw, nil)
	case errors.Is(err, fs.ErrNotExist):
		return parseMeta(nil, nil)
	}
	return parseMeta(nil, err)
}

// readOwn reads a file of a session. A symlink in its place is not followed:
// the store may belong to somebody else than this process, and what a link
// leads to is not his to show.
func (s *Store) readOwn(path string) ([]byte, error) {
	f, _, err := safefile.OpenRegular(s.fs, path)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(f)
	if cap(raw)-len(raw) > len(raw)/8 {
		raw = bytes.Clone(raw) // a snapshot keeps it
	}
	return raw, errors.Join(err, f.Close())
}

var errSymlinked = errors.New("the session's directory is a symbolic link, which is not followed")

// build makes a snapshot of what is on disk.
func (s *Store) build(id string, place layout.Place, m meta, fp fingerprint, old *Snapshot) *Snapshot {
	sn := &Snapshot{
		ID: id, Dir: place.Dir, Openable: place.Openable, Legacy: place.Legacy,
		s: s, meta: m, fp: fp, maxSeq: -1,
	}
	sn.describe(place)
	if failedRead(m.err) {
		sn.unread = m.err
	}
	if place.Symlink {
		sn.Index = dag.NewIndex(nil)
	} else {
		s.readHistory(sn, old)
		s.hideDoomed(sn, place)
	}
	sn.restored, sn.unreachable = s.restored(id), place.Unreachable
	sn.diagnose()
	return sn
}

// describe fills what meta.json and the directory say of the session.
func (sn *Snapshot) describe(place layout.Place) {
	sn.Head = sn.meta.head()
	sn.Archived = sn.meta.obj.Truthy("archived")
	sn.MTime = sn.fp.mtime()
	fi, err := sn.s.fs.Lstat(place.Dir)
	if err != nil { // unreachable: shown with the root's owner
		fi, err = sn.s.fs.Lstat(sn.s.root)
	}
	if err == nil {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			sn.UID, sn.GID = st.Uid, st.Gid
		}
		if sn.fp.meta.mtime == 0 && sn.fp.history.mtime == 0 {
			sn.MTime = fi.ModTime()
		}
	}
	sn.Created, sn.Updated = sn.metaTime("created_at"), sn.metaTime("updated_at")
}

func (sn *Snapshot) metaTime(key string) time.Time {
	if f, ok := sn.meta.obj.Float(key); ok {
		if t, ok := seconds(f); ok {
			return t
		}
	}
	return sn.MTime
}

var (
	errNotRegular = errors.New("not a regular file")
	errNoID       = errors.New("it has no id")
)

// failedRead reports whether an error says that the disk could not read what is
// there. It may be able to the next time, unlike text that makes no sense or a
// file that may not be read.
func failedRead(err error) bool {
	var system interface{ Timeout() bool } // what the system's errors have, and a parser's have not
	if !errors.As(err, &system) {
		return false
	}
	for _, lawful := range []error{fs.ErrNotExist, fs.ErrPermission, syscall.ENOTDIR, syscall.ELOOP, syscall.EISDIR, syscall.ENAMETOOLONG} {
		if errors.Is(err, lawful) {
			return false
		}
	}
	return true
}

// historyLost notes that history/ as a whole could not be read. What is not
// there at all is told elsewhere.
func (sn *Snapshot) historyLost(err error) {
	if !failedRead(err) {
		return
	}
	sn.unread = err
	sn.fileProblems = append(sn.fileProblems, Problem{Path: historyDir, Text: unreadable(err)})
}

// addBad records a history file that holds no readable node.
func (sn *Snapshot) addBad(name string, st stamp, settled bool, err error) {
	if failedRead(err) {
		sn.unread, st, settled = err, stamp{}, false
	}
	sn.bad = append(sn.bad, Entry{File: name, Size: st.size, MTime: st.time(), stamp: st, settled: settled})
	sn.fileProblems = append(sn.fileProblems, Problem{Path: historyDir + "/" + name, Text: unreadable(err)})
}

// unreadable words a node's problem without the path, which stands beside it.
func unreadable(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return "not readable as a node: " + err.Error()
}

// diagnose gathers what is wrong with the session: what its files told while
// they were read, then what can be told from memory alone.
func (sn *Snapshot) diagnose() {
	sn.Problems = append([]Problem(nil), sn.fileProblems...)
	add := func(path, text string) { sn.Problems = append(sn.Problems, Problem{Path: path, Text: text}) }
	switch {
	case sn.meta.missing:
		add(metaFile, "missing")
	case sn.meta.err != nil:
		add(metaFile, "not readable: "+sn.meta.err.Error())
	case sn.meta.obj.Str("id") != "" && sn.meta.obj.Str("id") != sn.ID:
		add(metaFile, "its id names another session: "+sn.meta.obj.Str("id"))
	}
	switch {
	case sn.unreachable:
		add("", "its recorded place cannot be reached: "+sn.Dir)
	case !sn.Openable:
		add("", "the repository or its history is missing: nothing can be changed here")
	}
	if sn.restored > 0 {
		add(historyDir, "was missing and has been restored from Git")
	}
	if sn.Head == "" {
		return
	}
	if _, ok := sn.Index.Get(sn.Head); !ok {
		add("head", "names a node that is not there: "+sn.Head)
		return
	}
	if err := sn.Index.CheckBranch(sn.Head); err != nil {
		add("head", sn.brokenBranch(sn.Head, err).Error())
	}
}
