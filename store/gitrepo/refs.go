package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// headRef is what HEAD says: a branch, or (detached) a commit itself.
type headRef struct {
	ref  string // full name of the branch, "HEAD" when detached
	hash plumbing.Hash
	born bool // the ref exists; otherwise hash is zero
	lost bool // it existed: hash is from its log
}

const maxSymrefs = 5

// readHead resolves HEAD. A branch whose file is lost is at the commit that its
// log has: who commits without a look there cuts the history off.
func (r *Repo) readHead() (headRef, error) {
	head, err := r.storedHead()
	if err != nil || head.born {
		return head, err
	}
	if h, ok := r.lostRef(head.ref); ok {
		head.hash, head.born, head.lost = h, true, true
	}
	return head, nil
}

// storedHead resolves HEAD as git does.
func (r *Repo) storedHead() (headRef, error) {
	name := "HEAD"
	for range maxSymrefs {
		target, hash, ok, err := r.readRef(name)
		switch {
		case err != nil:
			return headRef{}, err
		case target != "":
			name = target
		case !ok && name == "HEAD":
			return headRef{}, fmt.Errorf("%s: %w: no HEAD", r.work, ErrNotRepository)
		default:
			return headRef{ref: name, hash: hash, born: ok}, nil
		}
	}
	return headRef{}, fmt.Errorf("HEAD: %w: symbolic refs do not end", ErrCorrupt)
}

// refDir is where the file of a ref lies: a linked work tree has its own HEAD
// and shares everything below refs/.
func (r *Repo) refDir(name string) string {
	if strings.HasPrefix(name, "refs/") {
		return r.common
	}
	return r.git
}

// readRef reads one ref: the target of a symbolic one, else its hash; ok is
// false when it does not exist, as a file or packed.
func (r *Repo) readRef(name string) (target string, h plumbing.Hash, ok bool, err error) {
	if !validRefName(name) {
		return "", h, false, fmt.Errorf("ref %q: %w", name, ErrCorrupt)
	}
	path := filepath.Join(r.refDir(name), name)
	// An old-fashioned HEAD is a symlink to the branch's file.
	if link, err := r.fs.Readlink(path); err == nil && strings.HasPrefix(link, "refs/") {
		return link, h, true, nil
	}
	b, err := r.fs.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || isNotDir(err) || isDirectory(r, path, err) {
		h, ok, err = r.packedRef(name)
		return "", h, ok, err
	}
	if err != nil {
		return "", h, false, fmt.Errorf("ref %s: %w", name, err)
	}
	text := strings.TrimRight(string(b), " \t\r\n")
	if t, isSym := strings.CutPrefix(text, "ref:"); isSym {
		return strings.TrimLeft(t, " \t"), h, true, nil
	}
	if strings.Trim(text, "\x00") == "" {
		h, ok = r.lastLogged(name)
		return "", h, ok, nil
	}
	if h, ok = parseHash(text); !ok {
		return "", h, false, fmt.Errorf("ref %s: %w: %d bytes that are no object name", name, ErrCorrupt, len(b))
	}
	return "", h, true, nil
}

// lastLogged is the last commit in a ref's log that exists. Git syncs neither
// refs nor objects: a power cut soon after a commit of somebody else leaves an
// empty ref, or one that names an empty object. Without any such commit the
// branch counts as unborn.
func (r *Repo) lastLogged(name string) (plumbing.Hash, bool) {
	if r.warned.CompareAndSwap(false, true) {
		r.opt.Log.Warn("a git ref is damaged, using its log", "dir", r.work, "ref", name)
	}
	return r.lastKnown(name)
}

// lastKnown is the last commit in a ref's log that exists, or where the log has
// none, the one that is found without it.
func (r *Repo) lastKnown(name string) (plumbing.Hash, bool) {
	if h, ok := r.logged(name); ok {
		return h, true
	}
	return r.foundTip(name)
}

// tip is the commit that HEAD stands for.
type tip struct {
	head   headRef        // as it is on the disk
	hash   plumbing.Hash  // of commit; head.hash unless that is lost
	commit *object.Commit // nil when there is none
	lost   bool           // head.hash names a commit that is not there
}

// tree is the commit's tree, the empty one without a commit.
func (t tip) tree() plumbing.Hash {
	if t.commit == nil {
		return emptyTree
	}
	return t.commit.TreeHash
}

// readTip reads HEAD and its commit, or where a power cut took that, the last
// commit of the log that is still there.
func (r *Repo) readTip() (tip, error) {
	head, err := r.readHead()
	if err != nil || !head.born {
		return tip{head: head}, err
	}
	t := tip{head: head, hash: head.hash}
	if c := r.made.Load(); c != nil && c.Hash == head.hash && r.hasLoose(head.hash) {
		t.commit = c
		return t, nil
	}
	t.commit, err = r.objects.commit(head.hash)
	if err == nil {
		return t, nil
	}
	if !errors.Is(err, ErrNotFound) && !r.emptyObject(head.hash) {
		return tip{}, err
	}
	t.lost = true
	h, ok := r.lastLogged(head.ref)
	if !ok {
		return tip{head: head, lost: true}, nil
	}
	t.hash = h
	t.commit, err = r.objects.commit(h)
	return t, err
}

