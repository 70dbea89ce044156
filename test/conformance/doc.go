// Package conformance compares sessionfs with the answers that OpenProgram's
// own store gave on stores that it wrote itself.
//
// Each store of test/testdata/stores is a tarball and the recorded answers
// beside it. A copy is opened with the clock at the time of the recording,
// asked the same questions, and compared answer by answer; a key of the
// recording that the suite does not know fails it. SESSIONFS_FIXTURES names
// another directory of such pairs to run instead.
//
// Nothing recorded is passed over. Where sessionfs differs on purpose, or the
// peer gave no answer, the right one is derived here from the store on disk:
// the list of sessions is the disk's, a run that a dead process left is
// interrupted, opening loses nothing, a damaged file costs itself alone. The
// differences are stated in statedDifferences, and each comparison under one
// is counted. The suite reads the disk with code of its own (model), which
// shares nothing with the product; TestModel holds it to the peer's answers.
package conformance
