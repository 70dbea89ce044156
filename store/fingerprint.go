package store

import (
	"io/fs"
	"path/filepath"
	"time"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// stamp is what tells one version of a file from the next without reading it.
// The inode is part of it because every proper write is a rename: two writes
// within one tick of the clock then still differ. The time of change is part of
// it because the time of modification can be set back.
type stamp struct {
	ino          uint64
	mtime, ctime int64 // nanoseconds since the epoch
	size         int64
}

func stampOf(fi fs.FileInfo) stamp { return stampOfStat(disk.StatOf(fi)) }

func stampOfStat(st disk.Stat) stamp {
	return stamp{ino: st.Ino, mtime: st.MTime, ctime: st.CTime, size: st.Size}
}

// settled reports whether a change after now would show in the stamp.
func (st stamp) settled(now time.Time) bool {
	return disk.Stat{MTime: st.mtime, CTime: st.ctime}.Settled(now)
}

func (st stamp) time() time.Time { return time.Unix(0, st.mtime) }

// fingerprint is the state of a session's directory as far as its index
// depends on it (reference 13): meta.json and the history directory; zero
// where they are missing.
type fingerprint struct {
	meta, history stamp
	openable      bool
}

// takeFingerprint reads the fingerprint of a session directory: two stats.
func takeFingerprint(f disk.FS, dir string, openable bool) fingerprint {
	fp := fingerprint{openable: openable}
	if fi, err := f.Lstat(filepath.Join(dir, metaFile)); err == nil && fi.Mode().IsRegular() {
		fp.meta = stampOf(fi)
	}
	if fi, err := f.Lstat(filepath.Join(dir, historyDir)); err == nil && fi.IsDir() {
		fp.history = stampOf(fi)
		fp.history.size = 0 // of a directory it means nothing
	}
	return fp
}

// mtime is the later of meta.json's and history/'s modification time.
func (fp fingerprint) mtime() time.Time {
	return time.Unix(0, max(fp.meta.mtime, fp.history.mtime))
}

// The names inside a session's directory (reference 1.3).
const (
	metaFile       = "meta.json"
	historyDir     = "history"
	workDir        = "workdir"
	attachmentsDir = "attachments"
	contextDir     = "context"
)
