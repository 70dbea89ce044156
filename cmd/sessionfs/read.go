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

type logOptions struct {
	graph, oneline, asJSON bool
	limit                  int
}

func newLogCommand(a *app) *cobra.Command {
	var opt logOptions
	cmd := &cobra.Command{
		Use:   "log SESSION [REF]",
		Short: "Show a branch as text, oldest message first",
		Long: `Show the branch that ends in REF (the active one, when not given) as one text:
every message under a heading with its role, model and time, and the calls that
it made. --oneline shows a line a message, --graph the graph of all branches.`,
		Args:              arity(1, 2),
		ValidArgsFunction: a.completeRef,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case opt.limit < 0:
				return usagef(cmd, "--limit %d is negative", opt.limit)
			case opt.graph && (opt.oneline || opt.asJSON || opt.limit > 0 || len(args) > 1):
				return usagef(cmd, "log: --graph shows the whole graph, nothing else goes with it")
			case opt.oneline && opt.asJSON:
				return usagef(cmd, "log: --oneline and --json do not go together")
			}
			return a.withSession(cmd, true, args[0], func(ctx context.Context, st *store.Store, id string) error {
				return a.log(ctx, st, id, argOr(args, 1, ""), opt)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opt.graph, "graph", false, "draw the graph of all branches instead")
	flags.BoolVar(&opt.oneline, "oneline", false, "one line a message: number, role, id, beginning of the text")
	flags.IntVar(&opt.limit, "limit", 0, "only the last so many messages, 0 for all")
	flags.BoolVar(&opt.asJSON, "json", false, "print the messages as JSON objects, one a line")
	return cmd
}

func (a *app) log(ctx context.Context, st *store.Store, id, ref string, opt logOptions) error {
	sn, err := st.Load(ctx, id)
	if err != nil {
		return err
	}
	if opt.graph {
		return a.paged(func(w io.Writer) error { return writeGraph(w, sn, "ascii") })
	}
	head := sn.Head
	if ref != "" {
		if head, err = sn.Resolve(ref); err != nil {
			return err
		}
	}
	text, err := logText(sn, head, opt)
	if err != nil {
		return err
	}
	return a.paged(func(w io.Writer) error {
		_, err := w.Write(a.shown(text))
		return err
	})
}

func logText(sn *store.Snapshot, head string, opt logOptions) ([]byte, error) {
	if opt.asJSON {
		lines, err := sn.JSONLines(head)
		if err != nil || opt.limit == 0 {
			return lines, err
		}
		all := slices.Collect(strings.Lines(string(lines)))
		return []byte(strings.Join(all[max(len(all)-opt.limit, 0):], "")), nil
	}
	msgs, err := sn.Messages(head)
	if err != nil {
		return nil, err
	}
	first := 0
	if opt.limit > 0 {
		first = max(len(msgs)-opt.limit, 0)
	}
	if !opt.oneline {
		return render.TranscriptFrom(sn.Title(), sn.ID, first+1, msgs[first:]), nil
	}
	var b strings.Builder
	for i, m := range msgs[first:] {
		fmt.Fprintf(&b, "%4d  %-9s  %s  %s\n", first+i+1, oneLine(m.Role), oneLine(m.Node.ID), render.Preview(oneLine(m.Text)))
	}
	return []byte(b.String()), nil
}

func newCatCommand(a *app) *cobra.Command {
	var raw, asJSON bool
	cmd := &cobra.Command{
		Use:   "cat SESSION [REF...]",
		Short: "Print the text of messages",
		Long: `Print the text of the messages that REF names (the head, when not given), each
with a final newline: --json as message objects, --raw as the bytes of their
files.`,
		Args:              arity(1, -1),
		ValidArgsFunction: a.completeRef,
		RunE: func(cmd *cobra.Command, args []string) error {
			if raw && asJSON {
				return usagef(cmd, "cat: --raw and --json do not go together")
			}
			refs := args[1:]
			if len(refs) == 0 {
				refs = []string{"@"}
			}
			return a.withSession(cmd, true, args[0], func(ctx context.Context, st *store.Store, id string) error {
				sn, err := st.Load(ctx, id)
				if err != nil {
					return err
				}
				return a.paged(func(w io.Writer) error { return a.catNodes(w, sn, refs, raw, asJSON) })
			})
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "the exact bytes of the message's file")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line, as OpenProgram shows messages")
	return cmd
}

// catNodes resolves every reference first, so that a wrong one prints nothing.
func (a *app) catNodes(w io.Writer, sn *store.Snapshot, refs []string, raw, asJSON bool) error {
	ids := make([]string, len(refs))
	for i, ref := range refs {
		var err error
		if ids[i], err = sn.Resolve(ref); err != nil {
			return err
		}
	}
	for _, id := range ids {
		text, err := catNode(sn, id, raw, asJSON)
		if err != nil {
			return err
		}
		if _, err := w.Write(a.shown(text)); err != nil {
			return err
		}
	}
	return nil
}

func catNode(sn *store.Snapshot, id string, raw, asJSON bool) ([]byte, error) {
	switch {
	case asJSON:
		line, err := sn.MessageJSON(id)
		return render.TranscriptJSONL([][]byte{line}), err
	case raw:
		e, ok := sn.Entry(id)
		if !ok {
			return nil, &store.Error{Code: store.NotFound, Op: "read node", Session: sn.ID, Ref: id}
		}
		return sn.Raw(e.File)
	}
	return sn.Text(id)
}

func newGraphCommand(a *app) *cobra.Command {
	var format, output string
	cmd := &cobra.Command{
		Use:   "graph SESSION",
		Short: "Draw the graph of a session",
		Long: `Draw the graph of all messages of a session: as text like git log --graph
(ascii), as input for Graphviz (dot), or through Graphviz's dot as a picture
(svg).`,
		Args:              arity(1, 1),
		ValidArgsFunction: a.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"ascii", "dot", "svg"}, format) {
				return usagef(cmd, "--format %q is none of ascii, dot, svg", format)
			}
			return a.withSession(cmd, true, args[0], func(ctx context.Context, st *store.Store, id string) error {
				sn, err := st.Load(ctx, id)
				if err != nil {
					return err
				}
				if output != "" {
					return writeFile(output, func(w io.Writer) error { return writeGraph(w, sn, format) })
				}
				return a.paged(func(w io.Writer) error { return writeGraph(w, sn, format) })
			})
		},
	}
	cmd.Flags().StringVar(&format, "format", "ascii", "form of the drawing: ascii, dot, svg")
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write, which must not exist (default: standard output)")
	return cmd
}

