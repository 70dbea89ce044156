package layout

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// home is a made-up home directory with an OpenProgram root in it.
type home struct {
	testing.TB
	dir, state, root string
	disk             *watched
	log              bytes.Buffer
}

func newHome(t testing.TB) *home {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &home{TB: t, dir: dir, state: filepath.Join(dir, ".openprogram"), disk: &watched{FS: disk.OS}}
	h.root = filepath.Join(h.state, "sessions")
	h.mkdir(h.root)
	return h
}

// layout returns the layout of the root, standalone or not.
func (h *home) layout(standalone bool) *Layout {
	state := h.state
	if standalone {
		state = ""
	}
	return New(h.disk, h.root, state, slog.New(slog.NewTextHandler(&h.log, nil)))
}

func (h *home) mkdir(path string) string {
	h.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		h.Fatal(err)
	}
	return path
}

func (h *home) write(path, text string) {
	h.Helper()
	h.mkdir(filepath.Dir(path))
	if err := disk.WriteAtomic(disk.OS, path, []byte(text), disk.WriteOptions{}); err != nil {
		h.Fatal(err)
	}
}

func (h *home) symlink(target, path string) {
	h.Helper()
	if err := os.Symlink(target, path); err != nil {
		h.Fatal(err)
	}
}

// session makes a whole session at path.
func (h *home) session(path string) string {
	h.Helper()
	h.mkdir(filepath.Join(path, "history"))
	h.mkdir(filepath.Join(path, ".git"))
	h.write(filepath.Join(path, "meta.json"), `{"id": "x"}`)
	return path
}

func (h *home) locations(kv ...string) {
	h.Helper()
	var list []jsonedit.Member
	for i := 0; i < len(kv); i += 2 {
		list = append(list, jsonedit.Member{Key: kv[i], Raw: jsonedit.EncodeString(kv[i+1])})
	}
	o := jsonedit.NewObject()
	o.SetAll(list)
	h.write(filepath.Join(h.root, "locations.json"), string(jsonedit.Indent(o.Bytes(), "")))
}

// registry writes the project registry: project p1 with the sessions, and the
// default project with the session "home".
func (h *home) registry(path string, ids ...string) {
	h.Helper()
	h.write(filepath.Join(h.state, "projects/projects.json"), fmt.Sprintf(`{
  "default": {"id": "default", "name": "Home", "path": %q, "is_default": true, "session_ids": ["home"]},
  "broken": 7,
  "p1": {"name": "One", "path": %q, "session_ids": ["%s"], "location_state": "available"},
  "p2": {"name": "Two", "path": "relative", "session_ids": ["%s", 5], "location_state": "missing"}
}`, h.dir, path, strings.Join(ids, `", "`), strings.Join(ids, `", "`)))
}

func (h *home) resolve(l *Layout, id string) Place {
	h.Helper()
	p, err := l.Resolve(id)
	if err != nil {
		h.Fatalf("Resolve(%q): %v", id, err)
	}
	return p
}

func (h *home) same(what string, got, want any) {
	h.Helper()
	if d := cmp.Diff(want, got); d != "" {
		h.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// watched counts directory listings and reads, and can make a path one that
// cannot be looked at.
type watched struct {
	disk.FS
	lists, reads atomic.Int32
	denied       string
	unreadable   string // a file that can be looked at only
}

func (w *watched) deny(op, name string) error {
	if w.denied != "" && (name == w.denied || strings.HasPrefix(name, w.denied+"/")) {
		return &fs.PathError{Op: op, Path: name, Err: syscall.EACCES}
	}
	return nil
}

func (w *watched) ReadDir(name string) ([]fs.DirEntry, error) {
	w.lists.Add(1)
	if err := w.deny("open", name); err != nil {
		return nil, err
	}
	return w.FS.ReadDir(name)
}

func (w *watched) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	if flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		return w.FS.OpenFile(name, flag, perm)
	}
	w.reads.Add(1)
	if name == w.unreadable {
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EIO}
	}
	if err := w.deny("open", name); err != nil {
		return nil, err
	}
	return w.FS.OpenFile(name, flag, perm)
}

