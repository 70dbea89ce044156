package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// content is what an inventory knows of one file; it is compared with ==.
type content struct {
	rel    string // slash-separated
	link   bool
	target string // of a symlink
	size   int64  // bytes
	sha    string // SHA-256 in hex, "" for a symlink
}

// entry is a file of a tree.
type entry struct {
	content
	stamp  stamp
	hashed time.Time
}

// stamp tells without reading whether a file was touched.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// settle is how old a file's change has to be for its stamp to vouch for it: a
// second write within the resolution of the file system's clock has the same.
const settle = 2 * time.Second

// tree is an inventory, with what copying needs besides.
type tree struct {
	entries []entry  // sorted by rel
	dirs    []string // parents first
	byRel   map[string]content
	bytes   int64
}

func (t *tree) find(rel string) (content, bool) {
	c, ok := t.byRel[rel]
	return c, ok
}

func (t *tree) empty() bool { return len(t.entries) == 0 && len(t.dirs) == 0 }

// difference names one file in which two inventories differ.
func (t *tree) difference(other *tree) (rel string, differ bool) {
	for _, e := range t.entries {
		if c, ok := other.find(e.rel); !ok || c != e.content {
			return e.rel, true
		}
	}
	for _, e := range other.entries {
		if _, ok := t.find(e.rel); !ok {
			return e.rel, true
		}
	}
	return "", false
}

// untouched reports that no file was touched between two inventories of one
// directory.
func (t *tree) untouched(later *tree) bool {
	return slices.EqualFunc(t.entries, later.entries, func(a, b entry) bool {
		return a.rel == b.rel && a.link == b.link && a.target == b.target && a.stamp == b.stamp
	})
}

// below returns the part of a tree that lies below a directory, relative to
// it, and the rest.
func (t *tree) below(dir string) (in, rest *tree) {
	in, rest = newTree(), newTree()
	for _, d := range t.dirs {
		if rel, ok := strings.CutPrefix(d, dir+"/"); ok {
			in.dirs = append(in.dirs, rel)
		} else if d != dir {
			rest.dirs = append(rest.dirs, d)
		}
	}
	for _, e := range t.entries {
		rel, ok := strings.CutPrefix(e.rel, dir+"/")
		if !ok {
			rest.add(e)
			continue
		}
		e.rel = rel
		in.add(e)
	}
	return in, rest
}

func newTree() *tree { return &tree{byRel: map[string]content{}} }

func (t *tree) add(e entry) {
	t.entries = append(t.entries, e)
	t.byRel[e.rel] = e.content
	t.bytes += e.size
}

