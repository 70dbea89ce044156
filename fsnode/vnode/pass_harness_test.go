package vnode

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// passServeEnv makes TestPassServe serve a mount, described in JSON, until its
// standard input ends. A process that serves a mount and uses it can deadlock,
// so the tests are another process.
const passServeEnv = "VNODE_PASS_TEST_SERVE"

// passMount describes a mount for a test: trees by the name of their
// directory at the top.
type passMount struct {
	Mnt           string
	Trees         map[string]passTree
	RefuseOpendir bool
}

type passTree struct {
	Base, Rel     string // opened with OpenBeneath
	Group         string // trees with the same word share a PassGroup
	Salt          uint64
	ReadOnly      bool
	NoPassthrough bool
	Ensure        bool
	Links         map[string]string
	Block         []string
	Changes       string // a file that grows by a byte at each OnChange
}

func (c passTree) config(groups map[string]*PassGroup) PassConfig {
	cfg := PassConfig{
		Salt:          c.Salt,
		Links:         c.Links,
		NoPassthrough: c.NoPassthrough,
		ReadOnly:      func() bool { return c.ReadOnly },
		Open:          func(context.Context) (int, error) { return OpenBeneath(c.Base, c.Base, c.Rel) },
		Absent:        func(out *fuse.Attr) { out.Uid, out.Mtime = 77, 1e9 },
		Block: func(name string) bool {
			for _, b := range c.Block {
				if b == name {
					return true
				}
			}
			return false
		},
	}
	if c.Group != "" {
		if groups[c.Group] == nil {
			groups[c.Group] = NewPassGroup()
		}
		cfg.Group = groups[c.Group]
	}
	if c.Ensure {
		cfg.Ensure = func(context.Context) error { return os.MkdirAll(filepath.Join(c.Base, c.Rel), 0o700) }
	}
	if c.Changes != "" {
		cfg.OnChange = func() {
			f, err := os.OpenFile(c.Changes, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
			if err == nil {
				f.Write([]byte("x"))
				f.Close()
			}
		}
	}
	return cfg
}

// passTop is the mount's root: a directory of another kind than Pass.
type passTop struct {
	gofs.Inode
	trees map[string]passTree
}

func (r *passTop) Getattr(_ context.Context, _ gofs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Nlink = 0o755, 2
	return 0
}

func (r *passTop) OnAdd(ctx context.Context) {
	groups := map[string]*PassGroup{}
	ino := uint64(100)
	for name, tree := range r.trees {
		ino++
		node := NewPass(tree.config(groups))
		r.AddChild(name, r.NewPersistentInode(ctx, node, gofs.StableAttr{Mode: syscall.S_IFDIR, Ino: ino}), false)
	}
}

// noOpendir refuses OPENDIR as a mount that caches directories does, and opens
// one for each page of a listing.
type noOpendir struct{ fuse.RawFileSystem }

func (w noOpendir) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status {
	return fuse.ENOSYS
}

type passRead func(<-chan struct{}, *fuse.ReadIn, *fuse.DirEntryList) fuse.Status

func (w noOpendir) read(c <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList, fn passRead) fuse.Status {
	var open fuse.OpenOut
	if st := w.RawFileSystem.OpenDir(c, &fuse.OpenIn{InHeader: in.InHeader}, &open); !st.Ok() {
		return st
	}
	page := *in
	page.Fh = open.Fh
	st := fn(c, &page, out)
	w.RawFileSystem.ReleaseDir(&fuse.ReleaseIn{InHeader: in.InHeader, Fh: open.Fh})
	return st
}

func (w noOpendir) ReadDir(c <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return w.read(c, in, out, w.RawFileSystem.ReadDir)
}

func (w noOpendir) ReadDirPlus(c <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return w.read(c, in, out, w.RawFileSystem.ReadDirPlus)
}

// TestPassServe is no test: it is the serving process of the others.
func TestPassServe(t *testing.T) {
	text := os.Getenv(passServeEnv)
	if text == "" {
		t.Skip("the serving process of the mounted tests")
	}
	var m passMount
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	opts := &gofs.Options{NullPermissions: true}
	opts.FsName, opts.Name = "passtest", "passtest"
	opts.DirectMount = true
	opts.DisableXAttrs = true
	opts.Options = []string{"default_permissions"}
	opts.AllowOther = os.Geteuid() == 0
	raw := gofs.NewNodeFS(&passTop{trees: m.Trees}, opts)
	if m.RefuseOpendir {
		raw = noOpendir{raw}
	}
	server, err := fuse.NewServer(raw, m.Mnt, &opts.MountOptions)
	if err != nil {
		fmt.Println("cannot mount:", err)
		return
	}
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		t.Fatal(err)
	}
	before := openDescriptors(t)
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	// RELEASE comes after close(2) has returned, and directories are held a while.
	deadline := time.Now().Add(10 * time.Second)
	for len(openDescriptors(t)) > len(before) && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if after := openDescriptors(t); len(after) > len(before) {
		t.Errorf("descriptors at the end: %q, at the start: %q", after, before)
	}
	if err := server.Unmount(); err != nil {
		t.Fatal(err)
	}
	server.Wait()
}

