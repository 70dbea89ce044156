// Package requests counts what the kernel asks a mount for: the requests of
// ls, find, grep, cat, echo and mv on a store that is always the same, in the
// first, second and third pass. The numbers do not depend on the machine, only
// on what the mount lets the kernel keep, so that a lost time-out or a
// notification too many shows at once. It is also where a read-only mount,
// which answers most reads without any request, is held to what other programs
// write.
package requests
