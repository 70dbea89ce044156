// Package gitrepo is one session's Git repository: made, committed to, read
// and repacked without the git binary, so that no hook, filter or signing
// program of anybody's configuration is ever run.
//
// What it writes is what `git add -A && git commit` would have written: the
// same trees from the same files. The cost follows what changed: a file is
// read only when its lstat data differ from the index, a tree is written only
// when something below it changed, and of a large tree only the pieces that
// changed are compressed. What cannot be left out is one lstat for each file of
// the work tree.
//
// # Sharing a repository
//
// The git binary, OpenProgram and other processes of this program work on the
// same repository. Everything is therefore written by Git's own protocol: a
// file X is replaced by making X.lock, which only one process can, and
// renaming it. The order of one commit is
//
//	.git/sessionfs.lock    flock, in this process and between processes
//	.git/index.lock        held while the work tree is compared
//	objects                each complete before it has its name
//	.git/HEAD.lock, .git/refs/heads/<branch>.lock
//	                       then the ref is read again: it is still the parent;
//	                       HEAD.lock is only another name of sessionfs.lock
//	index, then the ref    renamed in place
//
// A crash between any two leaves a repository that git finds sound, with at
// most unreachable objects and changes staged that the next commit takes.
// Crash leftovers are recognised by .git/sessionfs.lock, which records which
// inodes our Git locks are (see locks.go).
//
// # What goes around disk.FS
//
// Every write goes through Options.FS. Objects are decoded by go-git, and the
// work tree is compared through directory descriptors: both read the operating
// system's disk directly.
package gitrepo

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// SyncMode says what a commit makes durable.
type SyncMode int

const (
	// SyncBatch makes all new objects, the index and the ref durable, the
	// objects before the ref moves.
	SyncBatch SyncMode = iota
	// SyncOff is Git's own default: nothing is synced. After a power cut the
	// work tree, which the store syncs itself, is the truth.
	SyncOff
)

// Options are the options of a repository; the zero value of each is usable.
type Options struct {
	// FS is what is written through; nil is the operating system's disk.
	FS disk.FS
	// Sync says what a commit makes durable.
	Sync SyncMode
	// Now gives the time, and the time zone, of commits; nil is time.Now.
	Now func() time.Time
	// Log receives warnings; nil discards them.
	Log *slog.Logger
	// LockTimeout bounds the wait for a lock held elsewhere; 0 is 10 s.
	LockTimeout time.Duration
	// Env looks up HOME, XDG_CONFIG_HOME and Git's own variables that say
	// where configuration lies; nil is os.Getenv.
	Env func(string) string
	// Compressors are shared by repositories; nil is a set of its own.
	Compressors *Compressors
}

// Commit is one commit.
type Commit struct {
	Hash    string    // full, hexadecimal
	Short   string    // abbreviated as git log's %h does
	Message string    // the subject: the first paragraph on one line
	Time    time.Time // the author's time
}

// Problem is something about one path that a commit could not do as git would
// have been asked to.
type Problem struct {
	Path string // relative to the work tree, slash-separated
	Text string
}

// The errors that callers tell apart with errors.Is.
var (
	// ErrNotRepository is returned when a directory holds no Git repository,
	// or only a part of one.
	ErrNotRepository = errors.New("not a git repository")
	// ErrLocked is returned when a lock was held elsewhere past the timeout.
	ErrLocked = errors.New("git repository is locked")
	// ErrUnsupported is returned for a repository whose format this package
	// does not know: SHA-256, reftable, a sparse index.
	ErrUnsupported = errors.New("unsupported git repository format")
	// ErrCorrupt is returned when a ref, an object or the index cannot be
	// understood.
	ErrCorrupt = errors.New("git repository is damaged")
	// ErrNotFound is returned for a commit, tree or path that does not exist.
	ErrNotFound = errors.New("not found in the git repository")
	// ErrEmptyMessage is returned for a commit message without any text.
	ErrEmptyMessage = errors.New("empty commit message")
)

const defaultLockTimeout = 10 * time.Second

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = disk.OS
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.LockTimeout <= 0 {
		o.LockTimeout = defaultLockTimeout
	}
	if o.Env == nil {
		o.Env = os.Getenv
	}
	if o.Compressors == nil {
		o.Compressors = NewCompressors()
	}
	return o
}
