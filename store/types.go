package store

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// Options configure Open. The zero value of each field is its default.
type Options struct {
	// Root is the directory that holds index.json and the sessions. Required.
	Root string
	// State is the directory that holds projects/ (the project registry);
	// "" means a standalone root, which consults none.
	State string
	// CacheDir is where the store may keep, from one process to the next, what
	// it has read of sessions; "" keeps nothing. It lies outside of Root, may be
	// removed at any time, and is written by read-only stores too. What it holds
	// is only used while the files that it came from are unchanged.
	CacheDir string
	// ReadOnly opens without writing anything at all under Root.
	ReadOnly bool
	// Create makes Root when it does not exist.
	Create bool
	// Reconcile says whether rows still "running" become "interrupted" at
	// Open (reference 8.3). The default is ReconcileNever: only a read-write
	// mount, a worker or reindex asks for more.
	Reconcile Reconcile
	// Sweep removes empty shells older than an hour at Open (reference 8.5,
	// narrowed to shells with nothing in Git and nothing in workdir/).
	// Implied by nothing; ignored when ReadOnly.
	Sweep bool
	// Watch keeps loaded sessions fresh by file system notification, so that
	// a change by another process is published without anybody asking.
	Watch bool
	// CacheCap bounds the sessions kept loaded; 0 means 256.
	CacheCap int
	// LockTimeout bounds the wait for a session's lock; 0 means 10 s.
	LockTimeout time.Duration
	// CommitAfter is the quiet time after which changes outside a turn are
	// committed; 0 commits only when asked and at Close never.
	CommitAfter time.Duration
	// GitSync is "batch" (default: objects durable before the ref moves) or
	// "off" (Git's own default).
	GitSync string
	// Clock is the time of created_at, updated_at and commits; nil is time.Now.
	Clock func() time.Time
	// FS is the disk; nil is the operating system's.
	FS disk.FS
	// Progress, when not nil, is told how far Open has come with rebuilding the
	// registry: sessions that got a row, of those that lack one. It is not
	// called when none lacks one.
	Progress func(done, total int)
	// Log receives warnings; nil discards them. Message text is never logged.
	Log *slog.Logger

	aside string // where what is set aside goes, relative to Root; "" names it after the time
}

// Reconcile is the policy for runs that a dead process left "running".
type Reconcile string

// The policies. Auto skips a session whose run lease is held, whose running
// node's worker lives, or which changed in the last ten minutes.
const (
	ReconcileNever  Reconcile = ""
	ReconcileAuto   Reconcile = "auto"
	ReconcileAlways Reconcile = "always"
)

// Row is one session as a listing shows it: the registry's row, with
// meta.json's values over it, and the project's name.
type Row struct {
	ID       string
	AgentID  string
	Title    string
	Source   string
	Status   string // "idle" when absent
	Group    string
	Preview  string
	Channel  string
	Project  string // project name joined from the project registry, "" when unbound
	Pinned   bool
	Archived bool
	Unread   bool
	// CreatedAt and UpdatedAt are seconds since the epoch, 0 when absent.
	CreatedAt, UpdatedAt float64
	// JSON is the row as the peer's list_sessions shows it: one compact
	// object, keys in the registry's order.
	JSON []byte
}

// ListQuery selects rows. The zero value lists everything that is not
// archived, newest first.
type ListQuery struct {
	AgentID, Source string // exact; "" = any
	IncludeArchived bool
	// Filters are equalities on row fields, raw JSON values; an "archived"
	// filter lifts the default hiding. A JSON null is ignored.
	Filters map[string][]byte
	Limit   int // 0 = no limit, NoRows = none
	Offset  int
	// AsOpened is for who has subscribed to a store that watches, and asks for
	// the first list: it may be as old as the opening. What has changed since is
	// told to the observers, as what changes later is.
	AsOpened bool
}

// NoRows is the Limit of a query that wants no row: the peer's limit of 0.
const NoRows = -1

