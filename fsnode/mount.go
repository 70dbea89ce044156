package fsnode

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/fsnode/spool"
)

// Config says what to mount and how.
type Config struct {
	// Store is the store to show; it stays open until Wait has returned, and
	// is the caller's to close. Required.
	Store Store
	// Mountpoint is an empty directory outside the store. Required.
	Mountpoint string
	// ReadOnly refuses every change; the store should be open read-only too.
	ReadOnly bool
	// AllowOther lets other users in, as far as owners and modes allow.
	AllowOther bool
	// Options are further mount options: nonempty, fsname=NAME, noexec,
	// noatime, nosuid, nodev, and handles, which keeps the handles of open
	// files in a read-only mount that could do without.
	Options []string
	// SpoolDir is where writes are collected, outside store and mount; what
	// could not be applied goes to the directory failed beside it. Required.
	SpoolDir string
	// FailedDir names that directory; "" means the one beside SpoolDir, and
	// another one is refused.
	FailedDir string
	// Log receives warnings; nil discards them. Message text is never logged.
	Log *slog.Logger
	// CommitTrees makes commits/ show directories, each the tree at a commit,
	// in the place of texts.
	CommitTrees bool
	// Debug logs every request at debug level.
	Debug bool
	// Version is shown in .sessionfs/version.
	Version string
}

// Mount is a mounted tree that is being served.
type Mount struct {
	t      *tree
	point  string
	srv    *fuse.Server
	cancel func() // ends the subscription
	epoch  *epoch // nil where the kernel has none
	done   chan struct{}
	ready  chan struct{}
}

// maxWrite is the largest request for reading and writing.
const maxWrite = 1 << 20

// Start mounts the store and serves it until it is unmounted. When it returns
// without an error the mount answers. A mount that fails leaves nothing behind.
func Start(ctx context.Context, cfg Config) (*Mount, error) {
	if cfg.Store == nil || cfg.SpoolDir == "" {
		return nil, errors.New("mount: a store and a spool directory are required")
	}
	point, err := Prepare(cfg.Mountpoint, cfg.Store.Root(), slices.Contains(cfg.Options, "nonempty"))
	if err != nil {
		return nil, err
	}
	sp, err := openSpool(cfg, point)
	if err != nil {
		return nil, err
	}
	m, err := start(ctx, cfg, point, sp)
	if err != nil {
		return nil, errors.Join(err, sp.Close())
	}
	return m, nil
}

// openSpool opens the spool, apart from what it must be apart from.
func openSpool(cfg Config, point string) (*spool.Spool, error) {
	dir, err := filepath.Abs(cfg.SpoolDir)
	if err != nil {
		return nil, err
	}
	failed := filepath.Join(filepath.Dir(dir), "failed")
	if cfg.FailedDir != "" && filepath.Clean(cfg.FailedDir) != failed {
		return nil, fmt.Errorf("mount: %s is not the directory failed beside the spool", cfg.FailedDir)
	}
	for _, d := range []string{dir, failed} {
		if within(d, point) || within(d, cfg.Store.Root()) {
			return nil, fmt.Errorf("mount: the spool %s must be outside the store and the mountpoint", d)
		}
	}
	return spool.Open(dir, spool.Limits{})
}

func start(ctx context.Context, cfg Config, point string, sp *spool.Spool) (*Mount, error) {
	t, err := newTree(cfg, sp)
	if err != nil {
		return nil, err
	}
	opt := t.options(cfg)
	raw := t.newRoot(opt)
	t.later, t.reaper = newLater(), newReaper(t)
	m := &Mount{t: t, point: point, done: make(chan struct{}), ready: make(chan struct{})}
	m.cancel = t.st.Subscribe(t)
	if err = t.loadRows(ctx); err == nil {
		t.env.Handleless = t.handleless(cfg)
		m.srv, err = fuse.NewServer(metered{wire{raw, t.env.Handleless}, &t.meter}, point, &opt)
	}
	if err == nil {
		if m.epoch, err = openEpoch(point); err == nil {
			t.env.Epoch = m.epoch.next
		} else {
			t.log.Debug("names are asked for at each use where a rename may take them away", "err", err)
			err = nil
		}
	}
	if err != nil {
		m.cancel()
		t.later.close()
		t.reaper.close()
		if mountedType(point) == FSType {
			_ = Unmount(point, true)
		}
		return nil, explain(err)
	}
	t.meter.tidier.start()
	t.serving.Store(true)
	go m.serve()
	close(m.ready)
	return m, nil
}

