package fsnode

import (
	"context"
	"errors"
	"os"
	"path"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
)

// The directories of a session that hold real files.
const (
	workDir       = "workdir"
	attachmentDir = workDir + "/attachments"
)

// newAttachments makes attachments/: a real directory of the session's
// repository.
func (s *session) newAttachments() vnode.Found {
	pass := vnode.NewPass(vnode.PassConfig{
		Open: func(context.Context) (int, error) {
			return vnode.OpenBeneath(s.v.Load().sn.Dir, attachmentDir)
		},
		Ensure: func(context.Context) error { return s.makeReal(attachmentDir) },
		ReadOnly: func() bool {
			v := s.v.Load()
			return s.t.readOnly || v.sn.Legacy || !v.sn.Openable || s.gone.Load()
		},
		OnChange: func() { s.t.st.Dirty(s.id) },
		Salt:     vnode.Ino(s.t.st.Root()),
		Absent: func(out *fuse.Attr) {
			sn := s.v.Load().sn
			out.Owner = fuse.Owner{Uid: sn.UID, Gid: sn.GID}
			out.SetTimes(&sn.Created, &sn.Created, &sn.Created)
		},
		Statfs: s.dir.Statfs,
	})
	id := s.ident("dir", "attachments")
	vnode.PlaceForeign(context.Background(), &s.dir.Inode, pass, id, s.gen)
	return vnode.Found{Foreign: pass, Identity: id, Policy: policyOf(kindDirectory, true)}
}

// makeReal makes a directory below the session's and those above it, owned by
// the session's owner. No symlink is followed.
func (s *session) makeReal(rel string) error {
	sn := s.v.Load().sn
	for i := 0; i <= len(rel); i++ {
		if i < len(rel) && rel[i] != '/' {
			continue
		}
		if err := makeDir(sn.Dir, path.Dir(rel[:i]), path.Base(rel[:i]), int(sn.UID), int(sn.GID)); err != nil {
			return err
		}
	}
	return nil
}

func makeDir(base, parent, name string, uid, gid int) error {
	fd, err := vnode.OpenBeneath(base, parent)
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
