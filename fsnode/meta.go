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
)

const (
	// seenTexts is how many texts of a meta.json are kept that somebody may
	// have begun to edit.
	seenTexts = 8
	// seenSessions is of how many sessions they are kept.
	seenSessions = 1024
)

// seen keeps the newest texts of meta.json that were served, by session, and
// which process read or saved which: what is saved is compared with them. A
// text that was only saved is known to its writer alone: another's save that
// began before it is a conflict.
// The zero value is ready.
type seen struct {
	mu       sync.Mutex // leaf
	sessions map[string]*seenOf
	order    []string // least recently noted first
}

// seenOf is what was seen of one session's meta.json, oldest first.
type seenOf struct {
	texts [][]byte
	by    []reader
}

// reader is a process and the text that it has.
type reader struct {
	who  string
	text []byte
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

// note takes a text over as the newest of its session.
func (s *seen) note(id string, text []byte) {
	if text == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(id)
	if n := len(e.texts); n > 0 && bytes.Equal(e.texts[n-1], text) {
		return
	}
	list := slices.DeleteFunc(slices.Clone(e.texts), func(b []byte) bool { return bytes.Equal(b, text) })
	list = append(list, text)
	e.texts = list[max(0, len(list)-seenTexts):]
}

// reads notes which text a process has; "" is a process that is not known.
func (s *seen) reads(id, who string, text []byte) {
	if who == "" || text == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(id)
	e.by = append(slices.DeleteFunc(e.by, func(r reader) bool { return r.who == who }), reader{who, text})
	e.by = e.by[max(0, len(e.by)-seenTexts):]
}

// of returns the texts that a process may have begun from, oldest first: the
// one that it has read itself, or all.
func (s *seen) of(id, who string) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.sessions[id]
	if e == nil {
		return nil
	}
	for _, r := range e.by {
		if r.who == who {
			return [][]byte{r.text}
		}
	}
	return e.texts
}

// processOf names the process of a request, by number and start; "" when it
// cannot be told.
func processOf(ctx context.Context) string {
	c, ok := fuse.FromContext(ctx)
	if !ok || c.Pid == 0 {
		return ""
	}
	status, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(c.Pid), 10) + "/status")
	if err != nil {
		return ""
	}
	_, rest, _ := bytes.Cut(status, []byte("\nTgid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	group := string(bytes.TrimSpace(line))
	stat, err := os.ReadFile("/proc/" + group + "/stat")
	if err != nil {
		return ""
	}
	// Behind the name, which may hold anything, the start is field 20.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return ""
	}
	return group + "/" + string(fields[19])
}

// newMeta makes meta.json.
func (s *session) newMeta(watched bool) *vnode.File {
	f := s.newText(watched, "meta.json", 0o600, func(v *view) ([]byte, error) { return v.sn.MetaJSON(), nil })
	f.Policy = policyOf(kindWritable, watched)
	text := metaText{s}
	f.Read = text.shown
	f.Served = func(ctx context.Context, raw []byte) {
		s.t.seen.note(s.id, raw)
		s.t.seen.reads(s.id, processOf(ctx), raw)
	}
	f.Writer = s.newDocument(s.id+"-meta.json", func(context.Context) (target, error) { return text, nil })
	return f
}
