// Package attachment knows how messages refer to files and which files may be
// referred to (reference 9).
//
// An upload is stored in the session's workdir/attachments and named in the
// text of the message by a marker, with its absolute path. Find reads both
// spellings of markers, Format writes the current one; markers in history are
// never rewritten, also when the session has moved and their paths are stale.
// That is what a Resolver is for: it says which roots may be served or sent,
// and finds, for exactly one shape of stale path, where the file is now.
//
// A path is tested after its symlinks are resolved. Reading here never writes,
// and nothing locks: who saves for a session holds what the session needs.
package attachment
