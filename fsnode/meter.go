package fsnode

import (
	"context"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/metrics"
	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// meter is what .sessionfs/metrics tells of a mount.
type meter struct {
	requests metrics.Histograms // by operation
	timings  metrics.Histograms // of the store, by what was timed
	notified metrics.Counters   // what the kernel was told to drop, by kind
	refused  metrics.Counters   // by code
	cache    metrics.Counters   // rendered texts: hit, miss
	tidier   tidier
}

// Timed counts how long something in the store took.
func (t *tree) Timed(what store.Timing, d time.Duration) { t.meter.timings.Observe(string(what), d) }

// metricsText is .sessionfs/metrics of this moment.
func (t *tree) metricsText() []byte {
	t.mu.Lock()
	listed, known := len(t.rows), len(t.sessions)
	t.mu.Unlock()
	t.texts.mu.Lock()
	kept := t.texts.size
	t.texts.mu.Unlock()
	var m metrics.Text
	m.Histograms("sessionfs_request_seconds", "Time to answer a request of the kernel's.", "op", &t.meter.requests)
	m.Histograms("sessionfs_store_seconds", "Time that the store took: waits for a session's locks, commits.", "what", &t.meter.timings)
	m.Counters("sessionfs_invalidations", "What the kernel was told to drop from its caches.", "kind", &t.meter.notified)
	m.Counters("sessionfs_refusals", "Operations that were refused.", "code", &t.meter.refused)
	m.Counters("sessionfs_text_cache_lookups", "Looks for a rendered text.", "result", &t.meter.cache)
	m.Gauge("sessionfs_text_cache_bytes", "Size of the rendered texts that are kept.", int64(kept))
	m.Gauge("sessionfs_sessions", "Sessions that are listed.", int64(listed))
	m.Gauge("sessionfs_sessions_known", "Sessions that the kernel knows.", int64(known))
	m.Gauge("sessionfs_sessions_open", "Sessions that are kept loaded because somebody looked into them.", t.opened.Load())
	return m.Bytes()
}

// Metrics returns the OpenMetrics text of this moment, the same as a read of
// .sessionfs/metrics. It takes no lock of a session and may be called at any
// time, also when the mount is gone.
func (m *Mount) Metrics() []byte { return m.t.metricsText() }

// newMetrics makes .sessionfs/metrics.
func (t *tree) newMetrics(parent *vnode.List) *vnode.Snap {
	f := &vnode.Snap{
		Spec: vnode.Spec{Number: vnode.Ino("control/metrics"), Policy: policyOf(kindFresh, true),
			Stat: func(context.Context) (vnode.Stat, error) {
				return vnode.Stat{Perm: 0o400, Size: int64(len(t.metricsText())), MTime: t.now(), UID: t.uid, GID: t.gid}, nil
			}},
		Take: t.metricsText,
	}
	t.place(parent, f)
	return f
}

// metered times the requests of a filesystem.
type metered struct {
	fuse.RawFileSystem
	m *meter
}

// timed counts a request when it has been answered.
func (f metered) timed(op string, since time.Time) {
	f.m.requests.Observe(op, time.Since(since))
	f.m.tidier.note()
}

// Forget lets go of a node.
func (f metered) Forget(node, lookups uint64) {
	f.RawFileSystem.Forget(node, lookups)
	f.m.tidier.note()
}

// The requests, each as it is passed on.

func (f metered) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	defer f.timed("lookup", time.Now())
	return f.RawFileSystem.Lookup(cancel, h, name, out)
}

func (f metered) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	defer f.timed("getattr", time.Now())
	return f.RawFileSystem.GetAttr(cancel, in, out)
}

func (f metered) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	defer f.timed("setattr", time.Now())
	return f.RawFileSystem.SetAttr(cancel, in, out)
}

func (f metered) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	defer f.timed("mkdir", time.Now())
	return f.RawFileSystem.Mkdir(cancel, in, name, out)
}

func (f metered) Unlink(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	defer f.timed("unlink", time.Now())
	return f.RawFileSystem.Unlink(cancel, h, name)
}

func (f metered) Rmdir(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	defer f.timed("rmdir", time.Now())
	return f.RawFileSystem.Rmdir(cancel, h, name)
}

func (f metered) Rename(cancel <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	defer f.timed("rename", time.Now())
	return f.RawFileSystem.Rename(cancel, in, from, to)
}

func (f metered) Symlink(cancel <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	defer f.timed("symlink", time.Now())
	return f.RawFileSystem.Symlink(cancel, h, target, name, out)
}

func (f metered) Readlink(cancel <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	defer f.timed("readlink", time.Now())
	return f.RawFileSystem.Readlink(cancel, h)
}

func (f metered) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	defer f.timed("create", time.Now())
	return f.RawFileSystem.Create(cancel, in, name, out)
}

func (f metered) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	defer f.timed("open", time.Now())
	return f.RawFileSystem.Open(cancel, in, out)
}

func (f metered) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	defer f.timed("read", time.Now())
	return f.RawFileSystem.Read(cancel, in, buf)
}

func (f metered) Release(cancel <-chan struct{}, in *fuse.ReleaseIn) {
	defer f.timed("release", time.Now())
	f.RawFileSystem.Release(cancel, in)
}

func (f metered) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	defer f.timed("write", time.Now())
	return f.RawFileSystem.Write(cancel, in, data)
}

func (f metered) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	began := time.Now()
	n, st := f.RawFileSystem.Writev(cancel, in, data)
	if st != fuse.ENOSYS { // then Write is called, and counted
		f.timed("write", began)
	}
	return n, st
}

func (f metered) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	defer f.timed("flush", time.Now())
	return f.RawFileSystem.Flush(cancel, in)
}

func (f metered) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	defer f.timed("fsync", time.Now())
	return f.RawFileSystem.Fsync(cancel, in)
}

func (f metered) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	defer f.timed("readdir", time.Now())
	return f.RawFileSystem.ReadDir(cancel, in, out)
}

func (f metered) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	defer f.timed("readdirplus", time.Now())
	f.m.tidier.requests.Add(100) // it looks up about as many names
	return f.RawFileSystem.ReadDirPlus(cancel, in, out)
}

func (f metered) StatFs(cancel <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	defer f.timed("statfs", time.Now())
	return f.RawFileSystem.StatFs(cancel, in, out)
}
