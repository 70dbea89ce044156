package attachment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
)

// Dir is where a session keeps its attachments, below its own directory.
const Dir = "workdir/attachments"

const (
	// MaxFile is how many bytes one attachment may have, and MaxTurn how many
	// those of one turn together (reference 9.1).
	MaxFile = 32 << 20
	MaxTurn = 64 << 20
)

// TooLargeError refuses an attachment; nothing of it is stored.
type TooLargeError struct {
	Name  string
	Limit int64 // in bytes
	// Turn: the file alone would have been small enough.
	Turn bool
}

// Error returns "attachment a.bin is larger than 33554432 bytes".
func (e *TooLargeError) Error() string {
	if e.Turn {
		return fmt.Sprintf("with attachment %s, those of the turn are larger than %d bytes", e.Name, e.Limit)
	}
	return fmt.Sprintf("attachment %s is larger than %d bytes", e.Name, e.Limit)
}

// Upload is a file to be stored.
type Upload struct {
	Name    string // its own name; a path in it is dropped
	MIME    string // may be empty
	Count   string // what the marker says beside the size; may be empty
	Preview string // the path of a preview; may be empty
}

// Saved is a stored attachment.
type Saved struct {
	Marker string // to be put into the text of the message
	Stored string // the name in the attachments directory
	Path   string // absolute
	Size   int64  // in bytes
	SHA256 string // lower-case hex
	// Reused: a file with the same bytes was there, and none was made.
	Reused bool
}

// Saver stores the attachments of one turn. It is safe for concurrent use.
type Saver struct {
	fs   disk.FS
	repo string

	mu    sync.Mutex
	total int64 // bytes of the turn
}

// NewSaver returns a Saver for a turn of the session at repo, an absolute path
// that is no symlink.
func NewSaver(f disk.FS, repo string) *Saver { return &Saver{fs: f, repo: repo} }

// Bytes stores data, as Reader does.
func (s *Saver) Bytes(ctx context.Context, u Upload, data []byte) (Saved, error) {
	return s.Reader(ctx, u, bytes.NewReader(data))
}

// File stores the regular file at path, as Reader does. A symlink there is
// followed: the caller has decided that the file may be attached.
func (s *Saver) File(ctx context.Context, u Upload, path string) (saved Saved, err error) {
	real, err := safefile.Resolve(s.fs, path)
	if err != nil {
		return Saved{}, fmt.Errorf("attach %s: %w", path, err)
	}
	file, _, err := safefile.OpenRegular(s.fs, real)
	if err != nil {
		return Saved{}, fmt.Errorf("attach %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if u.Name == "" {
		u.Name = filepath.Base(path)
	}
	return s.Reader(ctx, u, file)
}

// Reader stores what r gives under a name made of the upload's (StoredName,
// with -1, -2, … when it is taken), or finds the same bytes stored already.
// When it returns nil, the file is durable. Errors are *TooLargeError, r's, the
// disk's, and safefile's when the attachments directory is not a real directory
// of the session.
func (s *Saver) Reader(ctx context.Context, u Upload, r io.Reader) (saved Saved, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, _, err := safefile.Mkdir(s.fs, s.repo, Dir, 0o755)
	if err != nil {
		return Saved{}, fmt.Errorf("attachments: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	name := StoredName(u.Name)
	temp := dir.Path(name + "." + safefile.RandomHex() + ".tmp")
	w, err := safefile.Create(s.fs, temp, &limited{ctx: ctx, r: r, name: u.Name, turn: MaxTurn - s.total}, safefile.Attr{})
	if err != nil {
		return Saved{}, fmt.Errorf("store attachment: %w", err)
	}
	stored, reused, err := s.place(dir, temp, name, w)
	if err != nil {
		return Saved{}, fmt.Errorf("store attachment: %w", err)
	}
	s.total += w.Size
	path := filepath.Join(s.repo, Dir, stored)
	marker := Format(Spec{Name: filepath.Base("/" + u.Name), MIME: u.MIME, Path: path, Size: w.Size, Count: u.Count, Preview: u.Preview})
	return Saved{Marker: marker, Stored: stored, Path: path, Size: w.Size, SHA256: w.SHA256, Reused: reused}, nil
}

// limited reads at most what may be stored, and fails when there is more.
type limited struct {
	ctx  context.Context
	r    io.Reader
	name string
	turn int64 // bytes that the turn has left
	n    int64
}

func (l *limited) Read(p []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := l.r.Read(p)
	l.n += int64(n)
	switch {
	case l.n > MaxFile:
		return 0, &TooLargeError{Name: l.name, Limit: MaxFile}
	case l.n > l.turn:
		return 0, &TooLargeError{Name: l.name, Limit: MaxTurn, Turn: true}
	}
	return n, err
}

// place gives the file at temp its name, or drops it for one with the same
// bytes.
func (s *Saver) place(dir *safefile.Dir, temp, name string, w safefile.Written) (stored string, reused bool, err error) {
	known := readDedup(s.fs, dir)
	if stored := known.Str(w.SHA256); s.holds(dir, stored, w) {
		return stored, true, s.fs.Remove(temp)
	}
	for n := 0; ; n++ {
		stored = numbered(name, n)
		err := s.fs.RenameNoReplace(temp, dir.Path(stored))
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", false, errors.Join(err, s.fs.Remove(temp))
		}
	}
	if err := s.fs.SyncDir(dir.Path("")); err != nil {
		return "", false, err
	}
	known.Set(w.SHA256, jsonedit.EncodeString(stored))
	// The attachment is stored, whatever becomes of the index.
	_ = disk.WriteAtomic(s.fs, dir.Path(dedupName), known.Bytes(), disk.WriteOptions{})
	return stored, false, nil
}

// holds reports whether a stored file has certain bytes still.
func (s *Saver) holds(dir *safefile.Dir, stored string, w safefile.Written) bool {
	if stored == "" || stored != filepath.Base(stored) || stored == "." || stored == ".." {
		return false
	}
	file, fi, err := safefile.OpenRegular(s.fs, dir.Path(stored))
	if err != nil {
		return false
	}
	got := safefile.Written{}
	if fi.Size() == w.Size {
		got, err = safefile.Hash(file)
	}
	return errors.Join(err, file.Close()) == nil && got == w
}

// readDedup reads which bytes are stored under which names. It is an index that
// loses nothing when it is lost: one that cannot be used is begun anew.
func readDedup(f disk.FS, dir *safefile.Dir) *jsonedit.Object {
	fi, err := f.Lstat(dir.Path(dedupName))
	if err != nil || !fi.Mode().IsRegular() {
		return jsonedit.NewObject()
	}
	text, err := f.ReadFile(dir.Path(dedupName))
	if err != nil {
		return jsonedit.NewObject()
	}
	known, err := jsonedit.ParseObject(text)
	if err != nil {
		return jsonedit.NewObject()
	}
	return known
}
