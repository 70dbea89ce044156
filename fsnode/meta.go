package fsnode

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

const (
	// seenTexts is how many texts of a meta.json are kept that somebody may
	// have begun to edit.
	seenTexts = 16
	// seenSessions is of how many sessions they are kept.
	seenSessions = 1024
)

// process names a process, so that what it saves can be told from what it, or
// one like it, has read. A name that is not known is "".
type process struct{ self, parent, session string }

// kin tells how near two processes are: 3 for the same, 2 where one started
// the other or the same one both, as a shell does for jq and mv, 1 for those
// of one terminal or one job and for those of which nothing is known, as in a
// container, 0 for strangers.
func (p process) kin(q process) int {
	same := func(a, b string) bool { return a != "" && a == b }
	switch {
	case same(p.self, q.self):
		return 3
	case same(p.parent, q.parent), same(p.self, q.parent), same(p.parent, q.self):
		return 2
	case same(p.session, q.session), p.self == "" && q.self == "":
		return 1
	}
	return 0
}

// seen keeps the newest texts of meta.json, by session: which process has read
// or saved which, and what else the file held. What is saved is compared with
// them. The zero value is ready.
type seen struct {
	mu       sync.Mutex // leaf
	sessions map[string]*seenOf
	order    []string // least recently noted first
}

// seenOf is what was seen of one session's meta.json, oldest first.
type seenOf struct {
	texts  []seenText
	states [][]byte // what the file held, read through the mount or not
}

// seenText is a text and a process that has it.
type seenText struct {
	who   process
	text  []byte
	saved bool // by it: nobody else has it, until it is read
}

// entry returns what is kept of a session. Requires s.mu.
func (s *seen) entry(id string) *seenOf {
	if s.sessions == nil {
		s.sessions = map[string]*seenOf{}
	}
	e := s.sessions[id]
	if e == nil {
		e = &seenOf{}
		s.sessions[id] = e
	}
	s.order = append(slices.DeleteFunc(s.order, func(x string) bool { return x == id }), id)
	if len(s.order) > seenSessions {
		delete(s.sessions, s.order[0])
		s.order = s.order[1:]
	}
	return e
}

// note takes over that a process has a text, as the newest of its session.
func (s *seen) note(id string, x seenText) {
	if x.text == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(id)
	e.texts = append(slices.DeleteFunc(e.texts, func(y seenText) bool {
		return y.who == x.who && y.saved == x.saved && bytes.Equal(y.text, x.text)
	}), x)
	e.texts = e.texts[max(0, len(e.texts)-seenTexts):]
}

// state takes over what the file held.
func (s *seen) state(id string, text []byte) {
	if text == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(id)
	e.states = append(slices.DeleteFunc(e.states, func(b []byte) bool { return bytes.Equal(b, text) }), text)
	e.states = e.states[max(0, len(e.states)-seenTexts):]
}

// of returns the texts that a process may have begun from: those of the
// processes nearest to it, itself first.
func (s *seen) of(id string, who process) store.MetaSeen {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.sessions[id]
	if e == nil {
		return store.MetaSeen{}
	}
	out := store.MetaSeen{States: slices.Clone(e.states)}
	near := 1
	for _, x := range e.texts {
		switch kin := who.kin(x.who); {
		case kin > near:
			near, out.Own = kin, [][]byte{x.text}
		case kin == near:
			out.Own = appendNewest(out.Own, x.text)
		}
		if !x.saved {
			out.Served = appendNewest(out.Served, x.text)
		}
	}
	return out
}

// appendNewest puts a text behind the others, once.
func appendNewest(list [][]byte, text []byte) [][]byte {
	return append(slices.DeleteFunc(list, func(b []byte) bool { return bytes.Equal(b, text) }), text)
}

// processOf names the process of a request.
func processOf(ctx context.Context) process {
	c, ok := fuse.FromContext(ctx)
	if !ok || c.Pid == 0 {
		return process{}
	}
	status, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(c.Pid), 10) + "/status")
	if err != nil {
		return process{}
	}
	_, rest, _ := bytes.Cut(status, []byte("\nTgid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	self, stat := startOf(string(bytes.TrimSpace(line)))
	if self == "" {
		return process{}
	}
	p := process{self: self}
	if parent := string(stat[1]); parent != "1" { // which adopts whoever is left
		p.parent, _ = startOf(parent)
	}
	if session := string(stat[3]); session != "0" {
		p.session = session
	}
	return p
}

// startOf names a process by number and start, and returns what
// proc_pid_stat(5) has behind its name, which may hold anything: state, parent,
// group, session, and as field 20 the start.
func startOf(pid string) (name string, fields [][]byte) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", nil
	}
	fields = bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return "", nil
	}
	return pid + "/" + string(fields[19]), fields
}

// metaKind is meta.json.
var metaKind = &textKind{name: "meta.json", kind: kindWritable, perm: 0o600,
	text: func(_ *session, v *view) ([]byte, error) { return v.sn.MetaJSON(), nil },
	writer: func(s *session) func(context.Context) (vnode.Writer, error) {
		return s.newDocument(s.id+"-meta.json", func(context.Context) (target, error) { return &metaText{s: s}, nil })
	},
}

// metaFile is meta.json. Who has read which text of it is noted.
type metaFile struct{ sessionText }

// newMeta makes meta.json.
func (s *session) newMeta(watched bool) *vnode.File {
	f := &metaFile{}
	f.init(s, watched, metaKind)
	s.put(f, s.ident("file", metaKind.name))
	return &f.File
}

// Served notes who has been given a text.
func (f *metaFile) Served(ctx context.Context, raw []byte) {
	f.s.t.seen.note(f.s.id, seenText{who: processOf(ctx), text: raw})
}
