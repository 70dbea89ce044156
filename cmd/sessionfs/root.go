package main

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
)

// app is what every command of one invocation shares: its streams and the
// values of the global flags.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	// The effective settings (config.go): flags, environment, configuration
	// file and defaults, in this order.
	settings    []*setting
	store       string // "" when not given
	logLevel    string
	logFormat   string
	color       string
	pager       string
	editor      string
	lockTimeout time.Duration
	noPager     bool // --no-pager

	drawAll bool // draw every step of a progress bar: a test's wish
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
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Annotations[needsNoConfig] != "" {
				return nil
			}
			return a.configure(cmd)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef(cmd, "unknown command %q", args[0])
			}
			return cmd.Help()
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommandGroupID("Other")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef(cmd, "%w", err)
	})
	flags := root.PersistentFlags()
	flags.String("store", "", "directory of the session store (default: $SESSIONFS_STORE, see sessionfs(1))")
	flags.String("log-level", "warn", "log this and worse: debug, info, warn, error")
	flags.String("log-format", "text", "form of the log on standard error: text, json")
	flags.Duration("lock-timeout", defaultLockTimeout, "how long to wait for another writer of a session")
	flags.String("color", "auto", "colours: auto (on a terminal), always, never")
	flags.BoolVar(&a.noPager, "no-pager", false, "do not page the output")
	for _, g := range verbGroups(a) {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, cmd := range g.verbs {
			cmd.GroupID = g.title
		}
		root.AddCommand(g.verbs...)
	}
	refuseUnknownTopics(root)
	return root
}

// refuseUnknownTopics has "help" refuse what is no command, which by itself it
// only mentions.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "help" {
			continue
		}
		show := cmd.Run
		cmd.Run = nil
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if topic, _, err := root.Find(args); err != nil || topic == root {
					return usagef(root, "unknown command %q", args[0])
				}
			}
			show(cmd, args)
			return nil
		}
	}
}

// verbGroup is a part of the list that --help prints.
type verbGroup struct {
	title string
	verbs []*cobra.Command
}

// verbGroups lists every verb, in the order of the manual.
func verbGroups(a *app) []verbGroup {
	return []verbGroup{
		{"Mount", []*cobra.Command{newMountCommand(a), newUmountCommand(a)}},
		{"Read", []*cobra.Command{
			newLsCommand(a), newShowCommand(a), newLogCommand(a), newCatCommand(a), newGrepCommand(a),
			newDiffCommand(a), newGraphCommand(a), newAttachmentsCommand(a), newExportCommand(a),
		}},
		{"Move the head", []*cobra.Command{
			newHeadCommand(a), newBranchCommand(a), newRetryCommand(a), newSiblingCommand(a), newLeafCommand(a),
			newCheckoutCommand(a), newRewindCommand(a),
		}},
		{"Write", []*cobra.Command{
			newNewCommand(a), newAppendCommand(a), newEditCommand(a), newRunCommand(a), newAttachCommand(a),
			newGetCommand(a), newSetCommand(a), newArchiveCommand(a), newUnarchiveCommand(a), newRmCommand(a),
			newCommitCommand(a), newCommitsCommand(a),
		}},
		{"Look after the store", []*cobra.Command{
			newStatusCommand(a), newCheckCommand(a), newReindexCommand(a), newMigrateCommand(a), newCompactCommand(a),
		}},
		{"Other", []*cobra.Command{
			newCompletionCommand(a), newManCommand(a), newVersionCommand(a), newSampleStoreCommand(a),
		}},
	}
}

// needsNoConfig marks the commands that work whatever the configuration says.
const needsNoConfig = "needs-no-config"

// defaultLockTimeout is how long a verb waits for another writer of a session.
const defaultLockTimeout = 10 * time.Second

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

// logger builds the log that the settings ask for.
func (a *app) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return nil, fmt.Errorf("log level: %w", err)
	}
	opt := &slog.HandlerOptions{Level: level}
	if a.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(a.stderr, opt)), nil
	}
	return slog.New(slog.NewTextHandler(a.stderr, opt)), nil
}
