package main

import (
	"context"
	"encoding/json"
	"math"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

type lsOptions struct {
	archived, asJSON      bool
	agent, source, status string
	limit                 int
}

func newLsCommand(a *app) *cobra.Command {
	var opt lsOptions
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List sessions, newest first",
		Long: `List sessions, the last active first. The mark before a session says that it
is running (>), waits for input (?), is done and unread (*), or failed (!).`,
		Args: arity(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ls(cmd, opt) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&opt.archived, "archived", false, "also list archived sessions")
	flags.BoolVar(&opt.asJSON, "json", false, "print one JSON object a line")
	flags.StringVar(&opt.agent, "agent", "", "only sessions of this agent")
	flags.StringVar(&opt.source, "source", "", "only sessions from this source")
	flags.StringVar(&opt.status, "status", "", "only sessions with this status")
	flags.IntVar(&opt.limit, "limit", 0, "list at most this many, 0 for all")
	return cmd
}

func (a *app) ls(cmd *cobra.Command, opt lsOptions) error {
	if opt.limit < 0 {
		return usagef(cmd, "--limit %d is negative", opt.limit)
	}
	return a.withStore(cmd, true, func(ctx context.Context, st *store.Store) error {
		query := store.ListQuery{AgentID: opt.agent, Source: opt.source, IncludeArchived: opt.archived, Limit: opt.limit}
		if opt.status != "" {
			quoted, err := json.Marshal(opt.status)
			if err != nil {
				return err
			}
			query.Filters = map[string][]byte{"status": quoted}
		}
		rows, err := st.ListSessions(ctx, query)
		if err != nil {
			return err
		}
		if opt.asJSON {
			return a.lsJSON(rows)
		}
		return a.lsTable(rows)
	})
}

// sessionJSON is a session as --json shows it.
type sessionJSON struct {
	ID        string  `json:"id"`
	Title     string  `json:"title"`
	Status    string  `json:"status"`
	AgentID   string  `json:"agent_id"`
	Source    string  `json:"source"`
	Project   string  `json:"project"`
	Group     string  `json:"group"`
	Channel   string  `json:"channel"`
	Preview   string  `json:"preview"`
	Pinned    bool    `json:"pinned"`
	Archived  bool    `json:"archived"`
	Unread    bool    `json:"unread"`
	CreatedAt float64 `json:"created_at"`
	UpdatedAt float64 `json:"updated_at"`
}

func newSessionJSON(row store.Row) sessionJSON {
	return sessionJSON{
		ID: row.ID, Title: row.Title, Status: row.Status, AgentID: row.AgentID, Source: row.Source,
		Project: row.Project, Group: row.Group, Channel: row.Channel, Preview: row.Preview,
		Pinned: row.Pinned, Archived: row.Archived, Unread: row.Unread,
		CreatedAt: finite(row.CreatedAt), UpdatedAt: finite(row.UpdatedAt),
	}
}

func (a *app) lsJSON(rows []store.Row) error {
	for _, row := range rows {
		if err := printJSON(a.stdout, newSessionJSON(row)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) lsTable(rows []store.Row) error {
	if len(rows) == 0 {
		return nil
	}
	var lines [][]string
	for _, row := range rows {
		title := clip(oneLine(row.Title), 60)
		if row.Archived {
			title += " (archived)"
		}
		lines = append(lines, []string{statusMark(row) + oneLine(row.ID), oneLine(row.Status), clock(row.UpdatedAt), oneLine(row.Project), title})
	}
	return table(a.stdout, []string{"  ID", "STATUS", "UPDATED", "PROJECT", "TITLE"}, lines)
}

// statusMark is the two columns before an id.
func statusMark(row store.Row) string {
	switch {
	case row.Status == "running" || row.Status == "cancelling":
		return "> "
	case row.Status == "needs_input":
		return "? "
	case row.Status == "failed":
		return "! "
	case row.Status == "done" && row.Unread:
		return "* "
	}
	return "  "
}

// finite replaces what JSON cannot express by 0.
func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}
