package fsnode

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/fsnode/vnode"
)

// viewKind is one directory of views/: what it sorts the sessions by that are
// not archived.
type viewKind struct {
	name string
	// flat: the links stand in it directly, under the name that of gives.
	// Otherwise of gives the directory, and the link is the session's name.
	flat bool
	// of is where a session stands, "" where it has no place. It depends on
	// the session alone, so that a name stays when a neighbour comes or goes.
	of func(id string, r row) string
}

// viewKinds are the directories of views/, in the order of
// docs/filesystem.md.
var viewKinds = [...]viewKind{
	{"title", true, func(id string, r row) string { return titleName(r.title, lastOf(id)) }},
	{"project", false, func(_ string, r row) string { return r.project }},
	{"agent", false, func(_ string, r row) string { return r.agent }},
	{"source", false, func(_ string, r row) string { return r.source }},
	{"status", false, func(_ string, r row) string { return r.status }},
	{"group", false, func(_ string, r row) string { return r.group }},
	{"pinned", true, func(_ string, r row) string {
		if r.pinned {
			return r.name
		}
		return ""
	}},
	{"date", false, func(_ string, r row) string { return r.updated.In(time.Local).Format(time.DateOnly) }},
}

const (
	viewTitle   = 0
	viewProject = 1
)

// lastOf is the last eight characters of a session's id.
func lastOf(id string) string {
	runes := []rune(id)
	return string(runes[max(0, len(runes)-8):])
}

// titleName is a session's name in views/title.
func titleName(title, id string) string {
	tail := "~" + render.EscapeNameMax(id, 120)
	return render.EscapeNameMax(title, 255-len(tail)) + tail
}

// viewPlace is where a session stands in one view; the zero value is nowhere.
type viewPlace struct{ dir, link string }

func (k viewKind) place(id string, r row) viewPlace {
	if r.archived {
		return viewPlace{}
	}
	at := k.of(id, r)
	switch {
	case at == "":
		return viewPlace{}
	case k.flat:
		return viewPlace{link: at}
	}
	return viewPlace{dir: render.EscapeName(at), link: r.name}
}

// viewState is the state of one directory of views/. The tree's mutex guards
// it.
type viewState struct {
	list  *vnode.List
	mtime time.Time
	first time.Time            // of its directories that have not changed since the start
	times map[string]time.Time // of those that have
	dirs  map[string]*viewDir  // by name, "" for the view's own; nil: not made yet
}

// viewDir is one directory of links.
type viewDir struct {
	entries []fuse.DirEntry
	ids     map[string]string // link name -> session
}

// newViews makes views/ and its directories.
func (t *tree) newViews() *vnode.List {
	l := &vnode.FuncList{
		Spec: vnode.Spec{Number: vnode.Ino("root/views"), Policy: policyOf(kindDirectory, true), Stat: t.rootStat},
		List: vnode.List{Up: t.root},
	}
	t.place(t.root, l)
	var table vnode.Table
	for i, k := range viewKinds {
		policy := policyOf(kindDirectory, true)
		if i == viewProject {
			policy = policyOf(kindFresh, true) // nobody tells of a project's new name
		}
		v := &vnode.FuncList{
			Spec:    vnode.Spec{Number: vnode.Ino("views/" + k.name), Policy: policy, Stat: t.viewStat(i)},
			List:    vnode.List{Up: &l.List},
			Entries: func(context.Context) ([]fuse.DirEntry, error) { return t.viewEntries(i, ""), nil },
			Find: func(_ context.Context, name string) (vnode.Found, error) {
				if !k.flat {
					return t.findViewDir(i, name)
				}
				return t.findViewLink(i, "", name)
			},
		}
		t.place(&l.List, v)
		t.views[i].list, t.views[i].mtime, t.views[i].first = &v.List, t.made, t.made
		table = append(table, vnode.Row{Name: k.name, Found: vnode.Found{Node: v}})
	}
	l.Entries, l.Find = table.Entries, table.Find
	return &l.List
}