// openDescriptors lists what this process has open, without the pipes and
// /dev/null that go-fuse keeps for splicing.
func openDescriptors(t *testing.T) (out []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasPrefix(target, "pipe:") || strings.HasPrefix(target, "/proc/") || target == "/dev/null" {
			continue
		}
		out = append(out, target)
	}
	return out
}

// mountPass serves m in another process for the length of a test, which must
// not take longer than limit: then the connection is aborted, so that nothing
// hangs, and the test fails.
func mountPass(t *testing.T, limit time.Duration, m passMount) string {
	t.Helper()
	m.Mnt = filepath.Join(t.TempDir(), "mnt")
	if err := os.Mkdir(m.Mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPassServe$", "-test.v=false")
	cmd.Env = append(os.Environ(), passServeEnv+"="+string(text))
	stdin, _ := cmd.StdinPipe()
	stdout, _ := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	line, _ := lines.ReadString('\n')
	if line != "ready\n" {
		stdin.Close()
		cmd.Wait()
		if os.Getenv("SESSIONFS_REQUIRE_FUSE") != "" {
			t.Fatalf("no mount: %s", line)
		}
		t.Skipf("no mount: %s", line)
	}
	abort := abortFile(m.Mnt)
	watchdog := time.AfterFunc(limit, func() {
		t.Errorf("the mount was in use for more than %v", limit)
		os.WriteFile(abort, []byte("1"), 0)
		cmd.Process.Kill()
	})
	t.Cleanup(func() {
		stdin.Close()
		rest, _ := io.ReadAll(lines)
		err := cmd.Wait()
		watchdog.Stop()
		if err != nil {
			t.Errorf("the serving process: %v\n%s", err, rest)
		}
		if mounts, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(mounts), m.Mnt) {
			t.Errorf("still mounted: %s", m.Mnt)
			unix.Unmount(m.Mnt, unix.MNT_DETACH)
		}
	})
	return m.Mnt
}

// abortFile is where a mount's connection is aborted, if fusectl is mounted.
func abortFile(mnt string) string {
	var st unix.Stat_t
	unix.Lstat(mnt, &st)
	return fmt.Sprintf("/sys/fs/fuse/connections/%d/abort", unix.Minor(uint64(st.Dev)))
}

// passVariants are the ways in which a mount may serve a tree.
var passVariants = []struct {
	name                         string
	noPassthrough, refuseOpendir bool
}{
	{"passthrough", false, false},
	{"through the daemon", true, false},
	{"no opendir", true, true},
}

// onEach runs fn on a plain directory, which is the control, and on a mounted
// tree in all variants (-short: in the first).
func onEach(t *testing.T, limit time.Duration, fn func(t *testing.T, dir string)) {
	t.Helper()
	t.Run("control", func(t *testing.T) { fn(t, t.TempDir()) })
	for i, v := range passVariants {
		if i > 0 && testing.Short() {
			break
		}
		t.Run(v.name, func(t *testing.T) {
			base := t.TempDir()
			if err := os.Mkdir(filepath.Join(base, "tree"), 0o755); err != nil {
				t.Fatal(err)
			}
			mnt := mountPass(t, limit, passMount{
				RefuseOpendir: v.refuseOpendir,
				Trees:         map[string]passTree{"work": {Base: base, Rel: "tree", NoPassthrough: v.noPassthrough}},
			})
			fn(t, filepath.Join(mnt, "work"))
		})
	}
}

// mounted reports whether a directory of onEach lies in a mount.
func mounted(dir string) bool { return filepath.Base(filepath.Dir(dir)) == "mnt" }
