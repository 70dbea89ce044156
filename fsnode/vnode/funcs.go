package vnode

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Spec is what a node of functions has, of whatever kind.
type Spec struct {
	// Number and Gen identify it, see Place.
	Number, Gen uint64
	Policy      Policy
	// Stat tells the attributes, see Object.
	Stat func(ctx context.Context) (Stat, error)
	// Estimate, when not nil, is that of an Estimated.
	Estimate func(ctx context.Context) (Stat, error)
}

func (s *Spec) spec() *Spec { return s }

type funcNode interface{ spec() *Spec }

// FuncNode is a node that has a Spec.
type FuncNode interface {
	Node
	funcNode
}

// PlaceFunc gives a node of functions its inode, as Place does.
func PlaceFunc(ctx context.Context, parent *fs.Inode, n FuncNode) {
	s := n.spec()
	n.base().Policy = s.Policy
	Place(ctx, parent, n, s.Number, s.Gen)
}

// FuncFile is a File of functions.
type FuncFile struct {
	File
	Spec
	// Read returns the current text. A handle answers with the inode's text
	// of now, never with that of its open: the pages are shared by everybody.
	Read func(ctx context.Context) ([]byte, error)
	// Whole is for a text that changes: a handle then reads it past the page
	// cache, as one whole, see reading. Otherwise a reader in the moment of a
	// change may be given the size of one text and the bytes of the next.
	Whole bool
	// Version, when not nil, returns a comparable value that differs whenever
	// the text may: a handle then keeps what it has read for as long as it is
	// the same, so that a large text is not made anew for every page.
	Version func() any
	// Writer begins the writing of one handle. Nil, or an error, refuses an
	// open for writing.
	Writer func(ctx context.Context) (Writer, error)
}

// FuncList is a List of functions; the root of a tree is one.
type FuncList struct {
	List
	Spec
	// Env is that of the tree: the root has it.
	Env *Env
	// Entries lists the directory in a stable order, without "." and "..".
	// The slice is not changed afterwards. Inode numbers are those of Find.
	Entries func(ctx context.Context) ([]fuse.DirEntry, error)
	// Find returns the node of a name, placed; NotFound when it is not listed.
	Find func(ctx context.Context, name string) (Found, error)
	// Verbs are what can be done to the names in it; nil refuses all.
	Verbs Acting
}

// FuncLink is a Link of functions.
type FuncLink struct {
	Link
	Spec
	// Target returns where the link points, relative to its directory.
	Target func(ctx context.Context) (string, error)
}
