package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// watchRole is the first argument of a copy of this program that runs in a
// user namespace of its own, where few watches are to be had.
const watchRole = "-with-few-watches"

// fewWatches is how many there are: enough for some sessions.
const fewWatches = 8

// watchFinding is what that copy found.
type watchFinding struct {
	Err     string
	Watches int // that the mount has got
	Seen    []float64
	Stale   []string
}

// watchesGroup looks whether a mount stays right where watches run out. The
// limit is set for a namespace of our own, so that nobody else feels it.
func watchesGroup(s *suite) error {
	const name = "watches/stale where they ran out"
	root, err := s.corpus("watches", foreignSessions, func(n int) spec { return spec{smallID(n), 6, 400, repoFull} })
	if err != nil {
		return err
	}
	dir, err := s.fresh("watches")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(s.ctx, self, watchRole, s.bin, root, dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.Output()
	var f watchFinding
	if err != nil || json.Unmarshal(out, &f) != nil || f.Err != "" {
		s.skip(name, strings.TrimSpace(fmt.Sprint("no user namespace with a limit of its own: ", f.Err, " ", err)))
		return nil
	}
	s.add(figure{Name: name, Unit: "", Bound: 0, Value: float64(len(f.Stale)),
		Note: withFindings(fmt.Sprintf("%d watches for %d sessions, %d writes", f.Watches, foreignSessions, len(f.Seen)), f.Stale)})
	s.add(figure{Name: "watches/foreign write seen, p99", Unit: "ms", None: true, Value: 1e3 * percentile(f.Seen, 99), Raw: map[string][]float64{"seen": f.Seen}})
	return nil
}

// watchMain is the copy: bin, store, and a directory to work in.
func watchMain(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &suite{config: config{bin: args[0]}, ctx: ctx, base: args[2], began: time.Now()}
	f, err := s.withFewWatches(args[1])
	s.stopMounts()
	if err != nil {
		f.Err = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
		return 1
	}
	return 0
}

func (s *suite) withFewWatches(root string) (watchFinding, error) {
	var f watchFinding
	if err := os.WriteFile("/proc/sys/user/max_inotify_watches", fmt.Append(nil, fewWatches), 0o644); err != nil {
		return f, err
	}
	d, err := s.mount(root)
	if err != nil {
		return f, err
	}
	w := &foreignWriter{s: s, root: root, d: d}
	for n := range foreignSessions {
		w.sessions = append(w.sessions, &foreignSession{id: smallID(n), nodes: 6})
	}
	if err := s.command("", "grep", "-r", needle, d.path("sessions")); err != nil {
		return f, err
	}
	if f.Watches, err = watchCount(d.cmd.Process.Pid); err != nil {
		return f, err
	}
	if f.Watches > fewWatches {
		return f, fmt.Errorf("the limit does not hold: %d watches", f.Watches)
	}
	for n := range 4 * foreignSessions {
		look, err := w.write(w.sessions[n%foreignSessions], n/foreignSessions%2 == 0)
		if err != nil {
			return f, err
		}
		w.wait(look, time.Now())
	}
	if err := w.sameStamp(); err != nil {
		return f, err
	}
	w.final()
	f.Seen, f.Stale = w.seen, w.stale
	return f, d.stop()
}

// watchCount counts the inotify watches of a process.
func watchCount(pid int) (int, error) {
	found, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil || len(found) == 0 {
		return 0, errors.Join(err, errors.New("no open files to be seen"))
	}
	n := 0
	for _, path := range found {
		b, _ := os.ReadFile(path) // one that was closed meanwhile has none
		n += strings.Count(string(b), "inotify wd:")
	}
	return n, nil
}
