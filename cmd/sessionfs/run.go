package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

type runOptions struct {
	input, model, source      string
	background, quiet, asJSON bool
}

func newRunCommand(a *app) *cobra.Command {
	var opt runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] SESSION -- COMMAND [ARGUMENT...]",
		Short: "Let a program give the assistant's reply",
		Long: `Run a program for one turn of a session. While it runs the session is running and
its head cannot be moved. The program gets the active branch on its standard
input and the session's paths in its environment; what it prints becomes the
assistant's message as it comes, and standard output as well. When it ends, the
turn is completed, failed, cancelled (after Ctrl-C) or interrupted, and is
committed. The exit status is the program's, 128+N when signal N ended it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return usagef(cmd, "run: usage: %s", cmd.UseLine())
			}
			if !slices.Contains([]string{"transcript", "jsonl", "none"}, opt.input) {
				return usagef(cmd, "--input %q is none of transcript, jsonl, none", opt.input)
			}
			path, err := exec.LookPath(args[1])
			if err != nil {
				return failf(exitNotFound, "nothing was begun; give a program that is in PATH", "run: %w", err)
			}
			return a.withSession(cmd, false, args[0], func(ctx context.Context, st *store.Store, id string) error {
				return a.run(ctx, st, id, path, args[1:], opt)
			})
		},
		ValidArgsFunction: a.completeSession,
	}
	flags := cmd.Flags()
	flags.StringVar(&opt.input, "input", "transcript", "standard input: transcript, jsonl, none")
	flags.StringVar(&opt.model, "model", "", "the model's name in the reply")
	flags.StringVar(&opt.source, "source", "sessionfs", "the origin noted in the reply")
	flags.BoolVar(&opt.background, "background", false, "end as done and unread, not as idle")
	flags.BoolVarP(&opt.quiet, "quiet", "q", false, "do not print what the program prints")
	flags.BoolVar(&opt.asJSON, "json", false, "print how the turn ended as one JSON object instead")
	return cmd
}

// run is one turn: begun before the program starts and ended whatever becomes
// of it.
func (a *app) run(ctx context.Context, st *store.Store, id, path string, argv []string, opt runOptions) error {
	signals, stop := turnSignals() // from here on none may end us between begin and end
	defer stop()
	turn, err := st.BeginTurn(ctx, id, store.Turn{Placeholder: true, Background: opt.background, Model: opt.model, Source: opt.source})
	if err != nil {
		return err
	}
	child, err := a.newChild(ctx, st, turn, path, argv, opt)
	if err != nil {
		return errors.Join(err, turn.Finish(ctx, store.Outcome{Status: "error", Error: "the turn could not be prepared", ErrorType: "run"}))
	}
	end := child.run(ctx, signals)
	if err := turn.Finish(ctx, end.outcome); err != nil {
		return err
	}
	exit := end.exit
	if end.err != nil {
		exit = exitStatus(end.err) // what ended it is not the program's own
	}
	if opt.asJSON {
		err := printJSON(a.stdout, struct {
			Session string `json:"session"`
			Node    string `json:"node"`
			Status  string `json:"status"`
			Exit    int    `json:"exit"`
			Bytes   int    `json:"bytes"`
		}{id, turn.Node(), end.outcome.Status, exit, len(*end.outcome.Text)})
		if err != nil {
			return err
		}
	}
	if end.err != nil {
		return end.err
	}
	return silent(end.exit)
}

// newChild prepares the program: its input, its environment, and where its
// output goes.
func (a *app) newChild(ctx context.Context, st *store.Store, turn *store.Run, path string, argv []string, opt runOptions) (*child, error) {
	sn, err := st.Load(ctx, turn.Session())
	if err != nil {
		return nil, err
	}
	asked := "" // the node that the reply answers
	if n, ok := sn.Index.Get(turn.Node()); ok {
		asked = n.Predecessor
	}
	input, err := branchInput(sn, asked, opt.input)
	if err != nil {
		return nil, err
	}
	c := &child{
		cmd:   exec.Command(path, argv[1:]...),
		reply: newReply(func(text string) error { return turn.SetText(ctx, text) }),
		warn:  a.warn,
	}
	c.cmd.Args[0] = argv[0]
	c.cmd.Stdin, c.cmd.Stderr = input, a.stderr
	c.cmd.Stdout = c.reply
	if !opt.quiet && !opt.asJSON {
		c.reply.copy = a.stdout
	}
	c.cmd.Env = append(os.Environ(), turnEnviron(st, sn, turn, asked)...)
	c.cmd.WaitDelay = pipeDelay
	if !foreground() {
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	return c, nil
}

// turnEnviron tells the program where everything is.
func turnEnviron(st *store.Store, sn *store.Snapshot, turn *store.Run, asked string) []string {
	env := []string{
		"SESSIONFS_SESSION=" + sn.ID,
		"SESSIONFS_STORE=" + st.Root(),
		"SESSIONFS_DIR=" + sn.Dir,
		"SESSIONFS_WORKDIR=" + sn.WorkPath(),
		"SESSIONFS_NODE=" + turn.Node(),
		"SESSIONFS_USER_NODE=" + asked,
		"SESSIONFS_PID=" + strconv.Itoa(os.Getpid()),
	}
	if mounts := liveMounts(st.Root()); len(mounts) > 0 {
		env = append(env, "SESSIONFS_MOUNT="+mounts[0].Mountpoint)
	}
	return env
}

// warn says something on standard error that does not end the command.
func (a *app) warn(format string, args ...any) {
	fmt.Fprintf(a.stderr, "sessionfs: %s\n", escaped(fmt.Sprintf(format, args...)))
}
