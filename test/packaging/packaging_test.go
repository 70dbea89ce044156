package packaging

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// root is the module's directory.
const root = "../.."

// A version and a time, so that nothing depends on the checkout.
const (
	version = "v1.2.0-rc1"
	debian  = "1.2.0~rc1-1"
	epoch   = "1700000000" // 2023-11-14 22:13 UTC
)

// need leaves a test out where a program is missing.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
}

// sources copies the module into a new directory, without what tests and Git
// keep there.
func sources(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "src")
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			if slices.Contains([]string{".git", "bin", "demo", "test"}, rel) {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		if !e.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// shell runs a command line and returns what it prints.
func shell(t *testing.T, dir, line string, env ...string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = dir
	// Below "make test" another make would say which directory it enters, and
	// take over what the outer one was told.
	outer := func(kv string) bool {
		return strings.HasPrefix(kv, "MAKEFLAGS=") || strings.HasPrefix(kv, "MAKELEVEL=") || strings.HasPrefix(kv, "MFLAGS=")
	}
	cmd.Env = append(slices.DeleteFunc(os.Environ(), outer), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", line, err, out, stderr.String())
	}
	return string(out)
}

// makeDeb builds the package in dir and returns its path.
func makeDeb(t *testing.T, dir string, env ...string) string {
	t.Helper()
	out := shell(t, dir, "make deb VERSION="+version+" SOURCE_DATE_EPOCH="+epoch, env...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return filepath.Join(dir, lines[len(lines)-1])
}

// TestPackage builds twice: two directories, two users' settings, one result.
// Its content is looked at by the tests below it.
func TestPackage(t *testing.T) {
	need(t, "make", "dpkg-deb", "gzip", "md5sum")
	first := sources(t, root)
	second := sources(t, first)
	// One built before is not left beside it: arm64 and amd64 are Debian's names too.
	before := filepath.Join(first, "bin", "sessionfs_0.1-1_"+runtime.GOARCH+".deb")
	if err := errors.Join(os.MkdirAll(filepath.Dir(before), 0o755), os.WriteFile(before, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	a := makeDeb(t, first)
	if _, err := os.Stat(before); err == nil && strings.HasSuffix(a, "_"+runtime.GOARCH+".deb") {
		t.Error("an older package lies beside the new one")
	}
	b := makeDeb(t, second, "LC_ALL=C", "TZ=Pacific/Auckland", "HOSTNAME=elsewhere", "DPKG_DEB_COMPRESSOR_TYPE=gzip")
	t.Run("reproducible", func(t *testing.T) {
		same(t, filepath.Join(first, "bin/deb/sessionfs"), filepath.Join(second, "bin/deb/sessionfs"))
		same(t, a, b)
		binary, err := os.ReadFile(filepath.Join(first, "bin/deb/sessionfs"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(binary, []byte(first)) {
			t.Error("the binary names the directory that it was built in")
		}
	})
	if want := "sessionfs_" + debian + "_"; !strings.HasPrefix(filepath.Base(a), want) {
		t.Errorf("the package is %s, want %s…", filepath.Base(a), want)
	}
	t.Run("control", func(t *testing.T) { testControl(t, a) })
	t.Run("content", func(t *testing.T) { testContent(t, a) })
	t.Run("files", func(t *testing.T) { testFiles(t, a) })
	t.Run("lintian", func(t *testing.T) {
		need(t, "lintian")
		if out := shell(t, first, "lintian --allow-root --fail-on none "+a); strings.TrimSpace(out) != "" {
			t.Errorf("lintian says\n%s", out)
		}
	})
}

func same(t *testing.T, a, b string) {
	t.Helper()
	x, err1 := os.ReadFile(a)
	y, err2 := os.ReadFile(b)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if !bytes.Equal(x, y) {
		t.Errorf("%s differs between two builds", filepath.Base(a))
	}
}

func testControl(t *testing.T, deb string) {
	fields := map[string]string{}
	for line := range strings.Lines(shell(t, "/", "dpkg-deb -f "+deb)) {
		if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok && !strings.HasPrefix(line, " ") {
			fields[key] = value
		}
	}
	for key, want := range map[string]string{
		"Package": "sessionfs", "Version": debian, "Recommends": "fuse3", "Section": "utils", "Priority": "optional",
		"Description": "mount AI chat sessions as a filesystem",
	} {
		if fields[key] != want {
			t.Errorf("%s: %q, want %q", key, fields[key], want)
		}
	}
	if !regexp.MustCompile(`^[^<>]+ <[^@<>]+@[^@<>]+>$`).MatchString(fields["Maintainer"]) {
		t.Errorf("Maintainer: %q", fields["Maintainer"])
	}
	if arch := map[string]string{"amd64": "amd64", "arm64": "arm64", "386": "i386", "arm": "armhf"}[runtime.GOARCH]; arch != "" && fields["Architecture"] != arch {
		t.Errorf("Architecture: %q, want %q", fields["Architecture"], arch)
	}
	if !regexp.MustCompile(`^[1-9][0-9]{3,5}$`).MatchString(fields["Installed-Size"]) { // KiB
		t.Errorf("Installed-Size: %q", fields["Installed-Size"])
	}
}

// testContent compares the list of what the package has: every path, its mode
// and owner, and where links point.
func testContent(t *testing.T, deb string) {
	var got []string
	for line := range strings.Lines(shell(t, "/", "dpkg-deb -c "+deb, "TZ=UTC")) {
		f := strings.Fields(line)
		if f[1] != "root/root" {
			t.Errorf("%s belongs to %s", f[5], f[1])
		}
		if f[3] != "2023-11-14" || f[4] != "22:13" {
			t.Errorf("%s is of %s %s, not of SOURCE_DATE_EPOCH", f[5], f[3], f[4])
		}
		if f[0] == "drwxr-xr-x" {
			continue
		}
		got = append(got, f[0]+" "+strings.TrimPrefix(strings.Join(f[5:], " "), "./"))
	}
	want := []string{
		"-rwxr-xr-x usr/bin/sessionfs",
		"-rw-r--r-- usr/lib/systemd/user/sessionfs.service",
		"lrwxrwxrwx usr/sbin/mount.sessionfs -> ../bin/sessionfs",
		"lrwxrwxrwx usr/sbin/mount.fuse.sessionfs -> ../bin/sessionfs",
		"-rw-r--r-- usr/share/bash-completion/completions/sessionfs",
		"-rw-r--r-- usr/share/zsh/vendor-completions/_sessionfs",
		"-rw-r--r-- usr/share/fish/vendor_completions.d/sessionfs.fish",
		"-rw-r--r-- usr/share/man/man1/sessionfs.1.gz",
		"lrwxrwxrwx usr/share/man/man8/mount.sessionfs.8.gz -> ../man1/sessionfs.1.gz",
		"lrwxrwxrwx usr/share/man/man8/mount.fuse.sessionfs.8.gz -> ../man1/sessionfs.1.gz",
		"-rw-r--r-- usr/share/lintian/overrides/sessionfs",
		"-rw-r--r-- usr/share/doc/sessionfs/copyright",
		"-rw-r--r-- usr/share/doc/sessionfs/changelog.gz",
		"-rw-r--r-- usr/share/doc/sessionfs/changelog.Debian.gz",
		"-rw-r--r-- usr/share/doc/sessionfs/README.md",
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if name := filepath.Base(page); name != "sessionfs.1.md" { // the man page's source
			want = append(want, "-rw-r--r-- usr/share/doc/sessionfs/docs/"+name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
}

// testFiles unpacks the package and looks into its files.
func testFiles(t *testing.T, deb string) {
	dir := t.TempDir()
	shell(t, "/", "dpkg-deb -R "+deb+" "+dir)
	shell(t, dir, "md5sum --quiet --strict -c DEBIAN/md5sums")
	sums, err := os.ReadFile(filepath.Join(dir, "DEBIAN", "md5sums"))
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(shell(t, dir, "find usr -type f | sort"))
	var listed []string
	for line := range strings.Lines(string(sums)) {
		listed = append(listed, strings.TrimSpace(line[34:]))
	}
	slices.Sort(files)
	slices.Sort(listed)
	if diff := cmp.Diff(files, listed); diff != "" {
		t.Errorf("md5sums (-files +listed):\n%s", diff)
	}
	if out := shell(t, dir, "usr/bin/sessionfs version"); !strings.HasPrefix(out, "sessionfs "+version+" ") {
		t.Errorf("the program says %q", out)
	}
	if out := shell(t, dir, "usr/sbin/mount.sessionfs -f none /nowhere; echo $?"); out != "0\n" {
		t.Errorf("a fake mount by the link: %q", out)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "sessionfs.1"))
	if err != nil {
		t.Fatal(err)
	}
	if got := shell(t, dir, "gzip -dc usr/share/man/man1/sessionfs.1.gz"); got != string(page) {
		t.Error("the man page is not docs/sessionfs.1")
	}
	unit, err := os.ReadFile(filepath.Join(dir, "usr/lib/systemd/user/sessionfs.service"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(unit), "\nExecStart=/usr/bin/sessionfs mount ") || strings.Contains(string(unit), "@BINDIR@") {
		t.Errorf("the unit is\n%s", unit)
	}
	if out := shell(t, dir, "gzip -dc usr/share/doc/sessionfs/changelog.Debian.gz"); !strings.HasPrefix(out, "sessionfs ("+debian+") ") ||
		!strings.Contains(out, "  Tue, 14 Nov 2023 22:13:20 +0000\n") {
		t.Errorf("the package's changelog is\n%s", out)
	}
	if info, err := os.Stat(filepath.Join(dir, "DEBIAN")); err != nil || !info.IsDir() {
		t.Fatal(err)
	}
	if got := shell(t, dir, "ls DEBIAN"); got != "control\nmd5sums\n" {
		t.Errorf("control files: %q; the package starts nothing by itself", got)
	}
}

// TestDebianVersion: what git describe says becomes a lawful version.
func TestDebianVersion(t *testing.T) {
	need(t, "bash")
	for text, want := range map[string]string{
		"v0.1.0":                    "0.1.0-1",
		"0.1.0":                     "0.1.0-1",
		"v0.1.0-dirty":              "0.1.0+dirty-1",
		"v0.1.0-14-g5dc3873":        "0.1.0+14.g5dc3873-1",
		"v0.1.0-14-g5dc3873-dirty":  "0.1.0+14.g5dc3873+dirty-1",
		"v1.0.0-rc.1":               "1.0.0~rc.1-1",
		"v1.0.0-beta-2":             "1.0.0~beta.2-1",
		"v1.0.0-rc.1-3-gabcdef0":    "1.0.0~rc.1+3.gabcdef0-1",
		"5dc3873":                   "0~20231114.221320.5dc3873-1",
		"abcdef0-dirty":             "0~20231114.221320.abcdef0+dirty-1",
		"1234567":                   "0~20231114.221320.1234567-1",
		"devel":                     "0~20231114.221320.devel-1",
		"release/1:2_3":             "0~20231114.221320.release.1.2.3-1",
		"release/1-2-gabc-7-g12345": "0~20231114.221320.release.1.2.gabc+7.g12345-1",
	} {
		got := strings.TrimSpace(shell(t, root, "bash contrib/debian/build.sh --version "+text, "SOURCE_DATE_EPOCH="+epoch))
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestDebianVersionsSort: a later state is an upgrade.
func TestDebianVersionsSort(t *testing.T) {
	need(t, "bash", "dpkg")
	last := "0~~"
	for _, text := range []string{"ffffff0", "v0.1.0-rc1", "v0.1.0-rc1-2-gfffffff", "v0.1.0", "v0.1.0-2-gfffffff", "v0.1.0-10-gaaaaaaa", "v0.1.1", "v0.10.0"} {
		got := strings.TrimSpace(shell(t, root, "bash contrib/debian/build.sh --version "+text, "SOURCE_DATE_EPOCH="+epoch))
		shell(t, "/", "dpkg --validate-version '"+got+"'")
		if err := exec.Command("dpkg", "--compare-versions", last, "lt", got).Run(); err != nil {
			t.Errorf("%s does not come before %s", last, got)
		}
		last = got
	}
}

// TestInstallAndUninstall: what install writes, uninstall takes away, and
// nothing else.
func TestInstallAndUninstall(t *testing.T) {
	need(t, "make", "install")
	dest := t.TempDir()
	binary := filepath.Join(t.TempDir(), "sessionfs")
	shell(t, root, "make build LDFLAGS='-s -w' VERSION="+version+" BIN="+binary)
	args := " BIN=" + binary + " DESTDIR=" + dest + " PREFIX=/opt/s"
	foreign := filepath.Join(dest, "opt/s/bin/other")
	if err := os.MkdirAll(filepath.Dir(foreign), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(foreign, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	shell(t, root, "umask 077; make install"+args)
	list := func() []string {
		return strings.Split(strings.TrimSpace(shell(t, dest, "find . ! -type d -printf '%m %P %l\n' | sed 's/ $//' | sort -k 2")), "\n")
	}
	want := []string{
		"644 opt/s/lib/systemd/user/sessionfs.service",
		"644 opt/s/share/bash-completion/completions/sessionfs",
		"644 opt/s/share/fish/vendor_completions.d/sessionfs.fish",
		"644 opt/s/share/man/man1/sessionfs.1",
		"644 opt/s/share/zsh/site-functions/_sessionfs",
		"755 opt/s/bin/sessionfs",
		"777 sbin/mount.fuse.sessionfs /opt/s/bin/sessionfs",
		"777 sbin/mount.sessionfs /opt/s/bin/sessionfs",
		"644 opt/s/bin/other",
	}
	got := list()
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("installed (-want +got):\n%s", diff)
	}
	// A link that somebody else put there in the meantime stays.
	link := filepath.Join(dest, "sbin/mount.sessionfs")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/bin/sessionfs", link); err != nil {
		t.Fatal(err)
	}
	shell(t, root, "make uninstall"+args)
	want = []string{"644 opt/s/bin/other", "777 sbin/mount.sessionfs /usr/bin/sessionfs"}
	if diff := cmp.Diff(want, list()); diff != "" {
		t.Errorf("left after uninstall (-want +got):\n%s", diff)
	}
	shell(t, root, "make uninstall"+args) // twice is no error

	// Into a home: where systemd looks there, and nothing outside it.
	home := t.TempDir()
	args = " BIN=" + binary + " PREFIX=" + home + "/.local MOUNTDIR="
	shell(t, root, "make install"+args, "HOME="+home)
	if _, err := os.Stat(filepath.Join(home, ".local/share/systemd/user/sessionfs.service")); err != nil {
		t.Error(err)
	}
	shell(t, root, "make uninstall"+args, "HOME="+home)
	if left := shell(t, home, "find . ! -type d"); left != "" {
		t.Errorf("left in the home after uninstall: %s", left)
	}
}
