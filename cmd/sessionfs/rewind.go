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
			if yes {
				return a.withSession(cmd, false, args[0], func(ctx context.Context, st *store.Store, id string) error {
					plan, err := st.PlanRewind(ctx, id, args[1])
					if err != nil {
						return err
					}
					return a.applyRewind(ctx, st, id, plan, asJSON)
				})
			}
			return a.planRewind(cmd, args[0], args[1], asJSON)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it, do not ask")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the plan as one JSON object; asks nothing")
	return cmd
}

// planRewind shows a plan. The store is open for reading only meanwhile: to look
// at a plan changes nothing, and neither does a no to the question.
func (a *app) planRewind(cmd *cobra.Command, session, ref string, asJSON bool) error {
	var id string
	var plan *store.RewindPlan
	err := a.withSession(cmd, true, session, func(ctx context.Context, st *store.Store, found string) (err error) {
		id = found
		plan, err = st.PlanRewind(ctx, id, ref)
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a.stdout, newPlanJSON(id, plan, false))
	}
	if err := writePlan(a.stdout, plan); err != nil {
		return err
	}
	if len(plan.Conflicts) > 0 {
		hint := "hint: these files have changed since, and are kept: put them back as the turn left them"
		if plan.Head != "" {
			hint += ", or move the head alone: sessionfs head " + escaped(id+" "+plan.Head)
		}
		fmt.Fprintln(a.stderr, hint)
		return nil
	}
	yes, asked := a.confirm("Go back?")
	if !asked {
		fmt.Fprintln(a.stderr, "hint: nothing was changed; add --yes to go back")
	}
	if !yes {
		return nil
	}
	return a.withStore(cmd, false, func(ctx context.Context, st *store.Store) error {
		return a.applyRewind(ctx, st, id, plan, false)
	})
}

// applyRewind carries out a plan, as long as it is still the same.
func (a *app) applyRewind(ctx context.Context, st *store.Store, id string, plan *store.RewindPlan, asJSON bool) error {
	confirm := ""
	if len(plan.Files) > 0 {
		confirm = plan.Hash
	}
	done, err := st.Rewind(ctx, id, plan.Target, confirm)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a.stdout, newPlanJSON(id, done, true))
	}
	return a.printHead(id, done.Head, false)
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

// orNone is a head's id, or "none".
func orNone(head string) string {
	if head == "" {
		return "none"
	}
	return head
}

func writePlan(w io.Writer, p *store.RewindPlan) error {
	var b strings.Builder
	fmt.Fprintf(&b, "before:   %s  %s\nhead:     %s\n", oneLine(p.Target), clip(oneLine(p.Text), 60), oneLine(orNone(p.Head)))
	for _, t := range p.Turns {
		fmt.Fprintf(&b, "undone:   %s\n", oneLine(t))
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
