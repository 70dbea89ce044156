package fsnode

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// The directories of a session that hold real files.
const (
	workDir        = "workdir"
	attachmentName = "attachments"
	attachmentDir  = workDir + "/" + attachmentName
	contextDir     = "context"
)

// newPass makes a real directory of the session's repository.
func (s *session) newPass(name, rel string, cfg vnode.PassConfig) vnode.Found {
	cfg.Open = func(context.Context) (int, error) { return s.openReal(rel) }
	cfg.Salt = vnode.Ino(s.t.st.Root())
	cfg.Absent = func(out *fuse.Attr) {
		sn := s.v.Load().sn
		out.Owner = fuse.Owner{Uid: sn.UID, Gid: sn.GID}
		out.SetTimes(&sn.Created, &sn.Created, &sn.Created)
	}
	cfg.Follow = func() bool { return s.t.st.FollowFiles(s.id, s.v.Load().sn.Dir, rel) }
	cfg.Keep = long
	cfg.Held = s.t.held
	cfg.Statfs = s.dir.Statfs
	cfg.Handleless = s.t.env.Handleless
	cfg.NoPassthrough = s.t.env.Handleless
	cfg.WasRead = func(p *vnode.Pass) { s.t.later.void(p) }
	pass := vnode.NewPass(cfg)
	id := s.ident("dir", name)
	vnode.PlaceForeign(context.Background(), &s.dir.Inode, pass, id, s.gen)
	return vnode.Found{Foreign: pass, Identity: id, Policy: policyOf(kindFresh, true)}
}

// openReal opens a real directory of the session's repository.
func (s *session) openReal(rel string) (dirfd int, err error) {
	dir := s.v.Load().sn.Dir
	fd, err := vnode.OpenBeneath(s.t.st.Root(), dir, rel)
	if !errors.Is(err, fs.ErrNotExist) {
		return fd, err
	}
	now := s.repository()
	if now == dir {
		return fd, err
	}
	return vnode.OpenBeneath(s.t.st.Root(), now, rel)
}

// repository is the directory of the session. When another program has just
// moved it, it is found at its new place before the view tells of that.
func (s *session) repository() string {
	dir := s.v.Load().sn.Dir
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir
	}
	if now, err := s.t.st.Dir(s.id); err == nil {
		return now
	}
	return dir
}

// newReal makes attachments/ and workdir/, between which files can be renamed
// and linked. The one stands in the other on the disk; in the mount there is a
// link, as a directory with two names is none that the kernel can follow.
func (s *session) newReal() (attachments, work vnode.Found) {
	group := vnode.NewPassGroup()
	cfg := func(rel string) vnode.PassConfig {
		return vnode.PassConfig{
			Ensure: func(context.Context) error { return s.makeReal(rel) },
			ReadOnly: func() bool {
				v := s.v.Load()
				return s.t.readOnly || v.sn.Legacy || !v.sn.Openable || s.gone.Load()
			},
			OnChange: s.added,
			OnRemove: func() { s.t.st.Dirty(s.id) },
			Removing: s.beforeRemove,
			Errno:    s.t.realErrno,
			Group:    group,
		}
	}
	attachments = s.newPass(attachmentName, attachmentDir, cfg(attachmentDir))
	w := cfg(workDir)
	w.Links = map[string]string{attachmentName: "../" + attachmentName}
	return attachments, s.newPass(workDir, workDir, w)
}

// newContext makes context/: real files that are only read, as they are a
// record.
func (s *session) newContext() vnode.Found {
	return s.newPass(contextDir, contextDir, vnode.PassConfig{
		ReadOnly: func() bool { return true },
		Refuse:   s.t.refusing("write", func() string { return s.dir.Path(nil) + "/" + contextDir }, vnode.Immutable),
	})
}

// makeReal makes a directory below the session's and those above it, owned by
// the session's owner. No symlink is followed.
func (s *session) makeReal(rel string) error {
	sn, dir := s.v.Load().sn, s.repository()
	for i := 0; i <= len(rel); i++ {
		if i < len(rel) && rel[i] != '/' {
			continue
		}
		if err := makeDir(s.t.st.Root(), dir, path.Dir(rel[:i]), path.Base(rel[:i]), int(sn.UID), int(sn.GID)); err != nil {
			return err
		}
	}
	// The request that made them holds one of the two, at most. The kernel may be
	// about to keep what it asked of the other: who follows it comes to that.
	for _, p := range s.files.Load().real {
		p.Changed()
	}
	return nil
}

// filesChanged makes the kernel ask again about the directories of real files
// in which another process changed something. It is called by nobody who
// answers a request.
func (t *tree) filesChanged(ctx context.Context, id string) {
	t.mu.Lock()
	s := t.sessions[id]
	t.mu.Unlock()
	if s == nil || !t.serving.Load() || heldBy(ctx) != nil {
		return
	}
	f := s.files.Load()
	if f == nil {
		return
	}
	told := map[*vnode.Pass]uint64{}
	for _, p := range f.real {
		if n, kept := p.Told(); kept {
			told[p] = n
		}
	}
	if len(told) == 0 {
		return
	}
	s.dir.NameChanged(barrier) // for who is being given one of them
	for p, n := range told {
		p.Renew(n)
		t.meter.notified.Add("listing", 1)
	}
}

// sameReal reports whether two snapshots tell the same of directories of real
// files: where they are, and of whom while they are not there.
func sameReal(a, b *store.Snapshot) bool {
	return a.Dir == b.Dir && a.UID == b.UID && a.GID == b.GID && a.Created.Equal(b.Created)
}

func makeDir(root, base, parent, name string, uid, gid int) error {
	fd, err := vnode.OpenBeneath(root, base, parent)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.Mkdirat(fd, name, 0o700)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	return unix.Fchownat(fd, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
}
