package vnode

import (
	"context"
	"math"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Object tells of a node, in the place of the functions in it. It is for kinds
// of which there are many: one small object answers all questions, where a
// function for each would take more memory than the node itself. Of a File it
// is a Text, of a List a Listing, of a Link a Pointer.
type Object interface {
	// Stat tells the attributes. It never waits for more than one small file.
	Stat(ctx context.Context) (Stat, error)
}

// Text is the Object of a File, see there.
type Text interface {
	Object
	Read(ctx context.Context) ([]byte, error)
	// Writer begins the writing of one handle, or refuses it.
	Writer(ctx context.Context) (Writer, error)
}

// Versioned is a Text that tells when it is another one, see File.
type Versioned interface{ Version() any }

// Listing is the Object of a List, see there.
type Listing interface {
	Object
	Entries(ctx context.Context) ([]fuse.DirEntry, error)
	Find(ctx context.Context, name string) (Found, error)
}

// Acting is a Listing in which something can be done to names, or what does it
// for a List; Verbs are one.
type Acting interface{ Verbs() *Verbs }

// Verbs returns the verbs themselves.
func (v *Verbs) Verbs() *Verbs { return v }

// Forgetful is a Listing that is told that the kernel has let go of the
// directory and of everything below it, as it looked a moment ago: a lookup
// under way may be handing it out again.
type Forgetful interface{ Forgot() }

// Pointer is the Object of a Link, see there.
type Pointer interface {
	Object
	Target(ctx context.Context) (string, error)
}

// Rare is what few nodes have.
type Rare struct {
	// LookupStat, when not nil, answers in the place of Stat what comes with
	// a name; it may be an estimate, and the kernel does not keep it.
	LookupStat func(ctx context.Context) (Stat, error)
	// Served, when not nil, is told which text a handle of a Whole file begins
	// to read, in the context of the read.
	Served func(ctx context.Context, text []byte)
}

// Span is a length of time in seconds, below 18 hours 13 minutes: every node
// has three.
type Span uint16

// For returns a length of time as a Span, the longest one where it is longer.
func For(d time.Duration) Span { return Span(min(d/time.Second, math.MaxUint16)) }

func (s Span) time() time.Duration { return time.Duration(s) * time.Second }

// stat tells a node's attributes.
func (b *Base) stat(ctx context.Context) (Stat, error) {
	if b.Of != nil {
		return b.Of.Stat(ctx)
	}
	return b.Stat(ctx)
}

// read returns a file's text.
func (f *File) read(ctx context.Context) ([]byte, error) {
	if t, ok := f.Of.(Text); ok {
		return t.Read(ctx)
	}
	return f.Read(ctx)
}

// version returns a file's Version; ok is false when it has none.
func (f *File) version() (v any, ok bool) {
	if f.Of != nil {
		t, ok := f.Of.(Versioned)
		if !ok {
			return nil, false
		}
		return t.Version(), true
	}
	if f.Version == nil {
		return nil, false
	}
	return f.Version(), true
}

// writer begins the writing of a handle.
func (f *File) writer(ctx context.Context) (Writer, error) {
	if t, ok := f.Of.(Text); ok {
		return t.Writer(ctx)
	}
	if f.Writer == nil {
		return nil, Immutable
	}
	return f.Writer(ctx)
}

// entries lists a directory.
func (l *List) entries(ctx context.Context) ([]fuse.DirEntry, error) {
	if o, ok := l.Of.(Listing); ok {
		return o.Entries(ctx)
	}
	return l.Entries(ctx)
}

// Look finds a name, as a lookup does.
func (l *List) Look(ctx context.Context, name string) (Found, error) {
	if o, ok := l.Of.(Listing); ok {
		return o.Find(ctx, name)
	}
	return l.Find(ctx, name)
}

// verbs are what can be done to the names in a directory.
func (l *List) verbs() Verbs {
	if o, ok := l.Of.(Acting); ok {
		return *o.Verbs()
	}
	if l.Verbs == nil {
		return Verbs{}
	}
	return *l.Verbs.Verbs()
}

// target returns where a link points.
func (l *Link) target(ctx context.Context) (string, error) {
	if o, ok := l.Of.(Pointer); ok {
		return o.Target(ctx)
	}
	return l.Target(ctx)
}