func writeGraph(w io.Writer, sn *store.Snapshot, format string) error {
	var out []byte
	switch format {
	case "ascii":
		out = render.Graph(sn.Index, sn.Head, sn.Label, sn.BranchNames())
	default:
		out = render.DOT(sn.Index, sn.Head, sn.Label, sn.BranchNames())
	}
	if format == "svg" {
		var err error
		if out, err = graphviz(out); err != nil {
			return err
		}
	}
	_, err := w.Write(out)
	return err
}

func newAttachmentsCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "attachments SESSION",
		Short: "List the files that a session's messages refer to",
		Long: `List the files that the messages of a session refer to, with the path where
each is now; markers that were written before the session moved out of a working
folder are followed to the present copy. With --json, "sendable" says whether an
agent may send the file out: what lies in the store or in the project's folder.`,
		Args:              arity(1, 1),
		ValidArgsFunction: a.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd, true, args[0], func(ctx context.Context, st *store.Store, id string) error {
				refs, err := st.Attachments(ctx, id)
				if err != nil {
					return err
				}
				return a.writeAttachments(refs, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

func (a *app) writeAttachments(refs []store.AttachmentRef, asJSON bool) error {
	var lines [][]string
	for _, r := range refs {
		why := ""
		if r.Err != nil {
			why = r.Err.Error()
		}
		if !asJSON {
			path := r.Path
			if path == "" {
				path = "(" + why + ")"
			}
			lines = append(lines, []string{oneLine(r.Node), oneLine(r.Name), oneLine(path)})
			continue
		}
		err := printJSON(a.stdout, struct {
			Node     string `json:"node"`
			Name     string `json:"name"`
			Path     string `json:"path"`
			Recorded string `json:"recorded"`
			Problem  string `json:"problem"`
			Sendable bool   `json:"sendable"`
		}{r.Node, r.Name, r.Path, r.Recorded, why, r.Sendable})
		if err != nil {
			return err
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return table(a.stdout, []string{"MESSAGE", "NAME", "PATH"}, lines)
}
