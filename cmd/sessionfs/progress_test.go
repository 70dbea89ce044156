package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns a new terminal, and a function that closes it and returns
// what was written there.
func openTerminal(t *testing.T) (tty *os.File, end func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	written := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(master) // ends with EIO when the terminal is closed
		written <- string(text)
	}()
	return tty, func() string {
		tty.Close()
		defer master.Close()
		return <-written
	}
}

// sampleStore writes the sample store with one session of an old layout.
func sampleStore(t *testing.T) string {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	dir := filepath.Join(t.TempDir(), "store")
	if status := run(t.Context(), []string{"sample-store", dir}, strings.NewReader(""), io.Discard, os.Stderr); status != exitOK {
		t.Fatalf("status %d", status)
	}
	return dir
}

// TestLongWorkShowsHowFarItIs: each verb that may take long draws a bar on a
// terminal and takes it away, and is silent elsewhere.
func TestLongWorkShowsHowFarItIs(t *testing.T) {
	for _, tt := range []struct {
		label string
		args  []string
		plant func(t *testing.T, dir string) // nil for nothing
	}{
		{"check", []string{"check"}, nil},
		{"check", []string{"check", "--repair"}, nil},
		{"reindex", []string{"reindex"}, nil},
		{"export", []string{"export", "--all", "--output", "OUT"}, nil},
		{"compact", []string{"compact"}, nil},
		{"migrate", []string{"migrate"}, oldLayout},
		{"rebuilding the registry", []string{"ls"}, func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "index.json")); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			dir := sampleStore(t)
			args := append([]string{"--store", dir}, tt.args...)
			for i, arg := range args {
				if arg == "OUT" {
					args[i] = filepath.Join(t.TempDir(), "out")
				}
			}
			if tt.plant != nil {
				tt.plant(t, dir)
			}
			tty, end := openTerminal(t)
			status := execute(t.Context(), &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: tty, drawAll: true}, args)
			text := end()
			if status != exitOK {
				t.Fatalf("status %d: %s", status, text)
			}
			bar := regexp.MustCompile(`\r` + tt.label + ` \[#*\.*\] \d+/\d+`)
			if !bar.MatchString(text) || !strings.HasSuffix(text, "\r\x1b[K") {
				t.Errorf("no bar that goes away: %q", text)
			}
		})
	}
}

// oldLayout makes history/ itself the repository of a session.
func oldLayout(t *testing.T, dir string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	history := filepath.Join(dir, "local_zh", "history")
	if err := os.RemoveAll(filepath.Join(dir, "local_zh", ".git")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-q", "-m", "old"}} {
		cmd := exec.Command("git", append([]string{"-C", history, "-c", "user.name=u", "-c", "user.email=u@x"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// TestLongWorkIsSilentInAPipe: what draws bars on a terminal says nothing of it
// elsewhere.
func TestLongWorkIsSilentInAPipe(t *testing.T) {
	dir := sampleStore(t)
	for _, args := range [][]string{{"check"}, {"reindex"}, {"compact"}, {"export", "--all", "--output", filepath.Join(t.TempDir(), "out")}} {
		var said bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &said, drawAll: true}
		if status := execute(t.Context(), a, append([]string{"--store", dir}, args...)); status != exitOK || said.Len() > 0 {
			t.Errorf("%q: status %d, %q", args, status, said.String())
		}
	}
}
