package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/fsnode"
	"github.com/sessionfs/sessionfs/store"
)

// commitAfter is the quiet time after which changes are committed.
const commitAfter = 30 * time.Second

func newMountCommand(a *app) *cobra.Command {
	var opt mountOptions
	cmd := &cobra.Command{
		Use:   "mount [flags] MOUNTPOINT",
		Short: "Mount the store on a directory",
		Long: `Mount the store on a directory and serve it until it is unmounted. One line on
standard output says when the mount is ready. INT, TERM and HUP unmount; a
second signal detaches a busy mount at once.`,
		Args: arity(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return emptyPath("mount: MOUNTPOINT", "")
			}
			if err := opt.parse(cmd); err != nil {
				return err
			}
			rep := newReporter(a.stdout)
			err := a.mount(cmd, args[0], opt, rep)
			rep.failed(err)
			return err
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opt.readOnly, "read-only", false, "change nothing, neither through the mount nor in the store")
	flags.BoolVar(&opt.allowOther, "allow-other", false, "let other users see the mount")
	flags.BoolVar(&opt.background, "background", false, "return when the mount answers, and serve it in the background")
	flags.StringArrayVarP(&opt.options, "options", "o", nil, "mount options, separated by commas")
	flags.StringVar(&opt.metricsAddr, "metrics-addr", "", "serve figures at http://ADDR/metrics; ADDR is a loopback address and a port")
	flags.StringVar(&opt.reconcile, "reconcile", "auto", "which runs of dead processes are ended at the start: auto, always or never")
	flags.StringVar(&opt.gitSync, "git-sync", "batch", "how commits reach the disk: batch (durable) or off (Git's own default)")
	flags.BoolVar(&opt.pprof, "pprof", false, "with --metrics-addr: serve profiles at /debug/pprof/ too")
	return cmd
}

func (a *app) mount(cmd *cobra.Command, path string, opt mountOptions, rep *reporter) error {
	log, err := a.logger()
	if err != nil {
		return err
	}
	loc, err := a.locate()
	if err != nil {
		return err
	}
	if err := loc.check(); err != nil {
		return err
	}
	if err := checkPrerequisites(); err != nil {
		return err
	}
	point, err := prepareMountpoint(path, loc.root, opt)
	if err != nil {
		return err
	}
	if opt.background {
		return a.startBackground(loc, point, opt)
	}
	return a.serveMount(cmd.Context(), loc, point, opt, rep, log)
}

// serveMount opens the store, mounts it and serves until the mount is gone.
func (a *app) serveMount(ctx context.Context, loc location, point string, opt mountOptions, rep *reporter, log *slog.Logger) error {
	nameProcess()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	scrape, err := listenMetrics(opt.metricsAddr)
	if err != nil {
		return err
	}
	defer scrape.close()
	storeOpt := loc.mountOptions(opt, log)
	storeOpt.Progress = a.rebuildProgress()
	storeOpt.LockTimeout = a.lockTimeout
	st, err := store.Open(ctx, storeOpt)
	if err != nil {
		return err
	}
	record, err := writeRecord(point, loc.root, scrape.addr())
	if err != nil {
		log.Warn("no record of this mount is kept", "err", err)
	}
	defer record.remove()
	m, err := mountTree(ctx, st, point, opt, log)
	if err != nil {
		st.Close()
		return mountError(err, opt)
	}
	scrape.start(m.Metrics, opt.pprof, log)
	manager := newNotifier()
	rep.ready(loc.root, point)
	manager.tell(log, notifyReady, "STATUS="+loc.root+" mounted at "+point)
	serve(ctx, m, signals, defaultStop, log)
	manager.tell(log, notifyStopping)
	return st.Close()
}

// nameProcess gives the process the program's name, by which pgrep and killall
// find it: one in the background was started as /proc/self/exe, one from the
// fstab by mount(8) under the helper's name.
func nameProcess() {
	_ = os.WriteFile("/proc/self/comm", []byte("sessionfs"), 0o600) // else it has another name
}

// mountOptions are the store options of a mount: a read-write one does the
// start-up work of a root and keeps what it shows fresh.
func (l location) mountOptions(o mountOptions, log *slog.Logger) store.Options {
	opt := store.Options{Root: l.root, State: l.state, ReadOnly: o.readOnly, Create: !l.chosen, Watch: true, CacheDir: cacheDir(), Log: log}
	if o.readOnly {
		return opt
	}
	switch o.reconcile {
	case "always":
		opt.Reconcile = store.ReconcileAlways
	case "never":
		opt.Reconcile = store.ReconcileNever
	default:
		opt.Reconcile = store.ReconcileAuto
	}
	opt.GitSync = o.gitSync
	opt.Sweep = true
	opt.CommitAfter = commitAfter
	return opt
}

func mountTree(ctx context.Context, st *store.Store, point string, opt mountOptions, log *slog.Logger) (*fsnode.Mount, error) {
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	return fsnode.Start(ctx, fsnode.Config{
		Store:       st,
		Mountpoint:  point,
		ReadOnly:    opt.readOnly,
		CommitTrees: opt.commitTrees,
		AllowOther:  opt.allowOther,
		Options:     opt.forTree(st.Root()),
		SpoolDir:    filepath.Join(dir, "spool"),
		FailedDir:   filepath.Join(dir, "failed"),
		Log:         log,
		Version:     buildVersion(),
	})
}

// mountError gives what the system said about a mount its status.
func mountError(err error, opt mountOptions) error {
	if store.CodeOf(err) != "" {
		return err
	}
	if opt.allowOther && os.Geteuid() != 0 {
		return failf(exitMount, "--allow-other needs the line user_allow_other in /etc/fuse.conf, unless root mounts", "mount: %w", err)
	}
	return failf(exitMount, "'sessionfs help mount' lists the options; root in a container needs --cap-add SYS_ADMIN", "mount: %w", err)
}
