package mounted

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/test/harness"
)

// realDirs are the directories of real files of a session, and where they lie.
var realDirs = map[string]string{"attachments": "workdir/attachments", "workdir": "workdir", "context": "context"}

// reals looks at the directories of real files of one session.
type reals struct {
	t  *testing.T
	m  *harness.Mount
	id string
}

func (r reals) repo(path string) string { return r.m.Repo(r.id, filepath.FromSlash(path)) }
func (r reals) path(path string) string { return r.m.Session(r.id, filepath.FromSlash(path)) }

// warm has the kernel keep all that it may.
func (r reals) warm() {
	r.t.Helper()
	for range 3 {
		if sh := harness.Shell(r.t, r.m.Session(r.id), `find . -printf '%p %s %T@\n' > /dev/null; ls -l attachments workdir context > /dev/null; ls -ld attachments workdir context > /dev/null`); sh.Code != 0 {
			r.t.Fatal(sh.Err)
		}
	}
}

// differs tells what the mount shows of one of the directories that is not so
// on the disk.
func (r reals) differs() string {
	for name, place := range realDirs {
		want, got := dirOf(r.repo(place)), dirOf(r.path(name))
		if name == "workdir" { // a link, which the disk has or not
			got = strings.Replace(got, " attachments", "", 1)
			want = strings.Replace(want, " attachments", "", 1)
		}
		if want == "" {
			// Nothing is there: it lists as empty. Its times are not compared.
			if list, err := os.ReadDir(r.path(name)); err != nil || slices.ContainsFunc(list, func(e os.DirEntry) bool { return e.Name() != "attachments" }) {
				return fmt.Sprintf("%s, which is not there, lists %v, %v", name, list, err)
			}
			continue
		}
		if got != want {
			return fmt.Sprintf("%s is\n%s\nwant\n%s", name, got, want)
		}
	}
	return ""
}

// dirOf shows a directory's attributes and entries, "" when it is not there.
func dirOf(path string) string {
	var st syscall.Stat_t
	if syscall.Lstat(path, &st) != nil {
		return ""
	}
	out := fmt.Sprintf("%o %d links, changed %d %d, by %d:", st.Mode, st.Nlink, st.Mtim.Nano(), st.Ctim.Nano(), st.Uid)
	list, err := os.ReadDir(path)
	if err != nil {
		return err.Error()
	}
	for _, e := range list {
		out += " " + e.Name()
	}
	return out
}

// foreignSteps are what other programs do below the mount. Each is a script
// that runs in the session's repository.
var foreignSteps = []string{
	`mkdir workdir`,
	`mkdir workdir/attachments`,
	`echo one > workdir/attachments/one`,
	`echo two > workdir/attachments/two`,
	`echo more >> workdir/attachments/one`,
	`touch workdir/x; mkdir workdir/d`,
	`chmod 750 workdir/attachments`,
	`touch -d 2020-01-01 workdir`,
	`mv workdir/attachments/one workdir/attachments/three`,
	`rm workdir/attachments/two`,
	`mkdir workdir/new; touch workdir/new/other; mv workdir/attachments workdir/old; mv workdir/new workdir/attachments`,
	`touch workdir/attachments/after`,
	`mv workdir away; mkdir -p workdir/attachments; touch workdir/attachments/in-the-new`,
	`touch workdir/attachments/more workdir/more`,
	`rm -r workdir; mv away workdir`,
	`touch workdir/attachments/back`,
	`rm -r workdir/attachments`,
	`mkdir workdir/attachments; touch workdir/attachments/again`,
	`rm -r workdir`,
	`mkdir -p part/attachments; touch part/attachments/at-once part/x; mv part workdir`,
	`touch workdir/attachments/one-more`,
	`mkdir context`,
	`mkdir context/commits; touch context/commit.json`,
	`touch context/commits/one.json`,
	`mv context workdir/c; mkdir context; touch context/new.json`,
	`touch context/another.json`,
	`rm -r context`,
	`mv workdir context`, // the same directory by another name
	`touch context/moved`,
	`rm -r context`,
}

// TestForeignRealFiles: of a session of which the kernel keeps everything,
// another process makes, fills, replaces and removes the directories of real
// files. Each step is seen.
func TestForeignRealFiles(t *testing.T) {
	for name, args := range map[string][]string{"mount": nil, "read-only": {"--read-only"}} {
		t.Run(name, func(t *testing.T) {
			r := bareReals(t, args)
			for _, step := range foreignSteps {
				r.warm()
				if sh := harness.Shell(t, r.m.Repo(r.id), "set -e; "+step); sh.Code != 0 {
					t.Fatal(sh.Err)
				}
				r.agree(step)
			}
		})
	}
}

