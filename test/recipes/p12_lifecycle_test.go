package recipes

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestP12Lifecycle: a busy mount kept its daemon, and dead mounts piled up;
// here a daemon ends within seconds of a signal, leaves no mount, a restart
// repairs what a killed one left, and a second one on the same place is
// refused.
func TestP12Lifecycle(t *testing.T) {
	t.Run("TERM while busy", termWhileBusy)
	t.Run("INT with an open file", intWithAnOpenFile)
	t.Run("kill and restart", killAndRestart)
}

// killAndRestart: a killed daemon leaves a dead mountpoint, which the next
// start recognises and replaces, so that mounts never pile up; what had been
// acknowledged is there.
func killAndRestart(t *testing.T) {
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

// termWhileBusy: a signal ends the daemon also when somebody stands in
// the mount or holds a file of it open.
func termWhileBusy(t *testing.T) {
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

// intWithAnOpenFile: an open file of the mount does not keep the daemon, and
// who has it is told that it is gone.
func intWithAnOpenFile(t *testing.T) {
	m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Warnings: []string{"the mount is busy"}})
	f, err := os.Open(m.Session(nested, "transcript.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m.Signal(syscall.SIGINT)
	select {
	case <-m.Exited():
	case <-time.After(harness.Slow(8 * time.Second)):
		t.Error("the daemon does not end while a file is open")
	}
	if _, err := f.Read(make([]byte, 1)); err == nil {
		t.Error("a file of a mount that is gone can be read")
	}
	// What is written to the bare mountpoint is not the mount's.
	if err := os.WriteFile(m.Path("bare"), nil, 0o600); err != nil || harness.Mounts(m.Dir) != 0 {
		t.Errorf("%d mounts are left; a write to the mountpoint: %v", harness.Mounts(m.Dir), err)
	}
}
