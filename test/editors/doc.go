// Package editors tests that what editors and command-line tools do to save a
// file works on a mount as its users expect: real programs on a real mount,
// and the protocols of programs that are not installed, call by call. Every
// test says what the store holds afterwards, as read from the disk beneath and
// not through the mount, and that no temporary file of a program has become
// part of a session.
package editors
