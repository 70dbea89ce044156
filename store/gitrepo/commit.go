package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// maxMoved bounds how often a commit begins anew because HEAD moved under it.
const maxMoved = 5

// CommitAll commits everything in the work tree, as `git add -A && git commit
// -m message` would, and reports whether there was anything to commit. When
// there was not, the commit is the one that HEAD is at.
//
// What it returns is durable under SyncBatch. ErrLocked when a lock stayed
// taken, ErrEmptyMessage when the message has no text. See Problems for what
// could not be stored.
func (r *Repo) CommitAll(ctx context.Context, message string) (Commit, bool, error) {
	return r.commitAll(ctx, message, false)
}

// CommitAlways is CommitAll that makes a commit also when nothing changed, as
// `git commit --allow-empty` does.
func (r *Repo) CommitAlways(ctx context.Context, message string) (Commit, error) {
	c, _, err := r.commitAll(ctx, message, true)
	return c, err
}

func (r *Repo) commitAll(ctx context.Context, message string, always bool) (Commit, bool, error) {
	r.commitMu.Lock()
	defer r.commitMu.Unlock()
	defer r.objects.close() // the store keeps many repositories open
	for range maxMoved {
		c, changed, err := r.commitOnce(ctx, message, always)
		if !errors.Is(err, errHeadMoved) {
			if err != nil {
				err = fmt.Errorf("commit %s: %w", r.work, err)
			}
			return c, changed, err
		}
	}
	return Commit{}, false, fmt.Errorf("commit %s: %w: HEAD keeps moving", r.work, ErrLocked)
}

func (r *Repo) commitOnce(ctx context.Context, message string, always bool) (c Commit, changed bool, err error) {
	cfg, err := loadConfig(r.fs, r.opt.Env, r.common)
	if err != nil {
		return c, false, err
	}
	if err := cfg.check(); err != nil {
		return c, false, err
	}
	l, err := r.lock(ctx)
	if err != nil {
		return c, false, err
	}
	defer func() { err = errors.Join(err, l.release()) }()
	lock, err := l.take(ctx, filepath.Join(r.git, "index"))
	if err != nil {
		return c, false, err
	}
	t := &transaction{ctx: ctx, r: r, cfg: cfg, locks: l, indexLock: lock, always: always}
	if t.objects, err = r.newObjectWriter(); err != nil {
		return c, false, err
	}
	defer func() { err = errors.Join(err, t.objects.close()) }()
	return t.run(message)
}

// transaction is one commit, under index.lock.
type transaction struct {
	ctx       context.Context
	r         *Repo
	cfg       *gitConfig
	locks     *gitLocks
	indexLock *lockFile
	objects   *objectWriter
	tip       tip
	always    bool // also when nothing changed

	index     *indexWriter // of indexLock, nil until it is begun
	indexTime time.Time    // when indexLock was made
	indexing  sync.WaitGroup
}

func (t *transaction) run(message string) (Commit, bool, error) {
	var err error
	if t.tip, err = t.r.readTip(); err != nil {
		return Commit{}, false, err
	}
	if t.tip.head.lost {
		t.r.opt.Log.Warn("a git ref is missing, going on from the last commit", "dir", t.r.work, "ref", t.tip.head.ref, "commit", t.tip.hash)
	}
	s, err := t.scan()
	if err != nil {
		return Commit{}, false, err
	}
	t.r.report(s.problems)
	defer t.indexing.Wait() // it writes to a file that is closed after this
	if s.dirty && len(s.new.entries) >= manyNames {
		if err := t.beginIndex(s); err != nil {
			return Commit{}, false, err
		}
	}
	tree, err := t.writeTrees(s)
	if err != nil {
		return Commit{}, false, err
	}
	if t.always || tree.hash != t.tip.tree() || t.tip.lost {
		return t.commit(s, tree, message)
	}
	if t.tip.head.lost {
		if err := t.locks.restoreRef(t.ctx, t.tip.head); err != nil {
			return Commit{}, false, err
		}
	}
	return t.current(), false, t.refreshIndex(s, tree)
}

// current is the commit that HEAD is at, as CommitAll returns it.
func (t *transaction) current() Commit {
	c := t.tip.commit
	if c == nil {
		return Commit{}
	}
	return Commit{
		Hash: c.Hash.String(), Short: t.r.newAbbreviator().short(c.Hash),
		Message: subject(c.Message), Time: c.Author.When,
	}
}

