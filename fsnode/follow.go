package fsnode

import (
	"context"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
)

// FollowPath is a directory of a mount that is not listed. Whoever asks for a
// session's id in it has the mount look at that session: when the answer comes,
// that there is no such name, the mount shows what another process wrote to the
// store before. It is how a verb ends only when the mounts show what it did.
const FollowPath = ".sessionfs/" + followName

const followName = ".follow"

// followWait bounds how long a question is held up; the watches tell all the
// same.
const followWait = 3 * time.Second

// newFollow makes the directory. Nothing is ever sent to the kernel about it, so
// that a question in it waits for nobody who waits for it.
func (t *tree) newFollow(parent *vnode.List) *vnode.List {
	l := &vnode.FuncList{
		Spec: vnode.Spec{Number: vnode.Ino("control/follow"), Policy: policyOf(kindDirectory, true), Stat: t.rootStat},
		List: vnode.List{Up: parent},
	}
	l.Entries = func(context.Context) ([]fuse.DirEntry, error) { return nil, nil }
	l.Find = func(ctx context.Context, name string) (vnode.Found, error) {
		t.followNow(ctx, name)
		return vnode.Found{}, vnode.NotFound
	}
	t.place(parent, l)
	return &l.List
}

// followNow waits until a session has been compared with the disk, in a
// goroutine that holds no request.
func (t *tree) followNow(ctx context.Context, id string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.st.FollowNow(context.Background(), id)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(followWait):
	}
}