func (t *tree) viewStat(i int) func(context.Context) (vnode.Stat, error) {
	return func(context.Context) (vnode.Stat, error) {
		t.freshProjects(i)
		t.mu.Lock()
		defer t.mu.Unlock()
		return vnode.Stat{Perm: 0o700, MTime: t.views[i].mtime, UID: t.uid, GID: t.gid}, nil
	}
}

// freshProjects looks whether the project registry changed, for the view that
// shows it.
func (t *tree) freshProjects(view int) {
	if view != viewProject {
		return
	}
	t.mu.Lock()
	known := t.projects
	t.mu.Unlock()
	names, version := t.st.ProjectNames(known)
	if names == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.projects = version
	r := &record{}
	for id, old := range t.rows {
		if cur := old; old.project != names[id] {
			cur.project = names[id]
			t.rows[id] = cur
			t.touchViewsLocked(r, id, old, cur)
		}
	}
	t.pend.add(r)
}

// touchViewsLocked notes which views show a session elsewhere than before;
// the zero row is one that is not there. Requires t.mu.
func (t *tree) touchViewsLocked(r *record, id string, old, cur row) {
	for i, k := range viewKinds {
		var a, b viewPlace
		if old.name != "" {
			a = k.place(id, old)
		}
		if cur.name != "" {
			b = k.place(id, cur)
		}
		if a == b {
			continue
		}
		v := &t.views[i]
		v.dirs, v.mtime = nil, tick(v.mtime, t.now())
		if v.times == nil {
			v.times = map[string]time.Time{}
		}
		v.times[a.dir], v.times[b.dir] = v.mtime, v.mtime
		r.listings = append(r.listings, v.list)
		if a.dir != "" && a.dir != b.dir {
			r.gone = append(r.gone, goneName{v.list, a.dir}) // it may have been the last one there
		}
		for _, dir := range []string{a.dir, b.dir} {
			if dir != "" {
				r.known = r.andKnown(v.list, dir)
			}
		}
	}
}

// andKnown is r's known, and the directory of a name if the kernel knows it.
func (r *record) andKnown(dir *vnode.List, name string) func(func(*vnode.List)) *record {
	before := r.known
	return func(barrier func(*vnode.List)) *record {
		more := &record{}
		if before != nil {
			more = before(barrier)
		}
		barrier(dir)
		if l := knownList(dir, name); l != nil {
			more.listings = append(more.listings, l)
		}
		return more
	}
}

// knownList is a directory below another as the kernel knows it, nil when it
// does not. It is how a change finds what was made at a lookup and is kept
// nowhere else.
func knownList(dir *vnode.List, name string) *vnode.List {
	in := dir.GetChild(name)
	if in == nil {
		return nil
	}
	return vnode.ListOf(in)
}

// viewLocked sorts the sessions of a view. Requires t.mu.
func (t *tree) viewLocked(i int) map[string]*viewDir {
	v := &t.views[i]
	if v.dirs != nil {
		return v.dirs
	}
	v.dirs = map[string]*viewDir{"": {ids: map[string]string{}}}
	clash := map[string][]string{}
	for id, r := range t.rows {
		p := viewKinds[i].place(id, r)
		if p == (viewPlace{}) {
			continue
		}
		d := v.dirs[p.dir]
		if d == nil {
			d = &viewDir{ids: map[string]string{}}
			v.dirs[p.dir] = d
		}
		if other, taken := d.ids[p.link]; taken {
			clash[p.link] = append(clash[p.link], id, other)
		}
		d.ids[p.link] = id
	}
	if i == viewTitle {
		v.dirs[""].spread(clash, t.rows)
	}
	for name, d := range v.dirs {
		for link, id := range d.ids {
			d.entries = append(d.entries, vnode.LinkEntry(link, viewLinkIdent(i, name, link, id)))
		}
		if name != "" {
			v.dirs[""].entries = append(v.dirs[""].entries, vnode.DirEntry(name, viewDirIdent(i, name)))
		}
	}
	for _, d := range v.dirs {
		slices.SortFunc(d.entries, func(a, b fuse.DirEntry) int { return cmp.Compare(a.Name, b.Name) })
	}
	return v.dirs
}

