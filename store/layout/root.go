package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// DefaultRoot returns the root that is used when none is named: OpenProgram's,
// <home>/.openprogram[-$OPENPROGRAM_PROFILE]/sessions, where it exists, else
// sessionfs/sessions under $XDG_STATE_HOME (<home>/.local/state when that is
// unset or not absolute). State is the state directory, "" for the latter,
// which is standalone. Exists is false when there is nothing at root yet.
//
// Where OpenProgram's root still has its historic name, that path is the
// answer; who opens it for writing calls AdoptRoot. DefaultRoot only looks.
func DefaultRoot(env func(string) string, home string) (state, root string, exists bool) {
	state = filepath.Join(home, ".openprogram")
	if p := env("OPENPROGRAM_PROFILE"); p != "" {
		state += "-" + p
	}
	for _, name := range []string{rootName, historicRoot} {
		if root = filepath.Join(state, name); isDir(root) {
			return state, root, true
		}
	}
	base := env("XDG_STATE_HOME")
	if !filepath.IsAbs(base) {
		base = filepath.Join(home, ".local", "state")
	}
	root = filepath.Join(base, "sessionfs", rootName)
	return "", root, isDir(root)
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// AdoptRoot returns the root in a state directory, after renaming one that has
// its historic name (reference 1.1). It makes nothing. When the rename fails,
// the old path is returned together with the error: it can be read, but locks
// belong beside the new name.
func AdoptRoot(f disk.FS, state string) (root string, err error) {
	root, old := filepath.Join(state, rootName), filepath.Join(state, historicRoot)
	if _, err := f.Lstat(root); err == nil {
		return root, nil
	}
	if fi, err := f.Stat(old); err != nil || !fi.IsDir() {
		return root, nil
	}
	err = f.RenameNoReplace(old, root)
	if errors.Is(err, fs.ErrExist) {
		return root, nil // another process was faster
	}
	if err != nil {
		return old, fmt.Errorf("rename the store's root: %w", err)
	}
	if err := f.SyncDir(state); err != nil {
		return root, fmt.Errorf("rename the store's root: %w", err)
	}
	return root, nil
}
