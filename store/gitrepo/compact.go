package gitrepo

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/sys/unix"
)

// A session's loose objects are mostly the trees of history/, one version for
// each turn, that differ in a line. Compact therefore does not search for
// deltas as git does: it knows that the tree of the same directory one commit
// later is the base. Two objects are in memory at a time.

const (
	// packAtCount and packAtBytes are the loose objects, and their size on disk,
	// from which CompactIfNeeded packs.
	packAtCount = 2000
	packAtBytes = 64 << 20
	// packAtLeast keeps a few big objects from being packed again and again.
	packAtLeast = 64
	// looseMax is the size on disk of an object that stays loose.
	looseMax = 32 << 20
	// sampleDirs of the 256 object directories are counted.
	sampleDirs = 16
	// emptyFor is how long an object directory is empty before it is removed
	// though nothing was packed from it: git makes one a moment before it puts
	// something in.
	emptyFor = time.Minute
)

// CompactIfNeeded compacts when there are many loose objects, which it
// estimates at the cost of a few directory reads, and returns how many were
// packed. It may run beside commits and readers, in any process.
func (r *Repo) CompactIfNeeded(ctx context.Context) (int, error) {
	var count, size int64
	for i := 0; i < 256; i += 256 / sampleDirs {
		entries, err := r.fs.ReadDir(filepath.Join(r.common, "objects", fmt.Sprintf("%02x", i)))
		if err != nil {
			continue // not there
		}
		for _, e := range entries {
			if fi, err := e.Info(); err == nil && fi.Size() <= looseMax {
				count++
				size += fi.Size()
			}
		}
	}
	count, size = count*256/sampleDirs, size*256/sampleDirs
	if count < packAtCount && (size < packAtBytes || count < packAtLeast) {
		return 0, nil
	}
	return r.Compact(ctx)
}

// Compact moves the loose objects into one pack and returns how many. The pack
// is durable, whatever the sync mode, before an object is removed; whoever
// reads meanwhile finds each object in the one place or the other. Object
// directories that are empty afterwards, a block each, are removed as git gc
// does. When another process is compacting, nothing is done.
func (r *Repo) Compact(ctx context.Context) (int, error) {
	n, err := r.compact(ctx)
	if err != nil {
		err = fmt.Errorf("compact %s: %w", r.work, err)
	}
	return n, err
}

func (r *Repo) compact(ctx context.Context) (n int, err error) {
	if err := r.refuseObjectLinks(); err != nil {
		return 0, err
	}
	packDir := filepath.Join(r.common, "objects", "pack")
	if err := r.mkdir(packDir); err != nil {
		return 0, err
	}
	dir, err := r.fs.OpenFile(packDir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	switch err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
	case nil:
	case unix.EWOULDBLOCK:
		return 0, nil
	default:
		return 0, err
	}
	c := &compactor{ctx: ctx, r: r, loose: map[plumbing.Hash]bool{}, base: map[plumbing.Hash]plumbing.Hash{}, empty: map[string]bool{}}
	if err := c.findLoose(); err != nil {
		return 0, err
	}
	if len(c.loose) > 0 {
		if err := c.chooseBases(); err != nil {
			return 0, err
		}
		if n, err = c.run(packDir); err != nil {
			return n, err
		}
	}
	return n, c.removeDirs()
}

// compactor is one run of Compact.
type compactor struct {
	ctx   context.Context
	r     *Repo
	loose map[plumbing.Hash]bool
	order []plumbing.Hash // found first, written first
	rest  []plumbing.Hash // loose objects in directory order
	base  map[plumbing.Hash]plumbing.Hash
	known map[plumbing.Hash]bool // in order already
	empty map[string]bool        // object directories that may have become empty
}

