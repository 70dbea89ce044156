package store

import (
	"errors"
	"strings"

	"github.com/sessionfs/sessionfs/store/internal/safefile"
)

// Code names a kind of refusal. It is an error itself, so that callers ask
// errors.Is(err, store.RunActive); nobody compares texts. The codes are the
// mount contract's (docs/filesystem.md, "Errors"): the mount maps each to an
// errno in one place, the command line to an exit status in another.
type Code string

// Error makes a Code usable as the target of errors.Is.
func (c Code) Error() string { return string(c) }

// The codes, each with the situation in which it is returned.
const (
	// RunActive: a head move, a branch or session delete or a user's append
	// while a run is active in the session.
	RunActive Code = "run_active"
	// NotFound: an unknown session, node, branch, field or project.
	NotFound Code = "not_found"
	// Ambiguous: a reference that names several nodes or sessions.
	Ambiguous Code = "ambiguous"
	// SummaryHead: a compaction summary was named as the head.
	SummaryHead Code = "summary_head"
	// Invalid: a bad value, bad JSON, bad command or bad id.
	Invalid Code = "invalid"
	// Confirm: the operation wants its plan shown and confirmed first.
	Confirm Code = "confirm"
	// PredecessorMissing: a message that breaks the write invariant.
	PredecessorMissing Code = "predecessor_missing"
	// Immutable: a write to the record, or an unlink of a synthetic file.
	Immutable Code = "immutable"
	// Exists: the name is taken.
	Exists Code = "exists"
	// BurntID: the session id was deleted once and can never be used again.
	BurntID Code = "burnt_id"
	// NotEmpty: rmdir of a session that has content.
	NotEmpty Code = "not_empty"
	// Conflict: the thing changed since it was read.
	Conflict Code = "conflict"
	// Corrupt: a broken predecessor chain, an unreadable node or meta.json.
	Corrupt Code = "corrupt"
	// TooLarge: over a limit of size.
	TooLarge Code = "too_large"
	// NoSpace: over a limit of room, or the disk is full.
	NoSpace Code = "no_space"
	// Locked: a lock was held elsewhere past the timeout.
	Locked Code = "locked"
	// ReadOnly: the store was opened read-only, or the session is a
	// migration source that must not be written.
	ReadOnly Code = "read_only"
)

// Error is what every operation of this package returns when it refuses.
type Error struct {
	Code    Code   // never empty
	Op      string // the operation, as a user would say it: "set head"
	Session string // the session id, "" when none is concerned
	Ref     string // the node, branch, field or project, "" when none
	Err     error  // the cause or an explanation; may be nil
	Hint    string // what the user can do next; may be empty
}

// Error returns "set head: session s1: a run is active" in one line, without
// the code: who prints it adds "[run_active]" from Code.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Session != "" {
		b.WriteString(": session ")
		b.WriteString(e.Session)
	}
	if e.Ref != "" {
		b.WriteString(": ")
		b.WriteString(e.Ref)
	}
	b.WriteString(": ")
	if e.Err != nil {
		b.WriteString(e.Err.Error())
	} else {
		b.WriteString(strings.ReplaceAll(string(e.Code), "_", " "))
	}
	return b.String()
}

// Is reports whether target is this error's Code.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the outermost Error in err's chain, "" when
// there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// registryUnreadable refuses to write to a store whose registry is there and
// cannot be read: it would be rebuilt over what it holds.
func registryUnreadable(err error) error {
	e := &Error{Code: diskCode(err), Op: "open registry", Ref: "index.json", Err: err,
		Hint: "look at the disk and at the file's permissions; reading goes on without it"}
	if errors.Is(err, safefile.ErrNotRegular) {
		e.Hint = "index.json is no regular file; 'sessionfs check --repair' sets it aside and rebuilds it"
	}
	return e
}
