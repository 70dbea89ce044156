package fsnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// maxRefusals is how many refused operations .sessionfs/errors shows.
const maxRefusals = 100

// refusal is one operation that was refused.
type refusal struct {
	time     time.Time
	op, path string
	errno    string // its name
	code     store.Code
	text     string
	times    int // the same refusal in one session, or beside it
}

// same reports whether two refusals are one, of different names: a command that
// tries each file of a session must not push out what others were told.
func (f refusal) same(g refusal) bool {
	return f.op == g.op && f.errno == g.errno && f.code == g.code && f.text == g.text && f.place() == g.place()
}

// place is what a refusal was in: a session, or another directory of the root.
func (f refusal) place() string {
	parts := strings.SplitN(f.path, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// refusals are the last operations that were refused.
type refusals struct {
	mu   sync.Mutex // leaf
	last []refusal
}

func (r *refusals) add(f refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.times = 1
	if i := slices.IndexFunc(r.last, f.same); i >= 0 {
		f.times += r.last[i].times
		r.last = slices.Delete(r.last, i, i+1)
	}
	if len(r.last) == maxRefusals {
		r.last = append(r.last[:0], r.last[1:]...)
	}
	r.last = append(r.last, f)
}

// text lists the refusals, newest last: time, operation, path, errno, code and
// text, separated by tabs. Of one that was repeated it is the last time and
// path, and the text says how often.
func (r *refusals) text() ([]byte, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b bytes.Buffer
	var at time.Time
	clean := strings.NewReplacer("\n", " ", "\t", " ", "\r", " ")
	for _, f := range r.last {
		at = f.time
		times := ""
		if f.times > 1 {
			times = fmt.Sprintf(" (%d times)", f.times)
		}
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%s\t%s%s\n", f.time.Format(time.RFC3339), f.op, clean.Replace(f.path),
			f.errno, orDash(string(f.code)), clean.Replace(f.text), times)
	}
	return b.Bytes(), at
}

// newControlDir makes .sessionfs/.
func (t *tree) newControlDir() *vnode.List {
	l := &vnode.FuncList{
		Spec: vnode.Spec{Number: vnode.Ino("control"), Policy: policyOf(kindDirectory, true), Stat: t.rootStat},
		List: vnode.List{Up: t.root},
	}
	t.place(t.root, l)
	constant := func(text string) func() ([]byte, time.Time) {
		return func() ([]byte, time.Time) { return []byte(text), t.started }
	}
	table := vnode.Table{
		{Name: "version", Found: vnode.Found{Node: t.newFresh(&l.List, "version", constant(t.version+"\n"))}},
		{Name: "store", Found: vnode.Found{Node: t.newFresh(&l.List, "store", constant(t.st.Root()+"\n"))}},
		{Name: "errors", Found: vnode.Found{Node: t.newFresh(&l.List, "errors", t.refused.text)}},
		{Name: "failed", Found: vnode.Found{Node: t.newFailed(&l.List)}},
		{Name: "metrics", Found: vnode.Found{Node: t.newMetrics(&l.List)}},
		{Name: "ctl", Found: vnode.Found{Node: t.newRootControl(&l.List)}},
	}
	follow := t.newFollow(&l.List)
	l.Entries = table.Entries
	l.Find = func(ctx context.Context, name string) (vnode.Found, error) {
		if name == followName {
			return vnode.Found{Node: follow}, nil
		}
		return table.Find(ctx, name)
	}
	return &l.List
}

// newFresh makes a file of .sessionfs/ that is asked for at each use.
func (t *tree) newFresh(parent *vnode.List, name string, text func() ([]byte, time.Time)) *vnode.File {
	f := &vnode.FuncFile{
		Spec: vnode.Spec{Number: vnode.Ino("control/" + name), Policy: policyOf(kindFresh, true),
			Stat: func(context.Context) (vnode.Stat, error) {
				b, at := text()
				if at.IsZero() {
					at = t.started
				}
				return vnode.Stat{Perm: 0o400, Size: int64(len(b)), MTime: at, UID: t.uid, GID: t.gid}, nil
			}},
		Read: func(context.Context) ([]byte, error) {
			b, _ := text()
			return b, nil
		},
		Whole: true,
	}
	t.place(parent, f)
	return &f.File
}

// newFailed makes .sessionfs/failed/: what could not be applied. Its files
// can be read and deleted.
func (t *tree) newFailed(parent *vnode.List) *vnode.List {
	dir := t.sp.FailedDir()
	l := &vnode.FuncList{
		Spec: vnode.Spec{Number: vnode.Ino("control/failed"), Policy: policyOf(kindFresh, true)},
		List: vnode.List{Up: parent},
	}
	l.Stat = func(context.Context) (vnode.Stat, error) {
		fi, err := os.Lstat(dir)
		if err != nil {
			return vnode.Stat{}, err
		}
		return vnode.Stat{Perm: 0o700, MTime: fi.ModTime(), UID: t.uid, GID: t.gid}, nil
	}
	l.Entries = func(context.Context) ([]fuse.DirEntry, error) {
		list, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		out := make([]fuse.DirEntry, 0, len(list))
		for _, e := range list {
			if e.Type().IsRegular() {
				out = append(out, vnode.FileEntry(e.Name(), "control/failed/"+e.Name()))
			}
		}
		return out, nil
	}
	l.Find = func(_ context.Context, name string) (vnode.Found, error) { return t.findFailed(&l.List, dir, name) }
	l.Verbs = &vnode.Verbs{Unlink: func(_ context.Context, name string) error {
		if err := t.writable("delete"); err != nil {
			return err
		}
		err := os.Remove(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return vnode.NotFound
		}
		return err
	}}
	t.place(parent, l)
	return &l.List
}

// findFailed returns the node of a kept text. Nobody notifies about it, so it
// may be another one each time.
func (t *tree) findFailed(parent *vnode.List, dir, name string) (vnode.Found, error) {
	path := filepath.Join(dir, name)
	stat := func(context.Context) (vnode.Stat, error) {
		fi, err := os.Lstat(path)
		if err != nil || !fi.Mode().IsRegular() {
			return vnode.Stat{}, vnode.Stale
		}
		return vnode.Stat{Perm: 0o400, Size: fi.Size(), MTime: fi.ModTime(), UID: t.uid, GID: t.gid}, nil
	}
	if _, err := stat(context.Background()); err != nil {
		return vnode.Found{}, vnode.NotFound
	}
	f := &vnode.Disk{
		Spec: vnode.Spec{Number: vnode.Ino("control/failed/" + name), Policy: policyOf(kindScratch, true), Stat: stat},
		Path: path,
	}
	t.place(parent, f)
	return vnode.Found{Node: f}, nil
}
