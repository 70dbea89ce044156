package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

// findingJSON is a finding as --json shows it.
type findingJSON struct {
	Kind     string `json:"kind"`
	Severity string `json:"severity"`
	Session  string `json:"session"`
	Path     string `json:"path"`
	Text     string `json:"text"`
	Mended   bool   `json:"mended"`
}

func newCheckCommand(a *app) *cobra.Command {
	var repair, asJSON bool
	cmd := &cobra.Command{
		Use:   "check [SESSION...]",
		Short: "Look for damage in the store, and mend it",
		Long: `Look at the whole store, or at some sessions, and print every finding: errors,
warnings, and notes, which are lawful. With --repair mend what can be mended
without losing a byte, say what was mended, and list the rest; what is replaced
or changed is kept as it was in .repaired/ below the store, and what was mended
in a session is committed. Exit status 10 when an error is left, 1 when a
warning is, else 0.`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.check(cmd, args, repair, asJSON)
		},
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "mend what can be mended without losing a byte")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a finding")
	return cmd
}

func (a *app) check(cmd *cobra.Command, refs []string, repair, asJSON bool) error {
	opt, err := a.storeOptions()
	if err != nil {
		return err
	}
	ids, err := a.checkedIDs(cmd, refs)
	if err != nil {
		return err
	}
	var out store.Repaired
	bar := a.progress("check")
	if repair {
		out, err = store.Repair(cmd.Context(), opt, bar.step, ids...)
	} else {
		err = a.withStore(cmd, true, func(ctx context.Context, st *store.Store) error {
			return st.CheckProgress(ctx, func(f store.Finding) { out.Left = append(out.Left, f) }, bar.step, ids...)
		})
	}
	bar.end()
	if err != nil {
		return err
	}
	if err := a.paged(func(w io.Writer) error { return a.writeFindings(w, out, repair, asJSON) }); err != nil {
		return err
	}
	return silent(checkStatus(out.Left))
}

// checkedIDs finds the sessions that are to be checked. A session too damaged to
// be listed is still named by its exact id.
func (a *app) checkedIDs(cmd *cobra.Command, refs []string) (ids []string, err error) {
	if len(refs) == 0 {
		return nil, nil
	}
	err = a.withStore(cmd, true, func(ctx context.Context, st *store.Store) error {
		ids, err = resolveSessions(ctx, st, refs)
		return err
	})
	return ids, err
}

// checkStatus is the exit status that the findings call for.
func checkStatus(left []store.Finding) int {
	status := exitOK
	for _, f := range left {
		switch f.Severity {
		case store.Fault:
			return exitCorrupt
		case store.Warning:
			status = exitFailure
		}
	}
	return status
}

func (a *app) writeFindings(w io.Writer, out store.Repaired, repair, asJSON bool) error {
	for _, list := range []struct {
		findings []store.Finding
		mended   bool
	}{{out.Mended, true}, {out.Left, false}} {
		for _, f := range list.findings {
			if err := a.writeFinding(w, f, list.mended, asJSON); err != nil {
				return err
			}
		}
	}
	if asJSON {
		return nil
	}
	summary := count(len(out.Left), "finding")
	if repair {
		summary = fmt.Sprintf("%d mended, %d left", len(out.Mended), len(out.Left))
	}
	if out.Aside != "" {
		summary += "; what was replaced is in " + out.Aside
	}
	_, err := fmt.Fprintln(w, summary)
	return err
}

func (a *app) writeFinding(w io.Writer, f store.Finding, mended, asJSON bool) error {
	if asJSON {
		return printJSON(w, findingJSON{f.Kind, string(f.Severity), f.Session, f.Path, f.Text, mended})
	}
	line := oneLine(f.String())
	switch {
	case mended:
		line = a.paint(green, "mended: "+line)
	case f.Severity == store.Fault:
		line = a.paint(red, line)
	case f.Severity == store.Warning:
		line = a.paint(yellow, line)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}
