package storetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// inode is a file, directory or symbolic link as the memory knows it.
type inode struct {
	mode    fs.FileMode
	target  string         // of a symbolic link
	names   map[string]int // of a directory: what a process sees
	kept    map[string]int // of a directory: what is durable
	data    []byte         // of a file: what a process sees
	durable []byte         // of a file: what was there at its last sync
	synced  bool           // durable says something
	clean   bool           // nothing was written since the last sync
}

func (n *inode) clone() *inode {
	c := *n
	c.names, c.kept = cloneNames(n.names), cloneNames(n.kept)
	return &c
}

func cloneNames(m map[string]int) map[string]int {
	if m == nil {
		return nil
	}
	c := make(map[string]int, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

// gone is the inode number of a name that is not there.
const gone = -1

// edit gives a name in a directory another inode.
type edit struct {
	dir  int
	name string
	ino  int // gone for a removal
}

// step is one change as it was made. Exactly one of its parts is set.
type step struct {
	make   *inode // a new inode; its number is the next one
	edits  []edit // names that changed in one indivisible change
	file   int    // write, truncate, sync: the file
	data   []byte // write: what, and at which place
	at     int
	kind   stepKind
	dirRef int // syncDir
}

type stepKind int

const (
	makeStep stepKind = iota
	nameStep
	writeStep
	truncStep
	syncStep
	syncDirStep
)

// image is the state of a disk: what is seen, and what is durable of it.
type image struct {
	nodes   []*inode
	pending [][]edit // changes of names that no sync has made durable, in order
}

func (m *image) clone() *image {
	c := &image{nodes: make([]*inode, len(m.nodes)), pending: append([][]edit(nil), m.pending...)}
	for i, n := range m.nodes {
		c.nodes[i] = n.clone()
	}
	return c
}

// apply makes one change.
func (m *image) apply(s step) {
	switch s.kind {
	case makeStep:
		m.nodes = append(m.nodes, s.make.clone())
	case nameStep:
		for _, e := range s.edits {
			setName(m.nodes[e.dir].names, e)
		}
		m.pending = append(m.pending, s.edits)
	case writeStep:
		n := m.nodes[s.file]
		data := append([]byte(nil), n.data...)
		for len(data) < s.at {
			data = append(data, 0)
		}
		n.data = append(data[:s.at:s.at], append(append([]byte(nil), s.data...), tail(data, s.at+len(s.data))...)...)
		n.clean = false
	case truncStep:
		m.nodes[s.file].data, m.nodes[s.file].clean = nil, false
	case syncStep:
		n := m.nodes[s.file]
		n.durable, n.synced, n.clean = n.data, true, true
	case syncDirStep:
		m.keep(func(e edit) bool { return e.dir == s.dirRef })
	}
}

func tail(b []byte, from int) []byte { return b[min(from, len(b)):] }

func setName(m map[string]int, e edit) {
	if e.ino == gone {
		delete(m, e.name)
		return
	}
	m[e.name] = e.ino
}

// keep makes the pending changes durable that touch what of says, and those
// before them that concern the same names.
func (m *image) keep(of func(e edit) bool) {
	chosen := make([]bool, len(m.pending))
	need := map[nameKey]bool{}
	for i := len(m.pending) - 1; i >= 0; i-- {
		for _, e := range m.pending[i] {
			chosen[i] = chosen[i] || of(e) || need[nameKey{e.dir, e.name}]
		}
		if chosen[i] {
			for _, e := range m.pending[i] {
				need[nameKey{e.dir, e.name}] = true
			}
		}
	}
	var rest [][]edit
	for i, edits := range m.pending {
		if !chosen[i] {
			rest = append(rest, edits)
			continue
		}
		for _, e := range edits {
			setName(m.nodes[e.dir].kept, e)
		}
	}
	m.pending = rest
}

type nameKey struct {
	dir  int
	name string
}

// recorder is the memory of a Disk: the state when it began, and every change
// since. Names outside root are not remembered.
type recorder struct {
	root  string
	begin *image
	now   *image
	steps []step
}

// Remember begins to remember every change below root; what is there now
// counts as durable. Inode 0 is root itself.
func (d *Disk) Remember(root string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := &image{}
	if _, err := m.load(root, true); err != nil {
		return err
	}
	d.rec = &recorder{root: root, begin: m, now: m.clone()}
	return nil
}

// Steps returns how many changes were remembered so far.
func (d *Disk) Steps() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.rec.steps)
}