// handleless reports whether the mount can do without open files: nothing is
// written through it, and what other programs write in the store is noticed.
// Where there may not be watches enough for all sessions it keeps its handles,
// so that what nobody tells of is looked for at each open.
func (t *tree) handleless(cfg Config) bool {
	if !cfg.ReadOnly || !t.follows || slices.Contains(cfg.Options, "handles") {
		return false
	}
	t.mu.Lock()
	sessions := len(t.rows)
	t.mu.Unlock()
	limit := watchLimit()
	limit -= limit / 4 // for directories of real files, see store.FollowFiles
	return limit >= sessions+watchesOpen*min(sessions, t.maxOpen)
}

// watchesOpen is how many more watches a session takes that somebody looks
// into.
const watchesOpen = 4

// watchLimit is how many inotify watches the system gives to a user, 0 when
// nobody can tell.
func watchLimit() int {
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

// options are the mount options as measured: symlink caching, no extended
// attributes, and no timeout for all. O_TRUNC comes with OPEN, which saves a
// request for each value written. A listing always brings the attributes
// along, which saves a question for each name.
func (t *tree) options(cfg Config) fuse.MountOptions {
	opt := fuse.MountOptions{
		AllowOther:           cfg.AllowOther,
		FsName:               fsType,
		Name:                 fsType,
		MaxWrite:             maxWrite,
		DisableXAttrs:        true,
		EnableSymlinkCaching: true,
		DisableSplice:        true, // gains nothing, and a pipe has no room for the largest read
		ExtraCapabilities:    fuse.CAP_ATOMIC_O_TRUNC,
		PanicHandler:         t.panicked,
		Debug:                cfg.Debug,
		Logger:               log.New(logWriter{t.log, cfg.Debug}, "", 0),
	}
	if os.Geteuid() == 0 {
		// Without the helper a failure must be that of mount(2), not that of
		// a program that is not there.
		_, err := Fusermount()
		opt.DirectMount, opt.DirectMountStrict = err == nil, err != nil
		opt.DirectMountFlags = unix.MS_NOSUID | unix.MS_NODEV
	}
	for _, o := range cfg.Options {
		name, named := strings.CutPrefix(o, "fsname=")
		switch {
		case o == "nonempty", o == "handles", o == "":
		case named:
			opt.FsName = name
		case o == "noatime" && os.Geteuid() == 0:
			opt.DirectMountFlags |= unix.MS_NOATIME // not an option of the filesystem's
		default:
			opt.Options = append(opt.Options, o)
		}
	}
	if cfg.AllowOther {
		opt.Options = append(opt.Options, "default_permissions")
	}
	if t.readOnly {
		opt.Options = append(opt.Options, "ro")
	}
	return opt
}

// explain words the errors of a mount that a user can do something about.
func explain(err error) error {
	if strings.Contains(err.Error(), "executable file not found") {
		return errors.New("only root can mount directly, and fusermount3 is not installed: install the package fuse3")
	}
	return err
}

// logWriter takes go-fuse's own messages into the log.
type logWriter struct {
	log   *slog.Logger
	debug bool
}

func (w logWriter) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	if w.debug {
		w.log.Debug("fuse", "text", text)
	} else {
		w.log.Warn("fuse", "text", text)
	}
	return len(p), nil
}

// serve answers the kernel until the mount is gone, and then gives back what
// it held.
func (m *Mount) serve() {
	defer close(m.done)
	m.srv.Serve()
	m.t.meter.tidier.close()
	m.epoch.close()
	m.cancel()
	m.t.later.close()
	m.t.reaper.close()
	if err := m.t.sp.Close(); err != nil {
		m.t.log.Warn("close spool", "err", err)
	}
}

// Ready returns a channel that is closed when the mount answers.
func (m *Mount) Ready() <-chan struct{} { return m.ready }

// Mountpoint returns the absolute path of the mount.
func (m *Mount) Mountpoint() string { return m.point }

// Wait returns when the mount is gone, whoever took it away, and everything
// that it held of the store has been given back.
func (m *Mount) Wait() { <-m.done }

// Unmount takes the mount away. One in use is refused with EBUSY, unless lazy:
// then it is detached, and served on for those who still use it.
func (m *Mount) Unmount(lazy bool) error {
	select {
	case <-m.done:
		return nil
	default:
	}
	return Unmount(m.point, lazy)
}