// scan compares the work tree with the index.
func (t *transaction) scan() (*scanner, error) {
	old, when, err := t.r.readIndex(t.tip.tree())
	if err != nil {
		return nil, err
	}
	if t.tip.lost {
		old.distrust() // what it names may be lost like the commit
	}
	s := &scanner{
		ctx: t.ctx, r: t.r, old: old, oldTime: when, objects: t.objects,
		fileMode: t.cfg.boolean("core.filemode", true),
		symlinks: t.cfg.boolean("core.symlinks", true),
		fold:     t.cfg.boolean("core.ignorecase", false),
		autocrlf: t.cfg.autocrlf(),
	}
	if err := s.loadRules(t.cfg); err != nil {
		return nil, err
	}
	return s, s.run()
}

// readIndex reads the index, or makes one from HEAD's tree where there is one
// that cannot be used (damaged, or split): then every file is read again. No
// index at all is an empty one, as for git.
func (r *Repo) readIndex(base plumbing.Hash) (*gitIndex, indexTime, error) {
	kept := r.kept.Swap(nil) // the scan changes it
	path := filepath.Join(r.git, "index")
	f, err := openFile(r.fs, path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return &gitIndex{}, indexTime{}, nil
	}
	if err != nil {
		return nil, indexTime{}, fmt.Errorf("read index: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, indexTime{}, fmt.Errorf("read index: %w", err)
	}
	when := indexTime{uint32(fi.ModTime().Unix()), uint32(fi.ModTime().Nanosecond())}
	if kept.is(f, fi) {
		return kept.index, when, nil
	}
	b, err := r.fs.ReadFile(path)
	if err != nil {
		return nil, indexTime{}, fmt.Errorf("read index: %w", err)
	}
	idx, err := parseIndex(b)
	if errors.Is(err, errRebuildIndex) {
		r.opt.Log.Warn("rebuilding the git index", "dir", r.work, "cause", err)
		idx, err = r.indexFromTree(base)
		return idx, indexTime{}, err
	}
	if err != nil {
		return nil, indexTime{}, fmt.Errorf("read index: %w", err)
	}
	return idx, when, nil
}

// indexFromTree makes an index of a tree that matches no file's lstat data.
func (r *Repo) indexFromTree(tree plumbing.Hash) (*gitIndex, error) {
	idx := &gitIndex{}
	err := r.walkTree(tree, "", 0, func(path string, e treeEntry) error {
		idx.entries = append(idx.entries, indexEntry{name: path, mode: e.mode, hash: e.hash})
		return nil
	})
	return idx, err
}

// loadRules reads the ignore and attribute files outside the work tree.
func (s *scanner) loadRules(c *gitConfig) error {
	read := func(path string) string {
		b, err := readOptional(s.r.fs, path)
		if err != nil {
			s.problem(path, "not readable")
		}
		return string(b)
	}
	excludes, attributes := c.str("core.excludesfile"), c.str("core.attributesfile")
	if dir := xdgGitDir(s.r.opt.Env); dir != "" {
		if excludes == "" {
			excludes = filepath.Join(dir, "ignore")
		}
		if attributes == "" {
			attributes = filepath.Join(dir, "attributes")
		}
	}
	user := func(path string) string {
		if path == "" {
			return ""
		}
		path = expandHome(s.r.opt.Env, path)
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.r.work, path)
		}
		return read(path)
	}
	s.ignores = &ignorer{list: parseIgnore(user(excludes), "", s.fold)}
	info := filepath.Join(s.r.common, "info")
	s.ignores = &ignorer{up: s.ignores, list: parseIgnore(read(filepath.Join(info, "exclude")), "", s.fold)}
	s.attrs = builtinAttrs()
	if s.r.opt.Env("GIT_ATTR_NOSYSTEM") == "" {
		s.attrs = &attrFile{up: s.attrs, lines: parseAttributes(read("/etc/gitattributes"), "", true, s.fold)}
	}
	s.attrs = &attrFile{up: s.attrs, lines: parseAttributes(user(attributes), "", true, s.fold)}
	s.info = parseAttributes(read(filepath.Join(info, "attributes")), "", true, s.fold)
	return nil
}

// writeTrees makes the tree objects of the new index.
func (t *transaction) writeTrees(s *scanner) (*treeNode, error) {
	b := treeBuilder{idx: s.new, known: s.old.trees, changed: s.changed}
	b.write = func(content []byte, ends []int) (plumbing.Hash, error) {
		if len(content) == 0 {
			return emptyTree, nil
		}
		return t.objects.putTree(content, ends)
	}
	return b.build("", "", 0, len(s.new.entries))
}

