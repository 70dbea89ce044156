package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

// maxMessage bounds a message read from standard input, as append/ in the
// mount does.
const maxMessage = 64 << 20

type appendOptions struct {
	role            string
	files           []string
	message, asJSON bool
}

func newAppendCommand(a *app) *cobra.Command {
	var opt appendOptions
	cmd := &cobra.Command{
		Use:   "append SESSION [TEXT...]",
		Short: "Append a message to the active branch and advance the head",
		Long: `Append a message to the session's active branch and print its node id. The
text is the arguments, joined by blanks, else standard input without its final
newline. Files that are attached are copied into the session; an assistant's must
lie in the store or in the project's folder. A user's or system message is refused
while a run is active.`,
		Args:              arity(1, -1),
		ValidArgsFunction: a.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch opt.role {
			case "user", "assistant", "system":
			default:
				return usagef(cmd, "--role %q is none of user, assistant, system", opt.role)
			}
			if opt.message && cmd.Flags().Changed("role") {
				return usagef(cmd, "append: a --message says its role itself, --role does not go with it")
			}
			if opt.message && len(opt.files) > 0 {
				return usagef(cmd, "append: a --message names its files itself, --attach does not go with it")
			}
			text, err := a.messageText(args[1:], len(opt.files) > 0)
			if err != nil {
				return err
			}
			return a.withStore(cmd, false, func(ctx context.Context, st *store.Store) error {
				return a.append(ctx, st, args[0], text, opt)
			})
		},
	}
	cmd.Flags().StringVar(&opt.role, "role", "user", "who speaks: user, assistant, system")
	cmd.Flags().StringArrayVar(&opt.files, "attach", nil, "a file to store with the message; may be given several times")
	cmd.Flags().BoolVar(&opt.message, "message", false, "the text is a whole message as a JSON object")
	cmd.Flags().BoolVar(&opt.asJSON, "json", false, "print node and head as one JSON object")
	return cmd
}

// messageText returns the text to append: the arguments, else standard input. A
// message that has files needs no text, and reads none from a terminal.
func (a *app) messageText(args []string, files bool) (string, error) {
	text := strings.Join(args, " ")
	if len(args) == 0 && !(files && terminal(a.stdin)) {
		data, err := io.ReadAll(io.LimitReader(a.stdin, maxMessage+1))
		if err != nil {
			return "", failf(exitFailure, "", "append: standard input: %w", err)
		}
		if len(data) > maxMessage {
			return "", &store.Error{Code: store.TooLarge, Op: "append",
				Err: fmt.Errorf("a message has at most %d MiB", maxMessage>>20)}
		}
		text = strings.TrimSuffix(string(data), "\n")
	}
	if text == "" && !files {
		return "", &store.Error{Code: store.Invalid, Op: "append", Err: errors.New("the message is empty"),
			Hint: "give the text as an argument or on standard input"}
	}
	return text, nil
}

func (a *app) append(ctx context.Context, st *store.Store, ref, text string, opt appendOptions) error {
	id, err := resolveSession(ctx, st, ref)
	if err != nil {
		return err
	}
	result, err := appendMessage(ctx, st, id, text, opt)
	if err != nil {
		return err
	}
	if opt.asJSON {
		return printJSON(a.stdout, struct {
			Session string `json:"session"`
			ID      string `json:"id"`
			Head    string `json:"head"`
			Existed bool   `json:"existed"`
		}{id, result.ID, result.Head, result.Existed})
	}
	return a.printLine(result.ID)
}

func appendMessage(ctx context.Context, st *store.Store, id, text string, opt appendOptions) (store.AppendResult, error) {
	if opt.message {
		return st.AppendMessage(ctx, id, []byte(text))
	}
	if len(opt.files) > 0 {
		paths, err := absolute(opt.files)
		if err != nil {
			return store.AppendResult{}, err
		}
		return st.AppendWithFiles(ctx, id, opt.role, text, paths)
	}
	return st.AppendText(ctx, id, opt.role, text)
}

// absolute makes paths absolute, which the store does not do for its callers.
func absolute(paths []string) ([]string, error) {
	out := make([]string, len(paths))
	for i, p := range paths {
		var err error
		if out[i], err = filepath.Abs(p); err != nil {
			return nil, failf(exitFailure, "", "append: %s: %w", p, err)
		}
	}
	return out, nil
}