// load reads a tree from the disk below and returns its inode number.
func (m *image) load(path string, durable bool) (int, error) {
	n, err := readInode(path)
	if err != nil {
		return gone, err
	}
	n.synced, n.clean, n.durable = durable, durable, n.data
	no := len(m.nodes)
	m.nodes = append(m.nodes, n)
	if !n.mode.IsDir() {
		return no, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return gone, err
	}
	for _, e := range entries {
		child, err := m.load(filepath.Join(path, e.Name()), durable)
		if err != nil {
			return gone, err
		}
		n.names[e.Name()], n.kept[e.Name()] = child, child
	}
	return no, nil
}

// readInode reads one inode, of a directory without its names.
func readInode(path string) (*inode, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	n := &inode{mode: fi.Mode()}
	switch {
	case fi.IsDir():
		n.names, n.kept = map[string]int{}, map[string]int{}
	case fi.Mode()&fs.ModeSymlink != 0:
		n.target, err = os.Readlink(path)
	case fi.Mode().IsRegular():
		n.data, err = os.ReadFile(path)
	}
	return n, err
}

func (r *recorder) do(s step) {
	r.steps = append(r.steps, s)
	r.now.apply(s)
}

// split returns the inode of the directory that holds a name, and the name's
// last part; ok is false outside of root.
func (r *recorder) split(path string) (dir int, name string, ok bool) {
	path = real(path)
	rel, err := filepath.Rel(r.root, path)
	if err != nil || rel == "." || rel == ".." || strings.HasPrefix(rel, "../") {
		return 0, "", false
	}
	parts := strings.Split(rel, "/")
	for _, p := range parts[:len(parts)-1] {
		next, there := r.now.nodes[dir].names[p]
		if !there || !r.now.nodes[next].mode.IsDir() {
			return 0, "", false
		}
		dir = next
	}
	return dir, parts[len(parts)-1], true
}

// know learns of what was made at path, or above it, behind the disk's back:
// it counts as not durable, for nobody synced it here.
func (r *recorder) know(path string) {
	path = real(path)
	rel, err := filepath.Rel(r.root, path)
	if err != nil || rel == "." || rel == ".." || strings.HasPrefix(rel, "../") {
		return
	}
	at := r.root
	for _, p := range strings.Split(rel, "/") {
		at = filepath.Join(at, p)
		if _, there := r.lookup(at); there {
			continue
		}
		n, err := readInode(at)
		if err != nil {
			return
		}
		r.enter(at, n)
	}
}

// openPrefix begins a path that starts at an open directory.
const openPrefix = "/proc/self/fd/"

// real gives a path that starts at an open directory its usual name.
func real(path string) string {
	rest, ok := strings.CutPrefix(path, openPrefix)
	if !ok {
		return path
	}
	fd, rest, _ := strings.Cut(rest, "/")
	dir, err := os.Readlink(openPrefix + fd)
	if err != nil {
		return path
	}
	return filepath.Join(dir, rest)
}

func (r *recorder) lookup(path string) (int, bool) {
	path = real(path)
	if path == r.root {
		return 0, true
	}
	dir, name, ok := r.split(path)
	if !ok {
		return 0, false
	}
	ino, there := r.now.nodes[dir].names[name]
	return ino, there
}

// enter makes a new inode and gives it a name.
func (r *recorder) enter(path string, n *inode) int {
	dir, name, ok := r.split(path)
	if !ok {
		return gone
	}
	r.do(step{kind: makeStep, make: n})
	ino := len(r.now.nodes) - 1
	r.do(step{kind: nameStep, edits: []edit{{dir, name, ino}}})
	return ino
}

