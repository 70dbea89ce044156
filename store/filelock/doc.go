// Package filelock takes the store's inter-process locks: flock(2), whole
// file, at the paths that the peer uses too (reference 3.1).
//
// A lock belongs to an open file description. Each Lock here has one of its
// own, so two holders exclude each other whether they live in one process or
// in two, and the kernel releases the lock when a process dies, whatever kills
// it. fcntl record locks are another mechanism and exclude none of this.
//
// A lock file is created on demand (0600, with the owner of its directory) and
// is never unlinked: the lock is the inode, and a new file of the same name
// would be another lock. Should somebody unlink one all the same, that is
// noticed after locking and the new file is locked instead. Its content means
// nothing and is never written.
//
// Waiting is polling, as the peer's is: a waiter sleeps 1 ms first and 50 ms
// at most. There is no queue, hence no fairness; whoever contends within one
// process should hold a mutex of his own before he comes here (lock order:
// docs/architecture.md).
//
// The package does not know what a lock protects, and imposes no order.
package filelock
