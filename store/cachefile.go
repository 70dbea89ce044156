package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sessionfs/sessionfs/store/internal/safefile"
)

// What a store keeps from one process to the next lies in Options.CacheDir,
// never below the root: nobody who works on the store comes across it, and
// read-only stores may write it. It is only ever a shorter way to what the
// store's files say: each part of it names the state of the file that it was
// read from, and counts as long as lstat shows that state. A file of the cache
// that is lost, damaged, of another version or another user's is no cache; so
// none is synced.

const (
	cacheSum = 4 // bytes of the checksum, after the magic line
	// maxCacheFile bounds what is read, and so what a planted file can cost.
	maxCacheFile = 256 << 20
	// A file of the cache that nobody wrote for this long is removed.
	cacheFileAge = 30 * 24 * time.Hour
	cacheRootAge = 90 * 24 * time.Hour
)

// cachePath is where the cache of something of this store lies, "" for none.
func (s *Store) cachePath(name string) string {
	if s.opt.CacheDir == "" {
		return ""
	}
	return filepath.Join(s.opt.CacheDir, cacheName(s.root), name)
}

func cacheName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:16])
}

// readCache returns the body of a file of the cache, nil when there is none
// that is whole.
func (s *Store) readCache(path, magic string) []byte {
	if path == "" {
		return nil
	}
	f, fi, err := safefile.OpenRegular(s.fs, path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if sys, ok := fi.Sys().(*syscall.Stat_t); !ok || int(sys.Uid) != os.Geteuid() || fi.Mode().Perm()&0o022 != 0 || fi.Size() > maxCacheFile {
		return nil // not what we wrote
	}
	b := make([]byte, fi.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil
	}
	head := len(magic) + cacheSum
	if len(b) < head || string(b[:len(magic)]) != magic {
		return nil
	}
	body := b[head:]
	if binary.LittleEndian.Uint32(b[len(magic):]) != crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) {
		s.log.Debug("damaged cache", "path", path)
		return nil
	}
	return body
}

// writeCache replaces a file of the cache. A failure costs only time, later.
func (s *Store) writeCache(path, magic string, body []byte) {
	if path == "" || len(body) > maxCacheFile/2 {
		return
	}
	if err := s.replaceCache(path, magic, body); err != nil {
		s.log.Debug("write cache", "path", path, "err", err)
	}
}

func (s *Store) replaceCache(path, magic string, body []byte) error {
	dir := filepath.Dir(path)
	if _, err := s.fs.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := s.fs.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		s.pruneCache(s.opt.CacheDir, cacheRootAge)
	}
	temp := path + "." + randomHex(16) + ".tmp"
	f, err := s.fs.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	b := make([]byte, 0, len(magic)+cacheSum+len(body))
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	_, err = f.Write(append(b, body...))
	if err = errors.Join(err, f.Close()); err == nil {
		err = s.fs.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, s.fs.Remove(temp))
	}
	return nil
}

// pruneCache removes what nobody wrote for a long time.
func (s *Store) pruneCache(dir string, age time.Duration) {
	entries, err := s.fs.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && time.Since(fi.ModTime()) > age && hexName(e.Name()) {
			_ = s.fs.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// hexName reports whether a name in the cache is one that cacheName made, with
// whatever follows it: nothing else is ever removed.
func hexName(name string) bool {
	if len(name) < 32 {
		return false
	}
	_, err := hex.DecodeString(name[:32])
	return err == nil
}

// cacheReader takes a body apart. After the first thing that is not there, all
// that it returns is zero and bad is set.
type cacheReader struct {
	b   []byte
	bad bool
}

func (r *cacheReader) fail() {
	r.b, r.bad = nil, true
}

func (r *cacheReader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads the number of things that follow, each of at least size bytes.
func (r *cacheReader) count(size int) int {
	n := r.int()
	if n < 0 || n > int64(len(r.b)/size) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *cacheReader) float() float64 {
	if len(r.b) < 8 {
		r.fail()
		return 0
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64(r.b))
	r.b = r.b[8:]
	return v
}

// bytes returns a part of the body.
func (r *cacheReader) bytes() []byte {
	n := r.count(1)
	if r.bad {
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *cacheReader) stamp() stamp {
	return stamp{ino: uint64(r.int()), mtime: r.int(), ctime: r.int(), size: r.int()}
}

func appendBytes(b []byte, v string) []byte {
	return append(binary.AppendVarint(b, int64(len(v))), v...)
}

func appendFloat(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

func appendStamp(b []byte, st stamp) []byte {
	for _, v := range [...]int64{int64(st.ino), st.mtime, st.ctime, st.size} {
		b = binary.AppendVarint(b, v)
	}
	return b
}
