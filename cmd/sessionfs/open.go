package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/layout"
)

// location is where a command's store lies.
type location struct {
	root   string // absolute
	state  string // directory with the project registry, "" for a standalone root
	chosen bool   // named by --store or $SESSIONFS_STORE: never created
}

// locate finds the store: the one that was named, OpenProgram's own where
// that exists, else a private one under $XDG_STATE_HOME.
func (a *app) locate() (location, error) {
	home, homeErr := os.UserHomeDir()
	state, root, exists := layout.DefaultRoot(os.Getenv, home)
	dir := a.store
	if dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return location{}, failf(exitFailure, "", "store: %w", err)
		}
		return location{root: abs, state: stateOf(abs, state, root), chosen: true}, nil
	}
	if !exists && !filepath.IsAbs(root) {
		return location{}, failf(exitFailure, "set HOME or XDG_STATE_HOME, or name a store with --store", "no home directory: %w", homeErr)
	}
	return location{root: root, state: state}, nil
}

// stateOf returns the state directory of a root that was named explicitly: a
// root is OpenProgram's when it is its default one, or when it lies beside
// OpenProgram's project registry.
func stateOf(root, defaultState, defaultRoot string) string {
	if defaultRoot != "" && root == defaultRoot {
		return defaultState
	}
	if filepath.Base(root) != "sessions" {
		return ""
	}
	parent := filepath.Dir(root)
	if info, err := os.Stat(filepath.Join(parent, "projects", "projects.json")); err == nil && info.Mode().IsRegular() {
		return parent
	}
	return ""
}

// stateDir returns the directory that holds what sessionfs keeps for itself:
// $XDG_STATE_HOME/sessionfs.
func stateDir() (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // the XDG specification has relative values ignored
		home, err := os.UserHomeDir()
		if err != nil {
			return "", failf(exitFailure, "set HOME or XDG_STATE_HOME", "no home directory: %w", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "sessionfs"), nil
}

// cacheDir is where caches may lie, $XDG_CACHE_HOME/sessionfs; "" when there is
// no home for one.
func cacheDir() string {
	base, err := os.UserCacheDir()
	if err != nil || !filepath.IsAbs(base) {
		return ""
	}
	return filepath.Join(base, "sessionfs")
}

// check refuses a store that was named and is not there.
func (l location) check() error {
	info, err := os.Stat(l.root)
	switch {
	case errors.Is(err, fs.ErrNotExist) && l.chosen:
		return failf(exitNotFound, "create it with 'mkdir -p', or name another with --store", "store: %s: no such directory", l.root)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return failf(exitFailure, "", "store: %w", err)
	case !info.IsDir():
		return failf(exitInvalid, "", "store: %s: not a directory", l.root)
	}
	return nil
}

// storeOptions are the options with which a verb opens its store.
func (a *app) storeOptions() (store.Options, error) {
	loc, err := a.locate()
	if err != nil {
		return store.Options{}, err
	}
	if err := loc.check(); err != nil {
		return store.Options{}, err
	}
	log, err := a.logger()
	if err != nil {
		return store.Options{}, err
	}
	return store.Options{
		Root:   loc.root,
		State:  loc.state,
		Create: !loc.chosen,
		// What the last one read need not be read again by the next.
		CacheDir: cacheDir(),
		// Never reached by a verb: what it changed is committed by Close.
		CommitAfter: commitAfter,
		LockTimeout: a.lockTimeout,
		Progress:    a.rebuildProgress(),
		Log:         log,
	}, nil
}

// rebuildProgress shows how far the registry's rebuild has come, which a large
// store without one needs when it is opened.
func (a *app) rebuildProgress() func(done, total int) {
	bar := a.progress("rebuilding the registry")
	return func(done, total int) {
		bar.step(done, total)
		if done == total {
			bar.end()
		}
	}
}

// openFor opens the store for one verb. A verb that only reads leaves no
// trace in the store, except that a default store is created on first use.
func (a *app) openFor(cmd *cobra.Command, readOnly bool) (*store.Store, error) {
	opt, err := a.storeOptions()
	if err != nil {
		return nil, err
	}
	if readOnly {
		_, err := os.Stat(opt.Root)
		opt.ReadOnly = err == nil
	}
	if opt.ReadOnly {
		return store.Open(cmd.Context(), opt)
	}
	return telling(store.Open(cmd.Context(), opt))
}

// withStoreReconciled is withStore for a verb that also ends, when it opens the
// store, the runs of dead processes.
func (a *app) withStoreReconciled(cmd *cobra.Command, fn func(ctx context.Context, st *store.Store) error) error {
	opt, err := a.storeOptions()
	if err != nil {
		return err
	}
	opt.Reconcile = store.ReconcileAuto
	st, err := telling(store.Open(cmd.Context(), opt))
	if err != nil {
		return err
	}
	return closing(st, fn(cmd.Context(), st))
}

// closing closes a store after err. What Close could not write is a failure of
// the command, unless it failed before.
func closing(st *store.Store, err error) error {
	if closeErr := st.Close(); err == nil {
		return closeErr
	}
	return err
}

// withStore opens the store, runs fn and closes it.
func (a *app) withStore(cmd *cobra.Command, readOnly bool, fn func(ctx context.Context, st *store.Store) error) error {
	st, err := a.openFor(cmd, readOnly)
	if err != nil {
		return err
	}
	return closing(st, fn(cmd.Context(), st))
}
