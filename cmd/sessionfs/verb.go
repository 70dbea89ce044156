package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

// withSession opens the store, finds the session that ref names, and runs fn.
func (a *app) withSession(cmd *cobra.Command, readOnly bool, ref string, fn func(ctx context.Context, st *store.Store, id string) error) error {
	return a.withStore(cmd, readOnly, func(ctx context.Context, st *store.Store) error {
		id, err := resolveSession(ctx, st, ref)
		if err != nil {
			return err
		}
		return fn(ctx, st, id)
	})
}

// silent ends the program with a status and without a word.
func silent(status int) error {
	if status == exitOK {
		return nil
	}
	return &printedError{status: status}
}

// printHead prints the head that a move led to.
func (a *app) printHead(id, node string, asJSON bool) error {
	if asJSON {
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

// argOr returns an argument, or what stands for it when it is not given.
func argOr(args []string, at int, otherwise string) string {
	if len(args) > at {
		return args[at]
	}
	return otherwise
}

// completeSession completes the first argument by session ids, with their
// titles as descriptions.
func (a *app) completeSession(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeSessions(cmd, args, "")
}

// completeSessions completes every argument by session ids.
func (a *app) completeSessions(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if err := a.configure(cmd); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	err := a.withStore(cmd, true, func(ctx context.Context, st *store.Store) error {
		rows, err := st.ListSessions(ctx, store.ListQuery{})
		for _, row := range rows {
			out = append(out, row.ID+"\t"+oneLine(row.Title))
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeRef completes a session, then a branch of it.
func (a *app) completeRef(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeSession(cmd, args, typed)
	}
	if err := a.configure(cmd); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	err := a.withSession(cmd, true, args[0], func(ctx context.Context, st *store.Store, id string) error {
		sn, err := st.Load(ctx, id)
		if err != nil {
			return err
		}
		for _, b := range sn.Branches() {
			out = append(out, b.Head)
			if b.Named {
				out = append(out, b.Name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
