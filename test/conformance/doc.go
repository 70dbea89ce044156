// Package conformance compares sessionfs with the answers that OpenProgram's
// own store gave on stores that it wrote itself.
//
// Each store of test/testdata/stores is a tarball and the recorded answers
// beside it. A copy is opened with the clock at the time of the recording,
// asked the same questions, and compared answer by answer; a key of the
// recording that the suite does not know fails it. SESSIONFS_FIXTURES names
// another directory of such pairs to run instead.
//
// Where sessionfs differs on purpose, the right answer is derived here from
// the store on disk by the rules of docs/filesystem.md: the list of sessions
// is the disk's, a run that a dead process left is interrupted, and opening
// loses nothing. The suite reads the disk with code of its own, which shares
// nothing with the product.
package conformance
