// Package vnode holds the reusable kinds of virtual file and directory that
// the mounted tree is made of: File (a text, a value, a command file or a
// document, by what it is given), Link, List (a directory) and Pass (a real
// directory). It fixes for each kind what must be the same everywhere: exact
// attributes, stable inode numbers, what a write at which offset means, when
// a value is applied, and that everything a directory does not support is
// refused. It knows nothing of sessions.
//
// The tree supplies functions that return error. Only this package has
// methods that return an errno, and it gets every errno of a refusal from
// Env.Fail, so that there is one map from errors to errnos.
//
// # Locks
//
// An open handle has a mutex that may be held while the tree's functions run.
// A node has none: what it says comes from the tree, which answers Stat, Read
// and Find from memory or from one small file and never waits for a lock that
// is held while the kernel is notified.
package vnode

// Refusal is a reason of this package to refuse an operation. It is an error
// itself; the tree maps each to an errno.
type Refusal string

// Error returns the reason as a sentence part.
func (r Refusal) Error() string { return string(r) }

// The refusals.
const (
	// Immutable: a write to something that never changes, an unlink of a
	// synthetic file, an operation that a directory does not have.
	Immutable Refusal = "this cannot be changed here"
	// BadOffset: a write to a value that neither starts nor continues it.
	BadOffset Refusal = "a value is written from its start, or continued at its end"
	// OneLine: a value was continued that a newline had ended.
	OneLine Refusal = "the value is one line, and has been taken; another one begins with another open file"
	// BadSize: a value was to be cut to a size that means nothing.
	BadSize Refusal = "a value cannot be cut or padded"
	// BadFlags: a rename with flags that have no meaning here.
	BadFlags Refusal = "this kind of rename is not supported here"
	// TooLarge: a value over its limit.
	TooLarge Refusal = "the value is too large"
	// NotText: what should be a text has bytes that are not UTF-8.
	NotText Refusal = "this is not text: it has bytes that are not UTF-8"
	// NotFound: no such name.
	NotFound Refusal = "no such name"
	// Stale: the name meant something that is not there any more.
	Stale Refusal = "this is no longer part of the tree"
	// Killed: the writer died before it had finished.
	Killed Refusal = "the writer was killed before it had finished"
	// CrossDevice: a rename into or out of a real directory.
	CrossDevice Refusal = "cannot be renamed across filesystems"
)
