package store

import (
	"context"

	"github.com/sessionfs/sessionfs/dag"
)

// STUB: signatures only, replaced file by file. Build against them.

type snapshotPrivate struct{}

// Field is one persistent field of a session as fields/ shows it.
type Field struct {
	Name     string // the key in meta.json
	Text     string // the value as text, without a final newline
	Writable bool
}

// MetaJSON returns meta.json's bytes; nil when it is missing.
func (sn *Snapshot) MetaJSON() []byte { panic("stub") }

// Branch returns the active branch, oldest first (reference 5.4). It is
// computed once. Corrupt when the predecessor chain is broken.
func (sn *Snapshot) Branch() ([]dag.Node, error) { panic("stub") }

// BranchOf returns the branch that ends in head.
func (sn *Snapshot) BranchOf(head string) ([]dag.Node, error) { panic("stub") }

// Entries returns what is known of every history file, in load order,
// unreadable ones included (their NodeID is "").
func (sn *Snapshot) Entries() []FileEntry { panic("stub") }

// FileEntry is a history file and the node that it holds.
type FileEntry struct {
	Entry
	NodeID string
}

// Entry returns the file of a node.
func (sn *Snapshot) Entry(id string) (Entry, bool) { panic("stub") }

// Text reads a node's text as nodes/ and messages/ show it: its content with
// a final newline. One small file is read from disk.
func (sn *Snapshot) Text(id string) ([]byte, error) { panic("stub") }

// Raw reads a history file's exact bytes.
func (sn *Snapshot) Raw(file string) ([]byte, error) { panic("stub") }

// MessageJSON returns a node as a message dict (reference 2.11).
func (sn *Snapshot) MessageJSON(id string) ([]byte, error) { panic("stub") }

// Branches lists the tips (reference 5.7), archived ones included, and every
// other node that has been given a name. Tip tells them apart.
func (sn *Snapshot) Branches() []Branch { panic("stub") }

// Resolve finds the node that ref names, see Ref. NotFound, Ambiguous.
func (sn *Snapshot) Resolve(ref Ref) (string, error) { panic("stub") }

// Transcript renders the active branch as Markdown; rendered once, kept as
// long as the snapshot.
func (sn *Snapshot) Transcript() ([]byte, error) { panic("stub") }

// Fields lists the persistent fields, in a stable order; internal markers
// (keys that start with "_") are left out.
func (sn *Snapshot) Fields() []Field { panic("stub") }

// Field returns one of Fields.
func (sn *Snapshot) Field(name string) (Field, bool) { panic("stub") }

// Status returns meta.json's status, "idle" when absent.
func (sn *Snapshot) Status() string { panic("stub") }

// Title returns meta.json's title.
func (sn *Snapshot) Title() string { panic("stub") }

// Store is the sessions of one root. It is safe for concurrent use.
type Store struct{ stub int }

// Open opens a root: the registry is loaded or rebuilt, and what Options ask
// for is reconciled and swept. A damaged session never fails Open.
func Open(ctx context.Context, opt Options) (*Store, error) { panic("stub") }

// Close commits what waits for a commit, writes the registry, stops watching.
func (s *Store) Close() error { panic("stub") }

// Root returns the absolute path of the root.
func (s *Store) Root() string { panic("stub") }

// ReadOnly reports whether the store was opened read-only.
func (s *Store) ReadOnly() bool { panic("stub") }

// Subscribe registers an observer; cancel removes it.
func (s *Store) Subscribe(o Observer) (cancel func()) { panic("stub") }

// IndexJSON returns the registry as index.json would hold it now.
func (s *Store) IndexJSON(ctx context.Context) ([]byte, error) { panic("stub") }

// ListSessions lists sessions by updated_at, newest first. What is on disk is
// listed, whatever the registry says.
func (s *Store) ListSessions(ctx context.Context, q ListQuery) ([]Row, error) { panic("stub") }

// CountSessions counts what ListSessions would list without limit and offset.
func (s *Store) CountSessions(ctx context.Context, q ListQuery) (int, error) { panic("stub") }

// Row returns one session's row. NotFound.
func (s *Store) Row(ctx context.Context, id string) (Row, error) { panic("stub") }

// GetSession returns a session as the peer's get_session does (reference
// 6.3), as one JSON object. NotFound.
func (s *Store) GetSession(ctx context.Context, id string) ([]byte, error) { panic("stub") }

// GetMessages returns message dicts of all branches in stored order
// (reference 5.5); limit > 0 keeps the last ones. Unknown session: none.
func (s *Store) GetMessages(ctx context.Context, id string, limit int) ([][]byte, error) {
	panic("stub")
}

// GetBranch returns the branch that ends in head, oldest first (reference
// 5.4); "" is the session's own head. Unknown session or head: none. Corrupt
// (wrapping *dag.BrokenChainError) when the chain is broken.
func (s *Store) GetBranch(ctx context.Context, id, head string) ([]dag.Node, error) { panic("stub") }

// ListBranches returns the tips (reference 5.7), newest first.
func (s *Store) ListBranches(ctx context.Context, id string) ([]Branch, error) { panic("stub") }

