package fsnode

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store"
)

func TestPrepareRefusals(t *testing.T) {
	dir := t.TempDir()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	mk := func(parts ...string) string {
		p := filepath.Join(append([]string{dir}, parts...)...)
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
		return p
	}
	root, empty := mk("a", "store"), mk("empty")
	full := mk("full", "x")
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(empty, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		nonEmpty   bool
		want       error
	}{
		{"an empty directory", empty, false, nil},
		{"a link to one", link, false, nil},
		{"nothing", filepath.Join(dir, "nope"), false, ErrPointMissing},
		{"a file", file, false, ErrPointNotDir},
		{"not empty", filepath.Dir(full), false, ErrPointNotEmpty},
		{"not empty, on purpose", filepath.Dir(full), true, nil},
		{"the store", root, false, ErrPointInside},
		{"inside the store", mk("a", "store", "s1"), false, ErrPointInside},
		{"around the store", filepath.Join(dir, "a"), true, ErrPointInside},
		{"beside the store, by a like name", mk("a", "store2"), false, nil},
	} {
		got, err := Prepare(c.path, root, c.nonEmpty)
		var pe *PointError
		switch {
		case !errors.Is(err, c.want) || err != nil && !errors.As(err, &pe):
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		case c.name == "a link to one" && got != empty:
			t.Errorf("%s: %s, want %s", c.name, got, empty)
		}
	}
}

func TestStartRefusesWithoutMounting(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(context.Background(), store.Options{Root: filepath.Join(dir, "store"), Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	point := filepath.Join(dir, "mnt")
	if err := os.Mkdir(point, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]Config{
		"no store":                {Mountpoint: point, SpoolDir: filepath.Join(dir, "spool")},
		"no spool":                {Store: st, Mountpoint: point},
		"spool in the store":      {Store: st, Mountpoint: point, SpoolDir: filepath.Join(dir, "store", "spool")},
		"spool in the mountpoint": {Store: st, Mountpoint: point, SpoolDir: filepath.Join(point, "spool")},
		"failed somewhere else":   {Store: st, Mountpoint: point, SpoolDir: filepath.Join(dir, "spool"), FailedDir: filepath.Join(dir, "x", "failed")},
		"a mountpoint not there":  {Store: st, Mountpoint: filepath.Join(dir, "nope"), SpoolDir: filepath.Join(dir, "spool")},
		"an option nobody knows":  {Store: st, Mountpoint: point, SpoolDir: filepath.Join(dir, "spool"), Options: []string{"no-such-option"}},
		"the store as mountpoint": {Store: st, Mountpoint: st.Root(), SpoolDir: filepath.Join(dir, "spool")},
	} {
		if m, err := Start(context.Background(), cfg); err == nil {
			t.Errorf("%s: mounted", name)
			_ = m.Unmount(true)
			m.Wait()
		}
		if got := mountedType(point); got != "" {
			t.Fatalf("%s: left a mount (%s)", name, got)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "spool")); err == nil && slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "live-") }) {
		t.Errorf("the spool was left open: %v", left)
	}
}

func TestMountOptions(t *testing.T) {
	tr := &tree{}
	opt := tr.options(Config{AllowOther: true, Options: []string{"nonempty", "fsname=/s", "noexec"}})
	if opt.FsName != "/s" || opt.Name != "sessionfs" || !opt.AllowOther || !slices.Equal(opt.Options, []string{"noexec", "default_permissions"}) {
		t.Errorf("%q %q %v %q", opt.FsName, opt.Name, opt.AllowOther, opt.Options)
	}
	if !opt.DisableXAttrs || !opt.EnableSymlinkCaching || opt.MaxWrite != 1<<20 || opt.ExtraCapabilities&fuse.CAP_ATOMIC_O_TRUNC == 0 {
		t.Errorf("%+v", opt)
	}
	if os.Geteuid() == 0 && (!opt.DirectMount && !opt.DirectMountStrict || opt.DirectMountFlags&(unix.MS_NOSUID|unix.MS_NODEV) != unix.MS_NOSUID|unix.MS_NODEV) {
		t.Errorf("as root: %+v", opt)
	}
	tr.readOnly = true
	if opt := tr.options(Config{}); !slices.Contains(opt.Options, "ro") || slices.Contains(opt.Options, "default_permissions") {
		t.Errorf("read-only: %q", opt.Options)
	}
}

func TestParseMountinfo(t *testing.T) {
	text := `22 28 0:21 / /proc rw,nosuid - proc proc rw
95 28 0:50 / /home/u/my\040chats rw,nosuid,nodev shared:3 master:1 - fuse.sessionfs /store\134x rw,user_id=0
not a line
96 28 0:51 / /x rw -
`
	got := parseMountinfo(text)
	want := []MountEntry{
		{Point: "/proc", Type: "proc", Source: "proc", options: "rw,"},
		{Point: "/home/u/my chats", Type: FSType, Source: `/store\x`, options: "rw,user_id=0,"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestUnescapeMount(t *testing.T) {
	for in, want := range map[string]string{`/a\040b`: "/a b", `/a\134b`: `/a\b`, `/plain`: "/plain", `\04`: `\04`} {
		if got := unescapeMount(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestMountedAt(t *testing.T) {
	entry, ok, err := MountedAt("/")
	if err != nil || !ok || entry.Point != "/" {
		t.Errorf("got %+v, %v, %v; want the root's mount", entry, ok, err)
	}
	if _, ok, _ := MountedAt(t.TempDir()); ok {
		t.Error("a fresh directory is no mountpoint")
	}
}

// TestFusermountWithoutPath: mount(8) takes PATH away from its helpers.
func TestFusermountWithoutPath(t *testing.T) {
	t.Setenv("PATH", "/usr/bin:/bin")
	want, err := Fusermount()
	if err != nil {
		t.Skip(err)
	}
	t.Setenv("PATH", "")
	if got, err := Fusermount(); err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestResolvePoint(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ in, want string }{
		{dir + "/real/", dir + "/real"},
		{dir + "/link", dir + "/real"},
		{dir + "/real/../link", dir + "/real"},
		{dir + "/link/missing", dir + "/real/missing"},
	} {
		if got, err := ResolvePoint(tt.in); err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
	if _, err := ResolvePoint(dir + "/no/such"); err == nil {
		t.Error("a path without a parent resolves")
	}
}
