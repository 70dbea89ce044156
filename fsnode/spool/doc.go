// Package spool keeps text that users are writing on private disk space until
// it is applied, and what could not be applied for as long as they want it.
//
// A Spool lives outside the store and outside the mount. It has two places:
//
//	<dir>/live-<pid>-<random>/   what this process is collecting
//	<dir>/../failed/             what could not be applied, one file each
//
// Both are readable by their owner alone (0700, files 0600). A process holds
// an flock on its live directory while it runs, so that the next Open, of any
// process, recognises the directory of a dead one and moves what it left to
// failed/. Nothing in failed/ is ever evicted; when it is full, Create refuses
// to begin something new, so that whoever writes learns it at open.
//
// A Buf of at most 64 KiB stays in memory until it grows, is synced or is
// persisted. Fail and Close write what is in memory to failed/ all the same.
//
// Three sums are bounded (Limits): the size of one Buf, the size of all live
// ones, and the bytes in failed/. The first two are exact at every moment. The
// third is checked when something new begins: text that was accepted is kept,
// so failed/ can exceed its limit by what was live when it became full.
//
// Locks: a Buf's mutex is taken before the Spool's, and the Spool's is held
// for memory only. The flock on <dir>/lock is held while live directories are
// made, swept and removed, never while text is collected.
package spool
