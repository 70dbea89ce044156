// Command sessionfs mounts a store of chat sessions as a filesystem and works
// on the same store from the command line.
//
// A verb parses its arguments, calls one operation of package store (the same
// one that the mount calls) and prints. Results go to standard output, words
// to standard error; exit.go has the exit statuses. Commands are built by
// functions and hold no package-level state, so that two can run in one
// process.
package main

import (
	"context"
	"io"
	"os"
)

func main() {
	os.Exit(start(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns the process's exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return execute(ctx, &app{stdin: stdin, stdout: stdout, stderr: stderr}, args)
}

func execute(ctx context.Context, a *app, args []string) int {
	root := newRootCommand(a)
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args to cobra
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	printError(a.stderr, err)
	return exitStatus(err)
}
