package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

func newNewCommand(a *app) *cobra.Command {
	var n store.NewSession
	var project string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "new [ID]",
		Short: "Create a session and print its id",
		Long: `Create a session with its repository and print its id. Without ID one is
chosen. The id of a deleted session can never be used again.`,
		Args: arity(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n.ID = newSessionID()
			if len(args) == 1 {
				n.ID = args[0]
			}
			n.Root = true
			return a.withStore(cmd, false, func(ctx context.Context, st *store.Store) error {
				if cmd.Flags().Changed("project") {
					var err error
					if n.Project, err = pickProject(st.Projects(), project); err != nil {
						return err
					}
				}
				if err := st.CreateSession(ctx, n); err != nil {
					return err
				}
				if asJSON {
					return printJSON(a.stdout, struct {
						Session string `json:"session"`
					}{n.ID})
				}
				return a.printLine(n.ID)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&n.Title, "title", "", "title of the session")
	flags.StringVar(&project, "project", "", "project that it belongs to: id, name, folder or unique prefix")
	flags.StringVar(&n.AgentID, "agent", "", "agent that it belongs to (default: main)")
	flags.StringVar(&n.Source, "source", "", "where it comes from (default: sessionfs)")
	flags.BoolVar(&asJSON, "json", false, "print the id as one JSON object")
	_ = cmd.RegisterFlagCompletionFunc("project", a.completeProject) // the flag is there
	return cmd
}

// newSessionID returns an id in the form that is customary in such stores.
func newSessionID() string {
	var b [5]byte
	rand.Read(b[:]) // never fails
	return "session_" + hex.EncodeToString(b[:])
}
