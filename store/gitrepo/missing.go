package gitrepo

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/sys/unix"
)

// MissingObject is a tree or blob of the newest commit that cannot be read.
type MissingObject struct {
	Path string // in the commit, slash-separated; "" is the top
	Tree bool
	File string // where it would lie as a loose object
	hash plumbing.Hash
	mode uint32
}

// MissingObjects lists, up to a limit, what the newest commit's trees name and
// the repository has not, or has damaged. The trees are read; of a blob only the
// beginning is, and of one in a pack that the pack has it. A partial clone,
// which lacks objects by design, has none missing. Limit <= 0 is all.
func (r *Repo) MissingObjects(ctx context.Context, limit int) ([]MissingObject, error) {
	tip, err := r.readTip()
	if err != nil || tip.commit == nil || r.partial() {
		return nil, err
	}
	w := objectWalk{ctx: ctx, r: r, limit: limit, seen: map[plumbing.Hash]bool{}, names: r.newAbbreviator()}
	err = w.tree("", tip.commit.TreeHash, 0)
	if errors.Is(err, errEnough) {
		err = nil
	}
	return w.missing, err
}

// partial reports whether the repository is a partial clone.
func (r *Repo) partial() bool {
	own := &gitConfig{values: map[string]string{}}
	err := own.readFile(r.fs, func(string) string { return "" }, r.ConfigPath(), maxIncludes)
	return err == nil && own.str("extensions.partialclone") != ""
}

var errEnough = errors.New("enough")

// objectWalk looks at the objects of one commit.
type objectWalk struct {
	ctx     context.Context
	r       *Repo
	limit   int
	seen    map[plumbing.Hash]bool
	names   *abbreviator // knows the packs
	zr      io.ReadCloser
	missing []MissingObject
}

