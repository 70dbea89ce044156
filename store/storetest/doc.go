// Package storetest makes stores and disks for tests of what the store does
// when something goes wrong. Nothing but tests imports it.
//
// Build writes a root from a few lines of text, without the store's own code
// for operations. Disk is a disk that fails at a chosen call, and that can
// forget: it knows what was synced and what was not, and After gives the tree
// as a disk may lawfully hold it after a power cut.
package storetest