func (r *recorder) open(path string, f disk.File, truncate bool) int {
	ino, there := r.lookup(path)
	if !there {
		mode := fs.FileMode(0o600)
		if fi, err := f.Stat(); err == nil {
			mode = fi.Mode()
		}
		return r.enter(path, &inode{mode: mode})
	}
	if truncate {
		r.do(step{kind: truncStep, file: ino})
	}
	return ino
}

// write notes a write and returns the place of the next one.
func (r *recorder) write(ino, pos int, p []byte, atEnd bool) int {
	if ino == gone {
		return pos
	}
	if atEnd {
		pos = len(r.now.nodes[ino].data)
	}
	r.do(step{kind: writeStep, file: ino, at: pos, data: append([]byte(nil), p...)})
	return pos + len(p)
}

func (r *recorder) sync(ino int) {
	if ino != gone {
		r.do(step{kind: syncStep, file: ino})
	}
}

func (r *recorder) chmod(ino int, mode fs.FileMode) {
	if ino != gone {
		n := r.now.nodes[ino]
		n.mode = n.mode&^fs.ModePerm | mode.Perm()
	}
}

func (r *recorder) syncDir(path string) {
	if ino, ok := r.lookup(path); ok {
		r.do(step{kind: syncDirStep, dirRef: ino})
	}
}

func (r *recorder) mkdir(path string, perm fs.FileMode) {
	r.enter(path, &inode{mode: fs.ModeDir | perm, names: map[string]int{}, kept: map[string]int{}})
}

func (r *recorder) symlink(target, path string) {
	r.enter(path, &inode{mode: fs.ModeSymlink | 0o777, target: target})
}

func (r *recorder) remove(path string) {
	if dir, name, ok := r.split(path); ok {
		r.do(step{kind: nameStep, edits: []edit{{dir, name, gone}}})
	}
}

func (r *recorder) link(oldPath, newPath string) {
	ino, there := r.lookup(oldPath)
	dir, name, ok := r.split(newPath)
	if ok && there {
		r.do(step{kind: nameStep, edits: []edit{{dir, name, ino}}})
	}
}

func (r *recorder) rename(oldPath, newPath string) {
	ino, there := r.lookup(oldPath)
	from, oldName, ok := r.split(oldPath)
	to, newName, ok2 := r.split(newPath)
	if ok && ok2 && there {
		r.do(step{kind: nameStep, edits: []edit{{from, oldName, gone}, {to, newName, ino}}})
	}
}

// Behind lists what differs between the disk and the memory: what was changed
// without this Disk, sorted. Names for which skip is true are left out.
func (d *Disk) Behind(skip func(rel string) bool) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	d.rec.compare(0, "", skip, &out)
	sort.Strings(out)
	return out
}

func (r *recorder) compare(ino int, rel string, skip func(string) bool, out *[]string) {
	n := r.now.nodes[ino]
	entries, err := os.ReadDir(filepath.Join(r.root, rel))
	if err != nil {
		*out = append(*out, rel+": "+err.Error())
		return
	}
	seen := map[string]bool{}
	for _, e := range entries {
		name := filepath.Join(rel, e.Name())
		seen[e.Name()] = true
		if skip(name) {
			continue
		}
		child, there := n.names[e.Name()]
		switch {
		case !there:
			*out = append(*out, name+": made behind the disk's back")
		case e.IsDir():
			r.compare(child, name, skip, out)
		case e.Type().IsRegular():
			if b, err := os.ReadFile(filepath.Join(r.root, name)); err != nil || string(b) != string(r.now.nodes[child].data) {
				*out = append(*out, name+": written behind the disk's back")
			}
		}
	}
	for name := range n.names {
		if !seen[name] && !skip(filepath.Join(rel, name)) {
			*out = append(*out, filepath.Join(rel, name)+": removed behind the disk's back")
		}
	}
}