// hasLoose reports whether there is a loose object with content.
func (r *Repo) hasLoose(h plumbing.Hash) bool {
	fi, err := r.fs.Lstat(filepath.Join(r.common, "objects", objectPath(h)))
	return err == nil && fi.Size() > 0
}

// emptyObject reports whether a loose object has lost its content.
func (r *Repo) emptyObject(h plumbing.Hash) bool {
	fi, err := r.fs.Lstat(filepath.Join(r.common, "objects", objectPath(h)))
	return err == nil && fi.Size() == 0 && fi.Mode().IsRegular()
}

func isDirectory(r *Repo, path string, err error) bool {
	if err == nil {
		return false
	}
	fi, serr := r.fs.Lstat(path)
	return serr == nil && fi.IsDir()
}

// packedRef looks a ref up in packed-refs.
func (r *Repo) packedRef(name string) (plumbing.Hash, bool, error) {
	b, err := readFile(r.fs, filepath.Join(r.common, "packed-refs"))
	if errors.Is(err, fs.ErrNotExist) {
		return plumbing.ZeroHash, false, nil
	}
	if err != nil {
		return plumbing.ZeroHash, false, fmt.Errorf("packed-refs: %w", err)
	}
	for line := range bytes.Lines(b) {
		hash, ref, ok := strings.Cut(strings.TrimRight(string(line), "\r\n"), " ")
		if !ok || ref != name || hash == "" || hash[0] == '#' {
			continue
		}
		h, ok := parseHash(hash)
		if !ok {
			return h, false, fmt.Errorf("packed-refs: %w", ErrCorrupt)
		}
		return h, true, nil
	}
	return plumbing.ZeroHash, false, nil
}

func parseHash(s string) (plumbing.Hash, bool) {
	if len(s) < 40 || len(s) > 40 && s[40] != ' ' && s[40] != '\t' {
		return plumbing.ZeroHash, false
	}
	if !plumbing.IsHash(s[:40]) {
		return plumbing.ZeroHash, false
	}
	return plumbing.NewHash(s[:40]), true
}

// validRefName keeps a ref below the repository: HEAD or refs/...
func validRefName(name string) bool {
	if name == "HEAD" {
		return true
	}
	return strings.HasPrefix(name, "refs/") && filepath.IsLocal(name) && !strings.Contains(name, "..") &&
		!strings.HasSuffix(name, lockSuffix) && !strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f })
}

// refUpdate is a change of HEAD's branch that holds its locks.
type refUpdate struct {
	old, new headRef
	ref      *lockFile // of the branch, or of HEAD when that is detached
}

// errHeadMoved says that HEAD is no longer what the commit was built on.
var errHeadMoved = errors.New("HEAD moved")

// lockHead locks HEAD and its branch, verifies that they are still old, and
// writes the new value into the lock. It is not visible yet.
func (l *gitLocks) lockHead(ctx context.Context, old headRef, hash plumbing.Hash) (*refUpdate, error) {
	u := &refUpdate{old: old, new: headRef{ref: old.ref, hash: hash, born: true}}
	var err error
	if old.ref != "HEAD" {
		if err := l.hold(ctx, filepath.Join(l.r.git, "HEAD")); err != nil {
			return nil, err
		}
	}
	if u.ref, err = l.take(ctx, filepath.Join(l.r.refDir(old.ref), old.ref)); err != nil {
		return nil, err
	}
	now, err := l.r.readHead()
	if err != nil {
		return nil, err
	}
	if now != old {
		return nil, errHeadMoved
	}
	if _, err := u.ref.file.Write([]byte(hash.String() + "\n")); err != nil {
		return nil, fmt.Errorf("write %s: %w", u.ref.path, err)
	}
	return u, nil
}

// reflog appends the update to the logs of HEAD and of the branch, where git
// would.
func (r *Repo) reflog(c *gitConfig, u *refUpdate, who string, when time.Time, message string) error {
	old := u.old.hash
	line := fmt.Sprintf("%s %s %s %s\t%s\n", old, u.new.hash, who, stamp(when), strings.Join(strings.Fields(message), " "))
	names := []string{"HEAD"}
	if u.new.ref != "HEAD" {
		names = append(names, u.new.ref)
	}
	for _, name := range names {
		if err := r.appendReflog(c, name, line); err != nil {
			return fmt.Errorf("reflog of %s: %w", name, err)
		}
	}
	return nil
}

func (r *Repo) appendReflog(c *gitConfig, name, line string) error {
	path := filepath.Join(r.refDir(name), "logs", name)
	f, err := r.openLog(path)
	if errors.Is(err, fs.ErrNotExist) {
		if !c.boolean("core.logallrefupdates", true) || !loggedByDefault(c, name) {
			return nil
		}
		if err := r.mkdir(filepath.Dir(path)); err != nil {
			return err
		}
		f, err = r.create(path, 0o666)
	}
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(line))
	return errors.Join(err, f.Close())
}

// loggedByDefault reports whether git begins a log for the ref.
func loggedByDefault(c *gitConfig, name string) bool {
	return name == "HEAD" || strings.HasPrefix(name, "refs/heads/") ||
		strings.EqualFold(c.str("core.logallrefupdates"), "always")
}

// stamp is a time as commits and reflogs hold it.
func stamp(t time.Time) string {
	return fmt.Sprintf("%d %s", t.Unix(), t.Format("-0700"))
}
