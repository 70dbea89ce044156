package fsnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// commits/ is read from the session's repository when it is asked for, and the
// kernel is told of each commit, by whomever. It takes no lock of the session.

// history is a session's commits, oldest first, as they were at a tip.
type history struct {
	repo    *store.Commits
	tip     string
	commits []store.Commit
}

// commitsKind is commits/.
var commitsKind = &listKind{
	name: "commits",
	list: func(ctx context.Context, s *session, _ *view) ([]fuse.DirEntry, error) {
		h, err := s.history(ctx, s.files.Load().derived)
		if err != nil {
			return nil, err
		}
		out := make([]fuse.DirEntry, len(h.commits))
		for i, c := range h.commits {
			name := s.t.commitName(i+1, c)
			if s.t.commitTrees {
				out[i] = vnode.DirEntry(name, s.commitIdent(name, c))
			} else {
				out[i] = vnode.FileEntry(name, s.commitIdent(name, c))
			}
		}
		return out, nil
	},
	find: func(ctx context.Context, l *sessionList, name string) (vnode.Found, error) {
		s := l.s
		h, err := s.history(ctx, s.files.Load().derived)
		if err != nil {
			return vnode.Found{}, err
		}
		pos, ok := messagePos(name)
		if !ok || pos > len(h.commits) || s.t.commitName(pos, h.commits[pos-1]) != name {
			return vnode.Found{}, vnode.NotFound
		}
		c := h.commits[pos-1]
		if s.t.commitTrees {
			return s.findCommitTree(ctx, &l.List, h.repo, c, s.commitIdent(name, c), s.watched())
		}
		return s.findCommitText(&l.List, h.repo, c, s.commitIdent(name, c), s.watched()), nil
	},
	stat: func(ctx context.Context, s *session) (vnode.Stat, error) {
		st, err := s.dirOf(ctx)
		if err != nil {
			return st, err
		}
		h, err := s.history(ctx, s.files.Load().derived)
		if err != nil {
			return st, err
		}
		st.MTime = h.mtime(s.v.Load().sn.Created)
		return st, nil
	},
}

// commitName is a commit's name: its place in the history, from 1, and the
// start of its hash.
func (t *tree) commitName(pos int, c store.Commit) string {
	name := fmt.Sprintf("%06d-%.8s", pos, c.Hash)
	if !t.commitTrees {
		name += ".txt"
	}
	return name
}

// commitIdent is the identity of a commit under a name: what it means never
// changes.
func (s *session) commitIdent(name string, c store.Commit) string {
	return s.ident("commit", name+"/"+c.Hash)
}

// mtime is the time of the newest commit. The nanoseconds, which Git does not
// have, come from its hash: the kernel keeps a listing for as long as the
// directory's time is the same, and two commits may be of one second.
func (h *history) mtime(absent time.Time) time.Time {
	if len(h.commits) == 0 {
		return absent
	}
	last := h.commits[len(h.commits)-1]
	n, err := strconv.ParseUint(last.Hash[:12], 16, 64)
	if err != nil {
		n = 0
	}
	return time.Unix(last.Time.Unix(), int64(n%1e9))
}

// history reads the session's commits. What has been read is good for as long
// as the tip is the same.
func (s *session) history(ctx context.Context, d *derived) (*history, error) {
	if _, err := s.current(ctx); err != nil {
		return nil, err
	}
	d.log.Lock()
	defer d.log.Unlock()
	sn := s.v.Load().sn
	if d.repo == nil || d.repoDir != sn.Dir {
		repo, err := sn.OpenCommits()
		if err != nil {
			return nil, err
		}
		d.repo, d.repoDir = repo, sn.Dir
	}
	tip, err := d.repo.Tip()
	if err != nil {
		return nil, err
	}
	k := s.key("commits", d.repoDir+"\x00"+tip)
	if commits, ok := s.t.texts.get(k).([]store.Commit); ok {
		return &history{d.repo, tip, commits}, nil
	}
	defer d.repo.Forget() // there is one for each session
	log, err := d.repo.Log(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	slices.Reverse(log)
	size := 0
	for _, c := range log {
		size += 200 + len(c.Message)
	}
	s.t.texts.put(k, log, size)
	return &history{d.repo, tip, log}, nil
}

// noteCommit notes that the session's history has another tip.
func (s *session) noteCommit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files.Load(); f != nil {
		s.pend.add(&record{parents: []*vnode.List{s.dir}, listings: []*vnode.List{f.derived.commits},
			known: func(func(*vnode.List)) *record { return s.lostCommits(f.derived) }})
	}
}

// lostCommits finds the names of commits that the kernel knows and that are
// not in the history any more, because somebody wrote it anew.
func (s *session) lostCommits(d *derived) *record {
	r := &record{}
	known := d.commits.Children()
	if len(known) == 0 {
		return r
	}
	h, err := s.history(context.Background(), d)
	for name := range known {
		pos, ok := messagePos(name)
		if err != nil || !ok || pos > len(h.commits) || s.t.commitName(pos, h.commits[pos-1]) != name {
			r.gone = append(r.gone, goneName{d.commits, name})
		}
	}
	return r
}

// commitText is what a commit's file shows: hash, time, message and the paths
// that it changed.
func commitText(ctx context.Context, repo *store.Commits, c store.Commit) ([]byte, error) {
	message, err := repo.Message(c.Hash)
	if err != nil {
		return nil, err
	}
	paths, err := repo.Changed(ctx, c.Hash)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "commit %s\ntime   %s\n\n", c.Hash, c.Time.UTC().Format(time.RFC3339))
	for line := range strings.Lines(strings.TrimSpace(message) + "\n") {
		b.WriteString("    " + line)
	}
	if len(paths) > 0 {
		b.WriteByte('\n')
	}
	for _, p := range paths {
		b.WriteString(strings.ReplaceAll(p, "\n", "\\n") + "\n")
	}
	return b.Bytes(), nil
}

