package fsnode

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
)

// sessionFiles are the fixed entries of a session's directory: one inode for
// each role, whatever it shows at the moment.
type sessionFiles struct {
	watched bool
	table   vnode.Table

	head                                        *vnode.Link
	headID, meta, transcript, problems, control *vnode.File
	messages, branches, nodes, history          *vnode.List
	fields, appends                             *vnode.List
	derived                                     *derived
}

// newFiles makes the fixed entries, placed, in the order of
// docs/filesystem.md.
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
	attachments, work := s.newReal()
	open := s.when(func(v *view) bool { return v.sn.Openable })
	f.table = vnode.Table{
		{Name: "head", Found: vnode.Found{Node: f.head}, Show: s.when(func(v *view) bool {
			_, ok := v.headTarget()
			return ok && v.sn.Openable
		})},
		{Name: "head_id", Found: vnode.Found{Node: f.headID}, Show: open},
		{Name: "messages", Found: vnode.Found{Node: f.messages}, Show: open},
		{Name: "branch", Found: vnode.Found{Node: f.branches}, Show: open},
		{Name: "nodes", Found: vnode.Found{Node: f.nodes}, Show: open},
		{Name: "history", Found: vnode.Found{Node: f.history}},
		{Name: "fields", Found: vnode.Found{Node: f.fields}, Show: open},
		{Name: "meta.json", Found: vnode.Found{Node: f.meta}, Show: s.when(func(v *view) bool { return v.sn.MetaJSON() != nil })},
		{Name: "transcript.md", Found: vnode.Found{Node: f.transcript}, Show: open},
		{Name: "problems.txt", Found: vnode.Found{Node: f.problems}, Show: s.when(func(v *view) bool { return len(v.sn.Problems) > 0 })},
		{Name: "append", Found: vnode.Found{Node: f.appends}, Show: open},
		{Name: "ctl", Found: vnode.Found{Node: f.control}, Show: open},
		{Name: "attachments", Found: attachments, Show: open},
		{Name: "workdir", Found: work, Show: open},
	}
	f.table = append(f.table, f.derived.rows(s, open)...)
	return f
}

// when makes a condition on the current view.
func (s *session) when(cond func(*view) bool) func() bool {
	return func() bool { return cond(s.v.Load()) }
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
		Base:    vnode.Base{Env: s.t.env, ID: s.ident("file", name), Gen: s.gen, Policy: policyOf(kindLive, watched)},
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
	f.LookupStat = func(ctx context.Context) (vnode.Stat, error) {
		v, err := s.current(ctx)
		if err != nil {
			return vnode.Stat{}, err
		}
		return s.stat(v, 0o400, int(last.Load())), nil
	}
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
