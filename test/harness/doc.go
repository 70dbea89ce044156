// Package harness runs sessionfs for tests the way a user runs it: it builds
// the binary once per test process, mounts it in a subprocess, and cleans up
// after it.
//
// A process that serves a mount and touches it can deadlock, so nothing here
// mounts in the test's own process. A mount is ready when the daemon says so,
// never after a sleep. Each mount carries a timer that aborts its FUSE
// connection, so that a hang ends as a failure instead of a process in state
// D. When a mount ends, its open files are compared with those at its start,
// its log must hold no warning and no report of the race detector, and the
// mountpoint must be gone; when the test process ends, nothing it started may
// be left: no mount, no process, no directory.
//
// The package starts and stops things and tells what it finds; what is right
// is asserted by the tests that use it. It imports nothing but the standard
// library. Use Main in TestMain of every package that mounts.
package harness
