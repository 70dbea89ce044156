package fsnode

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync/atomic"

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
	f.headID = s.newHeadID(watched)
	f.messages = s.newMessages(watched)
	f.branches = s.newBranches(watched)
	f.nodes = s.newNodes(watched)
	f.history = s.newHistory(watched)
	f.fields = s.newFields(watched)
	f.meta = s.newMeta(watched)
	f.transcript = s.newTranscript(watched)
	f.problems = s.newText(watched, "problems.txt", 0o400, func(v *view) ([]byte, error) { return problemsText(v), nil })
	f.appends = s.newAppends(watched)
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

// place gives a fixed entry its inode, before anybody else can see it.
func (s *session) place(n vnode.Node) {
	vnode.Place(context.Background(), &s.dir.Inode, n)
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

// newText makes a file of the session whose text is in memory.
func (s *session) newText(watched bool, name string, perm uint32, text func(*view) ([]byte, error)) *vnode.File {
	f := &vnode.File{
		Base:    vnode.Base{Env: s.t.env, Number: vnode.Ino(s.ident("file", name)), Gen: s.gen, Policy: policyOf(kindLive, watched)},
		Read:    func(context.Context) ([]byte, error) { return text(s.v.Load()) },
		Whole:   true,
		Version: func() any { return s.v.Load().sn.Version },
	}
	f.Stat = func(ctx context.Context) (vnode.Stat, error) {
		v, err := s.current(ctx)
		if err != nil {
			return vnode.Stat{}, err
		}
		b, err := text(v)
		if err != nil {
			return vnode.Stat{}, err
		}
		return s.stat(v, perm, len(b)), nil
	}
	s.place(f)
	return f
}

// newTranscript makes transcript.md. Its size is known once it is rendered;
// what comes with the name is the last one that was, and is never kept.
func (s *session) newTranscript(watched bool) *vnode.File {
	var last atomic.Int64
	f := s.newText(watched, "transcript.md", 0o400, func(v *view) ([]byte, error) {
		b, err := v.sn.Transcript()
		last.Store(int64(len(b)))
		return b, err
	})
	f.Rare = &vnode.Rare{LookupStat: func(ctx context.Context) (vnode.Stat, error) {
		v, err := s.current(ctx)
		if err != nil {
			return vnode.Stat{}, err
		}
		return s.stat(v, 0o400, int(last.Load())), nil
	}}
	return f
}

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
