package mounted

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestKillAndRestart: a killed daemon leaves a dead mountpoint, which the next
// start recognises and replaces, so that mounts never pile up; what had been
// acknowledged is there.
func TestKillAndRestart(t *testing.T) {
	store, dir := harness.Golden(t, "chat_branches"), filepath.Join(t.TempDir(), "mnt")
	heads := []string{tipDetour, tipSame, tipTrunk}
	for i := range 3 {
		m := harness.Start(t, harness.Options{Store: store, Dir: dir, Warnings: []string{"WARN"}})
		if n := harness.Mounts(dir); n != 1 {
			t.Fatalf("start %d: %d mounts", i, n)
		}
		if i > 0 {
			if got := read(t, m.Session(nested, "head_id")); got != heads[i-1]+"\n" {
				t.Errorf("after kill %d the head is %q, want %s", i, got, heads[i-1])
			}
		}
		if err := put(m.Session(nested, "head_id"), heads[i]+"\n"); err != nil {
			t.Fatal(err)
		}
		m.Kill()
		if _, err := os.ReadDir(dir); err == nil {
			t.Error("a killed daemon's mountpoint still answers")
		}
	}
	m := harness.Start(t, harness.Options{Store: store, Dir: dir, Warnings: []string{"WARN"}})
	if got := read(t, m.Session(nested, "head_id")); got != heads[2]+"\n" {
		t.Errorf("after three kills the head is %q", got)
	}
	// A second instance on the same mountpoint is refused.
	r := harness.CLI(t, store, m.State, "mount", dir)
	if r.Code == 0 || harness.Mounts(dir) != 1 {
		t.Errorf("a second instance: exit status %d, %d mounts, %s", r.Code, harness.Mounts(dir), r.Err)
	}
	m.Stop()
}

// TestTermWhileBusy: a signal ends the daemon also when somebody stands in
// the mount or holds a file of it open.
func TestTermWhileBusy(t *testing.T) {
	m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Warnings: []string{"the mount is busy"}})
	busy := exec.Command("sleep", "60")
	busy.Dir = m.Session(nested)
	busy.Env = harness.Environ(t.TempDir())
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = busy.Process.Kill()
		_ = busy.Wait()
	}()
	begin := time.Now()
	m.Signal(syscall.SIGTERM)
	select {
	case <-m.Exited():
	case <-time.After(harness.Slow(8 * time.Second)):
		t.Error("the daemon does not end while the mount is busy")
	}
	t.Logf("ended after %v", time.Since(begin).Round(time.Millisecond))
	if n := harness.Mounts(m.Dir); n != 0 {
		t.Errorf("%d mounts left", n)
	}
}

// TestUnmount: umount by the command, and by umount(8), ends the daemon.
func TestUnmount(t *testing.T) {
	for _, argv := range [][]string{{"sessionfs"}, {"umount"}} {
		m := start(t, "chat_branches")
		var r harness.Result
		if argv[0] == "sessionfs" {
			r = harness.CLI(t, m.Store, m.State, "umount", m.Dir)
		} else {
			r = harness.Command(t, "/", nil, "umount", m.Dir)
		}
		if r.Code != 0 {
			t.Errorf("%s: exit status %d, %s", argv[0], r.Code, r.Err)
		}
		select {
		case <-m.Exited():
		case <-time.After(harness.Slow(8 * time.Second)):
			t.Errorf("the daemon does not end after %s", argv[0])
		}
	}
}

