package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// emptyTree is the tree without entries. Git knows it without an object, and
// OpenProgram's repositories have none.
var emptyTree = plumbing.NewHash("4b825dc642cb6eb9a060e54bf8d69288fbee4904")

// objectCacheSize bounds what a repository keeps of decoded objects; go-git's
// own default, 96 MiB, would be too much for each of hundreds of them.
const objectCacheSize = 512 * cache.KiByte

// objectReader reads objects, loose or packed, here or in an alternate. Packs
// come and go while we run (git gc): what is not found is looked up again on
// the disk before it counts as missing.
type objectReader struct {
	fs     disk.FS
	common string

	mu   sync.Mutex
	dirs []*filesystem.ObjectStorage // ours, then the alternates
}

// rawObject is an object without its header.
type rawObject struct {
	typ     plumbing.ObjectType
	content []byte
}

// load returns an object, read to its end: go-git reads packs late, when they
// may be gone. ErrNotFound wraps what is missing, ErrCorrupt what is there and
// unreadable.
func (o *objectReader) load(h plumbing.Hash) (rawObject, error) {
	var got rawObject
	err := o.find(h, func(obj plumbing.EncodedObject) error {
		r, err := obj.Reader()
		if err != nil {
			return err
		}
		b := make([]byte, 0, obj.Size()+bytes.MinRead)
		buf := bytes.NewBuffer(b)
		_, err = buf.ReadFrom(r)
		got = rawObject{obj.Type(), buf.Bytes()}
		return errors.Join(err, r.Close())
	})
	return got, err
}

// size returns the size of an object in bytes.
func (o *objectReader) size(h plumbing.Hash) (n int64, err error) {
	err = o.find(h, func(obj plumbing.EncodedObject) error {
		n = obj.Size()
		return nil
	})
	return n, err
}

// typeOf returns the type of an object.
func (o *objectReader) typeOf(h plumbing.Hash) (typ plumbing.ObjectType, err error) {
	err = o.find(h, func(obj plumbing.EncodedObject) error {
		typ = obj.Type()
		return nil
	})
	return typ, err
}

// find calls use with an object. When either fails, the disk is looked at
// afresh and both are tried again.
func (o *objectReader) find(h plumbing.Hash, use func(plumbing.EncodedObject) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var err error
	for range 2 {
		if o.dirs == nil {
			o.open()
		}
		var obj plumbing.EncodedObject
		if obj, err = o.lookUp(h); err == nil {
			err = use(obj)
		}
		if err == nil {
			return nil
		}
		o.dirs = nil
	}
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return fmt.Errorf("object %s: %w", h, ErrNotFound)
	}
	return fmt.Errorf("object %s: %w: %w", h, ErrCorrupt, err)
}

// forget drops what is kept of decoded objects and of packs.
func (o *objectReader) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dirs = nil
}

func (o *objectReader) lookUp(h plumbing.Hash) (plumbing.EncodedObject, error) {
	var failed error
	for _, d := range o.dirs {
		obj, err := d.EncodedObject(plumbing.AnyObject, h)
		if err == nil {
			return obj, nil
		}
		if !errors.Is(err, plumbing.ErrObjectNotFound) {
			failed = err
		}
	}
	if failed == nil {
		failed = plumbing.ErrObjectNotFound
	}
	return nil, failed
}

func (o *objectReader) open() {
	shared := &objectCache{max: int64(objectCacheSize)}
	for _, dir := range o.objectDirs() {
		st := filesystem.NewStorageWithOptions(wholePacks{osfs.New(filepath.Dir(dir))}, shared, filesystem.Options{})
		o.dirs = append(o.dirs, &st.ObjectStorage)
	}
}

// wholePacks hides the packs without an index: one that is being put in place,
// or whose writer was killed in between. Git ignores them; go-git would find no
// packed object at all.
type wholePacks struct{ billy.Filesystem }

// ReadDir lists a directory.
func (w wholePacks) ReadDir(dir string) ([]os.FileInfo, error) {
	entries, err := w.Filesystem.ReadDir(dir)
	indexed := make(map[string]bool, len(entries)/2)
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".idx"); ok {
			indexed[name] = true
		}
	}
	return slices.DeleteFunc(entries, func(e os.FileInfo) bool {
		name, ok := strings.CutSuffix(e.Name(), ".pack")
		return ok && !indexed[name]
	}), err
}

// objectDirs are the object directories: the repository's own and those that
// objects/info/alternates names, and theirs. go-git's own handling of
// alternates resolves relative paths wrongly.
func (o *objectReader) objectDirs() []string {
	dirs := []string{filepath.Join(o.common, "objects")}
	for i := 0; i < len(dirs) && len(dirs) < 16; i++ {
		b, err := o.fs.ReadFile(filepath.Join(dirs[i], "info", "alternates"))
		if err != nil {
			continue
		}
		for line := range strings.SplitSeq(string(b), "\n") {
			if line == "" || line[0] == '#' {
				continue
			}
			if !filepath.IsAbs(line) {
				line = filepath.Join(dirs[i], line)
			}
			// go-git looks for a directory of that name.
			if filepath.Base(line) == "objects" {
				dirs = append(dirs, filepath.Clean(line))
			}
		}
	}
	return dirs
}

// close forgets what is cached.
func (o *objectReader) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dirs = nil
}

// bytes returns an object's content after checking its type.
func (o *objectReader) bytes(h plumbing.Hash, want plumbing.ObjectType) ([]byte, error) {
	if h == emptyTree && want == plumbing.TreeObject {
		return nil, nil
	}
	obj, err := o.load(h)
	if err != nil {
		return nil, err
	}
	if obj.typ != want {
		return nil, fmt.Errorf("object %s: %w: a %s, not a %s", h, ErrCorrupt, obj.typ, want)
	}
	return obj.content, nil
}

// commit decodes a commit.
func (o *objectReader) commit(h plumbing.Hash) (*object.Commit, error) {
	content, err := o.bytes(h, plumbing.CommitObject)
	if err != nil {
		return nil, err
	}
	return decodeCommit(h, content)
}

func decodeCommit(h plumbing.Hash, content []byte) (*object.Commit, error) {
	var mem plumbing.MemoryObject
	mem.SetType(plumbing.CommitObject)
	if _, err := mem.Write(content); err != nil {
		return nil, fmt.Errorf("commit %s: %w", h, err)
	}
	var c object.Commit
	if err := c.Decode(&mem); err != nil {
		return nil, fmt.Errorf("commit %s: %w: %w", h, ErrCorrupt, err)
	}
	return &c, nil
}

// rawTree decodes a tree into its entries, in stored order.
func (o *objectReader) rawTree(h plumbing.Hash) ([]treeEntry, error) {
	b, err := o.bytes(h, plumbing.TreeObject)
	if err != nil {
		return nil, err
	}
	entries, ok := decodeTree(b)
	if !ok {
		return nil, fmt.Errorf("tree %s: %w", h, ErrCorrupt)
	}
	return entries, nil
}

// checkContext is asked between steps that may be many.
func checkContext(ctx context.Context) error {
	return context.Cause(ctx)
}

// objectPath is where a loose object lies below the objects directory.
func objectPath(h plumbing.Hash) string {
	s := h.String()
	return s[:2] + string(os.PathSeparator) + s[2:]
}
