// Package crash stops the store at every point where it can stop, and looks at
// what is left: each operation with a failure at each of its disk calls, each
// operation with the power cut after each of its changes to the disk, and a
// process under a mixed load that is killed at random. It holds nothing but
// tests.
package crash