// TestBackground: --background returns when the mount answers, and says when
// it does not.
func TestBackground(t *testing.T) {
	harness.RequireFUSE(t)
	store, state := harness.Golden(t, "chat_branches"), t.TempDir()
	dir := filepath.Join(t.TempDir(), "mnt")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	harness.Mark(t, dir)
	r := harness.CLI(t, store, state, "mount", "--background", dir)
	if r.Code != 0 {
		t.Fatalf("mount --background: exit status %d, %s", r.Code, r.Err)
	}
	if got := names(t, dir, "sessions"); len(got) == 0 {
		t.Error("it returned before the mount answers")
	}
	if r := harness.CLI(t, store, state, "umount", dir); r.Code != 0 {
		t.Errorf("umount: %s", r.Err)
	}
	if n := harness.Mounts(dir); n != 0 {
		t.Errorf("%d mounts left", n)
	}
	if r := harness.CLI(t, store, state, "mount", "--background", filepath.Join(dir, "none")); r.Code == 0 {
		t.Error("mount --background on nothing succeeds")
	}
}

// TestBadStarts: every start that cannot work ends fast, says why in one
// clear line, and leaves no mount.
func TestBadStarts(t *testing.T) {
	harness.RequireFUSE(t)
	store, state, dir := harness.Golden(t, "chat_branches"), t.TempDir(), t.TempDir()
	full := filepath.Join(dir, "full")
	below := filepath.Join(store, "mountpoint")
	for _, d := range []string{full, below, filepath.Join(dir, "empty"), filepath.Join(dir, "notastore")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(full, "keep"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "none"), filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	for what, args := range map[string][]string{
		"a missing mountpoint":    {"mount", filepath.Join(dir, "none")},
		"a file as mountpoint":    {"mount", filepath.Join(full, "keep")},
		"a dangling link":         {"mount", filepath.Join(dir, "dangling")},
		"a mountpoint with files": {"mount", full},
		"mount over the store":    {"mount", store},
		"mount below the store":   {"mount", below},
		"the store below it":      {"mount", filepath.Dir(store)},
		"a missing store":         {"mount", "--store", filepath.Join(dir, "nostore"), filepath.Join(dir, "empty")},
		"a file as store":         {"mount", "--store", filepath.Join(full, "keep"), filepath.Join(dir, "empty")},
		"no mountpoint":           {"mount"},
		"an unknown flag":         {"mount", "--frobnicate", filepath.Join(dir, "empty")},
		"an unknown option":       {"mount", "-o", "frobnicate", filepath.Join(dir, "empty")},
	} {
		begin := time.Now()
		r := harness.CLI(t, store, state, args...)
		if r.Code == 0 || time.Since(begin) > harness.Slow(5*time.Second) {
			t.Errorf("%s: exit status %d after %v", what, r.Code, time.Since(begin))
		}
		first, _, _ := strings.Cut(r.Err, "\n")
		if !strings.HasPrefix(first, "sessionfs: ") || strings.Contains(r.Err, "goroutine ") {
			t.Errorf("%s: it says %.300q", what, r.Err)
		}
		for _, d := range []string{full, below, store, filepath.Dir(store), filepath.Join(dir, "empty")} {
			if n := harness.Mounts(d); n != 0 {
				t.Fatalf("%s: a mount is left on %s", what, d)
			}
		}
	}
}

// TestAwkwardMountpoint: blanks and commas in the path.
func TestAwkwardMountpoint(t *testing.T) {
	m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Dir: filepath.Join(t.TempDir(), "a b,c\\d")})
	read(t, m.Session(nested, "transcript.md"))
	if got := harness.FSType(m.Dir); got != "fuse.sessionfs" {
		t.Errorf("the file system's type is %q", got)
	}
}

// TestCommitAtUnmount: what was appended is in Git when the mount is gone.
func TestCommitAtUnmount(t *testing.T) {
	m := start(t, "chat_branches")
	if err := put(m.Session(nested, "append", "user"), "left for the end\n"); err != nil {
		t.Fatal(err)
	}
	if err := put(m.Session(nested, "head_id"), tipDetour+"\n"); err != nil {
		t.Fatal(err)
	}
	m.Stop()
	r := harness.Shell(t, m.Repo(nested), "git status --porcelain; git fsck --strict; grep -c 'left for the end' history/*.json | grep -c ':1$'")
	if r.Out != "1\n" || r.Err != "" {
		t.Errorf("git after the unmount: %q %q", r.Out, r.Err)
	}
}
