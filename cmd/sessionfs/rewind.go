package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

func newRewindCommand(a *app) *cobra.Command {
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "rewind SESSION REF",
		Short: "Go back to before a user message, with the files of the project",
		Long: `Show what going back to before the user message REF would do: the turns that are
undone, the files of the project that get back what they held, and the head
afterwards. With --yes, or after a question on a terminal, do it: all files or
none, and the old line stays as a branch.`,
		Args:              arity(2, 2),
		ValidArgsFunction: a.completeRef,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd, false, args[0], func(ctx context.Context, st *store.Store, id string) error {
				return a.rewind(ctx, st, id, args[1], yes, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it, do not ask")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the plan as one JSON object; asks nothing")
	return cmd
}

func (a *app) rewind(ctx context.Context, st *store.Store, id, ref string, yes, asJSON bool) error {
	plan, err := st.PlanRewind(ctx, id, ref)
	if err != nil {
		return err
	}
	if !yes && !asJSON {
		if err := writePlan(a.stdout, plan); err != nil {
			return err
		}
		if len(plan.Conflicts) == 0 {
			yes, _ = a.confirm("Go back?")
		}
	}
	if yes {
		confirm := ""
		if len(plan.Files) > 0 {
			confirm = plan.Hash
		}
		if plan, err = st.Rewind(ctx, id, plan.Target, confirm); err != nil {
			return err
		}
		if !asJSON {
			return a.printHead(id, plan.Head, false)
		}
	}
	if asJSON {
		return printJSON(a.stdout, newPlanJSON(id, plan, yes))
	}
	return nil
}

// planJSON is a plan as --json shows it.
type planJSON struct {
	Session   string         `json:"session"`
	Target    string         `json:"target"`
	Text      string         `json:"text"`
	Head      string         `json:"head"`
	Turns     []string       `json:"turns"`
	Files     []planFileJSON `json:"files"`
	Conflicts []string       `json:"conflicts"`
	Done      bool           `json:"done"`
}

type planFileJSON struct {
	Path   string `json:"path"`
	Action string `json:"action"`
	Gap    bool   `json:"gap"`
}

func newPlanJSON(id string, p *store.RewindPlan, done bool) planJSON {
	out := planJSON{Session: id, Target: p.Target, Text: p.Text, Head: p.Head, Turns: p.Turns, Files: []planFileJSON{}, Conflicts: p.Conflicts, Done: done}
	for _, f := range p.Files {
		out.Files = append(out.Files, planFileJSON(f))
	}
	if out.Turns == nil {
		out.Turns = []string{}
	}
	if out.Conflicts == nil {
		out.Conflicts = []string{}
	}
	return out
}

func writePlan(w io.Writer, p *store.RewindPlan) error {
	var b strings.Builder
	head := p.Head
	if head == "" {
		head = "none"
	}
	fmt.Fprintf(&b, "before:   %s  %s\nhead:     %s\n", p.Target, clip(oneLine(p.Text), 60), head)
	for _, t := range p.Turns {
		fmt.Fprintf(&b, "undone:   %s\n", t)
	}
	for _, f := range p.Files {
		note := ""
		if f.Gap {
			note = "  (changed by somebody else in between, which goes too)"
		}
		fmt.Fprintf(&b, "%-9s %s%s\n", f.Action+":", oneLine(f.Path), note)
	}
	for _, c := range p.Conflicts {
		fmt.Fprintf(&b, "conflict: %s\n", oneLine(c))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
