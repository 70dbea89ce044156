package vnode

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Link is a symbolic link: what embeds it is a Pointer. Its Stat must give the
// target's length as size.
type Link struct{ Base }

func (l *Link) fileType() uint32 { return syscall.S_IFLNK }

// Readlink answers with the target.
func (l *Link) Readlink(ctx context.Context) ([]byte, syscall.Errno) {
	t, err := l.target(ctx)
	if err != nil {
		return nil, l.env().Hush(err)
	}
	return []byte(t), 0
}

// Getattr answers with the link's own attributes.
func (l *Link) Getattr(ctx context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	return l.getattr(ctx, syscall.S_IFLNK, out)
}

// Setattr accepts times and refuses the rest.
func (l *Link) Setattr(ctx context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return l.setattr(ctx, in, syscall.S_IFLNK, out, refuseSize)
}

var (
	_ Node              = (*Link)(nil)
	_ fs.NodeReadlinker = (*Link)(nil)
	_ fs.NodeGetattrer  = (*Link)(nil)
	_ fs.NodeSetattrer  = (*Link)(nil)
	_ fs.NodeStatfser   = (*Link)(nil)
)