// spread gives sessions whose titles and ends of ids are the same names with
// their whole ids.
func (d *viewDir) spread(clash map[string][]string, rows map[string]row) {
	for name, ids := range clash {
		delete(d.ids, name)
		for _, id := range ids {
			d.ids[titleName(rows[id].title, id)] = id
		}
	}
}

func viewDirIdent(i int, name string) string { return "views/" + viewKinds[i].name + "/" + name }

func viewLinkIdent(i int, dir, link, id string) string {
	return strings.Join([]string{"views", viewKinds[i].name, dir, link, id}, "/")
}

func (t *tree) viewEntries(i int, dir string) []fuse.DirEntry {
	t.freshProjects(i)
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.viewLocked(i)[dir]; d != nil {
		return d.entries
	}
	return nil
}

// findViewDir returns views/<view>/<name>/. Nothing of it is kept: it is made
// at a lookup, and found again for as long as the kernel knows it.
func (t *tree) findViewDir(i int, name string) (vnode.Found, error) {
	there := func() bool {
		t.freshProjects(i)
		t.mu.Lock()
		defer t.mu.Unlock()
		return name != "" && t.viewLocked(i)[name] != nil
	}
	if !there() {
		return vnode.Found{}, vnode.NotFound
	}
	if l := knownList(t.views[i].list, name); l != nil {
		return vnode.Found{Node: l}, nil
	}
	policy := policyOf(kindGroup, true)
	if i == viewProject {
		policy = policyOf(kindAsked, true)
	}
	l := &vnode.FuncList{
		Spec: vnode.Spec{Number: vnode.Ino(viewDirIdent(i, name)), Policy: policy,
			Stat: func(context.Context) (vnode.Stat, error) {
				if !there() {
					return vnode.Stat{}, vnode.Stale
				}
				t.mu.Lock()
				defer t.mu.Unlock()
				v := &t.views[i]
				return vnode.Stat{Perm: 0o700, MTime: latest(v.first, v.times[name]), UID: t.uid, GID: t.gid}, nil
			}},
		List:    vnode.List{Up: t.views[i].list},
		Entries: func(context.Context) ([]fuse.DirEntry, error) { return t.viewEntries(i, name), nil },
		Find:    func(_ context.Context, link string) (vnode.Found, error) { return t.findViewLink(i, name, link) },
	}
	t.place(t.views[i].list, l)
	return vnode.Found{Node: l}, nil
}

// findViewLink returns the link to a session. It is an object of its own for
// each session that the name may mean.
func (t *tree) findViewLink(i int, dir, link string) (vnode.Found, error) {
	t.freshProjects(i)
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.viewLocked(i)[dir]
	if d == nil {
		return vnode.Found{}, vnode.NotFound
	}
	id, ok := d.ids[link]
	if !ok {
		return vnode.Found{}, vnode.NotFound
	}
	up := "../../"
	if dir != "" {
		up += "../"
	}
	target := up + "sessions/" + t.rows[id].name
	l := &vnode.FuncLink{
		Spec: vnode.Spec{Number: vnode.Ino(viewLinkIdent(i, dir, link, id)), Policy: policyOf(kindAsked, true),
			Stat: func(context.Context) (vnode.Stat, error) {
				t.mu.Lock()
				defer t.mu.Unlock()
				return vnode.Stat{Size: int64(len(target)), MTime: t.rows[id].updated, UID: t.uid, GID: t.gid}, nil
			}},
		Target: func(context.Context) (string, error) { return target, nil },
	}
	t.place(t.views[i].list, l)
	return vnode.Found{Node: l}, nil
}
