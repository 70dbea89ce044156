package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// ConfigPath is where the repository's own configuration lies.
func (r *Repo) ConfigPath() string { return filepath.Join(r.common, "config") }

// CheckConfig looks at the repository's own configuration, without what it
// includes and without the user's. ErrUnsupported for a repository that this
// package only refuses, ErrCorrupt for a file that cannot be understood.
func (r *Repo) CheckConfig() error {
	own := &gitConfig{values: map[string]string{}}
	if err := own.readFile(r.fs, func(string) string { return "" }, r.ConfigPath(), maxIncludes); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return own.check()
}

// KnownFormat reports whether a repository whose configuration does not tell is
// of the format that this package knows: HEAD's commit can be read.
func (r *Repo) KnownFormat() bool {
	t, err := r.readTip()
	return err == nil && t.commit != nil
}

// RenewConfig writes the configuration of a new repository over one that a
// crash cut off or filled with zeros, and reports whether it did. One that is
// damaged otherwise, or that may have said of what format the repository is, is
// left for somebody to look at. Keep is called before, to keep the old one.
func (r *Repo) RenewConfig(ctx context.Context, keep func() error) (done bool, err error) {
	l, err := r.lock(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, l.release()) }()
	if !errors.Is(r.CheckConfig(), ErrCorrupt) {
		return false, nil
	}
	b, err := readFile(r.fs, r.ConfigPath())
	if err != nil {
		return false, err
	}
	whole := bytes.HasSuffix(b, []byte("\n")) && bytes.IndexByte(b, 0) < 0
	if whole || bytes.Contains(bytes.ToLower(b), []byte("extensions")) || !r.KnownFormat() {
		return false, nil
	}
	if err := keep(); err != nil {
		return false, err
	}
	return true, disk.WriteAtomic(r.fs, r.ConfigPath(), []byte(initConfig), disk.WriteOptions{})
}
