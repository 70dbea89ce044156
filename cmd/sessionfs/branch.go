package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

func newBranchCommand(a *app) *cobra.Command {
	var subtree, asJSON bool
	cmd := &cobra.Command{
		Use:   "branch SESSION [ls | name REF NAME | rm REF | delete REF]",
		Short: "List a session's branches, name, unname or delete one",
		Long: `List the branches of a session (ls, the default), give the node that REF names
a branch name (name), take its name away (rm; no message is deleted), or delete
the branch that ends in REF (delete): the messages that no other branch has go,
and stay in the session's Git history. A head among them moves to the newest
branch that is left.`,
		Args:              branchArgs,
		ValidArgsFunction: a.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			action := "ls"
			if len(args) > 1 {
				action = args[1]
			}
			if subtree && action != "delete" {
				return usagef(cmd, "branch: --subtree goes with delete")
			}
			return a.withStore(cmd, action == "ls", func(ctx context.Context, st *store.Store) error {
				id, err := resolveSession(ctx, st, args[0])
				if err != nil {
					return err
				}
				switch action {
				case "name":
					return nameBranch(ctx, st, id, args[2], args[3])
				case "rm":
					return unnameBranch(ctx, st, id, args[2])
				case "delete":
					return a.deleteBranch(ctx, st, id, args[2], subtree, asJSON)
				}
				return a.listBranches(ctx, st, id, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&subtree, "subtree", false, "with delete: the node REF and all that follows it, in every branch")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

// deleteBranch prints what was deleted and where the head is now.
func (a *app) deleteBranch(ctx context.Context, st *store.Store, id, ref string, subtree, asJSON bool) error {
	remove := st.DeleteBranch
	if subtree {
		remove = st.DeleteSubtree
	}
	out, err := remove(ctx, id, ref)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a.stdout, struct {
			Session string   `json:"session"`
			Deleted []string `json:"deleted"`
			Head    string   `json:"head"`
		}{id, append([]string{}, out.Nodes...), out.Head})
	}
	_, err = fmt.Fprintf(a.stdout, "%s deleted\n", count(len(out.Nodes), "node"))
	return err
}

// branchArgs checks the action and the number of its arguments.
func branchArgs(cmd *cobra.Command, args []string) error {
	if len(args) < 2 {
		return arity(1, 1)(cmd, args)
	}
	want, known := map[string]int{"ls": 0, "name": 2, "rm": 1, "delete": 1}[args[1]]
	if !known {
		return usagef(cmd, "branch: %q is none of ls, name, rm, delete", args[1])
	}
	return arity(2+want, 2+want)(cmd, args)
}

// branchJSON is a branch as --json shows it.
type branchJSON struct {
	Head      string   `json:"head"`
	Name      *string  `json:"name"`
	Active    bool     `json:"active"`
	Archived  bool     `json:"archived"`
	Merged    bool     `json:"merged"`
	CreatedAt *float64 `json:"created_at"`
	UpdatedAt *float64 `json:"updated_at"`
}

func (a *app) listBranches(ctx context.Context, st *store.Store, id string, asJSON bool) error {
	sn, err := st.Load(ctx, id)
	if err != nil {
		return err
	}
	var lines [][]string
	for _, b := range sn.Branches() {
		if asJSON {
			if err := printJSON(a.stdout, newBranchJSON(b, sn.Head)); err != nil {
				return err
			}
			continue
		}
		lines = append(lines, branchLine(b, sn.Head))
	}
	if len(lines) == 0 {
		return nil
	}
	return a.markedTable(a.stdout, []string{"  HEAD", "UPDATED", "NAME"}, lines)
}

func newBranchJSON(b store.Branch, head string) branchJSON {
	out := branchJSON{Head: b.Head, Active: b.Head == head, Archived: b.Archived, Merged: b.Merged}
	if b.Named {
		out.Name = &b.Name
	}
	if b.HasCreated {
		created := finite(b.CreatedAt)
		out.CreatedAt = &created
	}
	if b.HasUpdated {
		updated := finite(b.UpdatedAt)
		out.UpdatedAt = &updated
	}
	return out
}

func branchLine(b store.Branch, head string) []string {
	mark := "  "
	if b.Head == head {
		mark = "* "
	}
	name := oneLine(b.Name)
	switch {
	case b.Archived:
		name += " (archived)"
	case b.Merged:
		name += " (merged)"
	}
	return []string{mark + oneLine(b.Head), clock(b.UpdatedAt), name}
}

func nameBranch(ctx context.Context, st *store.Store, id, ref, name string) error {
	sn, err := st.Load(ctx, id)
	if err != nil {
		return err
	}
	node, err := sn.Resolve(ref)
	if err != nil {
		return err
	}
	return st.SetBranchName(ctx, id, node, name)
}

func unnameBranch(ctx context.Context, st *store.Store, id, ref string) error {
	sn, err := st.Load(ctx, id)
	if err != nil {
		return err
	}
	node, err := sn.Resolve(ref)
	if err != nil {
		return err
	}
	for _, b := range sn.Branches() {
		if b.Head == node && b.Named {
			return st.DeleteBranchName(ctx, id, node)
		}
	}
	return &store.Error{Code: store.NotFound, Op: "remove branch name", Session: id, Ref: ref,
		Err:  errors.New("this node has no branch name"),
		Hint: fmt.Sprintf("'sessionfs branch %s' lists the names", id)}
}
