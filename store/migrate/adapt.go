package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

const mainRef = "refs/heads/main"

// identity is the peer's, which every session's repository has (reference 4).
const identity = "[user]\n\temail = openprogram@local\n\tname = OpenProgram\n"

var (
	workTreeKey = regexp.MustCompile(`(?mi)^\s*worktree\s*=`)
	userSection = regexp.MustCompile(`(?mi)^\s*\[user\]`)
	fullHash    = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// adaptGit turns a staged copy of history/.git into a session's .git: with an
// identity, and on branch main, unless main is another branch already.
func (r *runner) adaptGit(git string) error {
	if err := r.adaptConfig(filepath.Join(git, "config")); err != nil {
		return err
	}
	head, err := r.FS.ReadFile(filepath.Join(git, "HEAD"))
	if err != nil {
		return err
	}
	at, isRef := strings.CutPrefix(strings.TrimSpace(string(head)), "ref:")
	at = strings.TrimSpace(at)
	if isRef && at == mainRef {
		return nil
	}
	if main, err := r.ref(git, mainRef); err != nil || main != "" {
		return err
	}
	hash := at
	if isRef {
		if hash, err = r.ref(git, at); err != nil {
			return err
		}
	}
	if hash != "" && !fullHash.MatchString(hash) {
		return fmt.Errorf("%w: HEAD is at %q", ErrUnsupported, hash)
	}
	if hash != "" {
		if err := disk.MkdirOwned(r.FS, filepath.Join(git, "refs", "heads"), 0o755); err != nil {
			return err
		}
		if err := r.writeGit(filepath.Join(git, mainRef), hash+"\n"); err != nil {
			return err
		}
	}
	return r.writeGit(filepath.Join(git, "HEAD"), "ref: "+mainRef+"\n")
}

func (r *runner) adaptConfig(path string) error {
	config, err := r.FS.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gitrepo adds one
	}
	if err != nil {
		return err
	}
	if workTreeKey.Match(config) {
		return fmt.Errorf("%w: the repository of history/ has its work tree elsewhere", ErrUnsupported)
	}
	if userSection.Match(config) {
		return nil
	}
	text := string(config)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return r.writeGit(path, text+identity)
}

// ref returns the hash that a ref holds, "" when there is no such ref.
func (r *runner) ref(git, name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("%w: HEAD is at %q", ErrUnsupported, name)
	}
	text, err := r.FS.ReadFile(filepath.Join(git, name))
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if !absent(err) {
		return "", err
	}
	packed, err := r.FS.ReadFile(filepath.Join(git, "packed-refs"))
	if absent(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(packed)) {
		if hash, ref, ok := strings.Cut(strings.TrimSpace(line), " "); ok && ref == name {
			return hash, nil
		}
	}
	return "", nil
}

func (r *runner) writeGit(path, text string) error {
	return disk.WriteAtomic(r.FS, path, []byte(text), disk.WriteOptions{Mode: 0o644})
}
