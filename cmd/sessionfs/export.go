package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/store"
)

// writeFile makes a file that was not there; what fails leaves none.
func writeFile(path string, fn func(w io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return failf(exitConflict, "remove it, or choose another name", "%s: the file exists", path)
	}
	if err != nil {
		return failf(exitStatus(err), "", "%w", err)
	}
	err = errors.Join(fn(f), f.Close())
	if err != nil {
		os.Remove(path)
	}
	return err
}

var errNoGraphviz = errors.New("the program dot is not installed")

// graphviz has dot draw a graph as SVG.
func graphviz(dot []byte) ([]byte, error) {
	path, err := exec.LookPath("dot")
	if err != nil {
		return nil, failf(exitNotFound, "install Graphviz (package graphviz), or use --format dot", "graph: %w", errNoGraphviz)
	}
	cmd := exec.Command(path, "-Tsvg")
	cmd.Stdin = bytes.NewReader(dot)
	var words bytes.Buffer
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		return nil, failf(exitFailure, "", "graph: dot: %w: %s", err, oneLine(words.String()))
	}
	return out, nil
}

type exportOptions struct {
	format, branch, output string
	all, archived          bool
}

// exportFormats are the formats with the ending of their files.
var exportFormats = []struct{ name, ext string }{{"md", ".md"}, {"jsonl", ".jsonl"}, {"html", ".html"}, {"tree", ""}}

func newExportCommand(a *app) *cobra.Command {
	var opt exportOptions
	cmd := &cobra.Command{
		Use:   "export [SESSION...]",
		Short: "Write sessions as documents",
		Long: `Write the active branch of a session to standard output: as Markdown (md), as
message objects, one a line (jsonl), or as one HTML page (html). With --output
it goes to a file, or, for several sessions, --all and the format tree, to a
directory: one file for each session, named after its id, or, as a tree, one
directory with all branches, messages and attachments.`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := opt.check(cmd, args); err != nil {
				return err
			}
			return a.withStore(cmd, true, func(ctx context.Context, st *store.Store) error {
				return a.export(ctx, st, args, opt)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opt.format, "format", "md", "md, jsonl, html, tree")
	flags.StringVar(&opt.branch, "branch", "", "the branch to write (default: the active one)")
	flags.StringVarP(&opt.output, "output", "o", "", "file or directory to write (default: standard output)")
	flags.BoolVar(&opt.all, "all", false, "every session that is listed")
	flags.BoolVar(&opt.archived, "archived", false, "with --all: archived sessions too")
	return cmd
}

// check refuses combinations that mean nothing.
func (o exportOptions) check(cmd *cobra.Command, args []string) error {
	known := slices.ContainsFunc(exportFormats, func(f struct{ name, ext string }) bool { return f.name == o.format })
	switch {
	case !known:
		return usagef(cmd, "--format %q is none of md, jsonl, html, tree", o.format)
	case o.all == (len(args) > 0):
		return usagef(cmd, "export: name the sessions, or give --all")
	case o.archived && !o.all:
		return usagef(cmd, "export: --archived goes with --all")
	case o.format == "tree" && o.branch != "":
		return usagef(cmd, "export: a tree has all branches, --branch does not go with it")
	case o.output == "" && cmd.Flags().Changed("output"):
		return emptyPath("--output", "leave --output out for standard output")
	case o.output == "" && (o.format == "tree" || o.all || len(args) > 1):
		return usagef(cmd, "export: --output DIR is needed here")
	}
	return nil
}

func (a *app) export(ctx context.Context, st *store.Store, refs []string, opt exportOptions) error {
	ids, err := exportIDs(ctx, st, refs, opt)
	if err != nil {
		return err
	}
	if opt.output == "" {
		var out bytes.Buffer
		if err := exportOne(ctx, st, ids[0], opt, &out); err != nil {
			return err
		}
		return a.paged(func(w io.Writer) error {
			_, err := w.Write(a.shown(out.Bytes()))
			return err
		})
	}
	if len(refs) == 1 && opt.format != "tree" {
		return writeFile(opt.output, func(w io.Writer) error { return exportOne(ctx, st, ids[0], opt, w) })
	}
	if err := os.MkdirAll(opt.output, 0o777); err != nil {
		return failf(exitStatus(err), "", "export: %w", err)
	}
	bar := a.progress("export")
	defer bar.end()
	for i, id := range ids {
		if err := exportInto(ctx, st, id, opt); err != nil {
			return err
		}
		bar.step(i+1, len(ids))
	}
	return nil
}

func exportIDs(ctx context.Context, st *store.Store, refs []string, opt exportOptions) ([]string, error) {
	if !opt.all {
		return resolveSessions(ctx, st, refs)
	}
	rows, err := st.ListSessions(ctx, store.ListQuery{IncludeArchived: opt.archived})
	var ids []string
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return ids, err
}

// exportInto writes one session into the output directory.
func exportInto(ctx context.Context, st *store.Store, id string, opt exportOptions) error {
	path := filepath.Join(opt.output, render.EscapeNameMax(id, 240))
	if opt.format == "tree" {
		return st.ExportTree(ctx, id, path)
	}
	for _, f := range exportFormats {
		if f.name == opt.format {
			path += f.ext
		}
	}
	return writeFile(path, func(w io.Writer) error { return exportOne(ctx, st, id, opt, w) })
}

// exportOne writes one branch of one session.
func exportOne(ctx context.Context, st *store.Store, id string, opt exportOptions, w io.Writer) error {
	sn, err := st.Load(ctx, id)
	if err != nil {
		return err
	}
	head := sn.Head
	if opt.branch != "" {
		if head, err = sn.Resolve(opt.branch); err != nil {
			return err
		}
	}
	var out []byte
	switch opt.format {
	case "jsonl":
		out, err = sn.JSONLines(head)
	case "html":
		var msgs []render.Message
		msgs, err = sn.Messages(head)
		out = render.HTML(sn.Title(), sn.ID, msgs)
	default:
		out, err = sn.TranscriptOf(head)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}