// refreshIndex keeps what the scan learned of files that did not change, when
// there is nothing to commit.
func (t *transaction) refreshIndex(s *scanner, tree *treeNode) error {
	_, known := s.old.trees[""]
	if !s.dirty && (known || len(s.old.entries) == 0) {
		return nil
	}
	if err := t.writeIndex(s, tree); err != nil {
		return err
	}
	if err := t.objects.publish(t.durable(t.indexLock)...); err != nil {
		return err
	}
	return t.locks.commit(t.indexLock)
}

// beginIndex begins to fill index.lock. The entries of a large index are written
// side by side with what comes before it is finished, the trees.
func (t *transaction) beginIndex(s *scanner) error {
	fi, err := t.indexLock.file.Stat()
	if err != nil {
		return fmt.Errorf("write index: %w", err)
	}
	t.indexTime = fi.ModTime()
	t.index = newIndexWriter(t.indexLock.file)
	if len(s.new.entries) < manyNames {
		t.index.entries(s.new)
		return nil
	}
	t.indexing.Go(func() { t.index.entries(s.new) })
	return nil
}

// writeIndex fills index.lock. Its time is set to that of its creation, before
// the work tree was looked at: a file that changed since is then racy for
// everybody who compares, however coarse the clock of the file system is.
func (t *transaction) writeIndex(s *scanner, tree *treeNode) error {
	if t.index == nil {
		if err := t.beginIndex(s); err != nil {
			return err
		}
	}
	t.indexing.Wait()
	sum, err := t.index.finish(tree)
	if err != nil {
		return fmt.Errorf("write index: %w", err)
	}
	t.r.keepIndex(s.new, tree, t.index.size, sum)
	// Without it the index is as racy as git's own.
	if err := os.Chtimes(t.indexLock.path, t.indexTime, t.indexTime); err != nil {
		t.r.opt.Log.Debug("time of the git index", "dir", t.r.work, "err", err)
	}
	return t.keepMode()
}

// keepMode gives the new index the permissions of the old one.
func (t *transaction) keepMode() error {
	old, err := t.r.fs.Stat(t.indexLock.target)
	if err != nil {
		return nil // there is none
	}
	now, err := t.indexLock.file.Stat()
	if err != nil || now.Mode().Perm() == old.Mode().Perm() {
		return err
	}
	return t.indexLock.file.Chmod(old.Mode().Perm())
}

// durable are the files to sync with the objects.
func (t *transaction) durable(locks ...*lockFile) []disk.File {
	if t.r.opt.Sync != SyncBatch {
		return nil
	}
	files := make([]disk.File, len(locks))
	for i, l := range locks {
		files[i] = l.file
	}
	return files
}

// commit writes the commit object and moves the branch to it.
func (t *transaction) commit(s *scanner, tree *treeNode, message string) (Commit, bool, error) {
	message, err := cleanMessage(message)
	if err != nil {
		return Commit{}, false, err
	}
	when, who := t.r.opt.Now(), t.cfg.identity()
	content := commitObject(tree.hash, t.tip, who, when, message)
	hash, err := t.objects.put(plumbing.CommitObject, content)
	if err != nil {
		return Commit{}, false, err
	}
	if err := t.writeIndex(s, tree); err != nil {
		return Commit{}, false, err
	}
	u, err := t.locks.lockHead(t.ctx, t.tip.head, hash)
	if err != nil {
		return Commit{}, false, err
	}
	if err := t.objects.publish(t.durable(t.indexLock, u.ref)...); err != nil {
		return Commit{}, false, err
	}
	if err := t.locks.commit(t.indexLock); err != nil {
		return Commit{}, false, err
	}
	if err := t.locks.commit(u.ref); err != nil {
		return Commit{}, false, err
	}
	if made, err := decodeCommit(hash, content); err == nil {
		t.r.made.Store(made)
	}
	c := Commit{Hash: hash.String(), Short: t.r.newAbbreviator().short(hash), Message: subject(message), Time: when}
	return c, true, t.finish(u, who, when, c.Message)
}

// finish makes the ref durable and logs the update. The commit is made; the
// log is a convenience.
func (t *transaction) finish(u *refUpdate, who string, when time.Time, subj string) error {
	kind := "commit: "
	if !u.old.born {
		kind = "commit (initial): "
	}
	if t.tip.lost {
		u.old.hash = t.tip.hash // what the log may name: it is there
	}
	if err := t.r.reflog(t.cfg, u, who, when, kind+subj); err != nil {
		t.r.opt.Log.Warn("git reflog", "dir", t.r.work, "err", err)
	}
	if t.r.opt.Sync != SyncBatch {
		return nil
	}
	return t.r.syncDirs(map[string]bool{t.r.git: true, filepath.Dir(u.ref.target): true})
}