func (c *compactor) findLoose() error {
	objects := filepath.Join(c.r.common, "objects")
	for i := range 256 {
		name := fmt.Sprintf("%02x", i)
		entries, err := c.r.fs.ReadDir(filepath.Join(objects, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		c.noteEmpty(filepath.Join(objects, name), len(entries))
		for _, e := range entries {
			full := name + e.Name()
			fi, err := e.Info()
			if err != nil || len(full) != 40 || !plumbing.IsHash(full) || fi.Size() > looseMax || fi.Size() == 0 || !fi.Mode().IsRegular() {
				continue
			}
			h := plumbing.NewHash(full)
			c.loose[h] = true
			c.rest = append(c.rest, h)
		}
	}
	return nil
}

// noteEmpty remembers a directory that has been empty for long.
func (c *compactor) noteEmpty(dir string, entries int) {
	if entries > 0 {
		return
	}
	if fi, err := c.r.fs.Lstat(dir); err == nil && time.Since(fi.ModTime()) > emptyFor {
		c.empty[dir] = true
	}
}

// removeDirs removes the object directories that are empty. None of those from
// which objects were packed was missing before, so nobody can have made it anew
// to put an object in: a writer either has its file in it, and it stays, or
// finds it gone and makes it.
func (c *compactor) removeDirs() error {
	for dir := range c.empty {
		if fi, err := c.r.fs.Lstat(dir); err != nil || !fi.IsDir() {
			continue // gone, or a link, which is somebody's own doing
		}
		err := c.r.fs.Remove(dir)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		default:
			return err
		}
	}
	return nil
}

// chooseBases walks the history from HEAD as long as its commits are loose, and
// pairs what stands at the same path in two successive commits: the newer one
// is the base. It also puts the objects in that order.
func (c *compactor) chooseBases() error {
	c.known = map[plumbing.Hash]bool{}
	head, err := c.r.readHead()
	if err != nil {
		return err
	}
	newer := emptyTree
	for h := head.hash; head.born && c.loose[h]; {
		if err := checkContext(c.ctx); err != nil {
			return err
		}
		commit, err := c.r.objects.commit(h)
		if err != nil {
			return nil // damaged or gone: pack without its history
		}
		c.next(h)
		c.pair(newer, commit.TreeHash, 0)
		newer = commit.TreeHash
		if len(commit.ParentHashes) == 0 {
			break
		}
		h = commit.ParentHashes[0]
	}
	for _, h := range c.rest {
		c.next(h)
	}
	return nil
}

func (c *compactor) next(h plumbing.Hash) {
	if c.loose[h] && !c.known[h] {
		c.known[h] = true
		c.order = append(c.order, h)
	}
}

// pair makes the newer object the base of the older one, and goes on below
// where both are trees. What cannot be read is simply not paired.
func (c *compactor) pair(newer, older plumbing.Hash, depth int) {
	if newer == older || !c.loose[older] || c.known[older] || depth > maxDepth {
		return
	}
	c.next(older)
	if c.loose[newer] {
		c.base[older] = newer
	}
	typ, was, err := c.r.readLoose(older)
	if err != nil || typ != plumbing.TreeObject {
		return
	}
	var now []byte
	if newer != emptyTree {
		if now, err = c.r.objects.bytes(newer, plumbing.TreeObject); err != nil {
			now = nil
		}
	}
	eachChanged(now, was, func(newer, older rawEntry) { c.pair(newer.hash, older.hash, depth+1) })
}

// rawEntry is a tree entry as bytes of its tree.
type rawEntry struct {
	whole, name []byte
	hash        plumbing.Hash
}

func cutEntry(b []byte) (e rawEntry, rest []byte, ok bool) {
	nul := bytes.IndexByte(b, 0)
	if nul < 0 || len(b) < nul+21 {
		return e, nil, false
	}
	sp := bytes.IndexByte(b[:nul], ' ')
	end := nul + 21
	return rawEntry{b[:end], b[sp+1 : nul], plumbing.Hash(b[nul+1 : end])}, b[end:], true
}

// eachChanged calls fn for the entries of b that a does not have, with the
// entry of the same name in a (its hash zero when there is none). Both are
// tree objects; an order that differs only loses pairs.
func eachChanged(a, b []byte, fn func(newer, older rawEntry)) {
	for len(b) > 0 {
		eb, restB, ok := cutEntry(b)
		if !ok {
			return
		}
		if len(a) >= len(eb.whole) && string(a[:len(eb.whole)]) == string(eb.whole) {
			a, b = a[len(eb.whole):], restB
			continue
		}
		b = restB
		var match rawEntry
		for len(a) > 0 {
			ea, restA, ok := cutEntry(a)
			if !ok {
				a = nil
				break
			}
			if string(ea.name) > string(eb.name) {
				break
			}
			a = restA
			if string(ea.name) == string(eb.name) {
				match = ea
				break
			}
		}
		if match.hash != eb.hash {
			fn(match, eb)
		}
	}
}

// readLoose reads a loose object and verifies its name.
func (r *Repo) readLoose(h plumbing.Hash) (plumbing.ObjectType, []byte, error) {
	f, err := openFile(r.fs, filepath.Join(r.common, "objects", objectPath(h)), os.O_RDONLY)
	if err != nil {
		return plumbing.InvalidObject, nil, err
	}
	defer f.Close()
	z, err := zlib.NewReader(f)
	if err != nil {
		return plumbing.InvalidObject, nil, fmt.Errorf("object %s: %w: %w", h, ErrCorrupt, err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		return plumbing.InvalidObject, nil, fmt.Errorf("object %s: %w: %w", h, ErrCorrupt, err)
	}
	nul := bytes.IndexByte(b, 0)
	name, size, _ := strings.Cut(string(b[:max(nul, 0)]), " ")
	typ, err := plumbing.ParseObjectType(name)
	n, aerr := strconv.Atoi(size)
	if err != nil || aerr != nil || n != len(b)-nul-1 || plumbing.Hash(sha1.Sum(b)) != h {
		return plumbing.InvalidObject, nil, fmt.Errorf("object %s: %w", h, ErrCorrupt)
	}
	return typ, b[nul+1:], nil
}

// run writes the pack and removes what it holds.
func (c *compactor) run(packDir string) (n int, err error) {
	p, err := c.r.newPackWriter(packDir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	for _, h := range c.order {
		if err := checkContext(c.ctx); err != nil {
			return 0, err
		}
		if err := c.pack(p, h); err != nil {
			return 0, err
		}
	}
	if len(p.entries) == 0 {
		return 0, nil
	}
	if err := p.publish(); err != nil {
		return 0, err
	}
	for _, e := range p.entries {
		path := filepath.Join(c.r.common, "objects", objectPath(e.hash))
		if err := c.r.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		c.empty[filepath.Dir(path)] = true
	}
	return len(p.entries), nil
}

// pack adds one object, as a delta where that is smaller. One that is damaged,
// or that somebody else packed meanwhile, is left out.
func (c *compactor) pack(p *packWriter, h plumbing.Hash) error {
	typ, content, err := c.r.readLoose(h)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrCorrupt) {
		return nil
	}
	if err != nil {
		return err
	}
	if base, ok := c.base[h]; ok && p.canBase(base) {
		baseType, baseContent, err := c.r.readLoose(base)
		if err == nil && baseType == typ {
			return p.addDelta(h, typ, content, base, baseContent)
		}
	}
	return p.add(h, typ, content)
}
