// Package recovery keeps, for every turn of a session, the files as they were
// before the turn changed them, and puts them back when turns are undone
// (reference 11).
//
// A Tree is a session's undo data, a directory beside the session's own and
// outside of its Git: <turn>/manifest.json and the blobs that it names. Before
// is called before a turn changes a file, After when it has, Abort when it has
// not. A Plan says what undoing turns would do to the files of the session's
// project, and why it cannot be done. Apply does it, all or nothing:
//
//	intent "prepared" → new content beside each file → intent "applying" →
//	old file moved aside, new one linked in, directory synced, for each →
//	the caller's Commit → intent "committed" → what was moved aside removed
//
// An intent is written before what it describes. Whatever fails is undone at
// once, and whatever a crash leaves is undone, or finished when the caller says
// that its Commit had happened, by Replay. Files are reached only beneath the
// project's directory and through no symlink; a file that somebody else changed
// meanwhile is never removed: then the intent says "recovery_required" and
// keeps what was moved aside.
//
// The caller holds the session's lock throughout. This package takes the lock
// of the intent and those in the state directory, in this order: history,
// intent, sequence.
package recovery
