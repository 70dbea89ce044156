package gitrepo

import "github.com/sessionfs/sessionfs/store/internal/disk"

// GitDir returns the Git directory of a work tree: .git itself, or where the
// file .git points. ErrNotRepository when there is none.
func GitDir(f disk.FS, work string) (string, error) { return gitDir(f, work) }
