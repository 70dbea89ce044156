package fsnode

import (
	"context"
	"errors"
	"fmt"

	"github.com/sessionfs/sessionfs/store"
)

// command is one command of ctl. All of its arguments but the last are words;
// the last one takes the rest of the line.
type command struct {
	name      string
	least, no int // arguments that it needs, and takes
	run       func(ctx context.Context, c *commands, args []string) (result string, err error)
}

// moves are the commands that are one operation of the store each.
var moves = [...]command{
	{"head", 1, 1, func(ctx context.Context, c *commands, a []string) (string, error) {
		return c.s.t.st.SetHead(ctx, c.s.id, a[0], store.HeadMove{})
	}},
	{"retry", 1, 1, func(ctx context.Context, c *commands, a []string) (string, error) {
		return c.s.t.st.Retry(ctx, c.s.id, a[0])
	}},
	{"edit", 2, 2, func(ctx context.Context, c *commands, a []string) (string, error) {
		return c.s.t.st.Edit(ctx, c.s.id, a[0], a[1])
	}},
	{"sibling", 2, 2, func(ctx context.Context, c *commands, a []string) (string, error) {
		return c.s.t.st.Sibling(ctx, c.s.id, a[0], a[1])
	}},
	{"leaf", 0, 1, func(ctx context.Context, c *commands, a []string) (string, error) {
		return c.s.t.st.Leaf(ctx, c.s.id, a[0])
	}},
	{"checkout", 1, 1, func(ctx context.Context, c *commands, a []string) (string, error) {
		return c.s.t.st.Checkout(ctx, c.s.id, a[0])
	}},
	{"name", 2, 2, func(ctx context.Context, c *commands, a []string) (string, error) {
		return c.name(ctx, a[0], a[1])
	}},
	{"delete", 1, 1, func(ctx context.Context, c *commands, a []string) (string, error) {
		return c.delete(ctx, a[0])
	}},
	{"attach", 1, 2, func(ctx context.Context, c *commands, a []string) (string, error) {
		r, err := c.s.t.st.Attach(ctx, store.AttachSpec{Source: c.s.id, Target: a[0], AnchorRef: a[1]})
		return r.Node, err
	}},
	{"rewind", 1, 1, func(ctx context.Context, c *commands, a []string) (string, error) {
		return c.rewind(ctx, a[0])
	}},
	{"begin", 0, 0, func(ctx context.Context, c *commands, _ []string) (string, error) { return "", c.begin(ctx) }},
	{"end", 0, 1, func(ctx context.Context, c *commands, a []string) (string, error) { return "", c.end(ctx, a[0]) }},
	{"commit", 0, 1, func(ctx context.Context, c *commands, a []string) (string, error) { return c.commit(ctx, a[0]) }},
}

// do runs a command line.
func (c *commands) do(ctx context.Context, word, rest string) (string, error) {
	for _, m := range moves {
		if m.name != word {
			continue
		}
		args, err := m.arguments(rest)
		if err != nil {
			return "", c.invalid(word, err)
		}
		return m.run(ctx, c, args)
	}
	return "", c.invalid(word, errors.New("unknown command"))
}

// arguments takes the rest of a line apart; an argument that is left out is
// "".
func (m command) arguments(rest string) ([]string, error) {
	args := make([]string, max(m.no, 1))
	n := 0
	for ; rest != "" && n < m.no-1; n++ {
		var err error
		if args[n], rest, err = cutWord(rest); err != nil {
			return nil, err
		}
	}
	if last := wholeArg(rest); rest != "" {
		if m.no == 0 {
			return nil, errors.New("takes no argument")
		}
		args[n] = last
		n++
	}
	if n < m.least {
		return nil, fmt.Errorf("takes %d arguments", m.least)
	}
	return args, nil
}

// name gives a node a branch name.
func (c *commands) name(ctx context.Context, ref, name string) (string, error) {
	v, err := c.s.current(ctx)
	if err != nil {
		return "", err
	}
	node, err := v.sn.Resolve(ref)
	if err != nil {
		return "", err
	}
	return node, c.s.t.st.SetBranchName(ctx, c.s.id, node, name)
}

func (c *commands) delete(ctx context.Context, ref string) (string, error) {
	d, err := c.s.t.st.DeleteBranch(ctx, c.s.id, ref)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d nodes", len(d.Nodes)), nil
}

// rewind goes back to before a user's message. Where files would be restored
// the plan must be seen first, which a line cannot show.
func (c *commands) rewind(ctx context.Context, ref string) (string, error) {
	plan, err := c.s.t.st.Rewind(ctx, c.s.id, ref, "")
	if errors.Is(err, store.Confirm) {
		return "", &store.Error{Code: store.Confirm, Op: "rewind", Session: c.s.id, Ref: ref,
			Err: errors.New("files would be restored, and the plan has not been seen"), Hint: "run: sessionfs rewind " + c.s.id + " " + ref}
	}
	if err != nil {
		return "", err
	}
	return plan.Head, nil
}
