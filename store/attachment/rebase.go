package attachment

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
	"github.com/sessionfs/sessionfs/store/layout"
)

// Refusals of Rebase, beside ErrOutside.
var (
	// ErrForeign: the path names another session's attachments.
	ErrForeign = errors.New("attachment of another session")
	// ErrEscapes: a symlink leads out of the session's attachments.
	ErrEscapes = errors.New("path leaves the session's attachments")
	// ErrMissing: the path is allowed and there is no regular file.
	ErrMissing = errors.New("no such attachment")
)

// Rebase returns the file that a marker's path means in a session (reference
// 9.4): the path resolved within the roots or, for a path into the attachments
// that the session once had in a working folder, its present place. A file at
// the present place is preferred. Without a session id only the roots decide.
//
// The error wraps ErrForeign, ErrEscapes, ErrOutside or ErrMissing. Nothing is
// written, nothing is remembered.
func (r Resolver) Rebase(roots Roots, sessionID, path string) (string, error) {
	owner, rel, legacy := legacyShape(path)
	if legacy && sessionID != "" && owner != sessionID {
		return "", fmt.Errorf("%s: %w", path, ErrForeign)
	}
	old, oldErr := roots.Resolve(path)
	if legacy && sessionID != "" {
		if repo, ok := r.repo(sessionID); ok {
			now, err := r.rebased(roots, repo, rel)
			if err != nil {
				return "", fmt.Errorf("%s: %w", path, err)
			}
			if r.isFile(now) {
				return now, nil
			}
		}
	}
	switch {
	case oldErr != nil:
		return "", oldErr
	case r.isFile(old) || r.AllowMissing:
		return old, nil
	}
	return "", fmt.Errorf("%s: %w", path, ErrMissing)
}

// legacyShape takes a path apart that has the one shape that is rebased:
// <prefix>/.openprogram/sessions/<id>/workdir/attachments/<rel>.
func legacyShape(path string) (id, rel string, ok bool) {
	if !filepath.IsAbs(path) {
		return "", "", false
	}
	parts := strings.Split(path[1:], "/")
	if slices.ContainsFunc(parts, func(p string) bool { return p == "" || p == "." || p == ".." }) {
		return "", "", false
	}
	for i := 0; i+5 < len(parts); i++ {
		if parts[i] == ".openprogram" && parts[i+1] == "sessions" && parts[i+3] == "workdir" && parts[i+4] == "attachments" {
			return parts[i+2], strings.Join(parts[i+5:], "/"), true
		}
	}
	return "", "", false
}

// repo finds the one directory under the root that is the session's. With none,
// or more than one, there is no telling.
func (r Resolver) repo(id string) (string, bool) {
	if layout.ValidID(id) != nil || layout.New(r.FS, r.Root, r.State, nil).Tombstone(id) {
		return "", false
	}
	root, err := safefile.Resolve(r.FS, r.Root)
	if err != nil {
		return "", false
	}
	candidates := []string{filepath.Join(root, id)}
	if recorded := r.recorded(root, id); recorded != "" {
		candidates = append(candidates, recorded)
	}
	for _, project := range r.children(filepath.Join(root, "projects")) {
		candidates = append(candidates, filepath.Join(project, id))
	}
	var found []string
	for _, c := range candidates {
		real, err := safefile.Resolve(r.FS, c)
		if err == nil && real != root && safefile.Within(root, real) && r.isSession(real) && !slices.Contains(found, real) {
			found = append(found, real)
		}
	}
	if len(found) != 1 {
		return "", false
	}
	return found[0], true
}

// recorded is the place that locations.json names, "" for none.
func (r Resolver) recorded(root, id string) string {
	text, err := r.FS.ReadFile(filepath.Join(root, "locations.json"))
	if err != nil {
		return ""
	}
	places, err := jsonedit.ParseObject(text)
	if err != nil {
		return ""
	}
	return places.Str(id)
}

func (r Resolver) isSession(dir string) bool {
	return r.isDir(filepath.Join(dir, ".git")) && (r.isDir(filepath.Join(dir, "history")) || r.isFile(filepath.Join(dir, "meta.json")))
}

func (r Resolver) isDir(path string) bool {
	fi, err := r.FS.Stat(path)
	return err == nil && fi.IsDir()
}

func (r Resolver) isFile(path string) bool {
	fi, err := r.FS.Stat(path)
	return err == nil && fi.Mode().IsRegular()
}

// rebased is where an attachment lies in a session's present directory.
func (r Resolver) rebased(roots Roots, repo, rel string) (string, error) {
	dir, err := safefile.Resolve(r.FS, filepath.Join(repo, Dir))
	if err != nil || !safefile.Within(repo, dir) {
		return "", errors.Join(ErrEscapes, err)
	}
	real, err := safefile.Resolve(r.FS, filepath.Join(dir, rel))
	if err != nil || real == dir || !safefile.Within(dir, real) {
		return "", errors.Join(ErrEscapes, err)
	}
	if again, err := roots.Resolve(real); err != nil || again != real {
		return "", errors.Join(ErrOutside, err)
	}
	return real, nil
}
