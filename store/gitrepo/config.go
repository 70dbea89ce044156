package gitrepo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/config"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// gitConfig is the configuration that a commit obeys: system, then the user's,
// then the repository's, a later one over an earlier one.
type gitConfig struct {
	values map[string]string
}

// The identity of commits in a repository that names none (reference 4).
const (
	defaultName  = "OpenProgram"
	defaultEmail = "openprogram@local"
)

const maxIncludes = 10

// loadConfig reads all levels. A file that is missing is no error; one that
// cannot be parsed is, as it is for git.
func loadConfig(f disk.FS, env func(string) string, common string) (*gitConfig, error) {
	c := &gitConfig{values: map[string]string{}}
	for _, path := range append(userConfigFiles(env), filepath.Join(common, "config")) {
		if err := c.readFile(f, env, path, 0); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// userConfigFiles are the system's and the user's configuration files, the
// less important first. Git's own variables can move them or switch them off.
func userConfigFiles(env func(string) string) []string {
	var files []string
	if env("GIT_CONFIG_NOSYSTEM") == "" {
		if p := env("GIT_CONFIG_SYSTEM"); p != "" {
			files = append(files, p)
		} else {
			files = append(files, "/etc/gitconfig")
		}
	}
	if p := env("GIT_CONFIG_GLOBAL"); p != "" {
		return append(files, p)
	}
	if dir := xdgGitDir(env); dir != "" {
		files = append(files, filepath.Join(dir, "config"))
	}
	if home := env("HOME"); home != "" {
		files = append(files, filepath.Join(home, ".gitconfig"))
	}
	return files
}

// xdgGitDir is where the user's git configuration lies, "" without a home.
func xdgGitDir(env func(string) string) string {
	if x := env("XDG_CONFIG_HOME"); x != "" {
		return filepath.Join(x, "git")
	}
	if home := env("HOME"); home != "" {
		return filepath.Join(home, ".config", "git")
	}
	return ""
}

// readOptional reads a file; nil when there is none or it may not be read.
func readOptional(f disk.FS, path string) ([]byte, error) {
	b, err := readFile(f, path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || isNotDir(err) {
		return nil, nil
	}
	return b, err
}

func (c *gitConfig) readFile(f disk.FS, env func(string) string, path string, depth int) error {
	b, err := readOptional(f, path)
	if err != nil || b == nil {
		return err
	}
	raw := config.New()
	if err := config.NewDecoder(bytes.NewReader(b)).Decode(raw); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	for _, s := range raw.Sections {
		for _, o := range s.Options {
			key := strings.ToLower(s.Name + "." + o.Key)
			if key == "include.path" && depth < maxIncludes {
				inc := expandHome(env, o.Value)
				if !filepath.IsAbs(inc) {
					inc = filepath.Join(filepath.Dir(path), inc)
				}
				if err := c.readFile(f, env, inc, depth+1); err != nil {
					return err
				}
			}
			c.values[key] = o.Value
		}
	}
	return nil
}

func expandHome(env func(string) string, path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && env("HOME") != "" {
		return filepath.Join(env("HOME"), rest)
	}
	return path
}

// str returns a value, "" when it is not set. Key is "section.key" in lower
// case.
func (c *gitConfig) str(key string) string { return c.values[key] }

// boolean returns a value as git understands truth.
func (c *gitConfig) boolean(key string, missing bool) bool {
	v, ok := c.values[key]
	if !ok {
		return missing
	}
	switch strings.ToLower(v) {
	case "false", "no", "off", "0", "":
		return false
	}
	return true
}

// autocrlf is "true", "input" or "".
func (c *gitConfig) autocrlf() string {
	if strings.EqualFold(c.str("core.autocrlf"), "input") {
		return "input"
	}
	if c.boolean("core.autocrlf", false) {
		return "true"
	}
	return ""
}

// check refuses repository formats that this package would damage.
func (c *gitConfig) check() error {
	if f := c.str("extensions.objectformat"); f != "" && f != "sha1" {
		return fmt.Errorf("%w: object format %s", ErrUnsupported, f)
	}
	if f := c.str("extensions.refstorage"); f != "" && f != "files" {
		return fmt.Errorf("%w: ref storage %s", ErrUnsupported, f)
	}
	if c.boolean("core.bare", false) {
		return fmt.Errorf("%w: bare", ErrUnsupported)
	}
	return nil
}

// identity is the author and committer, "Name <email>".
func (c *gitConfig) identity() string {
	name, email := cleanIdent(c.str("user.name")), cleanIdent(c.str("user.email"))
	if name == "" {
		name = defaultName
	}
	if email == "" {
		email = defaultEmail
	}
	return name + " <" + email + ">"
}

// cleanIdent drops what would break a commit's header, as git does.
func cleanIdent(s string) string {
	s = strings.TrimFunc(s, func(r rune) bool { return r <= ' ' || strings.ContainsRune(`.,:;<>"\'`, r) })
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '<' || r == '>' || r == 0 {
			return -1
		}
		return r
	}, s)
}
