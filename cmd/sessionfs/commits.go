package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

// commitJSON is a commit as --json shows it.
type commitJSON struct {
	Hash    string  `json:"hash"`
	Time    float64 `json:"time"` // seconds since the epoch
	Message string  `json:"message"`
}

func newCommitJSON(c store.Commit) commitJSON {
	return commitJSON{c.Hash, float64(c.Time.Unix()), c.Message}
}

func newCommitCommand(a *app) *cobra.Command {
	var message string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "commit SESSION",
		Short: "Commit what changed in a session's repository",
		Long: `Commit everything that changed in a session's repository and print the commit;
nothing when nothing changed. Every verb commits what it did by itself; this is
for files that were put there by hand.`,
		Args:              arity(1, 1),
		ValidArgsFunction: a.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd, false, args[0], func(ctx context.Context, st *store.Store, id string) error {
				c, ok, err := st.CommitTurn(ctx, id, message)
				if err != nil || !ok {
					return err
				}
				if asJSON {
					return printJSON(a.stdout, newCommitJSON(c))
				}
				_, err = fmt.Fprintf(a.stdout, "%s %s\n", c.Short, oneLine(c.Message))
				return err
			})
		},
	}
	cmd.Flags().StringVarP(&message, "message", "m", "", "the commit's message (default: made from the last question)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the commit as one JSON object")
	return cmd
}

func newCommitsCommand(a *app) *cobra.Command {
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "commits SESSION",
		Short:             "List the commits of a session's repository, newest first",
		Args:              arity(1, 1),
		ValidArgsFunction: a.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usagef(cmd, "--limit %d is negative", limit)
			}
			return a.withSession(cmd, true, args[0], func(ctx context.Context, st *store.Store, id string) error {
				log, err := st.SessionCommits(ctx, id, limit)
				if err != nil {
					return err
				}
				return a.paged(func(w io.Writer) error { return a.writeCommits(w, log, asJSON) })
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "list at most this many, 0 for all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

func (a *app) writeCommits(w io.Writer, log []store.Commit, asJSON bool) error {
	for _, c := range log {
		if asJSON {
			if err := printJSON(w, newCommitJSON(c)); err != nil {
				return err
			}
			continue
		}
		at := c.Time.In(time.Local).Format("2006-01-02 15:04")
		if _, err := fmt.Fprintf(w, "%s %s %s\n", a.paint(yellow, c.Short), at, oneLine(c.Message)); err != nil {
			return err
		}
	}
	return nil
}
