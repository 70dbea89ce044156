package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// Tombstone reports whether a session was deleted: .deleted/<id> is a regular
// file, whatever it holds (reference 2.7). A deleted id is never used again.
// Resolve tells a place that cannot be looked at from one where there is none.
func (l *Layout) Tombstone(id string) bool {
	dead, err := l.tombstone(id)
	return dead && err == nil
}

func (l *Layout) tombstone(id string) (bool, error) {
	fi, err := l.fs.Stat(filepath.Join(l.root, deletedName, id))
	if err == nil {
		return fi.Mode().IsRegular(), nil
	}
	if absent(err) {
		return false, nil
	}
	return false, fmt.Errorf("delete intent: %w", err)
}

// TombstonePath is where the intent to delete a session lies.
func (l *Layout) TombstonePath(id string) string { return filepath.Join(l.root, deletedName, id) }

// Tombstones returns the ids of all deleted sessions, sorted.
func (l *Layout) Tombstones() ([]string, error) {
	entries, err := l.fs.ReadDir(filepath.Join(l.root, deletedName))
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("delete intents: %w", err)
	}
	var ids []string
	for _, e := range entries {
		dead := e.Type().IsRegular()
		if e.Type()&fs.ModeSymlink != 0 {
			dead, _ = l.tombstone(e.Name())
		}
		if dead && !disk.IsTemp(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// WriteTombstone makes the durable intent to delete a session; now is in
// seconds since the epoch. An intent that is there already is left as it is.
// The caller holds the session's lock.
func (l *Layout) WriteTombstone(id string, now float64) error {
	if err := ValidID(id); err != nil {
		return err
	}
	if !utf8.ValidString(id) {
		return fmt.Errorf("%w: %q is not UTF-8", ErrInvalidID, id)
	}
	if dead, err := l.tombstone(id); dead || err != nil {
		return err
	}
	dir := filepath.Join(l.root, deletedName)
	if fi, err := l.fs.Lstat(dir); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("delete intent: %w", &fs.PathError{Op: "open", Path: dir, Err: syscall.ELOOP})
	}
	if err := disk.MkdirOwned(l.fs, dir, 0o700); err != nil {
		return fmt.Errorf("delete intent: %w", err)
	}
	o := jsonedit.NewObject()
	o.SetAll([]jsonedit.Member{
		{Key: "session_id", Raw: jsonedit.EncodeString(id)},
		{Key: "deleted_at", Raw: jsonedit.EncodeFloat(now)},
	})
	text := jsonedit.Indent(o.Bytes(), "")
	if err := disk.WriteAtomic(l.fs, filepath.Join(dir, id), text, disk.WriteOptions{}); err != nil {
		return fmt.Errorf("delete intent: %w", err)
	}
	return nil
}

// absent reports whether an error says that there is nothing of that name, as
// opposed to: it cannot be looked at.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) ||
		errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENAMETOOLONG)
}