// tree looks at a tree and at what is in it.
func (w *objectWalk) tree(path string, h plumbing.Hash, depth int) error {
	if w.seen[h] || depth > maxDepth {
		return nil
	}
	w.seen[h] = true
	if err := checkContext(w.ctx); err != nil {
		return err
	}
	entries, err := w.r.objects.rawTree(h)
	if errors.Is(err, fs.ErrPermission) {
		return nil // not to be seen by us
	}
	if err != nil {
		return w.note(path, h, modeDir)
	}
	for _, e := range entries {
		name := joinPath(path, e.name)
		switch {
		case e.isDir():
			err = w.tree(name, e.hash, depth+1)
		case e.mode&modeType != modeGitlink && !w.seen[e.hash] && !w.hasBlob(e.hash):
			err = w.note(name, e.hash, e.mode)
		default:
			w.seen[e.hash] = true
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *objectWalk) note(path string, h plumbing.Hash, mode uint32) error {
	w.seen[h] = true
	file := filepath.Join(w.r.common, "objects", objectPath(h))
	w.missing = append(w.missing, MissingObject{Path: path, Tree: mode == modeDir, File: file, hash: h, mode: mode})
	if len(w.missing) == w.limit {
		return errEnough
	}
	return nil
}

// hasBlob reports whether a blob is there. What is found neither loose nor in a
// pack is looked up as every reader does, who looks again at packs that came and
// went meanwhile.
func (w *objectWalk) hasBlob(h plumbing.Hash) bool {
	for _, dir := range w.names.dirs {
		if w.looseBlob(filepath.Join(dir, objectPath(h))) {
			return true
		}
	}
	for _, p := range w.names.packs {
		names := p.group(h[0])
		n := len(names) / len(h)
		at := func(i int) []byte { return names[i*len(h) : (i+1)*len(h)] }
		i := sort.Search(n, func(i int) bool { return bytes.Compare(at(i), h[:]) >= 0 })
		if i < n && bytes.Equal(at(i), h[:]) && w.wholePack(p) {
			return true
		}
	}
	_, err := w.r.objects.size(h)
	return err == nil || errors.Is(err, fs.ErrPermission)
}

// wholePack reports whether a pack ends as its index says.
func (w *objectWalk) wholePack(p *packNames) bool {
	if p.whole == 0 {
		p.whole = -1
		if whole, err := w.r.packEndsAs(p.path); err == nil && whole {
			p.whole = 1
		}
	}
	return p.whole > 0
}

// packEndsAs compares the checksum at the end of a pack with the one that its
// index, at path, has of it. The error is that of a file that cannot be read.
func (r *Repo) packEndsAs(path string) (bool, error) {
	of, err := r.tail(path, 2*checksumSize)
	if err != nil {
		return false, err
	}
	is, err := r.tail(strings.TrimSuffix(path, ".idx")+".pack", checksumSize)
	return of != nil && bytes.Equal(of, is), err
}

// tail is the checksum that begins so many bytes before the end of a file; nil
// when that is shorter.
func (r *Repo) tail(path string, back int64) ([]byte, error) {
	f, err := openFile(r.fs, path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || fi.Size() < back {
		return nil, err
	}
	b := make([]byte, checksumSize)
	_, err = io.ReadFull(io.NewSectionReader(f, fi.Size()-back, checksumSize), b)
	return b, err
}

// DamagedPacks lists the packs that do not end as their index says: git uses
// nothing of these.
func (r *Repo) DamagedPacks() []string {
	var out []string
	for _, p := range r.newAbbreviator().packs {
		if whole, err := r.packEndsAs(p.path); err == nil && !whole {
			out = append(out, strings.TrimSuffix(p.path, ".idx")+".pack")
		}
	}
	return out
}

// looseBlob reports whether a file begins as a loose blob does.
func (w *objectWalk) looseBlob(path string) bool {
	f, err := openFile(w.r.fs, path, os.O_RDONLY)
	if err != nil {
		return errors.Is(err, fs.ErrPermission)
	}
	defer f.Close()
	var b [512]byte
	n, _ := f.ReadAt(b[:], 0)
	src := bytes.NewReader(b[:n])
	if w.zr == nil {
		w.zr, err = zlib.NewReader(src)
	} else {
		err = w.zr.(zlib.Resetter).Reset(src, nil)
	}
	if err != nil {
		return false
	}
	var head [len("blob 0\x00")]byte
	_, err = io.ReadFull(w.zr, head[:])
	return err == nil && bytes.HasPrefix(head[:], []byte("blob "))
}

// RestoreObjects writes the missing objects of the newest commit again whose
// bytes are still to be had: trees from the index, blobs from the files of the
// work tree, where they have the same hash. What is left of such an object goes
// through setAside first. It returns how many it wrote.
func (r *Repo) RestoreObjects(ctx context.Context, setAside func(path string) error) (count int, err error) {
	l, err := r.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.release()) }()
	if err := r.refuseObjectLinks(); err != nil { // what is left of an object is removed
		return 0, err
	}
	idx, _, err := r.readIndex(emptyTree)
	if err != nil {
		return 0, err
	}
	// A tree that comes back shows what is missing below it.
	tried := map[plumbing.Hash]bool{}
	for {
		missing, err := r.MissingObjects(ctx, 0)
		missing = slices.DeleteFunc(missing, func(m MissingObject) bool { return tried[m.hash] })
		if err != nil || len(missing) == 0 {
			return count, err
		}
		for _, m := range missing {
			tried[m.hash] = true
		}
		n, err := r.restoreObjects(missing, idx, setAside)
		count += n
		if err != nil || n == 0 {
			return count, err
		}
		r.objects.forget()
	}
}

// restoreObjects is one round of RestoreObjects.
func (r *Repo) restoreObjects(missing []MissingObject, idx *gitIndex, setAside func(path string) error) (count int, err error) {
	w, err := r.newObjectWriter()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	trees := map[plumbing.Hash]MissingObject{}
	put := func(m MissingObject, typ plumbing.ObjectType, content []byte) error {
		if err := setAside(m.File); err != nil {
			return err
		}
		_, err := w.put(typ, content)
		count++
		return err
	}
	for _, m := range missing {
		if m.Tree {
			trees[m.hash] = m
			continue
		}
		content, err := r.workContent(m)
		if err != nil || plumbing.ComputeHash(plumbing.BlobObject, content) != m.hash {
			continue // changed since, or gone
		}
		if err := put(m, plumbing.BlobObject, content); err != nil {
			return 0, err
		}
	}
	if len(trees) > 0 {
		b := treeBuilder{idx: idx, write: func(content []byte, _ []int) (plumbing.Hash, error) {
			h := plumbing.ComputeHash(plumbing.TreeObject, content)
			m, ok := trees[h]
			if !ok {
				return h, nil
			}
			delete(trees, h)
			return h, put(m, plumbing.TreeObject, content)
		}}
		if _, err := b.build("", "", 0, len(idx.entries)); err != nil {
			return 0, err
		}
	}
	return count, w.publish()
}

// workContent is what the work tree has at the path of a blob.
func (r *Repo) workContent(m MissingObject) ([]byte, error) {
	if !filepath.IsLocal(m.Path) {
		return nil, ErrCorrupt
	}
	full := filepath.Join(r.work, filepath.FromSlash(m.Path))
	if m.mode == modeSymlink {
		target, err := r.fs.Readlink(full)
		return []byte(target), err
	}
	fd, st, err := openRegular(unix.AT_FDCWD, full)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return readSized(fd, st.Size)
}
