package fsnode

import (
	"context"
	"sync/atomic"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
)

// sessionText is a file of a session's directory whose text follows from the
// session's state.
type sessionText struct {
	vnode.File
	s    *session
	as   *textKind
	last atomic.Int64 // size of the text when it was made last
}

// textKind is what such a file has of its own.
type textKind struct {
	name string
	kind kind
	perm uint32
	text func(s *session, v *view) ([]byte, error)
	// writer, when not nil, returns what begins the writing of a handle.
	writer func(s *session) func(context.Context) (vnode.Writer, error)
}

// newText makes a file whose text is in memory, placed.
func (s *session) newText(watched bool, as *textKind) *vnode.File {
	f := &sessionText{}
	f.init(s, watched, as)
	s.put(f, s.ident("file", as.name))
	return &f.File
}

func (f *sessionText) init(s *session, watched bool, as *textKind) {
	f.s, f.as, f.Policy = s, as, policyOf(as.kind, watched)
}

// Read returns the text of now.
func (f *sessionText) Read(context.Context) ([]byte, error) { return f.text(f.s.v.Load()) }

func (f *sessionText) text(v *view) ([]byte, error) {
	b, err := f.as.text(f.s, v)
	f.last.Store(int64(len(b)))
	return b, err
}

// Whole tells that the text changes.
func (f *sessionText) Whole() bool { return true }

// Version differs whenever the session's state does.
func (f *sessionText) Version() any { return f.s.v.Load().sn.Version }

// Stat tells the attributes.
func (f *sessionText) Stat(ctx context.Context) (vnode.Stat, error) {
	v, err := f.s.current(ctx)
	if err != nil {
		return vnode.Stat{}, err
	}
	b, err := f.text(v)
	if err != nil {
		return vnode.Stat{}, err
	}
	return f.s.stat(v, f.as.perm, len(b)), nil
}

// Writer begins the writing of a handle, or refuses it.
func (f *sessionText) Writer(ctx context.Context) (vnode.Writer, error) {
	if f.as.writer == nil {
		return nil, vnode.Immutable
	}
	return f.as.writer(f.s)(ctx)
}

// lateText is a text that costs something to make. What comes with its name is
// the size that it had last, and is never kept.
type lateText struct{ sessionText }

// newLate makes such a file, placed.
func (s *session) newLate(watched bool, as *textKind) *vnode.File {
	f := &lateText{}
	f.init(s, watched, as)
	s.put(f, s.ident("file", as.name))
	return &f.File
}

// Estimate tells the attributes, with the last size.
func (f *lateText) Estimate(ctx context.Context) (vnode.Stat, error) {
	v, err := f.s.current(ctx)
	if err != nil {
		return vnode.Stat{}, err
	}
	return f.s.stat(v, f.as.perm, int(f.last.Load())), nil
}
