package disk

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// WriteOptions are the options of WriteAtomic; the zero value is right for
// every file of the store.
type WriteOptions struct {
	// Mode is the permission of a new file; 0 means 0600. A replaced file
	// keeps its own.
	Mode fs.FileMode
	// NoReplace makes the write fail with fs.ErrExist when path exists.
	NoReplace bool
	// Ready, if not nil, is called when the new content is durable under its
	// temporary name, right before it takes its place. Its error ends the
	// write, and is wrapped by WriteAtomic's: path keeps the old content.
	Ready func() error
}

// tempSuffix ends the name of a temporary file: <name>.<32 hex>.tmp.
const tempSuffix = ".tmp"

// IsTemp reports whether a file name is one that WriteAtomic, or the peer,
// gives to the temporary file of an atomic write (reference 2.2).
func IsTemp(name string) bool {
	rest, ok := strings.CutSuffix(name, tempSuffix)
	if !ok || len(rest) < 34 || rest[len(rest)-33] != '.' {
		return false
	}
	for _, c := range rest[len(rest)-32:] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// WriteAtomic puts data at path so that after a crash at any moment path holds
// the old content or the new, whole (reference 2.2). When it returns nil, the
// new content is durable. When it returns an error, path holds the old content,
// except when the sync of the directory failed: then either may be found after
// a power cut, and the caller has to read again. The temporary file is removed
// on failure.
func WriteAtomic(f FS, path string, data []byte, opt WriteOptions) error {
	dir := filepath.Dir(path)
	want, err := attributes(f, dir, path, opt)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	temp := path + "." + randomHex() + tempSuffix
	if err := writeTemp(f, temp, data, want); err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, removeTemp(f, temp)))
	}
	if opt.Ready != nil {
		if err := opt.Ready(); err != nil {
			return fmt.Errorf("write %s: %w", path, errors.Join(err, removeTemp(f, temp)))
		}
	}
	rename := f.Rename
	if opt.NoReplace {
		rename = f.RenameNoReplace
	}
	if err := rename(temp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, removeTemp(f, temp)))
	}
	if err := f.SyncDir(dir); err != nil {
		return fmt.Errorf("write %s: sync directory: %w", path, err)
	}
	return nil
}

// owned is what a file should look like.
type owned struct {
	uid, gid int // -1: unknown, leave
	mode     fs.FileMode
}

// attributes says what the file at path should look like: as the regular file
// that it replaces, else as its directory's owner would have made it.
func attributes(f FS, dir, path string, opt WriteOptions) (owned, error) {
	fi, err := f.Lstat(path)
	switch {
	case err == nil && opt.NoReplace:
		return owned{}, &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	case err == nil && fi.Mode().IsRegular():
		uid, gid := ownerOf(fi)
		return owned{uid, gid, fi.Mode().Perm()}, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return owned{}, err
	}
	di, err := f.Stat(dir)
	if err != nil {
		return owned{}, err
	}
	mode := opt.Mode.Perm()
	if mode == 0 {
		mode = 0o600
	}
	uid, gid := ownerOf(di)
	return owned{uid, gid, mode}, nil
}

// writeTemp makes the temporary file durable under its own name. The caller
// removes it when this fails.
func writeTemp(f FS, temp string, data []byte, want owned) (err error) {
	file, err := f.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(data); err != nil {
		return err
	}
	if err := dress(file, want); err != nil {
		return err
	}
	return file.Sync()
}

// dress gives the file its owner, then its mode, so that it is never open to
// somebody whom neither the old file nor the new one would let in. An owner
// that this process may not give away is left: then the file is ours, and the
// group bits, meant for another group, are dropped.
func dress(file File, want owned) error {
	fi, err := file.Stat()
	if err != nil {
		return err
	}
	uid, gid := ownerOf(fi)
	if want.uid >= 0 && (uid != want.uid || gid != want.gid) {
		err := file.Chown(want.uid, want.gid)
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if err != nil && gid != want.gid {
			want.mode &^= 0o070
		}
	}
	if fi.Mode().Perm() == want.mode {
		return nil
	}
	return file.Chmod(want.mode)
}

func removeTemp(f FS, temp string) error {
	err := f.Remove(temp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// MkdirOwned makes a directory and the missing ones above it. A new directory
// takes the owner of its parent, and its name is durable when this returns. A
// directory that exists is left as it is; anything else of that name is an
// error.
func MkdirOwned(f FS, dir string, perm fs.FileMode) error {
	fi, err := f.Stat(dir)
	if err == nil {
		if fi.IsDir() {
			return nil
		}
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if parent == dir {
		return err
	}
	if err := MkdirOwned(f, parent, perm); err != nil {
		return err
	}
	if err := mkdirOne(f, parent, dir, perm); err != nil {
		return err
	}
	return f.SyncDir(parent)
}

// mkdirOne makes one directory. Somebody else may make it at the same moment:
// then it is theirs.
func mkdirOne(f FS, parent, dir string, perm fs.FileMode) error {
	pi, err := f.Stat(parent)
	if err != nil {
		return err
	}
	err = f.Mkdir(dir, perm)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// By descriptor: whoever owns parent may have put something else there.
	d, err := f.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	uid, gid := ownerOf(pi)
	return errors.Join(giveAway(d, uid, gid), d.Close())
}

// giveAway changes the owner where it differs and this process may.
func giveAway(file File, uid, gid int) error {
	fi, err := file.Stat()
	if err != nil {
		return err
	}
	haveUID, haveGID := ownerOf(fi)
	if uid < 0 || (haveUID == uid && haveGID == gid) {
		return nil
	}
	err = file.Chown(uid, gid)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// ownerOf returns -1, -1 for a file system that knows no owners.
func ownerOf(fi fs.FileInfo) (uid, gid int) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, -1
	}
	return int(st.Uid), int(st.Gid)
}

func randomHex() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: the runtime stops the program instead
	return hex.EncodeToString(b[:])
}
