package vnode

import (
	"context"
	"math"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Object is what embeds a node and tells of it: what embeds a File is a Text,
// a List a Listing, a Link a Pointer. FuncFile, FuncList and FuncLink are such
// of functions. They are for what there is few of: a function for each question
// takes more memory than the node itself.
type Object interface {
	// Stat tells the attributes. It never waits for more than one small file.
	Stat(ctx context.Context) (Stat, error)
}

// Text is the Object of a File, see FuncFile.
type Text interface {
	Object
	Read(ctx context.Context) ([]byte, error)
	// Writer begins the writing of one handle, or refuses it.
	Writer(ctx context.Context) (Writer, error)
}

// Versioned is a Text that tells when it is another one, see FuncFile.
type Versioned interface{ Version() any }

// WholeText is a Text that changes, see FuncFile.
type WholeText interface{ Whole() bool }

// Serving is a WholeText that is told which text a handle begins to read, in
// the context of the read.
type Serving interface {
	Served(ctx context.Context, text []byte)
}

// Estimated is an Object that answers with Estimate in the place of Stat what
// comes with a name. It may be wrong, and the kernel does not keep it.
type Estimated interface {
	Estimate(ctx context.Context) (Stat, error)
}

// Listing is the Object of a List, see FuncList.
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

// Pointer is the Object of a Link, see FuncLink.
type Pointer interface {
	Object
	Target(ctx context.Context) (string, error)
}

// Span is a length of time in seconds, below 18 hours 13 minutes: every node
// has three.
type Span uint16

// For returns a length of time as a Span, the longest one where it is longer.
func For(d time.Duration) Span { return Span(min(d/time.Second, math.MaxUint16)) }

func (s Span) time() time.Duration { return time.Duration(s) * time.Second }

// stat tells a node's attributes.
func (b *Base) stat(ctx context.Context) (Stat, error) {
	switch o := b.Operations().(type) {
	case Object:
		return o.Stat(ctx)
	case funcNode:
		return o.spec().Stat(ctx)
	}
	return Stat{}, Stale
}

// lookupStat tells the attributes that come with a name, and how long they are
// good.
func (b *Base) lookupStat(ctx context.Context) (Stat, Span, error) {
	switch o := b.Operations().(type) {
	case Estimated:
		st, err := o.Estimate(ctx)
		return st, 0, err
	case funcNode:
		if estimate := o.spec().Estimate; estimate != nil {
			st, err := estimate(ctx)
			return st, 0, err
		}
	}
	st, err := b.stat(ctx)
	return st, b.Policy.Lookup, err
}

// read returns a file's text.
func (f *File) read(ctx context.Context) ([]byte, error) {
	switch o := f.Operations().(type) {
	case Text:
		return o.Read(ctx)
	case *FuncFile:
		return o.Read(ctx)
	}
	return nil, Stale
}

// whole reports whether a file's text changes, see FuncFile.
func (f *File) whole() bool {
	switch o := f.Operations().(type) {
	case *FuncFile:
		return o.Whole
	case WholeText:
		return o.Whole()
	}
	return false
}

// version returns a file's Version; ok is false when it has none.
func (f *File) version() (v any, ok bool) {
	switch o := f.Operations().(type) {
	case Versioned:
		return o.Version(), true
	case *FuncFile:
		if o.Version != nil {
			return o.Version(), true
		}
	}
	return nil, false
}

// writer begins the writing of a handle.
func (f *File) writer(ctx context.Context) (Writer, error) {
	switch o := f.Operations().(type) {
	case Text:
		return o.Writer(ctx)
	case *FuncFile:
		if o.Writer != nil {
			return o.Writer(ctx)
		}
	}
	return nil, Immutable
}

// entries lists a directory.
func (l *List) entries(ctx context.Context) ([]fuse.DirEntry, error) {
	switch o := l.Operations().(type) {
	case Listing:
		return o.Entries(ctx)
	case *FuncList:
		return o.Entries(ctx)
	}
	return nil, Stale
}

// Look finds a name, as a lookup does.
func (l *List) Look(ctx context.Context, name string) (Found, error) {
	switch o := l.Operations().(type) {
	case Listing:
		return o.Find(ctx, name)
	case *FuncList:
		return o.Find(ctx, name)
	}
	return Found{}, Stale
}

// verbs are what can be done to the names in a directory.
func (l *List) verbs() Verbs {
	switch o := l.Operations().(type) {
	case Acting:
		return *o.Verbs()
	case *FuncList:
		if o.Verbs != nil {
			return *o.Verbs.Verbs()
		}
	}
	return Verbs{}
}

// target returns where a link points.
func (l *Link) target(ctx context.Context) (string, error) {
	switch o := l.Operations().(type) {
	case Pointer:
		return o.Target(ctx)
	case *FuncLink:
		return o.Target(ctx)
	}
	return "", Stale
}
