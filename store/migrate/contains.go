package migrate

import (
	"context"
	"crypto/sha1" // Git's object names
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// missing returns the files of a tree, listed at dir, that a destination does
// not have: neither the same bytes at the same path, nor the bytes in its
// Git, nor, when delivered says that exactly this file was published there,
// anything at its path. Delivered may be nil.
func (r *runner) missing(ctx context.Context, t *tree, dir, dest string, delivered *tree) ([]string, error) {
	have, err := r.inventory(ctx, dest, nil)
	if err != nil {
		return nil, err
	}
	c := &container{r: r, ctx: ctx, src: dir, srcGit: filepath.Join(dir, ".git"), have: have}
	return c.missing(t, filepath.Join(dest, ".git"), delivered)
}

// missingGit is missing for a bare .git directory and another; the entries of
// the tree have .git/ before their paths.
func (r *runner) missingGit(ctx context.Context, t *tree, git, dest string) ([]string, error) {
	c := &container{r: r, ctx: ctx, srcGit: git, have: newTree(), settings: true}
	return c.missing(t, dest, nil)
}

func (c *container) missing(t *tree, git string, delivered *tree) ([]string, error) {
	c.git = openObjects(git)
	defer c.git.close()
	var missing []string
	for _, e := range t.entries {
		if c.ctx.Err() != nil {
			return nil, context.Cause(c.ctx)
		}
		ok, err := c.has(e, delivered)
		if err != nil {
			return nil, err
		}
		if !ok {
			missing = append(missing, e.rel)
		}
	}
	return missing, nil
}

// container answers whether a destination has what a file holds.
type container struct {
	r           *runner
	ctx         context.Context
	src, srcGit string
	have        *tree
	git         *objects
	settings    bool // files that are neither objects nor refs need not be there
}

func (c *container) has(e entry, delivered *tree) (bool, error) {
	now, exists := c.have.find(e.rel)
	if exists && now == e.content {
		return true, nil
	}
	if exists && delivered != nil {
		if d, ok := delivered.find(e.rel); ok && d == e.content {
			return true, nil
		}
	}
	if rel, ok := strings.CutPrefix(e.rel, ".git/"); ok {
		return c.hasGitFile(rel, exists)
	}
	hash, err := c.blob(e)
	if err != nil {
		return false, err
	}
	return c.git.has(hash), nil
}

// blob is the name that a file's content has as a Git object.
func (c *container) blob(e entry) (plumbing.Hash, error) {
	if e.link {
		return plumbing.ComputeHash(plumbing.BlobObject, []byte(e.target)), nil
	}
	f, err := c.r.FS.OpenFile(filepath.Join(c.src, e.rel), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", e.size)
	_, err = copyBytes(c.ctx, h, f, make([]byte, 256<<10), nil)
	if err := errors.Join(err, f.Close()); err != nil {
		return plumbing.ZeroHash, err
	}
	return plumbing.Hash(h.Sum(nil)), nil
}

var (
	looseObject = regexp.MustCompile(`^objects/([0-9a-f]{2})/([0-9a-f]{38})$`)
	packFile    = regexp.MustCompile(`^(objects/pack/pack-[0-9a-f]+)\.[a-z]+$`)
	anyHash     = regexp.MustCompile(`\b[0-9a-f]{40}\b`)
	// derived are files that Git makes of others, or leaves behind.
	derived = regexp.MustCompile(`^(index|.*\.lock|FETCH_HEAD|COMMIT_EDITMSG|MERGE_.*|gc\..*|sessionfs\..*|info/refs|objects/info/.*|objects/pack/multi-pack-index.*|objects/.*tmp_.*|logs/.*)$`)
)

// hasGitFile answers for a file of .git that differs or is gone. A repository
// that goes on repacks its objects and moves its refs: what counts is that the
// objects are there. Of its settings those of the destination count.
func (c *container) hasGitFile(rel string, exists bool) (bool, error) {
	if m := looseObject.FindStringSubmatch(rel); m != nil {
		return c.git.has(plumbing.NewHash(m[1] + m[2])), nil
	}
	if m := packFile.FindStringSubmatch(rel); m != nil {
		return c.hasPack(m[1])
	}
	switch {
	case derived.MatchString(rel):
		return true, nil
	case rel == "HEAD", rel == "ORIG_HEAD", rel == "packed-refs", strings.HasPrefix(rel, "refs/"):
		return c.hasRefs(rel)
	case rel == "config", rel == "description", strings.HasPrefix(rel, "hooks/"), strings.HasPrefix(rel, "info/"):
		return exists || c.settings, nil
	}
	return c.settings, nil
}

// hasRefs answers for a file of refs: their objects are in the destination.
func (c *container) hasRefs(rel string) (bool, error) {
	text, err := c.r.FS.ReadFile(filepath.Join(c.srcGit, rel))
	if err != nil {
		return false, err
	}
	for _, hash := range anyHash.FindAllString(string(text), -1) {
		if !c.git.has(plumbing.NewHash(hash)) {
			return false, nil
		}
	}
	return true, nil
}

// hasPack answers for a pack: all of its objects are in the destination.
func (c *container) hasPack(base string) (bool, error) {
	f, err := c.r.FS.OpenFile(filepath.Join(c.srcGit, base+".idx"), os.O_RDONLY, 0)
	if absent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	return c.git.hasAll(f)
}

// objects is a repository's object database, read only. A nil one is empty.
type objects struct {
	storage *filesystem.Storage
}

func openObjects(git string) *objects {
	if fi, err := os.Stat(git); err != nil || !fi.IsDir() {
		return nil
	}
	return &objects{filesystem.NewStorage(osfs.New(git), cache.NewObjectLRUDefault())}
}

func (o *objects) has(hash plumbing.Hash) bool {
	return o != nil && o.storage.HasEncodedObject(hash) == nil
}

func (o *objects) hasAll(idx io.Reader) (bool, error) {
	index := idxfile.NewMemoryIndex()
	if err := idxfile.NewDecoder(idx).Decode(index); err != nil {
		return false, nil // an index that cannot be read proves nothing
	}
	entries, err := index.Entries()
	if err != nil {
		return false, nil
	}
	defer entries.Close()
	for {
		e, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil || !o.has(e.Hash) {
			return false, nil
		}
	}
}

func (o *objects) close() {
	if o != nil {
		_ = o.storage.Close()
	}
}
