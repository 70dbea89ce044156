// Package fsnode is the mounted tree: it translates paths and system calls
// into operations of the store, and the store's changes into what the kernel
// must forget. It decides nothing about sessions and writes no file of the
// store. docs/filesystem.md is the contract of every path; a file here is
// named after the directory kind that it serves.
//
// # State
//
// What the kernel can ask for all the time (LOOKUP, GETATTR, READ, READLINK,
// READDIR) is answered from memory, or from one small file: a session that
// the kernel looks into is pinned in the store, and its current state, a
// view, is swapped by the store at the moment of a change (Swapped), before
// anybody is told of it (Published). So no such request ever waits for a
// session's lock, and a change may wait for them.
//
// # Caches
//
// The kernel keeps names, attributes, pages and link targets for an hour.
// policy.go is the table of what it may keep; invalidate.go drops what a
// change made wrong, before the system call that made the change returns. The
// rules there about which directory may be notified from which request are
// what keeps the mount from deadlocking with the kernel.
//
// # Locks
//
// docs/architecture.md has the order. Here are an open handle's mutex (level
// 0), the opening of a session (level 0), and leaf mutexes: the tree's, a
// session's, the list of refusals. A leaf is held for a few instructions, and
// neither the store nor the kernel is called with it; go-fuse's NewInode is,
// which takes only a leaf of its own.
package fsnode
