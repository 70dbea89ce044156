package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

type editOptions struct {
	text   string
	given  bool
	asJSON bool
}

func newEditCommand(a *app) *cobra.Command {
	var opt editOptions
	cmd := &cobra.Command{
		Use:   "edit SESSION [REF]",
		Short: "Say a user message again in other words",
		Long: `Open the text of the user message REF (the last one of the active branch, when
not given) in $VISUAL or $EDITOR. The new text becomes a sibling of the message,
the head moves to it, and its node id is printed. The old message and what
followed it are kept. A text that is not changed does nothing.`,
		Args:              arity(1, 2),
		ValidArgsFunction: a.completeRef,
		RunE: func(cmd *cobra.Command, args []string) error {
			opt.given = cmd.Flags().Changed("text")
			return a.withSession(cmd, false, args[0], func(ctx context.Context, st *store.Store, id string) error {
				return a.edit(ctx, st, id, argOr(args, 1, ""), opt)
			})
		},
	}
	cmd.Flags().StringVar(&opt.text, "text", "", "the new text, instead of an editor")
	cmd.Flags().BoolVar(&opt.asJSON, "json", false, "print the session and its head as one JSON object")
	return cmd
}

func (a *app) edit(ctx context.Context, st *store.Store, id, ref string, opt editOptions) error {
	sn, err := st.Load(ctx, id)
	if err != nil {
		return err
	}
	node, err := editTarget(sn, ref)
	if err != nil {
		return err
	}
	if !opt.given && !sn.Editable(node) { // before somebody writes what cannot be saved
		return &store.Error{Code: store.Immutable, Op: "edit", Session: id, Ref: node, Err: errors.New("only a user's message can be edited")}
	}
	raw, err := sn.Text(node)
	if err != nil {
		return err
	}
	old := strings.TrimSuffix(string(raw), "\n")
	text, kept := opt.text, ""
	if !opt.given {
		if text, kept, err = a.editText(id, old); err != nil {
			return err
		}
	}
	if text == old {
		fmt.Fprintln(a.stderr, "sessionfs: edit: nothing was changed")
		return discard(kept)
	}
	made, err := st.Edit(ctx, id, node, text)
	if err != nil {
		if kept != "" {
			fmt.Fprintf(a.stderr, "sessionfs: edit: your text is kept in %s\n", kept)
		}
		return err
	}
	if err := discard(kept); err != nil {
		return err
	}
	return a.printHead(id, made, opt.asJSON)
}

// editTarget is the node that is edited: what ref names, else the last user
// message of the active branch.
func editTarget(sn *store.Snapshot, ref string) (string, error) {
	if ref != "" {
		return sn.Resolve(ref)
	}
	return sn.LastUser()
}

// editText lets the user edit a text, and returns it with the file that holds
// it, in a directory of its own.
func (a *app) editText(id, text string) (edited, file string, err error) {
	dir, err := os.MkdirTemp("", "sessionfs-edit-")
	if err != nil {
		return "", "", failf(exitFailure, "", "edit: %w", err)
	}
	file = filepath.Join(dir, "MESSAGE.md")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		return "", "", failf(exitFailure, "", "edit: %w", err)
	}
	cmd := exec.Command("sh", "-c", a.editor+` "$@"`, a.editor, file)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stderr, a.stderr
	if terminal(a.stdout) {
		cmd.Stdout = a.stdout
	}
	cmd.Env = append(os.Environ(), "SESSIONFS_SESSION="+id)
	if err := cmd.Run(); err != nil {
		return "", "", failf(exitFailure, "set VISUAL or EDITOR; the text is kept in "+file, "edit: the editor %q failed: %w", a.editor, err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", "", failf(exitFailure, "", "edit: %w", err)
	}
	edited = strings.TrimSuffix(string(raw), "\n")
	if strings.TrimSpace(edited) == "" {
		return "", "", errors.Join(&store.Error{Code: store.Invalid, Op: "edit", Session: id, Err: errors.New("the text is empty")}, discard(file))
	}
	return edited, file, nil
}

// discard removes the file of an edit with its directory.
func discard(file string) error {
	if file == "" {
		return nil
	}
	return os.RemoveAll(filepath.Dir(file))
}