// bareReals mounts a session that has no directory of real files yet.
func bareReals(t *testing.T, args []string, warnings ...string) reals {
	t.Helper()
	m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Args: args, Warnings: warnings})
	r := reals{t, m, nested}
	for _, d := range []string{"workdir", "context"} {
		if err := os.RemoveAll(r.repo(d)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// agree waits until the mount shows what is on the disk.
func (r reals) agree(what string) {
	r.t.Helper()
	var diff string
	if !harness.Wait(harness.Slow(5*time.Second), func() bool { diff = r.differs(); return diff == "" }) {
		r.t.Fatalf("after %s: %s", what, diff)
	}
}

// TestRealFilesMovedToAnotherSession: a directory that is moved away is followed
// where it is now, under a name of another session.
func TestRealFilesMovedToAnotherSession(t *testing.T) {
	r := bareReals(t, nil)
	other := reals{t, r.m, otherID}
	if err := os.RemoveAll(other.repo("workdir")); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		from, to := r, other
		if i%2 == 1 {
			from, to = other, r
		}
		for _, d := range []string{from.repo("workdir/attachments"), to.repo("workdir")} {
			if err := os.MkdirAll(d, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		from.warm()
		to.warm()
		if err := os.Rename(from.repo("workdir/attachments"), to.repo("workdir/attachments")); err != nil {
			t.Fatal(err)
		}
		_ = to.differs() // perhaps before anybody was told
		from.agree("moving away")
		to.agree("moving here")
		to.warm()
		if err := os.WriteFile(to.repo(fmt.Sprintf("workdir/attachments/%d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		to.agree("a file more")
	}
}

// TestRealFilesThroughTheMount: what is done through the mount is right at the
// next system call, with other processes looking all the time.
func TestRealFilesThroughTheMount(t *testing.T) {
	r := bareReals(t, nil)
	for range 2 {
		harness.Spawn(t, "read", r.m.Session(r.id))
	}
	steps := []string{
		"echo a > attachments/a",
		"mkdir workdir/d",
		"mv workdir/d attachments/d",
		"mv attachments/a workdir/a",
		"ln workdir/a attachments/hard",
		"ln -s hard attachments/soft",
		"mkfifo workdir/fifo",
		"chmod 750 attachments",
		"touch -d 2021-01-01 workdir",
		"rm attachments/soft",
		"rmdir attachments/d",
		"rm workdir/fifo",
		"rm workdir/a attachments/hard",
	}
	for round := range 8 {
		r.warm()
		for _, step := range steps {
			if sh := harness.Shell(t, r.m.Session(r.id), step); sh.Code != 0 {
				t.Fatal(sh.Err)
			}
			if diff := r.differs(); diff != "" {
				t.Fatalf("round %d: right after %s: %s", round, step, diff)
			}
		}
		if err := os.RemoveAll(r.repo("workdir")); err != nil {
			t.Fatal(err)
		}
		r.agree("rm -r workdir")
	}
}

// TestRealFilesExchanged: two directories that change places in one step.
func TestRealFilesExchanged(t *testing.T) {
	r := bareReals(t, nil)
	for _, d := range []string{"workdir/attachments/a", "other/attachments/b"} {
		if err := os.MkdirAll(r.repo(d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 {
		r.warm()
		if err := unix.Renameat2(unix.AT_FDCWD, r.repo("workdir"), unix.AT_FDCWD, r.repo("other"), unix.RENAME_EXCHANGE); err != nil {
			t.Fatal(err)
		}
		r.agree("an exchange")
		r.warm()
		if err := os.Mkdir(r.repo(fmt.Sprintf("workdir/attachments/more %d", i)), 0o700); err != nil {
			t.Fatal(err)
		}
		r.agree("a directory more")
	}
}

// TestRealFilesUnderLoad: other processes walk the session, and others change
// its directories of real files beneath the mount and through it, all at a time.
// Nothing hangs, and whenever it is quiet the mount shows what is there.
func TestRealFilesUnderLoad(t *testing.T) {
	r := bareReals(t, nil, ".") // what is to be kept may be gone
	for range 3 {
		harness.Spawn(t, "read", r.m.Session(r.id))
	}
	// What fails because another one was faster is no matter.
	const (
		beneath = `
i=0; while [ $i -lt 40 ]; do i=$((i+1))
mkdir -p workdir/attachments context; echo $i > workdir/f$i; touch workdir/attachments/$i context/$i
mv workdir/attachments workdir/old$i; mkdir -p workdir/attachments; echo x > workdir/attachments/x
case $i in *5) mv workdir away$i; mkdir -p workdir/attachments;; *7) rm -rf workdir;; *9) rm -rf context; mv workdir context;; esac
chmod 75$((i%2)) workdir; rm -rf workdir/old* away*
done 2> /dev/null; true`
		through = `
i=0; while [ $i -lt 40 ]; do i=$((i+1))
echo $i > attachments/m$i; mkdir workdir/d$i; mv workdir/d$i attachments/; mv attachments/m$i workdir/
ln workdir/m$i attachments/h$i; rmdir attachments/d$i; rm -f attachments/x attachments/h$i workdir/f$i; touch workdir
done 2> /dev/null; true`
	)
	for range 3 {
		done := make(chan struct{})
		for range 2 {
			go func() {
				harness.Shell(t, r.m.Session(r.id), through)
				done <- struct{}{}
			}()
		}
		go func() {
			harness.Shell(t, r.m.Repo(r.id), beneath)
			done <- struct{}{}
		}()
		for range 3 {
			<-done
		}
		r.agree("it is quiet")
	}
}
