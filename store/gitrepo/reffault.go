package gitrepo

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// RefFaultKind says what is wrong with the ref that HEAD stands for.
type RefFaultKind int

// The kinds of RefFault.
const (
	RefSound   RefFaultKind = iota
	RefBlank                // its file holds nothing, or zeros
	RefMissing              // it is not there, and its log names a commit that is, or there are commits
	RefDamaged              // its file holds what is no object name
	RefLost                 // it names a commit that is not there, or has lost its content
	HeadAstray              // HEAD names a branch without a commit, and main has them
)

// RefFault is what is wrong with the ref that HEAD stands for.
type RefFault struct {
	Kind   RefFaultKind
	Path   string // of the file
	Commit string // the last of the ref's log that is there, or that is found without; of HeadAstray, main's; "" when there is none
	Empty  string // of RefLost, the file of the commit if it is there, and empty
}

// mainBranch is the branch of a session's repository (reference 4).
const mainBranch = "refs/heads/main"

// RefFault looks at HEAD and its branch as a crash may leave them. A branch
// without a commit is sound in a repository that has none. What the kinds do not tell is
// Log's to find.
func (r *Repo) RefFault() (RefFault, error) {
	name, err := r.headName()
	if err != nil {
		return RefFault{}, err
	}
	f := RefFault{Path: filepath.Join(r.refDir(name), filepath.FromSlash(name))}
	b, err := r.fs.ReadFile(f.Path)
	var h plumbing.Hash
	switch {
	case errors.Is(err, fs.ErrNotExist) || isNotDir(err) || isDirectory(r, f.Path, err):
		packed, ok, err := r.packedRef(name)
		if err != nil {
			return RefFault{}, err
		}
		if !ok {
			return r.unborn(f, name), nil
		}
		h = packed
	case err != nil:
		return RefFault{}, fmt.Errorf("ref %s: %w", name, err)
	default:
		if f.Kind, h = refContent(string(b)); f.Kind != RefSound {
			return r.withLogged(f, name), nil
		}
	}
	if _, err := r.objects.commit(h); errors.Is(err, ErrNotFound) || err != nil && r.emptyObject(h) {
		f.Kind = RefLost
		if r.emptyObject(h) {
			f.Empty = filepath.Join(r.common, "objects", objectPath(h))
		}
		return r.withLogged(f, name), nil
	}
	return RefFault{}, nil
}

// headName is the name of the ref at the end of HEAD.
func (r *Repo) headName() (string, error) {
	name := "HEAD"
	for range maxSymrefs {
		target, _, _, err := r.readRef(name)
		if errors.Is(err, ErrCorrupt) || err == nil && target == "" {
			return name, nil
		}
		if err != nil {
			return "", err
		}
		if !validRefName(target) {
			return "", fmt.Errorf("%s: ref %q: %w", name, target, ErrCorrupt)
		}
		name = target
	}
	return "", fmt.Errorf("HEAD: %w: symbolic refs do not end", ErrCorrupt)
}

// refContent tells what the content of a ref's file is.
func refContent(text string) (RefFaultKind, plumbing.Hash) {
	if strings.Trim(text, "\x00 \t\r\n") == "" {
		return RefBlank, plumbing.ZeroHash
	}
	h, ok := parseHash(strings.TrimRight(text, " \t\r\n"))
	if !ok {
		return RefDamaged, h
	}
	return RefSound, h
}

// withLogged adds the commit that the ref's log has for it.
func (r *Repo) withLogged(f RefFault, name string) RefFault {
	find := r.lastKnown
	if f.Kind == RefDamaged {
		find = r.logged // nobody commits meanwhile: without a log it is for somebody to look at
	}
	if h, ok := find(name); ok {
		f.Commit = h.String()
	}
	return f
}

// unborn tells of a branch that is not there whether that is as it should be.
func (r *Repo) unborn(f RefFault, name string) RefFault {
	if h, ok := r.lostRef(name); ok {
		f.Kind, f.Commit = RefMissing, h.String()
		return f
	}
	if name == mainBranch || !strings.HasPrefix(name, "refs/heads/") {
		return RefFault{}
	}
	target, h, ok, err := r.readRef(mainBranch)
	if err != nil || target != "" || !ok {
		return RefFault{}
	}
	if _, err := r.objects.commit(h); err != nil {
		return RefFault{}
	}
	return RefFault{Kind: HeadAstray, Path: filepath.Join(r.git, "HEAD"), Commit: h.String()}
}

// lostRef is the commit of a branch that is not there, by its log. Git removes
// the log first when it deletes a branch, and writes it first when it makes one:
// a log without its branch is what a crash, or a hand, has left. Where the log is
// gone, too, the commits that there are tell.
func (r *Repo) lostRef(name string) (plumbing.Hash, bool) {
	if !strings.HasPrefix(name, "refs/heads/") {
		return plumbing.ZeroHash, false
	}
	if h, ok := r.lastLine(name); ok && h.IsZero() {
		return h, false // its end was logged
	}
	return r.lastKnown(name)
}

// logged is the last commit in a ref's log that exists.
func (r *Repo) logged(name string) (plumbing.Hash, bool) {
	b, err := r.fs.ReadFile(filepath.Join(r.refDir(name), "logs", name))
	if err != nil {
		return plumbing.ZeroHash, false
	}
	lines := strings.Split(string(b), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if h, ok := loggedHash(lines[i]); ok && !h.IsZero() {
			if _, err := r.objects.commit(h); err == nil {
				return h, true
			}
		}
	}
	return plumbing.ZeroHash, false
}

// loggedHash is what a line of a log says that the ref became.
func loggedHash(line string) (plumbing.Hash, bool) {
	fields := strings.SplitN(line, " ", 3)
	if len(fields) < 3 {
		return plumbing.ZeroHash, false
	}
	return parseHash(fields[1])
}
