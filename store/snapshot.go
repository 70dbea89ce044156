package store

import (
	"time"

	"github.com/sessionfs/sessionfs/dag"
)

// Snapshot is one consistent state of a session: its meta.json, its DAG and
// its active branch, read together. It is immutable and safe for concurrent
// use; every method answers from memory unless it says otherwise.
type Snapshot struct {
	// ID is the session id, Dir its repository's absolute path.
	ID, Dir string
	// Version counts the states of this session within this process.
	Version uint64
	// MTime is the later of meta.json's and history/'s modification time,
	// made strictly increasing from one snapshot of the session to the next.
	MTime time.Time
	// Head is the active head's node id, "" when there is none. It may name a
	// node that does not exist.
	Head string
	// Index is the DAG in stored order.
	Index *dag.Index
	// Openable is false for a session that is listed but has no repository
	// or no history: it can be read as far as it goes and accepts nothing.
	Openable bool
	// Legacy is set for a migration source, which is read-only.
	Legacy bool
	// Archived mirrors meta.json's field.
	Archived bool
	// UID and GID own the session's directory.
	UID, GID uint32
	// Created is meta.json's created_at, Updated its updated_at, as times;
	// impossible values fall back to the files'.
	Created, Updated time.Time
	// Problems lists what is wrong, in a stable order.
	Problems []Problem

	snapshotPrivate
}
