package mounted

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

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
