package fsnode

import (
	"context"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// A message that is appended to the head takes the head's name along. So the
// node that has a name may be another one by the time that the store takes the
// session's lock, and what is done to a name under branch/ is done again.

// unnameBranch takes a branch's name away, from whichever node has it by now.
func (s *session) unnameBranch(ctx context.Context, name string) error {
	for {
		before, _ := s.v.Load().tip(name)
		err := s.rmdirBranch(ctx, name)
		if store.CodeOf(err) != store.NotFound {
			return err
		}
		if now, ok := s.v.Load().tip(name); !ok || now.tip == before.tip {
			return err
		}
	}
}

// renameName gives a branch another name, on whichever node its name is by
// now.
func (s *session) renameName(ctx context.Context, name string, to *vnode.List, newName string, noReplace bool) error {
	for {
		err := s.renameBranch(ctx, name, to, newName, noReplace)
		if err != nil || name == newName {
			return err
		}
		v := s.v.Load()
		if _, still := v.tip(name); !still {
			return nil
		}
		given, ok := v.tip(newName)
		if !ok {
			return nil
		}
		err = s.t.st.DeleteBranchName(s.holdingBranches(ctx, name, newName), s.id, given.tip)
		if err != nil && store.CodeOf(err) != store.NotFound {
			return err
		}
	}
}
