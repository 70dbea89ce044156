package main

import (
	"bytes"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/docs"
)

func newManCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         "man",
		Short:       "Show the manual page",
		Long:        `Show the manual page through man(1) on a terminal; elsewhere print its source.`,
		Args:        arity(0, 0),
		Annotations: map[string]string{needsNoConfig: "yes"},
		RunE: func(*cobra.Command, []string) error {
			if path, err := exec.LookPath("man"); err == nil && terminal(a.stdout) {
				viewer := exec.Command(path, "-l", "-")
				viewer.Stdin, viewer.Stdout, viewer.Stderr = bytes.NewReader(docs.Man), a.stdout, a.stderr
				if viewer.Run() == nil {
					return nil
				}
			}
			_, err := a.stdout.Write(docs.Man)
			return err
		},
	}
}

func newCompletionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for bash, zsh or fish",
		Long: `Print the script that completes commands, flags, sessions and branches in a
shell: bash, zsh or fish. "make install" puts them where the shells look.`,
		Args:        arity(1, 1),
		ValidArgs:   []string{"bash", "zsh", "fish"},
		Annotations: map[string]string{needsNoConfig: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(a.stdout)
			case "fish":
				return cmd.Root().GenFishCompletion(a.stdout, true)
			}
			return usagef(cmd, "completion: %q is none of bash, zsh, fish", args[0])
		},
	}
}
