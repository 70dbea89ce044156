package gitrepo

import (
	"golang.org/x/sys/unix"
)

// Saved reports whether Git has the content of a file as it is now: the index
// knows the path (slash-separated, from the work tree) as st, its lstat data,
// shows it. It takes no lock. False when in doubt.
func (r *Repo) Saved(path string, st *unix.Stat_t) bool {
	idx, when, err := r.readIndex(emptyTree)
	if err != nil {
		return false
	}
	s := &scanner{r: r, old: idx, oldTime: when, symlinks: true}
	for i := range idx.entries {
		if e := &idx.entries[i]; e.name == path {
			return e.stage() == 0 && !e.pinned() && e.ext&flagIntentToAdd == 0 && s.unchanged(e, st, false)
		}
	}
	return false
}