// NewSession describes a session to create.
type NewSession struct {
	ID      string // required
	AgentID string // "" = "main"
	Title   string
	Source  string // "" = "sessionfs"
	Root    bool   // also write the ROOT node
	Project string // project id to bind to, "" = none
	// Extra are further meta.json keys with raw JSON values, in order.
	Extra []KV
}

// KV is a JSON object member.
type KV struct {
	Key string
	Raw []byte
}

// Branch is one row of ListBranches.
type Branch struct {
	Head string // node id
	// Name is "" when the branch has none; Named tells an empty name apart.
	Name                 string
	Named                bool
	CreatedAt, UpdatedAt float64 // seconds since the epoch; 0 when HasCreated/HasUpdated is false
	HasCreated           bool
	HasUpdated           bool
	Archived             bool
	Merged               bool
}

// Commit is one commit of a session's Git repository.
type Commit struct {
	Hash, Short, Message string
	Time                 time.Time
}

// Entry is what a snapshot knows of one history file beside its node.
type Entry struct {
	File    string // file name in history/
	Size    int64  // bytes of the file
	TextLen int64  // bytes of the text that nodes/ and messages/ show
	MTime   time.Time

	stamp stamp
	// sum is the checksum of the file's bytes. It is asked only for a file that
	// changed too recently for its stamp to tell.
	sum     uint32
	settled bool // a change since would show in the stamp
	noSeq   bool // the file has no seq: its node's is from the file's place
}

// Problem is one finding about a session, for problems.txt.
type Problem struct {
	Path string // relative to the session directory, "" for the session
	Text string
}

// Change tells that a session, or the set of sessions, is not what it was.
// It is delivered twice, see Observer.
type Change struct {
	ID string // session id
	// Old and New are the snapshots before and after; either may be nil when
	// the session was not loaded, appeared, or went away.
	Old, New *Snapshot
	// Listing is set when the session appeared, went away, or moved between
	// sessions and archived.
	Listing bool
	// Row is set when what a listing shows of the session changed.
	Row bool
	// Commit is set when the session's repository got a commit; nothing else
	// changed then, and Swapped is not called.
	Commit bool
	// Files is set when something changed in one of the directories of real
	// files that FollowFiles follows; nothing else changed then, and Swapped is
	// not called.
	Files bool
	// Foreign is set when another process made the change.
	Foreign bool
}

// Observer is told of every change, in the order in which each session's
// changes happened.
type Observer interface {
	// Swapped is called the moment New is the current snapshot, with the
	// session's lock held: it may only touch memory, and must not call back.
	Swapped(c Change)
	// Published is called after that, before the operation that made the
	// change returns, on its goroutine and with its context, no lock held.
	// For a foreign change it runs on the watcher's goroutine.
	Published(ctx context.Context, c Change)
}

// HeadMove are the options of SetHead.
type HeadMove struct {
	// Expect, when not nil, makes the move a compare-and-set: it happens only
	// if the head is *Expect ("" for none), else Conflict.
	Expect *string
	// LockTimeout overrides Options.LockTimeout; 0 keeps it.
	LockTimeout time.Duration
}

// Run is a turn in progress, begun by Begin or BeginTurn. It holds the
// session's run lease until End or Finish; the kernel releases it when the
// process dies.
type Run struct {
	s     *Store
	id    string
	turn  Turn
	node  string     // the placeholder, "" when there is none
	mu    sync.Mutex // guards lease; taken before any lock of the store
	lease *filelock.Lock
}

// AppendResult is what an append did.
type AppendResult struct {
	ID   string // node id
	Head string // the head afterwards
	// Existed is set when the id was there already: nothing was written.
	Existed bool
}

// Ref is a parsed reference to a node: an exact node id, else a branch name,
// else a unique prefix of an id (4 or more characters), with ~n for the n-th
// predecessor, "@" for the head.
type Ref = string
