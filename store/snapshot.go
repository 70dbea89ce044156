package store

import (
	"path/filepath"
	"sync"
	"time"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/nodefile"
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
	// node that does not exist. The sentinel ROOT reads as "".
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

	s       *Store
	meta    meta
	fp      fingerprint
	entries []Entry // parallel to Index: the file of the node at each position
	bad     []Entry // history files that hold no readable node, in load order
	// listed: history/ held just these files, and a change of its names since
	// would show in fp.
	listed bool
	// fileProblems are the findings of reading history/; Problems adds what
	// follows from them and from meta.json.
	fileProblems []Problem
	// unread is why a part of what is there could not be read, nil when all of
	// it was. Such a snapshot is taken anew at the next use, and no change is
	// based on it: what it lacks might have decided it.
	unread error

	// pending is a deletion that was cut off, nil for none. What it is about to
	// remove is not in the snapshot.
	pending *pendingDelete

	restored    int   // history files restored from Git at Open
	unreachable bool  // the recorded place is not there
	maxSeq      int64 // the highest seq in a node or a file name, -1 when none

	branchOnce sync.Once
	branch     []dag.Node
	branchErr  error
}

// MetaJSON returns meta.json's bytes; nil when it is missing.
func (sn *Snapshot) MetaJSON() []byte { return sn.meta.raw }

// MetaMissing reports whether there is no meta.json.
func (sn *Snapshot) MetaMissing() bool { return sn.meta.missing }

// Status returns meta.json's status, "idle" when absent.
func (sn *Snapshot) Status() string { return sn.meta.status() }

// Title returns meta.json's title.
func (sn *Snapshot) Title() string { return sn.meta.obj.Str("title") }

// Branch returns the active branch, oldest first (reference 5.4). It is
// computed once. Corrupt when the predecessor chain is broken.
func (sn *Snapshot) Branch() ([]dag.Node, error) {
	sn.branchOnce.Do(func() { sn.branch, sn.branchErr = sn.BranchOf(sn.Head) })
	return sn.branch, sn.branchErr
}

// BranchOf returns the branch that ends in head; none for an unknown head.
// Corrupt, wrapping *dag.BrokenChainError, when the chain is broken.
func (sn *Snapshot) BranchOf(head string) ([]dag.Node, error) {
	nodes, err := sn.Index.Branch(head)
	if err != nil {
		return nil, sn.brokenBranch(head, err)
	}
	return nodes, nil
}

func (sn *Snapshot) brokenBranch(head string, err error) error {
	return &Error{Code: Corrupt, Op: "read branch", Session: sn.ID, Ref: head, Err: err}
}

// FileEntry is a history file and the node that it holds.
type FileEntry struct {
	Entry
	// NodeID is "" for a file that holds no readable node.
	NodeID string
}

// Entries returns what is known of every history file, in load order,
// unreadable ones included.
func (sn *Snapshot) Entries() []FileEntry {
	out := make([]FileEntry, 0, len(sn.entries)+len(sn.bad))
	b := 0
	for i, e := range sn.entries {
		for ; b < len(sn.bad) && nodefile.Less(sn.bad[b].File, e.File); b++ {
			out = append(out, FileEntry{Entry: sn.bad[b]})
		}
		out = append(out, FileEntry{Entry: e, NodeID: sn.Index.At(i).ID})
	}
	for ; b < len(sn.bad); b++ {
		out = append(out, FileEntry{Entry: sn.bad[b]})
	}
	return out
}

// Entry returns the file of a node; of two files with one id, the later.
func (sn *Snapshot) Entry(id string) (Entry, bool) {
	i, ok := sn.Index.Position(id)
	if !ok {
		return Entry{}, false
	}
	return sn.entries[i], true
}

// EntryByFile finds a history file by its exact name.
func (sn *Snapshot) EntryByFile(file string) (FileEntry, bool) {
	if _, _, id, ok := nodefile.ParseName(file); ok {
		if i, ok := sn.Index.Position(id); ok && sn.entries[i].File == file {
			return FileEntry{Entry: sn.entries[i], NodeID: id}, true
		}
	}
	for i, e := range sn.entries { // a name that differs from its node's fields
		if e.File == file {
			return FileEntry{Entry: e, NodeID: sn.Index.At(i).ID}, true
		}
	}
	for _, e := range sn.bad {
		if e.File == file {
			return FileEntry{Entry: e}, true
		}
	}
	return FileEntry{}, false
}

// Text reads a node's text as nodes/ and messages/ show it: its content with
// a final newline. One small file is read from disk. NotFound, Corrupt.
func (sn *Snapshot) Text(id string) ([]byte, error) {
	e, ok := sn.Entry(id)
	if !ok {
		return nil, &Error{Code: NotFound, Op: "read node", Session: sn.ID, Ref: id}
	}
	return sn.TextOfFile(e.File)
}

// TextOfFile is Text for the node that the named history file holds.
func (sn *Snapshot) TextOfFile(file string) ([]byte, error) {
	raw, err := sn.Raw(file)
	if err != nil {
		return nil, err
	}
	text, err := nodefile.Text(raw)
	if err != nil {
		return nil, &Error{Code: Corrupt, Op: "read node", Session: sn.ID, Ref: file, Err: err}
	}
	return text, nil
}

// Raw reads a history file's exact bytes from disk. Corrupt when it cannot be
// read, so that a file that vanished is not taken for a name that never was.
func (sn *Snapshot) Raw(file string) ([]byte, error) {
	raw, err := sn.s.readOwn(filepath.Join(sn.Dir, historyDir, file))
	if err != nil {
		return nil, &Error{Code: Corrupt, Op: "read node", Session: sn.ID, Ref: file, Err: err}
	}
	return raw, nil
}

// MessageJSON returns a node as a message dict (reference 2.11).
func (sn *Snapshot) MessageJSON(id string) ([]byte, error) {
	e, ok := sn.Entry(id)
	if !ok {
		return nil, &Error{Code: NotFound, Op: "read node", Session: sn.ID, Ref: id}
	}
	return sn.messageOfFile(e.File)
}

func (sn *Snapshot) messageOfFile(file string) ([]byte, error) {
	raw, err := sn.Raw(file)
	if err != nil {
		return nil, err
	}
	_, _, nodeID, _ := nodefile.ParseName(file) // as readHistory takes it
	msg, err := nodefile.ToMessage(raw, sn.ID, nodeID)
	if err != nil {
		return nil, &Error{Code: Corrupt, Op: "read node", Session: sn.ID, Ref: file, Err: err}
	}
	return msg, nil
}

// HistoryPath is the absolute path of history/, for a link target or a watch.
func (sn *Snapshot) HistoryPath() string { return filepath.Join(sn.Dir, historyDir) }

// AttachmentsPath is the absolute path of the attachments directory, which
// may not exist yet.
func (sn *Snapshot) AttachmentsPath() string {
	return filepath.Join(sn.Dir, workDir, attachmentsDir)
}
