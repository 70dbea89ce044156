package attachment

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
)

// ErrOutside is wrapped by the error of a path that is below none of the roots
// allowed.
var ErrOutside = errors.New("path is outside of the allowed directories")

// Roots are directories whose files may be served, or sent (reference 9.3). The
// zero value allows nothing.
type Roots struct {
	fs   disk.FS
	home string
	dirs []string // absolute, clean, without symlinks
}

// Dirs returns the directories, symlinks resolved.
func (r Roots) Dirs() []string { return slices.Clone(r.dirs) }

// Resolve returns a path as the kernel will find it, when that is a root or
// lies below one. A leading ~ is the home directory; then the path must be
// absolute. All symlinks are resolved before the test. The end of the path need
// not exist. The error wraps ErrOutside, or says why the path cannot be looked
// at.
func (r Roots) Resolve(path string) (string, error) {
	expanded := path
	if r.home != "" && (path == "~" || strings.HasPrefix(path, "~/")) {
		expanded = r.home + path[1:]
	}
	if !filepath.IsAbs(expanded) || r.fs == nil {
		return "", fmt.Errorf("%s: %w", path, ErrOutside)
	}
	real, err := safefile.Resolve(r.fs, expanded)
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(r.dirs, func(dir string) bool { return safefile.Within(dir, real) }) {
		return "", fmt.Errorf("%s: %w", path, ErrOutside)
	}
	return real, nil
}

// Contains reports whether Resolve accepts a path.
func (r Roots) Contains(path string) bool {
	_, err := r.Resolve(path)
	return err == nil
}

// Open opens a regular file that Resolve accepts, for reading. Nobody who
// changes a name meanwhile can make it open a file elsewhere.
func (r Roots) Open(path string) (file disk.File, err error) {
	real, err := r.Resolve(path)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(r.dirs, func(dir string) bool { return safefile.Within(dir, real) && dir != real })
	if i < 0 {
		return nil, fmt.Errorf("%s: %w", path, safefile.ErrNotRegular)
	}
	rel, err := filepath.Rel(r.dirs[i], real)
	if err != nil {
		return nil, err
	}
	dir, name, err := safefile.OpenParent(r.dirs[i], rel)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	file, _, err = safefile.OpenRegular(r.fs, dir.Path(name))
	return file, err
}

// Resolver answers for the attachments of one root's sessions.
type Resolver struct {
	FS disk.FS
	// Root is the sessions' root and State the state directory with
	// channels/, "" for a standalone root.
	Root, State string
	// Home is what ~ stands for; "" leaves it unexpanded, and then refused.
	Home string
	// AllowMissing makes Rebase accept a path below the roots at which there
	// is nothing.
	AllowMissing bool
}

// Readable returns the roots whose files may be shown to the user: the
// sessions, the channels' attachments, and the directory of the project that
// the session is bound to. Project is "" for the default one, which is the home
// directory and never a root.
func (r Resolver) Readable(project string) Roots {
	out := r.Sendable(project)
	for _, dir := range r.channelDirs() {
		out.add(dir)
	}
	return out
}

// Sendable returns the roots whose files an agent may send out: the sessions
// and the bound project's directory.
func (r Resolver) Sendable(project string) Roots {
	out := Roots{fs: r.FS, home: r.Home}
	if real, err := safefile.Resolve(r.FS, r.Root); err == nil {
		out.add(real)
	}
	if project == "" {
		return out
	}
	real, err := safefile.Resolve(r.FS, project)
	if err != nil || real == "/" {
		return out
	}
	if home, err := safefile.Resolve(r.FS, r.Home); err == nil && safefile.Within(real, home) {
		return out // the home directory, or one around it
	}
	out.add(real)
	return out
}

func (r *Roots) add(dir string) {
	if !slices.Contains(r.dirs, dir) {
		r.dirs = append(r.dirs, dir)
	}
}

// channelDirs finds <state>/channels/*/accounts/*/attachments, resolved. The
// account's directory holds credentials beside it, so one that leads there, or
// above, is left out.
func (r Resolver) channelDirs() []string {
	if r.State == "" {
		return nil
	}
	var out []string
	channels := filepath.Join(r.State, "channels")
	for _, channel := range r.children(channels) {
		for _, account := range r.children(filepath.Join(channel, "accounts")) {
			owner, err := safefile.Resolve(r.FS, account)
			if err != nil {
				continue
			}
			dir, err := safefile.Resolve(r.FS, filepath.Join(account, "attachments"))
			if err != nil || safefile.Within(dir, owner) {
				continue
			}
			if fi, err := r.FS.Stat(dir); err == nil && fi.IsDir() {
				out = append(out, dir)
			}
		}
	}
	return out
}

// children lists the paths in a directory; one that cannot be read has none.
func (r Resolver) children(dir string) []string {
	entries, err := r.FS.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, filepath.Join(dir, e.Name()))
	}
	return out
}
