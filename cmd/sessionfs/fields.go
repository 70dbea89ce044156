package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

func newGetCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "get SESSION [FIELD]",
		Short: "Print the fields of a session, or the value of one",
		Long: `Print every persistent field of a session with its value, or the value of one
field alone.`,
		Args:              arity(1, 2),
		ValidArgsFunction: a.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd, true, args[0], func(ctx context.Context, st *store.Store, id string) error {
				return a.get(ctx, st, id, args[1:], asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a field: name, value, writable")
	return cmd
}

func (a *app) get(ctx context.Context, st *store.Store, id string, names []string, asJSON bool) error {
	sn, err := st.Load(ctx, id)
	if err != nil {
		return err
	}
	fields := sn.Fields()
	if len(names) > 0 {
		f, ok := sn.Field(names[0])
		if !ok {
			return &store.Error{Code: store.NotFound, Op: "get field", Session: id, Ref: names[0], Err: errors.New("no such field"),
				Hint: fmt.Sprintf("'sessionfs get %s' lists the fields", id)}
		}
		if !asJSON {
			return a.printLine(f.Text)
		}
		fields = []store.Field{f}
	}
	var lines [][]string
	for _, f := range fields {
		if !asJSON {
			lines = append(lines, []string{oneLine(f.Name), oneLine(f.Text)})
			continue
		}
		err := printJSON(a.stdout, struct {
			Name     string `json:"name"`
			Value    string `json:"value"`
			Writable bool   `json:"writable"`
		}{f.Name, f.Text, f.Writable})
		if err != nil {
			return err
		}
	}
	if asJSON {
		return nil
	}
	return table(a.stdout, []string{"FIELD", "VALUE"}, lines)
}

func newSetCommand(a *app) *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use:   "set SESSION FIELD VALUE",
		Short: "Set a field of a session",
		Long: `Set a field of a session: title, status, pinned, archived, unread, group. An
empty value clears an optional field. With --raw any key of the session is set
to a JSON value.`,
		Args:              arity(3, 3),
		ValidArgsFunction: a.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd, false, args[0], func(ctx context.Context, st *store.Store, id string) error {
				if raw {
					return st.UpdateSession(ctx, id, []store.KV{{Key: args[1], Raw: []byte(strings.TrimSpace(args[2]))}})
				}
				return st.SetField(ctx, id, args[1], args[2])
			})
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "the value is JSON, and the field any key of the session")
	return cmd
}

func newArchiveCommand(a *app) *cobra.Command {
	return a.newArchivingCommand("archive", "Archive sessions",
		"Archive sessions: they are no longer listed, and nothing else changes.", true)
}

func newUnarchiveCommand(a *app) *cobra.Command {
	return a.newArchivingCommand("unarchive", "Take sessions out of the archive",
		"Take sessions out of the archive: they are listed again.", false)
}

func (a *app) newArchivingCommand(name, short, long string, archived bool) *cobra.Command {
	return &cobra.Command{
		Use: name + " SESSION...", Short: short, Long: long,
		Args:              arity(1, -1),
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd, false, func(ctx context.Context, st *store.Store) error {
				ids, err := resolveSessions(ctx, st, args)
				if err != nil {
					return err
				}
				for _, id := range ids {
					if err := st.SetArchived(ctx, id, archived); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func newRmCommand(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm SESSION...",
		Short: "Delete sessions for good",
		Long: `Delete sessions with all their messages, branches and files. Their ids can never
be used again. On a terminal it asks first; elsewhere --yes is required.`,
		Args:              arity(1, -1),
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd, false, func(ctx context.Context, st *store.Store) error {
				return a.rm(ctx, st, args, yes)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// rm finds every session first, so that a wrong reference deletes nothing.
func (a *app) rm(ctx context.Context, st *store.Store, refs []string, yes bool) error {
	ids, err := resolveSessions(ctx, st, refs)
	if err != nil {
		return err
	}
	if !yes {
		answer, asked := a.confirm(fmt.Sprintf("Delete %s for good?", strings.Join(ids, ", ")))
		if !asked {
			return &store.Error{Code: store.Confirm, Op: "delete session", Session: ids[0],
				Err: errors.New("it cannot be undone"), Hint: "add --yes, or archive it: sessionfs archive " + ids[0]}
		}
		if !answer {
			return silent(exitFailure)
		}
	}
	for _, id := range ids {
		if err := st.DeleteSession(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// resolveSessions finds the sessions that references name, each once.
func resolveSessions(ctx context.Context, st *store.Store, refs []string) ([]string, error) {
	var ids []string
	seen := map[string]bool{}
	for _, ref := range refs {
		id, err := resolveSession(ctx, st, ref)
		if err != nil {
			return nil, err
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}
