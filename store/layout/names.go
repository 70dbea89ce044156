package layout

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names directly under a root that are no sessions (reference 1.2).
const (
	projectsName    = "projects"
	indexName       = "index.json"
	locationsName   = "locations.json"
	locksName       = ".locks"
	migrationName   = ".migration"
	deletedName     = ".deleted"
	recoveryName    = ".file-recovery"
	sessionLocks    = ".session-locks"
	historyName     = "history"
	metaName        = "meta.json"
	gitName         = ".git"
	defaultProject  = "default"
	legacySessions  = ".openprogram/sessions"
	rootName        = "sessions"
	historicRoot    = "sessions-git"
	appendIntent    = "openprogram-append.json"
	deleteIntent    = "openprogram-delete-nodes.json"
	projectRegistry = "projects/projects.json"
)

// MaxNewID bounds the ids of new sessions, in bytes. A file name has 255; the
// lock file, the run lease and the temporary file of a delete intent put up to
// 37 bytes around the id.
const MaxNewID = 200

// ErrInvalidID is wrapped by the errors of ids that cannot name a session.
// Readers treat such an id as an unknown session (reference 1.6).
var ErrInvalidID = errors.New("not a session id")

// ValidID checks an id that names a session which may exist: not empty, not
// "." or "..", without "/", "\" and NUL (reference 1.6), and not the name of
// something else under a root. Ids are compared byte by byte.
func ValidID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: empty", ErrInvalidID)
	case id == ".", id == "..", strings.ContainsAny(id, "/\\\x00"):
		return fmt.Errorf("%w: %q", ErrInvalidID, id)
	case Reserved(id):
		return fmt.Errorf("%w: %q is a reserved name", ErrInvalidID, id)
	}
	return nil
}

// ValidNewID checks the id of a session to be created. Beyond ValidID it
// refuses what discovery would never show (a leading dot) and what makes a bad
// file name: control characters, invalid UTF-8, more than MaxNewID bytes.
func ValidNewID(id string) error {
	if err := ValidID(id); err != nil {
		return err
	}
	switch {
	case id[0] == '.':
		return fmt.Errorf("%w: %q begins with a dot", ErrInvalidID, id)
	case len(id) > MaxNewID:
		return fmt.Errorf("%w: longer than %d bytes", ErrInvalidID, MaxNewID)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w: %q is not UTF-8", ErrInvalidID, id)
	case strings.ContainsFunc(id, unicode.IsControl):
		return fmt.Errorf("%w: %q holds a control character", ErrInvalidID, id)
	}
	return nil
}

// Reserved reports whether a name directly under a root is the store's own and
// never a session (reference 1.2).
func Reserved(name string) bool {
	switch name {
	case projectsName, indexName, locationsName, locksName, migrationName,
		deletedName, recoveryName, sessionLocks:
		return true
	}
	return false
}

// hidden reports whether discovery passes over a name.
func hidden(name string) bool { return strings.HasPrefix(name, ".") || Reserved(name) }

// nestable reports whether a project id can be a directory name under
// projects/.
func nestable(pid string) bool {
	return pid != "" && pid[0] != '.' && !strings.ContainsAny(pid, "/\\\x00")
}
