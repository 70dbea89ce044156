package fsnode

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
)

// sessionFiles are the fixed entries of a session's directory: one inode for
// each role, whatever it shows at the moment.
type sessionFiles struct {
	watched bool

	head                                        *vnode.Link
	headID, meta, transcript, problems, control *vnode.File
	messages, branches, nodes, history          *vnode.List
	fields, appends                             *vnode.List
	attachments, work, context                  vnode.Found
	real                                        []*vnode.Pass // these three
	derived                                     *derived
}

// newFiles makes the fixed entries, placed.
func (s *session) newFiles(watched bool) *sessionFiles {
	f := &sessionFiles{watched: watched}
	f.head = s.newHead(watched)
	f.headID = s.newText(watched, headIDKind)
	f.messages = s.newMessages(watched)
	f.branches = &s.newList(watched, branchesKind).List
	f.nodes = &s.newList(watched, nodesKind).List
	f.history = &s.newList(watched, historyKind).List
	f.fields = s.newFields(watched)
	f.meta = s.newMeta(watched)
	f.transcript = s.newLate(watched, transcriptKind)
	f.problems = s.newText(watched, problemsKind)
	f.appends = &s.newList(watched, appendKind).List
	f.control = s.newControl(watched)
	f.derived = s.newDerived(watched)
	f.attachments, f.work = s.newReal()
	f.context = s.newContext()
	for _, r := range []vnode.Found{f.attachments, f.work, f.context} {
		f.real = append(f.real, r.Foreign.(*vnode.Pass))
	}
	return f
}

// fixedEntry is a fixed entry of every session's directory.
type fixedEntry struct {
	name string
	show func(*view) bool // whether it is there; nil: always
	node func(*sessionFiles) vnode.Found
}

// fixedEntries are the fixed entries in the order of docs/filesystem.md: one
// table for all sessions.
func fixedEntries() []fixedEntry {
	open := func(v *view) bool { return v.sn.Openable }
	of := func(get func(*sessionFiles) vnode.Node) func(*sessionFiles) vnode.Found {
		return func(f *sessionFiles) vnode.Found { return vnode.Found{Node: get(f)} }
	}
	return []fixedEntry{
		{"head", func(v *view) bool {
			_, ok := v.headTarget()
			return ok && v.sn.Openable
		}, of(func(f *sessionFiles) vnode.Node { return f.head })},
		{"head_id", open, of(func(f *sessionFiles) vnode.Node { return f.headID })},
		{"messages", open, of(func(f *sessionFiles) vnode.Node { return f.messages })},
		{"branch", open, of(func(f *sessionFiles) vnode.Node { return f.branches })},
		{"nodes", open, of(func(f *sessionFiles) vnode.Node { return f.nodes })},
		{"history", nil, of(func(f *sessionFiles) vnode.Node { return f.history })},
		{"fields", open, of(func(f *sessionFiles) vnode.Node { return f.fields })},
		{"meta.json", func(v *view) bool { return v.sn.MetaJSON() != nil }, of(func(f *sessionFiles) vnode.Node { return f.meta })},
		{"transcript.md", open, of(func(f *sessionFiles) vnode.Node { return f.transcript })},
		{"problems.txt", func(v *view) bool { return len(v.sn.Problems) > 0 }, of(func(f *sessionFiles) vnode.Node { return f.problems })},
		{"append", open, of(func(f *sessionFiles) vnode.Node { return f.appends })},
		{"ctl", open, of(func(f *sessionFiles) vnode.Node { return f.control })},
		{"attachments", open, func(f *sessionFiles) vnode.Found { return f.attachments }},
		{"workdir", open, func(f *sessionFiles) vnode.Found { return f.work }},
		{"dag", open, of(func(f *sessionFiles) vnode.Node { return f.derived.dag })},
		{"transcript.jsonl", open, of(func(f *sessionFiles) vnode.Node { return f.derived.jsonl })},
		{"graph.txt", open, of(func(f *sessionFiles) vnode.Node { return f.derived.graph })},
		{"graph.dot", open, of(func(f *sessionFiles) vnode.Node { return f.derived.dot })},
		{"context", open, func(f *sessionFiles) vnode.Found { return f.context }},
		{"commits", open, of(func(f *sessionFiles) vnode.Node { return f.derived.commits })},
	}
}

// hasFixed reports whether a name is that of a fixed entry, there at the
// moment or not.
func (t *tree) hasFixed(name string) bool {
	return slices.ContainsFunc(t.fixed, func(e fixedEntry) bool { return e.name == name })
}

// listFixed lists the fixed entries that are there.
func (s *session) listFixed(f *sessionFiles) []fuse.DirEntry {
	v := s.v.Load()
	out := make([]fuse.DirEntry, 0, len(s.t.fixed))
	for _, e := range s.t.fixed {
		if e.show == nil || e.show(v) {
			out = append(out, e.node(f).Entry(e.name))
		}
	}
	return out
}

// findFixed returns the fixed entry of a name, if it is there.
func (s *session) findFixed(f *sessionFiles, name string) (vnode.Found, error) {
	for _, e := range s.t.fixed {
		if e.name == name && (e.show == nil || e.show(s.v.Load())) {
			return e.node(f), nil
		}
	}
	return vnode.Found{}, vnode.NotFound
}

// put gives an entry of the session's directory its inode, before anybody else
// can see it.
func (s *session) put(n vnode.Node, ident string) {
	vnode.Place(context.Background(), &s.dir.Inode, n, vnode.Ino(ident), s.gen)
}

// place is put for a node of functions.
func (s *session) place(n vnode.FuncNode) {
	vnode.PlaceFunc(context.Background(), &s.dir.Inode, n)
}

// live lists what every change of the session may change.
func (f *sessionFiles) live() []changer {
	return append(f.derived.live(), f.head, f.headID, f.meta, f.transcript, f.problems, f.messages, f.branches, f.nodes, f.history, f.fields)
}

// shown tells which names that come and go a view shows.
func (f *sessionFiles) shown(v *view) [4]bool {
	_, head := v.headTarget()
	return [4]bool{head, v.sn.MetaJSON() != nil, len(v.sn.Problems) > 0, v.sn.Openable}
}

// problemsKind is problems.txt, transcriptKind transcript.md.
var (
	problemsKind = &textKind{name: "problems.txt", kind: kindLive, perm: 0o400,
		text: func(_ *session, v *view) ([]byte, error) { return problemsText(v), nil }}
	transcriptKind = renderedKind("transcript.md", func(_ *session, v *view) ([]byte, error) { return v.sn.Transcript() })
)

// problemsText is problems.txt: one finding a line, the path first.
func problemsText(v *view) []byte {
	var b bytes.Buffer
	for _, p := range v.sn.Problems {
		if p.Path != "" {
			b.WriteString(p.Path)
			b.WriteString(": ")
		}
		b.WriteString(strings.ReplaceAll(p.Text, "\n", " "))
		b.WriteByte('\n')
	}
	return b.Bytes()
}