func (w *watched) ReadFile(name string) ([]byte, error) {
	w.reads.Add(1)
	if name == w.unreadable {
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EIO}
	}
	if err := w.deny("open", name); err != nil {
		return nil, err
	}
	return w.FS.ReadFile(name)
}

func (w *watched) Stat(name string) (fs.FileInfo, error) {
	if err := w.deny("stat", name); err != nil {
		return nil, err
	}
	return w.FS.Stat(name)
}

func (w *watched) Lstat(name string) (fs.FileInfo, error) {
	if err := w.deny("lstat", name); err != nil {
		return nil, err
	}
	return w.FS.Lstat(name)
}

func TestPaths(t *testing.T) {
	h := newHome(t)
	l := h.layout(false)
	r := h.root
	nested, ok := l.NestedDir("p1", "s")
	for what, c := range map[string][2]string{
		"root":      {l.Root(), r},
		"index":     {l.IndexPath(), r + "/index.json"},
		"journal":   {l.JournalPath(), r + "/.migration/journal.json"},
		"staging":   {l.StagingDir("s"), r + "/.migration/staging/s"},
		"hold":      {l.HoldPath("s"), r + "/.migration/holds/s"},
		"recovery":  {RecoveryDir(r+"/projects/p/s", "s"), r + "/projects/p/.file-recovery/s"},
		"default":   {l.DefaultDir("s"), r + "/s"},
		"nested":    {nested, r + "/projects/p1/s"},
		"lock":      {l.LockPath("a..b"), r + "/.locks/a_b.lock"},
		"locations": {l.RegistryLockPath("locations"), r + "/.locks/.locations.lock"},
		"run":       {l.RunLockPath("s"), r + "/.locks/.run-s.lock"},
		"historic":  {New(disk.OS, h.state+"/sessions-git", h.state, nil).LockPath("s"), r + "/.locks/s.lock"},
		"explicit":  {New(disk.OS, h.dir+"/x", "", nil).LockPath("s"), h.dir + "/x/.locks/s.lock"},
		"own state": {New(disk.OS, h.dir+"/x", h.state, nil).LockPath("s"), h.dir + "/x/.locks/s.lock"},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %s, want %s", what, c[0], c[1])
		}
	}
	if !ok || l.Standalone() || !h.layout(true).Standalone() {
		t.Error("NestedDir or Standalone")
	}
	for _, pid := range []string{"default", "", ".", "..", ".x", "a/b", `a\b`, "a\x00"} {
		if dir, ok := l.NestedDir(pid, "s"); ok {
			t.Errorf("project %q nests sessions in %s", pid, dir)
		}
	}
}

func TestLaterIntent(t *testing.T) {
	h := newHome(t)
	l := h.layout(false)
	for _, name := range []string{"openprogram-append.json", "openprogram-delete-nodes.json"} {
		dir := h.session(filepath.Join(h.root, name))
		if l.LaterIntent(dir) {
			t.Error("an intent where there is none")
		}
		h.write(filepath.Join(dir, ".git", name), "{}")
		if !l.LaterIntent(dir) {
			t.Errorf("%s is not seen", name)
		}
	}
}

// TestReadersWriteNothing: whatever is asked, the tree stays as it was.
func TestReadersWriteNothing(t *testing.T) {
	h := newHome(t)
	h.session(filepath.Join(h.root, "a"))
	h.session(filepath.Join(h.root, "projects/p1/b"))
	h.write(filepath.Join(h.root, "locations.json"), "{broken")
	h.registry(h.dir+"/folder", "b", "c")
	before := tree(t, h.dir)
	for _, standalone := range []bool{false, true} {
		l := h.layout(standalone)
		for _, id := range []string{"a", "b", "c", "nobody", "..", ""} {
			l.Resolve(id)
			l.Tombstone(id)
			l.BoundProject(id)
		}
		l.Discover()
		l.Tombstones()
		l.Projects()
		l.LaterIntent(filepath.Join(h.root, "a"))
	}
	DefaultRoot(func(string) string { return "" }, h.dir)
	h.same("tree", tree(t, h.dir), before)
}

func tree(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		list = append(list, fmt.Sprint(path, fi.Mode(), fi.ModTime(), fi.Size()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}
