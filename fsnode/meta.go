package fsnode

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
)

const (
	// seenTexts is how many texts of a meta.json are kept that somebody may
	// have begun to edit.
	seenTexts = 8
	// seenSessions is of how many sessions they are kept.
	seenSessions = 1024
)

// seen keeps the newest texts of meta.json that were served or saved, by
// session: what is saved is compared with them. The zero value is ready.
type seen struct {
	mu    sync.Mutex // leaf
	texts map[string][][]byte
	order []string // least recently noted first
}

// note takes a text over as the newest of its session.
func (s *seen) note(id string, text []byte) {
	if text == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts == nil {
		s.texts = map[string][][]byte{}
	}
	list := s.texts[id]
	if n := len(list); n > 0 && bytes.Equal(list[n-1], text) {
		return
	}
	list = slices.DeleteFunc(slices.Clone(list), func(b []byte) bool { return bytes.Equal(b, text) })
	list = append(list, text)
	s.texts[id] = list[max(0, len(list)-seenTexts):]
	s.order = append(slices.DeleteFunc(s.order, func(x string) bool { return x == id }), id)
	if len(s.order) > seenSessions {
		delete(s.texts, s.order[0])
		s.order = s.order[1:]
	}
}

// of returns the texts of a session, oldest first.
func (s *seen) of(id string) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.texts[id]
}

// newMeta makes meta.json.
func (s *session) newMeta(watched bool) *vnode.File {
	f := s.newText(watched, "meta.json", 0o600, func(v *view) ([]byte, error) { return v.sn.MetaJSON(), nil })
	f.Policy = policyOf(kindWritable, watched)
	text := metaText{s}
	f.Read = text.shown
	f.Writer = s.newDocument(s.id+"-meta.json", func(context.Context) (target, error) { return text, nil })
	return f
}
