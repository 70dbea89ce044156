package gitrepo

import (
	"compress/zlib"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// foundTip is the commit that a branch without ref and log goes on from in a
// repository that has commits all the same: what HEAD's log names last, else the
// newest commit that is nobody's parent. A repository without a commit is new,
// and a branch whose end was logged, or beside which there is another one, was
// left on purpose.
func (r *Repo) foundTip(name string) (plumbing.Hash, bool) {
	if !strings.HasPrefix(name, "refs/heads/") || name != mainBranch && r.hasBranch() {
		return plumbing.ZeroHash, false
	}
	for _, log := range []string{name, "HEAD"} {
		h, ok := r.lastLine(log)
		if !ok {
			continue
		}
		if h.IsZero() {
			return h, false
		}
		if _, err := r.objects.commit(h); err == nil {
			return h, true
		}
	}
	return r.newestCommit()
}

// lastLine is what the last line of a log says that the ref became.
func (r *Repo) lastLine(name string) (plumbing.Hash, bool) {
	b, err := r.fs.ReadFile(filepath.Join(r.refDir(name), "logs", filepath.FromSlash(name)))
	if err != nil {
		return plumbing.ZeroHash, false
	}
	text := strings.TrimRight(string(b), "\n\x00")
	return loggedHash(text[strings.LastIndexByte(text, '\n')+1:])
}

// hasBranch reports whether there is any branch, as a file or packed.
func (r *Repo) hasBranch() bool {
	if b, err := r.fs.ReadFile(filepath.Join(r.common, "packed-refs")); err == nil && strings.Contains(string(b), " refs/heads/") {
		return true
	}
	found := false
	var look func(dir string, depth int)
	look = func(dir string, depth int) {
		entries, err := r.fs.ReadDir(dir)
		if err != nil || depth > maxDepth {
			return
		}
		for _, e := range entries {
			if e.IsDir() {
				look(filepath.Join(dir, e.Name()), depth+1)
			}
			found = found || e.Type().IsRegular() && !strings.HasSuffix(e.Name(), lockSuffix)
		}
	}
	look(filepath.Join(r.common, "refs", "heads"), 0)
	return found
}

// restoreRef gives a branch that is lost its commit.
func (l *gitLocks) restoreRef(ctx context.Context, head headRef) error {
	u, err := l.lockHead(ctx, head, head.hash)
	if err != nil {
		return err
	}
	if l.r.opt.Sync == SyncBatch {
		if err := u.ref.file.Sync(); err != nil {
			return err
		}
	}
	return l.commit(u.ref)
}

// newestCommit is the newest of the commits that are nobody's parent.
func (r *Repo) newestCommit() (newest plumbing.Hash, found bool) {
	parent := map[plumbing.Hash]bool{}
	times := map[plumbing.Hash]time.Time{}
	for _, h := range append(r.looseCommits(), r.packedCommits()...) {
		c, err := r.objects.commit(h)
		if err != nil {
			continue
		}
		times[h] = c.Committer.When
		for _, p := range c.ParentHashes {
			parent[p] = true
		}
	}
	for h, when := range times {
		if parent[h] {
			continue
		}
		last := times[newest]
		if !found || when.After(last) || when.Equal(last) && h.String() > newest.String() {
			newest, found = h, true
		}
	}
	return newest, found
}

// looseCommits are the commits among the loose objects.
func (r *Repo) looseCommits() (out []plumbing.Hash) {
	objects := filepath.Join(r.common, "objects")
	dirs, err := r.fs.ReadDir(objects)
	if err != nil {
		return nil
	}
	for _, d := range dirs {
		if len(d.Name()) != 2 || !d.IsDir() {
			continue
		}
		entries, err := r.fs.ReadDir(filepath.Join(objects, d.Name()))
		if err != nil {
			continue
		}
		for _, e := range entries {
			name := d.Name() + e.Name()
			if len(name) == 40 && plumbing.IsHash(name) && r.beginsAsCommit(filepath.Join(objects, d.Name(), e.Name())) {
				out = append(out, plumbing.NewHash(name))
			}
		}
	}
	return out
}

// beginsAsCommit reports whether a file begins as a loose commit does.
func (r *Repo) beginsAsCommit(path string) bool {
	f, err := openFile(r.fs, path, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	zr, err := zlib.NewReader(f)
	if err != nil {
		return false
	}
	defer zr.Close()
	var head [len("commit ")]byte
	_, err = io.ReadFull(zr, head[:])
	return err == nil && string(head[:]) == "commit "
}

// packedCommits are the commits in the packs. What a pack has of others it tells
// only when they are read.
func (r *Repo) packedCommits() (out []plumbing.Hash) {
	own := filepath.Join(r.common, "objects", "pack")
	for _, p := range r.newAbbreviator().packs {
		if filepath.Dir(p.path) != own {
			continue // of an alternate, which is somebody else's
		}
		if _, err := r.fs.Lstat(strings.TrimSuffix(p.path, ".idx") + ".pack"); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for first := range 256 {
			names := p.group(byte(first))
			for ; len(names) >= len(plumbing.ZeroHash); names = names[len(plumbing.ZeroHash):] {
				h := plumbing.Hash(names[:len(plumbing.ZeroHash)])
				if typ, err := r.objects.typeOf(h); err == nil && typ == plumbing.CommitObject {
					out = append(out, h)
				}
			}
		}
	}
	return out
}
