package recovery

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
)

// Errors of a Tree, to be found with errors.Is.
var (
	// ErrManifest: a turn's undo data cannot be understood. It is left as it
	// is: nothing is recorded, planned or written over it.
	ErrManifest = errors.New("undo data cannot be understood")
	// ErrNotRecordable: the file cannot be recorded, so the turn must not
	// change it: it is a symlink, a directory or a device, has other hard
	// links, or its path is not UTF-8.
	ErrNotRecordable = errors.New("file cannot be recorded")
	// ErrNotPrepared: After or Abort without Before.
	ErrNotPrepared = errors.New("no change of this file was prepared")
	// ErrBadTurn: the turn's id cannot name a directory of undo data.
	ErrBadTurn = errors.New("not a turn's id")
	// ErrStale: the files, or what is recorded of them, have changed since
	// the plan that was confirmed.
	ErrStale = errors.New("the plan is no longer what was confirmed")
	// ErrUnfinished: an earlier restoration has to be replayed first, or this
	// one has to be: files may be old or new until Replay.
	ErrUnfinished = errors.New("a restoration of files is unfinished")
	// ErrRecoveryRequired: a restoration could be neither finished nor undone
	// because somebody else changed a file meanwhile.
	ErrRecoveryRequired = errors.New("files have to be recovered by hand")
	// ErrNoProject: the session is bound to no project's directory, below
	// which alone files are restored.
	ErrNoProject = errors.New("no project directory")
)

const (
	manifestName = "manifest.json"
	intentsName  = "intents"
	locksName    = "intent-locks"
	maxTurn      = 200 // bytes of a turn's id
	maxBaseChars = 40  // of a file's name in its key
)

// Options describe a session's undo data.
type Options struct {
	FS disk.FS
	// Dir is the undo data's directory, <repo parent>/.file-recovery/<id>. It
	// is made when something is recorded.
	Dir string
	// Legacy is where older undo data lies, <repo>/file_backups; it is only
	// read. "" means nowhere.
	Legacy string
	// State is the state directory, whose locks and counter are shared by all
	// sessions; "" means that there is none.
	State string
	// Project, when set, is noted with each file recorded below its Root.
	Project *Locator
	// Now tells the time; nil means time.Now.
	Now func() time.Time
}

// Tree is a session's undo data. It is safe for concurrent use.
type Tree struct {
	opt Options
	fs  disk.FS
	mu  sync.Mutex
}

// Open returns the undo data at opt.Dir. Nothing is read or made yet.
func Open(opt Options) *Tree {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Tree{opt: opt, fs: opt.FS}
}

// now is in seconds since the epoch.
func (t *Tree) now() float64 { return float64(t.opt.Now().UnixMicro()) / 1e6 }

// FileKey returns a file's key in a manifest: twelve hex digits of its absolute
// path and the beginning of its name.
func FileKey(path string) string {
	sum := sha1.Sum([]byte(path))
	base := filepath.Base(path)
	if base == "/" || base == "." {
		base = "file"
	}
	chars := 0
	for i := range base {
		if chars == maxBaseChars {
			base = base[:i]
			break
		}
		chars++
	}
	return hex.EncodeToString(sum[:])[:12] + "_" + base
}

func checkTurn(turn string) error {
	bad := turn == "" || turn == intentsName || turn == locksName || len(turn) > maxTurn ||
		strings.HasPrefix(turn, ".") || strings.ContainsAny(turn, "/\\\x00")
	if bad {
		return fmt.Errorf("%q: %w", turn, ErrBadTurn)
	}
	return nil
}

// turnDir is where a turn's undo data lies: the legacy place only where there
// is some and none at the present one.
func (t *Tree) turnDir(turn string) (dir string, legacy bool, err error) {
	if err := checkTurn(turn); err != nil {
		return "", false, err
	}
	dir = filepath.Join(t.opt.Dir, turn)
	there, err := t.isDir(dir)
	if err != nil || there || t.opt.Legacy == "" {
		return dir, false, err
	}
	old := filepath.Join(t.opt.Legacy, turn)
	there, err = t.isDir(old)
	if err != nil || !there {
		return dir, false, err
	}
	return old, true, nil
}

// isDir reports whether there is a directory; anything else there is an error.
func (t *Tree) isDir(dir string) (bool, error) {
	fi, err := t.fs.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !fi.IsDir():
		return false, fmt.Errorf("%s is no directory: %w", dir, ErrManifest)
	}
	return true, nil
}

// canonical returns a file's path as it is recorded: absolute, no symlink above
// the file. The file itself may be one.
func (t *Tree) canonical(path string) (string, error) {
	if !filepath.IsAbs(path) || !utf8.ValidString(path) || strings.HasSuffix(path, "/") || filepath.Clean(path) == "/" {
		return "", fmt.Errorf("%q: %w", path, ErrNotRecordable)
	}
	path = filepath.Clean(path)
	parent, err := safefile.Resolve(t.fs, filepath.Dir(path))
	if err != nil {
		return "", err
	}
	if path = filepath.Join(parent, filepath.Base(path)); !utf8.ValidString(path) {
		return "", fmt.Errorf("%q: %w", path, ErrNotRecordable)
	}
	return path, nil
}
