package gitrepo

import (
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/adler32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// objectWriter writes loose objects. Each lies under a temporary name (which
// git prune knows and removes) until publish: then all are made durable side
// by side, which costs hardly more than one, and only then get their names.
type objectWriter struct {
	r       *Repo
	sync    bool
	zw      *compressor
	pending []pendingObject
	seen    map[plumbing.Hash]bool
	known   treePieces // of the commit before
	pieces  treePieces // of the trees that were written
}

type pendingObject struct {
	hash plumbing.Hash
	temp string
	file disk.File // nil when closed: nothing is left to sync
}

// maxOpenObjects bounds the descriptors that wait for a sync.
const maxOpenObjects = 64

// freshenAfter is the age from which an object that is used again gets a new
// time, so that a git prune that runs meanwhile spares it.
const freshenAfter = 24 * time.Hour

func (r *Repo) newObjectWriter() (*objectWriter, error) {
	zw, err := r.opt.Compressors.get()
	if err != nil {
		return nil, err
	}
	w := &objectWriter{r: r, sync: r.opt.Sync == SyncBatch, zw: zw, seen: map[plumbing.Hash]bool{}, pieces: treePieces{}}
	if p := r.pieces.Load(); p != nil {
		w.known = *p
	}
	return w, nil
}

// put writes an object from memory unless it is there already.
func (w *objectWriter) put(typ plumbing.ObjectType, content []byte) (plumbing.Hash, error) {
	return w.putWith(typ, content, func(header []byte) error {
		if len(content) <= storedMax {
			w.stored(header, content)
			return nil
		}
		w.zw.Reset(&w.zw.out)
		return writeAll(w.zw.Writer, header, content)
	})
}

// storedMax is the size up to which an object is not compressed: with its
// header it takes one block of the disk in any case, and making a code for it
// takes longer than writing it. Packing compresses it.
const storedMax = 4<<10 - 64

// stored writes a zlib stream of one block that is not compressed.
func (w *objectWriter) stored(header, content []byte) {
	w.zw.out.WriteString(zlibStart)
	w.storedBlock(1, header, content)
	w.sumOf(header, content)
}

// storedBlock writes a block that is not compressed (RFC 1951 3.2.4); last is 1
// for the last one of a stream. The parts have less than 64 KiB.
func (w *objectWriter) storedBlock(last byte, parts ...[]byte) {
	n := uint16(0)
	for _, p := range parts {
		n += uint16(len(p))
	}
	w.zw.out.Write([]byte{last, byte(n), byte(n >> 8), byte(^n), byte(^n >> 8)})
	for _, p := range parts {
		w.zw.out.Write(p)
	}
}

// sumOf writes the checksum of what a zlib stream holds.
func (w *objectWriter) sumOf(parts ...[]byte) {
	sum := adler32.New()
	for _, p := range parts {
		sum.Write(p)
	}
	w.zw.out.Write(binary.BigEndian.AppendUint32(nil, sum.Sum32()))
}

// putWith is put with a function that compresses header and content into w.zw.out.
func (w *objectWriter) putWith(typ plumbing.ObjectType, content []byte, compress func(header []byte) error) (plumbing.Hash, error) {
	header := objectHeader(typ, int64(len(content)))
	sum := sha1.New()
	sum.Write(header)
	sum.Write(content)
	h := plumbing.Hash(sum.Sum(nil))
	if w.exists(h) {
		return h, nil
	}
	w.zw.out.Reset()
	if err := compress(header); err != nil {
		return h, err
	}
	file, temp, err := w.temp()
	if err != nil {
		return h, err
	}
	if _, err := file.Write(w.zw.out.Bytes()); err != nil {
		return h, errors.Join(fmt.Errorf("write object: %w", err), file.Close(), w.r.fs.Remove(temp))
	}
	return h, w.add(pendingObject{h, temp, file})
}

// putStream writes a blob of known size without holding it in memory. io.EOF
// too early, or more than size, is errFileChanged.
func (w *objectWriter) putStream(src io.Reader, size int64) (plumbing.Hash, error) {
	file, temp, err := w.temp()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	sum := sha1.New()
	w.zw.Reset(file)
	err = w.copyStream(sum, src, size)
	h := plumbing.Hash(sum.Sum(nil))
	if err != nil || w.exists(h) {
		return h, errors.Join(err, file.Close(), w.r.fs.Remove(temp))
	}
	return h, w.add(pendingObject{h, temp, file})
}

func (w *objectWriter) copyStream(sum hash.Hash, src io.Reader, size int64) error {
	dst := io.MultiWriter(sum, w.zw)
	if _, err := dst.Write(objectHeader(plumbing.BlobObject, size)); err != nil {
		return err
	}
	n, err := io.Copy(dst, io.LimitReader(src, size+1))
	if err != nil {
		return err
	}
	if n != size {
		return errFileChanged
	}
	return w.zw.Close()
}

func writeAll(zw *zlib.Writer, parts ...[]byte) error {
	for _, p := range parts {
		if _, err := zw.Write(p); err != nil {
			return err
		}
	}
	return zw.Close()
}

func objectHeader(typ plumbing.ObjectType, size int64) []byte {
	b := append([]byte(typ.String()), ' ')
	return append(strconv.AppendInt(b, size, 10), 0)
}

// exists reports whether the object is pending or loose on disk. One that is
// only packed is written again, which is harmless and saves loading packs. A
// file without content is what a power cut leaves of an object.
func (w *objectWriter) exists(h plumbing.Hash) bool {
	if w.seen[h] {
		return true
	}
	path := filepath.Join(w.r.common, "objects", objectPath(h))
	fi, err := w.r.fs.Lstat(path)
	if err != nil || fi.Size() == 0 || !fi.Mode().IsRegular() {
		return false
	}
	if time.Since(fi.ModTime()) > freshenAfter {
		now := time.Now()
		if isLink(w.r.fs, filepath.Dir(path)) || os.Chtimes(path, now, now) != nil {
			return false // somebody else's: write our own
		}
	}
	w.seen[h] = true
	return true
}

func (w *objectWriter) temp() (disk.File, string, error) {
	temp := filepath.Join(w.r.common, "objects", tempObject+randomName())
	file, err := w.r.create(temp, 0o444)
	if err != nil {
		return nil, "", fmt.Errorf("write object: %w", err)
	}
	return file, temp, nil
}

func (w *objectWriter) add(p pendingObject) error {
	w.seen[p.hash] = true
	w.pending = append(w.pending, p)
	if !w.sync {
		return w.settle(len(w.pending) - 1)
	}
	if len(w.pending)%maxOpenObjects == 0 {
		return w.syncOpen()
	}
	return nil
}

// settle closes one pending object.
func (w *objectWriter) settle(i int) error {
	f := w.pending[i].file
	w.pending[i].file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// syncOpen makes the content of what is open durable.
func (w *objectWriter) syncOpen() error {
	var jobs []func() error
	for i := range w.pending {
		if f := w.pending[i].file; f != nil {
			jobs = append(jobs, f.Sync)
		}
	}
	err := sideBySide(jobs)
	for i := range w.pending {
		err = errors.Join(err, w.settle(i))
	}
	return err
}

// publish makes all objects durable, together with what also syncs (the index
// and the ref, still locks), and gives the objects their names.
func (w *objectWriter) publish(also ...disk.File) error {
	if w.sync {
		if err := w.syncWith(also); err != nil {
			return fmt.Errorf("sync objects: %w", err)
		}
	}
	objects := filepath.Join(w.r.common, "objects")
	dirs := map[string]bool{}
	for _, p := range w.pending { // all of them before any gets its name
		dir := filepath.Dir(filepath.Join(objects, objectPath(p.hash)))
		if !dirs[dir] && isLink(w.r.fs, dir) {
			return linkError("objects/" + filepath.Base(dir))
		}
		dirs[dir] = true
	}
	for i, p := range w.pending {
		path := filepath.Join(objects, objectPath(p.hash))
		made, err := w.rename(p.temp, path)
		if err != nil {
			return fmt.Errorf("publish object: %w", err)
		}
		w.pending[i].temp = ""
		if made {
			dirs[objects] = true
		}
	}
	if len(w.pieces) > 0 {
		w.r.pieces.Store(&w.pieces)
	}
	if !w.sync {
		return nil
	}
	return w.r.syncDirs(dirs)
}

func (w *objectWriter) syncWith(also []disk.File) error {
	jobs := make([]func() error, 0, len(also)+1)
	for _, f := range also {
		jobs = append(jobs, f.Sync)
	}
	return sideBySide(append(jobs, w.syncOpen))
}

// maxVanished bounds how often a directory is made again that git gc removes
// because it is empty.
const maxVanished = 100

// rename publishes one object; made reports that its directory is new.
func (w *objectWriter) rename(temp, path string) (made bool, err error) {
	for range maxVanished {
		// Go's Rename looks at the new name before, which there rarely is: the
		// same object from somebody else, or an empty one that a power cut left.
		err = w.r.fs.RenameNoReplace(temp, path)
		if errors.Is(err, fs.ErrExist) {
			err = w.r.fs.Rename(temp, path)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return made, err
		}
		if _, serr := w.r.fs.Lstat(temp); serr != nil {
			return made, err // it is the object that is gone
		}
		if err := w.mkdir(filepath.Dir(path)); err != nil {
			return made, err
		}
		made = true
	}
	return made, err
}

// mkdir makes one of the 256 object directories.
func (w *objectWriter) mkdir(dir string) error {
	if err := w.r.fs.Mkdir(dir, 0o777&w.r.perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if !w.r.give {
		return nil
	}
	err := w.r.fs.Lchown(dir, w.r.uid, w.r.gid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return ignorePermission(err)
}

// close gives up what was not published and returns the compressor.
func (w *objectWriter) close() error {
	var errs []error
	for i := range w.pending {
		errs = append(errs, w.settle(i))
		if t := w.pending[i].temp; t != "" {
			if err := w.r.fs.Remove(t); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	w.r.opt.Compressors.put(w.zw)
	w.pending = nil
	return errors.Join(errs...)
}

// syncDirs makes the names in several directories durable.
func (r *Repo) syncDirs(dirs map[string]bool) error {
	jobs := make([]func() error, 0, len(dirs))
	for d := range dirs {
		jobs = append(jobs, func() error {
			err := r.fs.SyncDir(d)
			if errors.Is(err, fs.ErrNotExist) {
				return nil // packed meanwhile, and git syncs packs
			}
			return err
		})
	}
	if err := sideBySide(jobs); err != nil {
		return fmt.Errorf("sync directories: %w", err)
	}
	return nil
}

// sideBySide runs jobs at once and waits: the file system joins syncs that run
// at the same time into one.
func sideBySide(jobs []func() error) error {
	if len(jobs) == 1 {
		return jobs[0]()
	}
	errs := make([]error, len(jobs))
	var wg sync.WaitGroup
	for i, job := range jobs {
		wg.Go(func() { errs[i] = job() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
