// Package migrate moves sessions of old layouts to where they belong, so that
// an interruption at any moment loses nothing and leaves one served copy
// (reference 12). It knows two kinds of work:
//
// A relocation takes a session out of a working folder,
// <project>/.openprogram/sessions/<id>, to <root>/projects/<project>/<id>,
// with its undo tree. Journal, staging directories, hold files and locks are
// the peer's, so that either side can finish what the other began.
//
// A conversion turns a session of the first layout, whose history/ is itself
// the Git repository, into one whose repository is at its top.
//
// # Relocation
//
//	inventory   hash every file of the source
//	copy        fill staging, each file and directory synced
//	verify      staging and the source again both equal the inventory
//	publish     rename staging to the destination, never over anything
//	(record)    locations.json names the destination
//	cleanup     the destination is the authority from here on
//	done        the source is set aside, compared once more, removed
//
// Until the record names the destination the source is the authority. Where
// no place was recorded, the source's is, before anything is published:
// without it a published destination would be found before the working folder
// and be served too early. A destination that an interrupted run published is
// compared with the source of today. If the source moved on, the destination
// is taken back, provided that it still is what the journal says was published
// (its digest is the row's "published", or its files are the row's inventory);
// any other existing destination is a conflict, and both are left alone.
//
// After the record the source only loses. "The record names a destination that
// is present" means success, whatever became of the source. The row becomes
// "done" before the source is touched, because the peer takes a row without a
// source for a session that is lost; what is left to do then stands in the
// row's "cleanup", which the peer carries along unread. The source is renamed
// to .migrated-<id> beside itself, where nobody writes any more, and removed
// only when each of its files is in the destination: the same bytes at the same
// path; or the bytes in the destination's Git; or, when the journal proves
// that exactly this file was published, any later version at its path. A
// source that has more stays aside and is reported as kept.
//
// # Conversion
//
// Files stay where they are; only the repository changes place. A copy of
// history/.git becomes the .git of a staged copy of the session: all objects,
// refs, reflogs and the configuration are kept as they are, the index is left
// out (its paths are relative to history/), the branch that HEAD was on
// continues as main where main is free. A commit on top of the old ones holds
// the tree of today, with history/…, meta.json and the rest. So every old
// commit keeps its hash and is an ancestor of main: rewriting the old trees to
// live under history/ would give each commit a new hash and break whatever
// refers to one. Old commits show history's files at the top of their tree;
// new ones show them below history/.
//
// Publishing is one rename, of the staged .git into the session's directory.
// Then history/.git is moved inside the new .git, so that it is no repository
// within the work tree, and removed when all of its objects are in the new one.
// The journal of conversions is a file of its own, conversions.json beside the
// peer's journal.json: the peer would take such a row for a relocation.
//
// # Locks
//
// Outermost first (reference 3.2): migration-<id>; the session's flock, taken
// when no run is live, with the hold file announcing that none may begin;
// locations and migration-journal around one small file each. The caller holds
// no lock of the session.
//
// What is never done: the project registry is not written (Config.MarkProject
// tells its owner); no Git program is run; symlinks are copied as links and
// never followed; sockets, pipes and devices are not copied.
package migrate