// digest identifies the content of a tree, for the journal.
func digest(entries []entry) string {
	h := sha256.New()
	for _, e := range entries {
		fmt.Fprintf(h, "%q %t %q %d %s\n", e.rel, e.link, e.target, e.size, e.sha)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// lister makes an inventory.
type lister struct {
	r    *runner
	ctx  context.Context
	root string
	prev *tree // hashes to take over where the stamp is the same; may be nil
	old  map[string]entry
	hash bool
	t    *tree
	buf  []byte
}

// inventory lists and hashes what is below a directory (reference 12.1). A
// directory that is not there has an empty one. Hashes of prev are taken over
// for files that provably were not touched since.
func (r *runner) inventory(ctx context.Context, dir string, prev *tree) (*tree, error) {
	l := &lister{r: r, ctx: ctx, root: dir, prev: prev, hash: true, buf: make([]byte, 256<<10)}
	return l.list()
}

// stamps is an inventory without hashes.
func (r *runner) stamps(ctx context.Context, dir string) (*tree, error) {
	return (&lister{r: r, ctx: ctx, root: dir}).list()
}

func (l *lister) list() (*tree, error) {
	l.t = newTree()
	l.old = map[string]entry{}
	if l.prev != nil {
		for _, e := range l.prev.entries {
			l.old[e.rel] = e
		}
	}
	fi, err := l.r.FS.Lstat(l.root)
	if absent(err) {
		return l.t, nil
	}
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, fmt.Errorf("%w: %s is no directory", ErrUnsupported, l.root)
	}
	if err := l.walk(""); err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	slices.SortFunc(l.t.entries, func(a, b entry) int { return strings.Compare(a.rel, b.rel) })
	return l.t, nil
}

func (l *lister) walk(rel string) error {
	entries, err := l.r.FS.ReadDir(filepath.Join(l.root, rel))
	if err != nil {
		return err
	}
	for _, d := range entries {
		if l.ctx.Err() != nil {
			return context.Cause(l.ctx)
		}
		if err := l.visit(path.Join(rel, d.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (l *lister) visit(rel string) error {
	name := filepath.Join(l.root, rel)
	fi, err := l.r.FS.Lstat(name)
	if absent(err) {
		return nil // gone since: the next inventory tells
	}
	if err != nil {
		return err
	}
	switch {
	case fi.IsDir():
		l.t.dirs = append(l.t.dirs, rel)
		return l.walk(rel)
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := l.r.FS.Readlink(name)
		if err == nil {
			l.t.add(entry{content: content{rel: rel, link: true, target: target}, stamp: stampOf(fi)})
		}
		return err
	case !fi.Mode().IsRegular():
		l.r.Log.Warn("a special file is not migrated", "path", name)
		return nil
	case !l.hash:
		l.t.add(entry{content: content{rel: rel, size: fi.Size()}, stamp: stampOf(fi)})
		return nil
	}
	return l.file(rel, name, fi)
}

func (l *lister) file(rel, name string, fi fs.FileInfo) error {
	e := entry{content: content{rel: rel}, stamp: stampOf(fi), hashed: time.Now()}
	if old, ok := l.old[rel]; ok && old.sha != "" && old.stamp == e.stamp && e.stamp.before(old.hashed.Add(-settle)) {
		e.content, e.hashed = old.content, old.hashed
		l.t.add(e)
		return nil
	}
	f, err := l.r.FS.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	h := sha256.New()
	e.size, err = copyBytes(l.ctx, h, f, l.buf, nil)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	e.sha = hex.EncodeToString(h.Sum(nil))
	l.t.add(e)
	return nil
}

// copyBytes is io.Copy that ends with its context and tells of its progress.
func copyBytes(ctx context.Context, w io.Writer, src io.Reader, buf []byte, tell func(int64)) (int64, error) {
	var total int64
	for {
		if ctx.Err() != nil {
			return total, context.Cause(ctx)
		}
		n, err := src.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return total, err
			}
			total += int64(n)
			if tell != nil {
				tell(int64(n))
			}
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

func stampOf(fi fs.FileInfo) stamp {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{size: fi.Size(), mtime: unix.NsecToTimespec(fi.ModTime().UnixNano())}
	}
	return stamp{
		dev: uint64(st.Dev), ino: st.Ino, size: st.Size,
		mtime: unix.Timespec{Sec: st.Mtim.Sec, Nsec: st.Mtim.Nsec},
		ctime: unix.Timespec{Sec: st.Ctim.Sec, Nsec: st.Ctim.Nsec},
	}
}

// before reports whether the file's last change was before a time.
func (s stamp) before(t time.Time) bool {
	return max(s.ctime.Nano(), s.mtime.Nano()) < t.UnixNano()
}

// absent reports an error that says that there is nothing of a name.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// encodeInventory is the journal's form of an inventory (reference 12.1).
func encodeInventory(entries []entry) []byte {
	out := []byte{'['}
	for i, e := range entries {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = append(out, `{"rel": `...)
		out = jsonedit.AppendString(out, e.rel)
		if e.link {
			out = append(out, `, "kind": "symlink", "target": `...)
			out = append(jsonedit.AppendString(out, e.target), '}')
			continue
		}
		out = append(out, `, "kind": "file", "size": `...)
		out = strconv.AppendInt(out, e.size, 10)
		out = append(out, `, "sha256": "`+e.sha+`"}`...)
	}
	return append(out, ']')
}

// parseInventory reads it back. What is no entry is left out.
func parseInventory(raw []byte) []entry {
	items, _ := jsonedit.Array(raw)
	var out []entry
	for _, it := range items {
		o, err := jsonedit.ParseObject(it)
		if err != nil {
			continue
		}
		e := entry{content: content{rel: o.Str("rel"), link: o.Str("kind") == "symlink"}}
		if e.link {
			e.target = o.Str("target")
		} else {
			e.size, _ = o.Int("size")
			e.sha = o.Str("sha256")
		}
		out = append(out, e)
	}
	return out
}

// sameInventory compares a tree with the journal's entries in the journal's
// form, in which a name that is no UTF-8 is not exact.
func sameInventory(t *tree, entries []entry) bool {
	return len(entries) > 0 && string(encodeInventory(t.entries)) == string(encodeInventory(entries))
}
