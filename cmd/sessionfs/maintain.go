package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

func newReindexCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reindex",
		Short: "Rebuild the registry of the sessions",
		Long: `Rebuild index.json from the sessions that are there, end the runs that a dead
process left running, and print how many rows there are.`,
		Args: arity(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withStoreReconciled(cmd, func(ctx context.Context, st *store.Store) error {
				bar := a.progress("reindex")
				out, err := st.Reindex(ctx, bar.step)
				bar.end()
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(a.stdout, out)
				}
				_, err = fmt.Fprintf(a.stdout, "%s, %d changed, %d removed\n", count(out.Sessions, "session"), out.Changed, out.Removed)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object: sessions, changed, removed")
	return cmd
}

func newMigrateCommand(a *app) *cobra.Command {
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use:   "migrate [SESSION...]",
		Short: "Move sessions of old layouts to where they belong",
		Long: `Move sessions out of working folders and out of the first layout. It can be
interrupted at any time and goes on where it was. A session that cannot be moved
now does not stop the others; the exit status is that of the first such one.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd, dryRun, func(ctx context.Context, st *store.Store) error {
				ids, err := resolveSessions(ctx, st, args)
				if err != nil {
					return err
				}
				if dryRun {
					return a.unmigrated(ctx, st, ids, asJSON)
				}
				return a.migrate(ctx, st, ids, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list the sessions that would be moved")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a session")
	return cmd
}

// migratedJSON is one session's migration as --json shows it.
type migratedJSON struct {
	Session string   `json:"session"`
	From    string   `json:"from"`
	To      string   `json:"to"`
	Kept    []string `json:"kept"`
	Error   string   `json:"error"`
}

func (a *app) unmigrated(ctx context.Context, st *store.Store, only []string, asJSON bool) error {
	ids, err := st.Unmigrated(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if len(only) > 0 && !slices.Contains(only, id) {
			continue
		}
		if asJSON {
			err = printJSON(a.stdout, struct {
				Session string `json:"session"`
			}{id})
		} else {
			_, err = fmt.Fprintln(a.stdout, oneLine(id))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *app) migrate(ctx context.Context, st *store.Store, ids []string, asJSON bool) error {
	bar := a.progress("migrate")
	moved, err := st.Migrate(ctx, func(_, _ string, done, total int64) { bar.step(int(done), int(total)) }, ids...)
	bar.end()
	if err != nil {
		return err
	}
	var failed []error
	for _, m := range moved {
		if m.Err != nil {
			failed = append(failed, m.Err)
		}
		if err := a.writeMigrated(m, asJSON); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

func (a *app) writeMigrated(m store.Migrated, asJSON bool) error {
	if asJSON {
		out := migratedJSON{Session: m.Session, From: m.From, To: m.To, Kept: append([]string{}, m.Kept...)}
		if m.Err != nil {
			out.Error = m.Err.Error()
		}
		return printJSON(a.stdout, out)
	}
	if m.Err != nil {
		return nil // printed as the command's error
	}
	_, err := fmt.Fprintf(a.stdout, "%s: %s\n", oneLine(m.Session), oneLine(m.To))
	for _, k := range m.Kept {
		_, err = fmt.Fprintf(a.stdout, "%s: kept %s\n", oneLine(m.Session), oneLine(k))
	}
	return err
}

func newCompactCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compact [SESSION...]",
		Short: "Pack the repositories of sessions",
		Long: `Pack the loose objects of the repositories of the sessions (all, when none is
named), so that they take less room. Nothing is removed from their history.`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd, false, func(ctx context.Context, st *store.Store) error {
				ids, err := exportIDs(ctx, st, args, exportOptions{all: len(args) == 0, archived: true})
				if err != nil {
					return err
				}
				return a.compact(ctx, st, ids, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a session: session, objects")
	return cmd
}

// compact packs one session after another; one that is damaged does not stop
// the others.
func (a *app) compact(ctx context.Context, st *store.Store, ids []string, asJSON bool) error {
	bar := a.progress("compact")
	defer bar.end()
	total := 0
	var failed []error
	for i, id := range ids {
		n, err := st.Compact(ctx, id)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		total += n
		if asJSON {
			err := printJSON(a.stdout, struct {
				Session string `json:"session"`
				Objects int    `json:"objects"`
			}{id, n})
			if err != nil {
				return err
			}
		}
		bar.step(i+1, len(ids))
	}
	bar.end()
	if !asJSON {
		if _, err := fmt.Fprintf(a.stdout, "%s, %s packed\n", count(len(ids)-len(failed), "session"), count(total, "object")); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