// findCommitText returns a commit's text.
func (s *session) findCommitText(dir *vnode.List, repo *store.Commits, c store.Commit, ident string, watched bool) vnode.Found {
	k := s.key("commit", c.Hash)
	text := func(ctx context.Context) ([]byte, error) {
		return s.t.texts.text(k, func() ([]byte, error) {
			defer repo.Forget()
			return commitText(context.WithoutCancel(ctx), repo, c)
		})
	}
	f := &vnode.FuncFile{
		Spec: vnode.Spec{Number: vnode.Ino(ident), Gen: s.gen, Policy: policyOf(kindCommit, watched),
			Stat: func(ctx context.Context) (vnode.Stat, error) {
				b, err := text(ctx)
				if err != nil {
					return vnode.Stat{}, err
				}
				return s.commitStat(c, 0o400, int64(len(b))), nil
			}},
		Read:    text,
		Version: func() any { return c.Hash },
	}
	vnode.PlaceFunc(context.Background(), &dir.Inode, f)
	return vnode.Found{Node: f}
}

// commitStat is the attributes of something in a commit.
func (s *session) commitStat(c store.Commit, perm uint32, size int64) vnode.Stat {
	sn := s.v.Load().sn
	return vnode.Stat{Perm: perm, Size: size, MTime: time.Unix(c.Time.Unix(), 0), UID: sn.UID, GID: sn.GID}
}

// findCommitTree returns a commit's directory, the tree at that commit.
func (s *session) findCommitTree(ctx context.Context, dir *vnode.List, repo *store.Commits, c store.Commit, ident string, watched bool) (vnode.Found, error) {
	top, err := repo.Top(context.WithoutCancel(ctx), c.Hash)
	if err != nil {
		return vnode.Found{}, err
	}
	t := &commitTree{s: s, repo: repo, commit: c}
	return vnode.Found{Node: t.dir(dir, ident, top, policyOf(kindCommit, watched))}, nil
}

// commitTree is the files at a commit. They are read from the object store
// when they are asked for, and never change.
type commitTree struct {
	s      *session
	repo   *store.Commits
	commit store.Commit
}

func (t *commitTree) dir(up *vnode.List, ident, tree string, policy vnode.Policy) *vnode.List {
	l := &vnode.FuncList{
		Spec: vnode.Spec{Number: vnode.Ino(ident), Gen: t.s.gen, Policy: policy,
			Stat: func(context.Context) (vnode.Stat, error) { return t.s.commitStat(t.commit, 0o700, 0), nil }},
		List: vnode.List{Up: up},
	}
	l.Entries = func(ctx context.Context) ([]fuse.DirEntry, error) {
		list, err := t.repo.List(context.WithoutCancel(ctx), tree)
		if err != nil {
			return nil, err
		}
		out := make([]fuse.DirEntry, len(list))
		for i, e := range list {
			out[i] = fuse.DirEntry{Name: e.Name, Mode: fileType(e), Ino: vnode.Ino(ident + "/" + e.Name)}
		}
		return out, nil
	}
	l.Find = func(ctx context.Context, name string) (vnode.Found, error) {
		e, err := t.repo.Find(context.WithoutCancel(ctx), tree, name)
		if errors.Is(err, store.NotFound) {
			return vnode.Found{}, vnode.NotFound
		}
		if err != nil {
			return vnode.Found{}, err
		}
		return vnode.Found{Node: t.entry(&l.List, ident+"/"+name, e)}, nil
	}
	vnode.PlaceFunc(context.Background(), &up.Inode, l)
	return &l.List
}

// entry makes the node of something in a commit's directory.
func (t *commitTree) entry(dir *vnode.List, ident string, e store.CommitEntry) vnode.Node {
	policy := policyOf(kindConstant, true)
	if e.Mode.IsDir() {
		return t.dir(dir, ident, e.Object, policy)
	}
	perm := uint32(0o400)
	if e.Mode&0o100 != 0 {
		perm = 0o500
	}
	stat := func(context.Context) (vnode.Stat, error) { return t.s.commitStat(t.commit, perm, e.Size), nil }
	content := func(ctx context.Context) ([]byte, error) {
		return t.repo.Blob(context.WithoutCancel(ctx), e.Object)
	}
	if fileType(e) == syscall.S_IFLNK {
		l := &vnode.FuncLink{
			Spec: vnode.Spec{Number: vnode.Ino(ident), Gen: t.s.gen, Policy: policy, Stat: stat},
			Target: func(ctx context.Context) (string, error) {
				b, err := content(ctx)
				return string(b), err
			},
		}
		vnode.PlaceFunc(context.Background(), &dir.Inode, l)
		return l
	}
	f := &vnode.FuncFile{
		Spec: vnode.Spec{Number: vnode.Ino(ident), Gen: t.s.gen, Policy: policy, Stat: stat},
		Read: content, Version: func() any { return e.Object },
	}
	vnode.PlaceFunc(context.Background(), &dir.Inode, f)
	return f
}

// fileType is the type bits of an entry of a commit.
func fileType(e store.CommitEntry) uint32 {
	switch {
	case e.Mode.IsDir():
		return syscall.S_IFDIR
	case e.Mode.Type() != 0:
		return syscall.S_IFLNK
	}
	return syscall.S_IFREG
}
