package safefile

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// Attr is what a new file should look like.
type Attr struct {
	// Mode is the permission; 0 means 0600.
	Mode fs.FileMode
	// Like is the file whose owner the new one takes; nil means the
	// directory that it is made in.
	Like fs.FileInfo
}

// Written says what a file got.
type Written struct {
	Size   int64
	SHA256 string // lower-case hex
}

// Create makes a file that does not exist with all that r gives, and syncs it;
// the caller syncs the directory. A failure, r's included, leaves no file.
func Create(f disk.FS, path string, r io.Reader, attr Attr) (w Written, err error) {
	like := attr.Like
	if like == nil {
		if like, err = f.Stat(filepath.Dir(path)); err != nil {
			return Written{}, err
		}
	}
	file, err := f.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return Written{}, err
	}
	w, err = fill(file, r, attr.Mode.Perm(), like)
	if err = errors.Join(err, file.Close()); err != nil {
		return Written{}, errors.Join(err, f.Remove(path))
	}
	return w, nil
}

func fill(file disk.File, r io.Reader, mode fs.FileMode, like fs.FileInfo) (Written, error) {
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum), r)
	if err != nil {
		return Written{}, err
	}
	if err := dress(file, mode, like); err != nil {
		return Written{}, err
	}
	if err := file.Sync(); err != nil {
		return Written{}, err
	}
	return Written{Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// dress gives a file its owner and then its mode. An owner that this process
// may not give is left; then the group's bits, meant for another group, go.
func dress(file disk.File, mode fs.FileMode, like fs.FileInfo) error {
	if mode == 0 {
		mode = 0o600
	}
	fi, err := file.Stat()
	if err != nil {
		return err
	}
	want, ok := like.Sys().(*syscall.Stat_t)
	got, ok2 := fi.Sys().(*syscall.Stat_t)
	if ok && ok2 && (want.Uid != got.Uid || want.Gid != got.Gid) {
		err := file.Chown(int(want.Uid), int(want.Gid))
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if err != nil && want.Gid != got.Gid {
			mode &^= 0o070
		}
	}
	if fi.Mode().Perm() == mode {
		return nil
	}
	return file.Chmod(mode)
}

// Hash returns the size and digest of the rest of a reader.
func Hash(r io.Reader) (Written, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	return Written{Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, err
}

// OpenRegular opens a regular file for reading; it follows no symlink and never
// waits for a FIFO. ErrNotRegular is wrapped by the error of anything else.
func OpenRegular(f disk.FS, path string) (disk.File, fs.FileInfo, error) {
	file, err := f.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) {
		return nil, nil, fmt.Errorf("%w: %w", ErrNotRegular, err)
	}
	if err != nil {
		return nil, nil, err
	}
	fi, err := file.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, fi, nil
}

// ReadRegular returns what a regular file holds; it follows no symlink.
// ErrNotRegular is wrapped by the error of anything else.
func ReadRegular(f disk.FS, path string) (data []byte, err error) {
	file, fi, err := OpenRegular(f, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	b := bytes.NewBuffer(make([]byte, 0, fi.Size()+bytes.MinRead))
	_, err = b.ReadFrom(file)
	return b.Bytes(), err
}

// ErrNotRegular is wrapped by the error of what should be a regular file and
// is something else.
var ErrNotRegular = errors.New("not a regular file")

// Links returns how many names a file has.
func Links(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 1
}

// RandomHex returns 32 lower-case hex digits.
func RandomHex() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
