package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/store"
)

type grepOptions struct {
	ignoreCase, extended, list, archived, asJSON bool
	branch, role                                 string
}

func newGrepCommand(a *app) *cobra.Command {
	var opt grepOptions
	cmd := &cobra.Command{
		Use:   "grep PATTERN [SESSION...]",
		Short: "Search the messages of all branches",
		Long: `Search every message of every branch of the sessions (all that are listed, when
none is named) for a pattern, a line at a time, and print session, node id, role
and line. The pattern is a text to be found as it stands; with -E a regular
expression (RE2). Exit status 1 when nothing was found.`,
		Args: arity(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pattern, err := store.GrepPattern(args[0], opt.extended, opt.ignoreCase)
			if err != nil {
				return usagef(cmd, "grep: %w", err)
			}
			if opt.role != "" && !slices.Contains(speakers(), opt.role) {
				return usagef(cmd, "--role %q is none of %s", opt.role, strings.Join(speakers(), ", "))
			}
			query := store.GrepQuery{Pattern: pattern, IncludeArchived: opt.archived, Branch: opt.branch, Role: opt.role}
			return a.withStore(cmd, true, func(ctx context.Context, st *store.Store) error {
				if query.Sessions, err = resolveSessions(ctx, st, args[1:]); err != nil {
					return err
				}
				return a.paged(func(w io.Writer) error { return a.grep(ctx, st, w, query, opt) })
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&opt.ignoreCase, "ignore-case", "i", false, "upper and lower case are the same")
	flags.BoolVarP(&opt.extended, "extended-regexp", "E", false, "the pattern is a regular expression")
	flags.BoolVarP(&opt.list, "files-with-matches", "l", false, "print only the sessions that have a match")
	flags.BoolVar(&opt.archived, "archived", false, "also search archived sessions")
	flags.StringVar(&opt.branch, "branch", "", "only this branch of each session; @ is the active one")
	flags.StringVar(&opt.role, "role", "", "only messages of this speaker: "+strings.Join(speakers(), ", "))
	flags.BoolVar(&opt.asJSON, "json", false, "print one JSON object a line")
	return cmd
}

// speakers are those whose messages can be searched (dag.Node.Speaker).
func speakers() []string { return []string{"user", "assistant", "system", "tool", "summary"} }

func (a *app) grep(ctx context.Context, st *store.Store, w io.Writer, q store.GrepQuery, opt grepOptions) error {
	found := false
	last := ""
	err := st.Grep(ctx, q, func(m store.Match) error {
		found = true
		if opt.list {
			if m.Session == last {
				return nil
			}
			last = m.Session
			if opt.asJSON {
				return printJSON(w, struct {
					Session string `json:"session"`
				}{m.Session})
			}
			_, err := fmt.Fprintln(w, a.paint(magenta, oneLine(m.Session)))
			return err
		}
		return a.writeMatch(w, m, q, opt.asJSON)
	})
	if err == nil && !found {
		return silent(exitFailure)
	}
	return err
}

func (a *app) writeMatch(w io.Writer, m store.Match, q store.GrepQuery, asJSON bool) error {
	if asJSON {
		return printJSON(w, struct {
			Session string `json:"session"`
			Node    string `json:"node"`
			Role    string `json:"role"`
			Line    int    `json:"line"`
			Text    string `json:"text"`
		}{m.Session, m.Node.ID, m.Node.Speaker(), m.Line, m.Text})
	}
	text := oneLine(m.Text)
	if a.colours() {
		text = q.Pattern.ReplaceAllStringFunc(text, func(s string) string { return a.paint(red, s) })
	}
	_, err := fmt.Fprintf(w, "%s:%s:%s:%d: %s\n", a.paint(magenta, oneLine(m.Session)), a.paint(green, oneLine(m.Node.ID)),
		m.Node.Speaker(), m.Line, text)
	return err
}

type diffOptions struct {
	commits, sessions, exitCode bool
	context                     int
}

func newDiffCommand(a *app) *cobra.Command {
	var opt diffOptions
	cmd := &cobra.Command{
		Use:   "diff SESSION A [B]",
		Short: "Compare two branches, two commits or two sessions",
		Long: `Compare two branches of a session (B is the active one, when not given); with
--commits two commits of its repository (B is the newest, when not given); with
--sessions its active branch and that of the session A. The difference is
printed in the unified format.`,
		Args: arity(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case opt.commits && opt.sessions:
				return usagef(cmd, "diff: --commits and --sessions do not go together")
			case opt.sessions && len(args) > 2:
				return usagef(cmd, "diff: unexpected argument %q", args[2])
			case opt.context < 0:
				return usagef(cmd, "--context %d is negative", opt.context)
			}
			return a.withSession(cmd, true, args[0], func(ctx context.Context, st *store.Store, id string) error {
				out, err := diffText(ctx, st, id, args[1:], opt)
				if err != nil {
					return err
				}
				if err := a.paged(func(w io.Writer) error { return a.writeDiff(w, a.shown(out)) }); err != nil {
					return err
				}
				if opt.exitCode && len(out) > 0 {
					return silent(exitFailure)
				}
				return nil
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opt.commits, "commits", false, "compare two commits")
	flags.BoolVar(&opt.sessions, "sessions", false, "compare two sessions")
	flags.BoolVar(&opt.exitCode, "exit-code", false, "exit status 1 when they differ")
	flags.IntVar(&opt.context, "context", 3, "unchanged lines around each change")
	return cmd
}

func diffText(ctx context.Context, st *store.Store, id string, args []string, opt diffOptions) ([]byte, error) {
	if opt.commits {
		changes, err := st.DiffCommits(ctx, id, args[0], argOr(args, 1, "HEAD"))
		var out []byte
		for _, c := range changes {
			out = append(out, render.UnifiedDiff("a/"+c.Path, "b/"+c.Path, c.Old, c.New, opt.context)...)
		}
		return out, err
	}
	sn, err := st.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	if opt.sessions {
		other, err := resolveSession(ctx, st, args[0])
		if err != nil {
			return nil, err
		}
		sn2, err := st.Load(ctx, other)
		if err != nil {
			return nil, err
		}
		return diffBranches(sn, "", id, sn2, "", other, opt.context)
	}
	from, err := sn.Resolve(args[0])
	if err != nil {
		return nil, err
	}
	to, err := sn.Resolve(argOr(args, 1, "@"))
	if err != nil {
		return nil, err
	}
	return diffBranches(sn, from, args[0], sn, to, argOr(args, 1, "@"), opt.context)
}

func diffBranches(a *store.Snapshot, headA, nameA string, b *store.Snapshot, headB, nameB string, context int) ([]byte, error) {
	textA, err := a.Messages(headA)
	if err != nil {
		return nil, err
	}
	textB, err := b.Messages(headB)
	if err != nil {
		return nil, err
	}
	return render.UnifiedDiff(oneLine(nameA), oneLine(nameB), render.Comparable(textA), render.Comparable(textB), context), nil
}

// writeDiff writes a diff, with colours where they are wanted.
func (a *app) writeDiff(w io.Writer, diff []byte) error {
	if !a.colours() {
		_, err := w.Write(diff)
		return err
	}
	for line := range strings.Lines(string(diff)) {
		text, end := strings.TrimSuffix(line, "\n"), "\n"
		switch {
		case strings.HasPrefix(text, "---"), strings.HasPrefix(text, "+++"):
			text = a.paint(bold, text)
		case strings.HasPrefix(text, "@@"):
			text = a.paint(cyan, text)
		case strings.HasPrefix(text, "-"):
			text = a.paint(red, text)
		case strings.HasPrefix(text, "+"):
			text = a.paint(green, text)
		}
		if _, err := io.WriteString(w, text+end); err != nil {
			return err
		}
	}
	return nil
}
