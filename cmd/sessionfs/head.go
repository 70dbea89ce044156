package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

type headOptions struct {
	expect string
	asJSON bool
}

func newHeadCommand(a *app) *cobra.Command {
	var opt headOptions
	cmd := &cobra.Command{
		Use:   "head SESSION [REF]",
		Short: "Print a session's active head, or move it",
		Long: `Print the node id of the session's active head, or move the head to the node
that REF names: an exact node id, else a branch name, else a unique prefix of a
node id (4 or more characters), "@" for the head itself, each with ~N for the
N-th predecessor. A move is refused while a run is active.`,
		Args:              arity(1, 2),
		ValidArgsFunction: a.completeRef,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && cmd.Flags().Changed("expect") {
				return usagef(cmd, "head: --expect needs a REF to move to")
			}
			return a.withStore(cmd, len(args) == 1, func(ctx context.Context, st *store.Store) error {
				return a.head(ctx, st, args, opt, cmd.Flags().Changed("expect"))
			})
		},
	}
	cmd.Flags().StringVar(&opt.expect, "expect", "", "move only if the head is this node id now (empty: no head)")
	cmd.Flags().BoolVar(&opt.asJSON, "json", false, "print the session and its head as one JSON object")
	return cmd
}

func (a *app) head(ctx context.Context, st *store.Store, args []string, opt headOptions, compare bool) error {
	id, err := resolveSession(ctx, st, args[0])
	if err != nil {
		return err
	}
	node, err := readOrMoveHead(ctx, st, id, args[1:], opt, compare)
	if err != nil {
		return err
	}
	if opt.asJSON {
		return printJSON(a.stdout, struct {
			Session string `json:"session"`
			Head    string `json:"head"`
		}{id, node})
	}
	if node == "" {
		return nil
	}
	return a.printLine(node)
}

func readOrMoveHead(ctx context.Context, st *store.Store, id string, ref []string, opt headOptions, compare bool) (string, error) {
	if len(ref) == 0 {
		sn, err := st.Load(ctx, id)
		if err != nil {
			return "", err
		}
		return sn.Head, nil
	}
	var move store.HeadMove
	if compare {
		move.Expect = &opt.expect
	}
	return st.SetHead(ctx, id, ref[0], move)
}
