package main

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

type lsOptions struct {
	archived, pinned, unread, reverse, asJSON    bool
	agent, source, status, project, group, title string
	sort                                         string
	limit                                        int
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
	flags.StringVar(&opt.project, "project", "", "only sessions of the project with this name")
	flags.StringVar(&opt.group, "group", "", "only sessions of this group")
	flags.StringVar(&opt.title, "title", "", "only sessions whose title contains this text, in any case")
	flags.BoolVar(&opt.pinned, "pinned", false, "only pinned sessions")
	flags.BoolVar(&opt.unread, "unread", false, "only unread sessions")
	flags.StringVar(&opt.sort, "sort", "updated", "order: updated or created (newest first), title, id, status")
	flags.BoolVar(&opt.reverse, "reverse", false, "the other way round")
	flags.IntVar(&opt.limit, "limit", 0, "list at most this many, 0 for all")
	return cmd
}

func (a *app) ls(cmd *cobra.Command, opt lsOptions) error {
	switch {
	case opt.limit < 0:
		return usagef(cmd, "--limit %d is negative", opt.limit)
	case !slices.Contains(store.SortKeys(), opt.sort):
		return usagef(cmd, "--sort %q is none of %s", opt.sort, strings.Join(store.SortKeys(), ", "))
	case opt.status != "" && !slices.Contains(store.Statuses(), opt.status):
		return usagef(cmd, "--status %q is none of %s", opt.status, strings.Join(store.Statuses(), ", "))
	}
	query, err := opt.query()
	if err != nil {
		return err
	}
	return a.withStore(cmd, true, func(ctx context.Context, st *store.Store) error {
		rows, err := st.ListSessions(ctx, query)
		if err != nil {
			return err
		}
		rows = store.SelectRows(rows, store.RowFilter{
			Project: opt.project, Title: opt.title, Sort: opt.sort, Reverse: opt.reverse, Limit: opt.limit,
		})
		return a.paged(func(w io.Writer) error {
			if opt.asJSON {
				return lsJSON(w, rows)
			}
			return a.lsTable(w, rows)
		})
	})
}

// query is what the store itself selects by: exact values of a row's fields.
func (o lsOptions) query() (store.ListQuery, error) {
	q := store.ListQuery{AgentID: o.agent, Source: o.source, IncludeArchived: o.archived, Filters: map[string][]byte{}}
	for key, text := range map[string]string{"status": o.status, "group": o.group} {
		if text == "" {
			continue
		}
		quoted, err := json.Marshal(text)
		if err != nil {
			return q, err
		}
		q.Filters[key] = quoted
	}
	for key, wanted := range map[string]bool{"pinned": o.pinned, "unread": o.unread} {
		if wanted {
			q.Filters[key] = []byte("true")
		}
	}
	return q, nil
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

func lsJSON(w io.Writer, rows []store.Row) error {
	for _, row := range rows {
		if err := printJSON(w, newSessionJSON(row)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) lsTable(w io.Writer, rows []store.Row) error {
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
	return a.markedTable(w, []string{"  ID", "STATUS", "UPDATED", "PROJECT", "TITLE"}, lines)
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