// ListArchivedBranches returns the archived branch entries whose node exists.
func (s *Store) ListArchivedBranches(ctx context.Context, id string) ([]Branch, error) {
	panic("stub")
}

// MergedHeads returns the consumed tips (reference 5.8), sorted.
func (s *Store) MergedHeads(ctx context.Context, id string) ([]string, error) { panic("stub") }

// LatestUserText returns the last user node's text (reference 5.10); ok is
// false when there is none.
func (s *Store) LatestUserText(ctx context.Context, id string) (text string, ok bool, err error) {
	panic("stub")
}

// Load returns the session's current snapshot, read anew if the disk changed.
// NotFound.
func (s *Store) Load(ctx context.Context, id string) (*Snapshot, error) { panic("stub") }

// Pin keeps a session loaded and watched until release is called. Watched is
// false when the system has no watch left for it.
func (s *Store) Pin(ctx context.Context, id string) (sn *Snapshot, watched bool, release func(), err error) {
	panic("stub")
}

// Reload drops what is cached of a session ("" = of all) and reads it again.
func (s *Store) Reload(ctx context.Context, id string) error { panic("stub") }

// SetHead moves the active DAG head to the node that ref names: the one door.
// It resolves ref, takes the session's locks, re-reads what changed on disk,
// refuses (RunActive, NotFound, Ambiguous, SummaryHead, Conflict, Corrupt),
// writes meta.json durably, re-reads the branch, publishes the change.
func (s *Store) SetHead(ctx context.Context, id string, ref Ref, mv HeadMove) (node string, err error) {
	panic("stub")
}

// AppendText appends a message of a role ("user", "assistant", "system") to
// the active branch and advances the head. User and system are refused with
// RunActive while a run is active.
func (s *Store) AppendText(ctx context.Context, id, role, text string) (AppendResult, error) {
	panic("stub")
}

// AppendMessage appends a message dict (reference 2.11, 6.7); the id is
// chosen when it has none. A user's or system message without a predecessor
// key chains on the head.
func (s *Store) AppendMessage(ctx context.Context, id string, msg []byte) (AppendResult, error) {
	panic("stub")
}

// ExtendMessage replaces the text of a message that this process appended,
// as long as it is the head and has no child; else Conflict.
func (s *Store) ExtendMessage(ctx context.Context, id, node, text string) error { panic("stub") }

// RunIsActive reports whether a run is active in the session.
func (s *Store) RunIsActive(ctx context.Context, id string) (bool, error) { panic("stub") }

// CreateSession creates a session with its repository. Exists, BurntID,
// Invalid, NotFound (unknown project).
func (s *Store) CreateSession(ctx context.Context, n NewSession) error { panic("stub") }

// UpdateSession sets meta.json keys to raw JSON values (null is refused for
// head_id; id, created_at are Immutable; head_id moves through SetHead).
func (s *Store) UpdateSession(ctx context.Context, id string, kv []KV) error { panic("stub") }

// SetField sets a field from its text form; an empty text clears an optional
// field. Invalid, Immutable, RunActive (status), NotFound.
func (s *Store) SetField(ctx context.Context, id, name, text string) error { panic("stub") }

// SetArchived archives or unarchives a session.
func (s *Store) SetArchived(ctx context.Context, id string, archived bool) error { panic("stub") }

// DeleteSession deletes a session for good: a durable intent first. The id
// can never be used again. RunActive, NotFound.
func (s *Store) DeleteSession(ctx context.Context, id string) error { panic("stub") }

// RemoveEmpty removes a session without messages, content commits or files,
// leaving no tombstone. NotEmpty, RunActive, NotFound.
func (s *Store) RemoveEmpty(ctx context.Context, id string) error { panic("stub") }

// SetBranchName names a node (trimmed, 1 to 80 characters) and locks the
// name. NotFound, Invalid.
func (s *Store) SetBranchName(ctx context.Context, id, node, name string) error { panic("stub") }

// DeleteBranchName removes a node's name entry. NotFound.
func (s *Store) DeleteBranchName(ctx context.Context, id, node string) error { panic("stub") }

// Begin starts a run: the lease is taken, status becomes "running".
// RunActive when one is active already.
func (s *Store) Begin(ctx context.Context, id string) (*Run, error) { panic("stub") }

// End ends the run with a session status ("idle", "done", "failed",
// "interrupted"). A second call does nothing.
func (r *Run) End(ctx context.Context, status string) error { panic("stub") }

// Session returns the id of the run's session.
func (r *Run) Session() string { return r.id }

// CommitTurn commits everything in the session's repository that changed
// (reference 4); ok is false when nothing did.
func (s *Store) CommitTurn(ctx context.Context, id, message string) (c Commit, ok bool, err error) {
	panic("stub")
}

// SessionCommits lists the repository's commits, newest first; limit <= 0
// lists all. Unknown session: none.
func (s *Store) SessionCommits(ctx context.Context, id string, limit int) ([]Commit, error) {
	panic("stub")
}

// Dirty tells the store that something in the session's repository changed
// that it did not write itself (an attachment), so that it is committed after
// the quiet time and at Close.
func (s *Store) Dirty(id string) { panic("stub") }
