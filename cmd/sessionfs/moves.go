package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

// moveVerb is a verb that moves the head and prints where it is.
type moveVerb struct {
	use, short, long string
	minimum, maximum int // arguments
	move             func(ctx context.Context, st *store.Store, id string, args []string) (string, error)
}

func (a *app) newMoveCommand(v moveVerb) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long,
		Args:              arity(v.minimum, v.maximum),
		ValidArgsFunction: a.completeRef,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd, false, args[0], func(ctx context.Context, st *store.Store, id string) error {
				node, err := v.move(ctx, st, id, args[1:])
				if err != nil {
					return err
				}
				return a.printHead(id, node, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the session and its head as one JSON object")
	return cmd
}

func newRetryCommand(a *app) *cobra.Command {
	return a.newMoveCommand(moveVerb{
		use: "retry SESSION [REF]", short: "Go back to the question that a reply answers",
		long: `Move the head to the user message that the reply REF (the head, when not given)
answers, so that the next reply becomes its sibling. The old line is kept.`,
		minimum: 1, maximum: 2,
		move: func(ctx context.Context, st *store.Store, id string, args []string) (string, error) {
			return st.Retry(ctx, id, argOr(args, 0, "@"))
		},
	})
}

func newSiblingCommand(a *app) *cobra.Command {
	return a.newMoveCommand(moveVerb{
		use: "sibling SESSION WHICH [REF]", short: "Move the head to another answer or another wording",
		long: `Move the head among the siblings of REF (the head, when not given): WHICH is
next, prev, or a number from 1. The head lands on the deepest leaf under it.`,
		minimum: 2, maximum: 3,
		move: func(ctx context.Context, st *store.Store, id string, args []string) (string, error) {
			return st.Sibling(ctx, id, argOr(args, 1, "@"), args[0])
		},
	})
}

func newLeafCommand(a *app) *cobra.Command {
	return a.newMoveCommand(moveVerb{
		use: "leaf SESSION [REF]", short: "Move the head to the deepest leaf under a node",
		long:    `Move the head to the deepest leaf under REF (the head, when not given).`,
		minimum: 1, maximum: 2,
		move: func(ctx context.Context, st *store.Store, id string, args []string) (string, error) {
			return st.Leaf(ctx, id, argOr(args, 0, ""))
		},
	})
}

func newCheckoutCommand(a *app) *cobra.Command {
	return a.newMoveCommand(moveVerb{
		use: "checkout SESSION REF", short: "Move the head to a branch's tip, or to any node",
		long:    `Move the head to the tip of the branch REF, or exactly to any other node.`,
		minimum: 2, maximum: 2,
		move: func(ctx context.Context, st *store.Store, id string, args []string) (string, error) {
			return st.Checkout(ctx, id, args[0])
		},
	})
}

type attachOptions struct {
	to, at, label string
	asJSON        bool
}

func newAttachCommand(a *app) *cobra.Command {
	var opt attachOptions
	cmd := &cobra.Command{
		Use:   "attach SESSION REF",
		Short: "Attach a branch to a point of this or another session",
		Long: `Write a pointer to the branch REF of SESSION below the head of the same session,
or of another one, and print the pointer's node id. No head moves. Within one
session the branch counts as merged from then on.`,
		Args:              arity(2, 2),
		ValidArgsFunction: a.completeRef,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd, false, args[0], func(ctx context.Context, st *store.Store, id string) error {
				return a.attach(ctx, st, id, args[1], opt)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opt.to, "to", "", "session that the branch is attached to (default: its own)")
	flags.StringVar(&opt.at, "at", "", "node that it is attached to (default: the head)")
	flags.StringVar(&opt.label, "label", "", "name of the attachment (default: the branch's)")
	flags.BoolVar(&opt.asJSON, "json", false, "print session, node and existed as one JSON object")
	return cmd
}

func (a *app) attach(ctx context.Context, st *store.Store, id, ref string, opt attachOptions) error {
	spec := store.AttachSpec{Source: id, Target: ref, Anchor: id, AnchorRef: opt.at, Label: opt.label}
	if opt.to != "" {
		var err error
		if spec.Anchor, err = resolveSession(ctx, st, opt.to); err != nil {
			return err
		}
	}
	out, err := st.Attach(ctx, spec)
	if err != nil {
		return err
	}
	if opt.asJSON {
		return printJSON(a.stdout, struct {
			Session string `json:"session"`
			Node    string `json:"node"`
			Existed bool   `json:"existed"`
		}{spec.Anchor, out.Node, out.Existed})
	}
	return a.printLine(out.Node)
}
