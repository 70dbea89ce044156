package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// app is what every command of one invocation shares: its streams and the
// values of the global flags.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	store     string // --store, "" when not given
	logLevel  string
	logFormat string
}

// newRootCommand builds the whole command tree.
func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "sessionfs",
		Short: "Mount AI chat sessions as a filesystem, and work on them from the shell",
		Long: `sessionfs shows a store of AI chat sessions as a tree of files: messages as
text, branches as directories, the active head as a symlink that can be moved.
The same operations are verbs here, mounted or not.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef(cmd, "unknown command %q", args[0])
			}
			return cmd.Help()
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef(cmd, "%w", err)
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.store, "store", "", "directory of the session store (default: $SESSIONFS_STORE, see sessionfs(1))")
	flags.StringVar(&a.logLevel, "log-level", "warn", "log this and worse: debug, info, warn, error")
	flags.StringVar(&a.logFormat, "log-format", "text", "form of the log on standard error: text, json")
	root.AddCommand(
		newMountCommand(a),
		newUmountCommand(a),
		newLsCommand(a),
		newShowCommand(a),
		newHeadCommand(a),
		newBranchCommand(a),
		newAppendCommand(a),
		newNewCommand(a),
		newVersionCommand(a),
		newSampleStoreCommand(a),
	)
	return root
}

// arity checks the number of arguments; max < 0 means any number.
func arity(minimum, maximum int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < minimum {
			return usagef(cmd, "%s: an argument is missing: usage: %s", cmd.Name(), cmd.UseLine())
		}
		if maximum >= 0 && len(args) > maximum {
			return usagef(cmd, "%s: unexpected argument %q", cmd.Name(), args[maximum])
		}
		return nil
	}
}

// logger builds the log that the global flags ask for.
func (a *app) logger(cmd *cobra.Command) (*slog.Logger, error) {
	var level slog.Level
	switch a.logLevel {
	case "debug", "info", "warn", "error":
		if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
			return nil, fmt.Errorf("log level: %w", err)
		}
	default:
		return nil, usagef(cmd, "--log-level %q is none of debug, info, warn, error", a.logLevel)
	}
	opt := &slog.HandlerOptions{Level: level}
	switch a.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(a.stderr, opt)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.stderr, opt)), nil
	}
	return nil, usagef(cmd, "--log-format %q is none of text, json", a.logFormat)
}
