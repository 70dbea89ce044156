package attachment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
)

func ownerOf(fi fs.FileInfo) string {
	if fi == nil {
		return ""
	}
	st := fi.Sys().(*syscall.Stat_t)
	return fmt.Sprint(st.Uid, " ", st.Gid)
}

// world makes a state directory with sessions, channels and a project. Names
// that end in / are directories, those with an arrow symlinks, others files.
func world(t *testing.T, names ...string) string {
	t.Helper()
	dir := realTemp(t)
	for _, name := range names {
		name, target, link := strings.Cut(name, " -> ")
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case link:
			err = errors.Join(err, os.Symlink(strings.ReplaceAll(target, "@", dir), path))
		case strings.HasSuffix(name, "/"):
			err = errors.Join(err, os.MkdirAll(path, 0o755))
		default:
			err = errors.Join(err, os.WriteFile(path, []byte(name), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRoots(t *testing.T) {
	dir := world(t, "state/sessions/s/workdir/attachments/a", "state/sessions-2/a", "state/secret",
		"state/channels/web/accounts/me/attachments/in.png", "state/channels/web/accounts/me/token",
		"state/channels/web/accounts/none/token", "state/channels/web/accounts/file/attachments",
		"state/channels/web/accounts/up/attachments -> .", "state/channels/web/accounts/up/token",
		"state/channels/far/accounts/me/attachments -> @/far", "far/x",
		"home/proj/src/main.go", "home/note", "home/link -> @/home/proj", "home/proj/out -> @/home/note", "home/proj/loop -> loop",
		"state/sessions/s/dir -> @/state/secret", "state/sessions/s/in -> workdir/attachments")
	r := Resolver{FS: disk.OS, Root: dir + "/state/sessions", State: dir + "/state", Home: dir + "/home"}
	want := []string{dir + "/state/sessions", dir + "/home/proj", dir + "/far", dir + "/state/channels/web/accounts/me/attachments"}
	slices.Sort(want)
	got := r.Readable(dir + "/home/link").Dirs()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("readable %q, want %q", got, want)
	}
	for _, project := range []string{"", dir + "/home", "/", dir, "relative", dir + "/home/proj/.."} {
		if got := r.Sendable(project).Dirs(); !slices.Equal(got, []string{dir + "/state/sessions"}) {
			t.Errorf("sendable with project %q: %q", project, got)
		}
	}
	send, read := r.Sendable(dir+"/home/proj"), r.Readable(dir+"/home/proj")
	for path, want := range map[string]string{
		"@/state/sessions/s/workdir/attachments/a": "both", "@/state/sessions": "both", "@/state/sessions/none/at/all": "both",
		"@/state/sessions/s/in/a": "both", "@/state/sessions/s/in/../../x": "both", "@/home/link/src": "both", "~/proj/src/main.go": "both", "~/link": "both",
		"@/state/channels/web/accounts/me/attachments/in.png": "read", "@/state/channels/far/accounts/me/attachments/x": "read",
		"@/state/sessions-2/a": "", "@/state/secret": "", "@/state/sessions/../secret": "", "@/state/sessions/s/dir": "", "~": "", "~/note": "",
		"@/home/proj/out": "", "@/home/proj/loop": "", "@/home/proj/out/x": "", "@/home/proj/src/../../note": "", "": "", "src/main.go": "", "~root/x": "",
		"@/state/channels/web/accounts/me/token": "", "@/state/channels/web/accounts/me": "", "@/state/channels/web/accounts/up/token": "", "@/home/proj/\x00": "",
		"@/home/proj/src/main.go/..": "both", "@/" + strings.Repeat("x/", 3000): "",
	} {
		path = strings.ReplaceAll(path, "@", dir)
		if send.Contains(path) != (want == "both") || read.Contains(path) != (want != "") {
			t.Errorf("%s: send %v, read %v, want %q", path, send.Contains(path), read.Contains(path), want)
		}
	}
	if (Roots{}).Contains(dir) {
		t.Error("no roots contain something")
	}
}

func TestRootsOpen(t *testing.T) {
	dir := world(t, "root/a/f", "root/l -> a/f", "root/out -> @/secret", "secret")
	roots := Resolver{FS: disk.OS, Root: dir + "/root"}.Sendable("")
	for path, want := range map[string]error{"/root/a/f": nil, "/root/l": nil, "/root/out": ErrOutside, "/root/a": safefile.ErrNotRegular, "/root": safefile.ErrNotRegular, "/root/x": fs.ErrNotExist, "/root/x/y": fs.ErrNotExist} {
		f, err := roots.Open(dir + path)
		if !errors.Is(err, want) || (err == nil) != (f != nil) {
			t.Errorf("%s: %v, %v", path, f, err)
		}
		if f != nil {
			f.Close()
		}
	}
}

func TestRebase(t *testing.T) {
	old := "/home/proj/.openprogram/sessions/"
	dir := world(t,
		"root/s1/.git/", "root/s1/meta.json", "root/s1/workdir/attachments/sub/now", "root/s1/workdir/attachments/both",
		"root/s1/workdir/attachments/out -> @/root/s2/meta.json", "root/s1/workdir/attachments/dir/",
		"root/projects/p/s2/.git/", "root/projects/p/s2/history/", "root/projects/p/s2/workdir/attachments/a",
		"root/twice/.git/", "root/twice/meta.json", "root/twice/workdir/attachments/a", "root/projects/p/twice/.git/", "root/projects/p/twice/meta.json", "root/projects/p/twice/workdir/attachments/a",
		"root/same/.git/", "root/same/meta.json", "root/same/workdir/attachments/a", "root/projects/p/same -> @/root/same",
		"root/gitfile/.git", "root/gitfile/meta.json", "root/gitfile/workdir/attachments/a",
		"root/dead/.git/", "root/dead/meta.json", "root/dead/workdir/attachments/a", "root/.deleted/dead",
		"root/link -> @/elsewhere", "elsewhere/.git/", "elsewhere/meta.json", "elsewhere/workdir/attachments/a",
		"root/wd/.git/", "root/wd/meta.json", "root/wd/workdir/attachments -> @/elsewhere",
		"root/moved-here/.git/", "root/moved-here/meta.json", "root/moved-here/workdir/attachments/a",
		"root/far/.git/", "root/far/meta.json", "root/far/workdir/attachments/a",
		"home/proj/.openprogram/sessions/s1/workdir/attachments/both", "home/proj/.openprogram/sessions/s1/workdir/attachments/old",
		"home/proj/.openprogram/sessions/twice/workdir/attachments/a", "home/proj/.openprogram/sessions/dead/workdir/attachments/a",
		"home/proj/plain", "home/proj/.openprogram/sessions/s1/workdir/attachments/.openprogram/sessions/s2/workdir/attachments/a")
	places := `{"moved": "` + dir + `/root/moved-here", "far": "` + dir + `/elsewhere", "s1": 3}`
	if err := os.WriteFile(dir+"/root/locations.json", []byte(places), 0o600); err != nil {
		t.Fatal(err)
	}
	r := Resolver{FS: disk.OS, Root: dir + "/root", State: "", Home: dir + "/home"}
	roots := r.Readable(dir + "/home/proj")
	for _, c := range []struct {
		session, path, want string
		err                 error
	}{
		{"s1", "@" + old + "s1/workdir/attachments/sub/now", "/root/s1/workdir/attachments/sub/now", nil},
		{"s1", "/any/where" + old + "s1/workdir/attachments/sub/now", "/root/s1/workdir/attachments/sub/now", nil},
		{"s1", "/.openprogram/sessions/s1/workdir/attachments/sub/now", "/root/s1/workdir/attachments/sub/now", nil},
		{"s1", "@" + old + "s1/workdir/attachments/both", "/root/s1/workdir/attachments/both", nil},
		{"s1", "@" + old + "s1/workdir/attachments/old", old + "s1/workdir/attachments/old", nil},
		{"", "@" + old + "s1/workdir/attachments/both", old + "s1/workdir/attachments/both", nil},
		{"", "/any" + old + "s1/workdir/attachments/both", "", ErrOutside},
		{"s2", "@" + old + "s1/workdir/attachments/both", "", ErrForeign},
		{"s2", "/any" + old + "s2/workdir/attachments/a", "/root/projects/p/s2/workdir/attachments/a", nil},
		{"s1", "@" + old + "s1/workdir/attachments/.openprogram/sessions/s2/workdir/attachments/a", old + "s1/workdir/attachments/.openprogram/sessions/s2/workdir/attachments/a", nil},
		{"s1", "/any" + old + "s1/workdir/attachments/out", "", ErrEscapes},
		{"s1", "@" + old + "s1/workdir/attachments/dir", "", ErrMissing},
		{"s1", "@" + old + "s1/workdir/attachments", "", ErrMissing},
		{"s1", "/any" + old + "s1/workdir/attachments/sub/../sub/now", "", ErrOutside},
		{"s1", "/any" + old + "s1/workdir/attachments//sub/now", "", ErrOutside},
		{"s1", "/any" + old + "s1/workdir/other/sub/now", "", ErrOutside},
		{"s1", old[1:] + "s1/workdir/attachments/sub/now", "", ErrOutside},
		{"s1", "@/home/proj/plain", "/home/proj/plain", nil},
		{"s1", "~/proj/plain", "/home/proj/plain", nil},
		{"s1", "@/root/s1/workdir/attachments/both", "/root/s1/workdir/attachments/both", nil},
		{"twice", "@" + old + "twice/workdir/attachments/a", old + "twice/workdir/attachments/a", nil},
		{"twice", "/any" + old + "twice/workdir/attachments/a", "", ErrOutside},
		{"same", "/any" + old + "same/workdir/attachments/a", "/root/same/workdir/attachments/a", nil},
		{"gitfile", "/any" + old + "gitfile/workdir/attachments/a", "", ErrOutside},
		{"dead", "/any" + old + "dead/workdir/attachments/a", "", ErrOutside},
		{"dead", "@" + old + "dead/workdir/attachments/a", old + "dead/workdir/attachments/a", nil},
		{"link", "/any" + old + "link/workdir/attachments/a", "", ErrOutside},
		{"wd", "/any" + old + "wd/workdir/attachments/a", "", ErrEscapes},
		{"moved", "/any" + old + "moved/workdir/attachments/a", "/root/moved-here/workdir/attachments/a", nil},
		{"far", "/any" + old + "far/workdir/attachments/a", "/root/far/workdir/attachments/a", nil},
	} {
		got, err := r.Rebase(roots, c.session, strings.ReplaceAll(c.path, "@", dir))
		want := c.want
		if want != "" {
			want = dir + want
		}
		if got != want || !errors.Is(err, c.err) {
			t.Errorf("%s in %q: %s, %v; want %s, %v", c.path, c.session, got, err, want, c.err)
		}
	}
	r.AllowMissing = true
	for path, want := range map[string]string{"@/home/proj/none/x": "@/home/proj/none/x", "@" + old + "s1/workdir/attachments/none": "@" + old + "s1/workdir/attachments/none", "@/none": ""} {
		got, _ := r.Rebase(roots, "s1", strings.ReplaceAll(path, "@", dir))
		if got != strings.ReplaceAll(want, "@", dir) {
			t.Errorf("%s: %s", path, got)
		}
	}
}
