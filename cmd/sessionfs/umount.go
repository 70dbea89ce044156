package main

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/fsnode"
)

// serverTimeout is how long umount waits for the server's last commit.
const serverTimeout = 30 * time.Second

func newUmountCommand(a *app) *cobra.Command {
	var lazy bool
	cmd := &cobra.Command{
		Use:     "umount MOUNTPOINT",
		Aliases: []string{"unmount"},
		Short:   "Take a mount away",
		Long: `Take a mount of sessionfs away, and wait until its server has written what
waited for a commit. A mount in use is refused, unless --lazy.`,
		Args: arity(1, 1),
		RunE: func(_ *cobra.Command, args []string) error { return a.umount(args[0], lazy) },
	}
	cmd.Flags().BoolVar(&lazy, "lazy", false, "detach the mount now, also when it is in use or does not answer")
	return cmd
}

func (a *app) umount(path string, lazy bool) error {
	if path == "" {
		return emptyPath("umount: MOUNTPOINT", "")
	}
	point, err := fsnode.ResolvePoint(path)
	if err != nil {
		return failf(exitNotFound, "", "umount: %w", err)
	}
	entry, mounted, err := fsnode.MountedAt(point)
	switch {
	case err != nil:
		return failf(exitFailure, "", "umount: %w", err)
	case !mounted:
		return failf(exitNotFound, "'findmnt -t "+fsnode.FSType+"' lists the mounts", "umount: %s: nothing is mounted here", point)
	case entry.Type != fsnode.FSType:
		return failf(exitInvalid, "use umount(8)", "umount: %s: mounted here is %s, not sessionfs", point, entry.Type)
	}
	err = fsnode.Unmount(point, lazy)
	switch {
	case errors.Is(err, syscall.EBUSY):
		return failf(exitBusy, "leave the directory and close its files ('fuser -vm "+point+"' shows who has them), or detach it with --lazy",
			"umount: %s: the mount is in use", point)
	case errors.Is(err, fsnode.ErrNoHelper):
		return failf(exitMount, helperHint, "umount: %s: %w", point, err)
	case errors.Is(err, syscall.EPERM):
		return failf(exitDenied, "only root and the user who mounted it can take it away", "umount: %s: %w", point, err)
	case err != nil:
		return failf(exitFailure, "", "umount: %s: %w", point, err)
	}
	// After a lazy detach the server lives on for those who still use it.
	if !lazy && !waitServed(point, serverTimeout) {
		fmt.Fprintf(a.stderr, "sessionfs: umount: %s: unmounted; its server is still writing\n", point)
	}
	return nil
}
