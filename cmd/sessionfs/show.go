package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store"
)

func newShowCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "show SESSION",
		Short:             "Show a session: its fields, its active branch and what is wrong with it",
		Args:              arity(1, 1),
		ValidArgsFunction: a.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd, true, func(ctx context.Context, st *store.Store) error {
				return a.show(ctx, st, args[0], asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the session as one JSON object")
	return cmd
}

func (a *app) show(ctx context.Context, st *store.Store, ref string, asJSON bool) error {
	id, err := resolveSession(ctx, st, ref)
	if err != nil {
		return err
	}
	if asJSON {
		object, err := st.GetSession(ctx, id)
		if err != nil {
			return err
		}
		return a.printLine(string(object))
	}
	sn, err := st.Load(ctx, id)
	if err != nil {
		return err
	}
	row, err := st.Row(ctx, id)
	if err != nil && store.CodeOf(err) != store.NotFound {
		return err
	}
	return a.showText(sn, row)
}

func (a *app) showText(sn *store.Snapshot, row store.Row) error {
	var b strings.Builder
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-11s%s\n", name+":", oneLine(value))
		}
	}
	field("id", sn.ID)
	field("title", sn.Title())
	field("status", sn.Status())
	field("head", sn.Head)
	field("agent", row.AgentID)
	field("source", row.Source)
	field("project", row.Project)
	field("created", clock(row.CreatedAt))
	field("updated", clock(row.UpdatedAt))
	if sn.Archived {
		field("archived", "yes")
	}
	field("nodes", fmt.Sprint(sn.Index.Len()))
	field("branches", fmt.Sprint(len(sn.Branches())))
	field("directory", sn.Dir)
	for _, p := range sn.Problems {
		field("problem", strings.TrimPrefix(p.Path+": "+p.Text, ": "))
	}
	showBranch(&b, sn)
	return a.paged(func(w io.Writer) error {
		_, err := io.WriteString(w, b.String())
		return err
	})
}

// showBranch lists the active branch, a line a message. A broken chain is
// among the problems already, so it only leaves the list out.
func showBranch(b *strings.Builder, sn *store.Snapshot) {
	branch, err := sn.Branch()
	if err != nil || len(branch) == 0 {
		return
	}
	b.WriteString("\n")
	for i, n := range branch {
		text, err := sn.Text(n.ID)
		if err != nil {
			text = []byte("(unreadable)")
		}
		fmt.Fprintf(b, "%4d  %-9s  %s  %s\n", i+1, roleName(n), oneLine(clip(n.ID, 24)), clip(oneLine(strings.TrimSpace(string(text))), 60))
	}
}

// roleName is a node's role as a reader knows it.
func roleName(n dag.Node) string {
	switch n.Role {
	case "llm":
		return "assistant"
	case "code":
		return "tool"
	}
	return n.Role
}
