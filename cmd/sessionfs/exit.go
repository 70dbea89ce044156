package main

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/sessionfs/sessionfs/store"
)

// The exit statuses. They are part of the interface (sessionfs(1), "EXIT
// STATUS"): a number is never given another meaning.
const (
	exitOK       = 0  // done
	exitFailure  = 1  // any failure without a status of its own, and the no of a question
	exitPanic    = 2  // a crash of the program itself: the Go runtime uses this number
	exitUsage    = 3  // a command line that cannot be understood
	exitNotFound = 4  // no such store, session, node, branch or program
	exitBusy     = 5  // a run is active, a lock is held, a mount is in use: try again
	exitConflict = 6  // it exists already, or changed since it was read
	exitInvalid  = 7  // a value, id, reference or message that cannot be accepted
	exitDenied   = 8  // read-only, immutable, or no permission
	exitMount    = 9  // nothing can be mounted here: FUSE or the mountpoint is not usable
	exitCorrupt  = 10 // the session is damaged
	exitNoSpace  = 11 // no room
)

// statusOf is the one table from error codes to exit statuses. A test checks
// that no code is left out.
func statusOf(code store.Code) (status int, known bool) {
	switch code {
	case store.NotFound:
		return exitNotFound, true
	case store.RunActive, store.Locked:
		return exitBusy, true
	case store.Conflict, store.Exists, store.BurntID, store.NotEmpty:
		return exitConflict, true
	case store.Invalid, store.Ambiguous, store.SummaryHead, store.Confirm,
		store.PredecessorMissing, store.TooLarge:
		return exitInvalid, true
	case store.ReadOnly, store.Immutable:
		return exitDenied, true
	case store.Corrupt:
		return exitCorrupt, true
	case store.NoSpace:
		return exitNoSpace, true
	}
	return exitFailure, false
}

// exitStatus returns the status for the error that ended a command.
func exitStatus(err error) int {
	var c *cliError
	if errors.As(err, &c) {
		return c.status
	}
	var printed *printedError
	if errors.As(err, &printed) {
		return printed.status
	}
	if status, known := statusOf(store.CodeOf(err)); known {
		return status
	}
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return exitDenied
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return exitNoSpace
	}
	return exitFailure
}
