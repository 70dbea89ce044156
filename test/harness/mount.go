package harness

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Options say how to mount. The zero value mounts Store read-write and wants
// a clean log.
type Options struct {
	Store string // the store's root; required
	Dir   string // the mountpoint; "" makes one
	State string // XDG_STATE_HOME; "" makes one
	Args  []string
	Env   []string
	// Warnings are patterns of warnings in the daemon's log that the test
	// provokes on purpose. Every other one fails it.
	Warnings []string
	// Plain serves with the binary as users have it, without the race
	// detector, also where the test has it: for many rounds of what a test
	// of fewer rounds does under the detector.
	Plain bool
	// Limit is how long the mount may live before its connection is aborted;
	// 0 means two minutes. It is stretched under the race detector.
	Limit time.Duration
}

// Mount is a mounted store, served by a subprocess.
type Mount struct {
	Dir, Store, State string

	t     testing.TB
	opt   Options
	cmd   *exec.Cmd
	log   *lockedBuffer
	start []string // open files at the ready line
	timer *time.Timer
	exit  chan struct{} // closed when the process has ended
	once  sync.Once
	err   error // how the process ended; read after exit
}

// lockedBuffer collects a process's output while others read it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Start mounts and returns when the daemon has said that it is ready. The
// mount ends, and is checked, when the test does.
func Start(t testing.TB, opt Options) *Mount {
	t.Helper()
	RequireFUSE(t)
	m := newMount(t, opt)
	ready, err := m.launch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Stop)
	select {
	case <-ready:
	case <-m.exit:
		t.Fatalf("the daemon ended before it was ready: %v\n%s", m.err, m.Log())
	case <-time.After(Slow(20 * time.Second)):
		t.Fatalf("the daemon is not ready\n%s", m.Log())
	}
	m.start = m.openFiles()
	return m
}

func newMount(t testing.TB, opt Options) *Mount {
	t.Helper()
	m := &Mount{Dir: opt.Dir, Store: opt.Store, State: opt.State, t: t, opt: opt, log: &lockedBuffer{}, exit: make(chan struct{})}
	if m.Dir == "" {
		m.Dir = filepath.Join(t.TempDir(), "mnt")
	}
	if m.State == "" {
		m.State = t.TempDir()
	}
	if err := os.MkdirAll(m.Dir, 0o700); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	Mark(t, m.Dir)
	return m
}

// Mark records a mountpoint, so that a mount that is left on it when the test
// process ends is noticed. Start does it; a test that mounts in another way
// does it itself.
func Mark(t testing.TB, dir string) {
	t.Helper()
	marks := filepath.Join(run.base, "mounts")
	if err := os.MkdirAll(marks, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(marks, "m-")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(dir); err != nil {
		t.Fatal(err)
	}
}

// launch starts the daemon; ready is closed at its first line on stdout.
func (m *Mount) launch() (ready chan struct{}, err error) {
	args := append([]string{"mount", "--store", m.Store}, m.opt.Args...)
	m.cmd = exec.Command(binary(m.t, raceEnabled && !m.opt.Plain), append(args, m.Dir)...)
	m.cmd.Env = Environ(m.State, m.opt.Env...)
	m.cmd.Stderr = m.log
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	ready = make(chan struct{})
	go m.follow(out, ready)
	limit := m.opt.Limit
	if limit == 0 {
		limit = 2 * time.Minute
	}
	m.timer = time.AfterFunc(Slow(limit), func() { m.abort("its time is over") })
	return ready, nil
}

// follow copies stdout to the log, closes ready at the first line and waits
// for the process.
func (m *Mount) follow(out io.Reader, ready chan struct{}) {
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); err == nil {
		_, _ = io.WriteString(m.log, line)
		close(ready)
	}
	_, _ = io.Copy(m.log, r)
	m.err = m.cmd.Wait()
	close(m.exit)
}

// abort ends a mount that hangs; the test fails.
func (m *Mount) abort(why string) {
	m.t.Errorf("mount on %s aborted: %s\n%s", m.Dir, why, m.Log())
	if err := abortConnection(m.Dir); err != nil {
		m.t.Errorf("abort: %v", err)
	}
}

// PID returns the daemon's process id.
func (m *Mount) PID() int { return m.cmd.Process.Pid }

// Log returns what the daemon has printed so far.
func (m *Mount) Log() string { return m.log.String() }

// Exited is closed when the daemon has ended.
func (m *Mount) Exited() <-chan struct{} { return m.exit }

// Path joins names to the mountpoint.
func (m *Mount) Path(names ...string) string {
	return filepath.Join(append([]string{m.Dir}, names...)...)
}

// Session joins names to a session's directory in the mount.
func (m *Mount) Session(id string, names ...string) string {
	return m.Path(append([]string{"sessions", id}, names...)...)
}

// Repo joins names to a session's directory in the store.
func (m *Mount) Repo(id string, names ...string) string {
	return filepath.Join(append([]string{m.Store, id}, names...)...)
}

// Signal sends the daemon a signal.
func (m *Mount) Signal(sig os.Signal) {
	if err := m.cmd.Process.Signal(sig); err != nil {
		m.t.Errorf("signal the daemon: %v", err)
	}
}

// Kill ends the daemon with SIGKILL, as a crash would, and leaves the dead
// mountpoint for the next Start; what is left of it goes with the test.
func (m *Mount) Kill() {
	m.t.Helper()
	m.once.Do(func() {
		m.timer.Stop()
		_ = m.cmd.Process.Kill()
		<-m.exit
		m.t.Cleanup(func() {
			for Mounts(m.Dir) > 0 && detach(m.Dir) == nil {
				continue
			}
		})
		m.checkLog()
	})
}

// Stop unmounts by SIGTERM, once, and reports everything that the daemon
// leaves: open files, the mount, the process, warnings in its log.
func (m *Mount) Stop() {
	m.t.Helper()
	m.once.Do(m.stop)
}

func (m *Mount) stop() {
	m.t.Helper()
	defer m.timer.Stop()
	m.checkFiles()
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.exit:
	case <-time.After(Slow(15 * time.Second)):
		m.abort("the daemon does not end at SIGTERM")
		_ = m.cmd.Process.Kill()
		<-m.exit
	}
	if m.err != nil {
		m.t.Errorf("the daemon ended with %v\n%s", m.err, m.Log())
	}
	if n := Mounts(m.Dir); n > 0 {
		m.t.Errorf("%d mounts left on %s", n, m.Dir)
		for Mounts(m.Dir) > 0 && detach(m.Dir) == nil {
			continue
		}
	}
	m.checkLog()
}

// warning matches a line of the log that a healthy daemon does not write.
var warning = regexp.MustCompile(`level=(WARN|ERROR)|DATA RACE|^panic:|fatal error:`)

// checkLog fails the test for every warning that it did not announce.
func (m *Mount) checkLog() {
	m.t.Helper()
	for line := range strings.Lines(m.Log()) {
		if !warning.MatchString(line) || m.announced(line) {
			continue
		}
		m.t.Errorf("the daemon's log: %s", strings.TrimSpace(line))
		if strings.Contains(line, "DATA RACE") {
			m.t.Log(m.Log())
		}
	}
}

func (m *Mount) announced(line string) bool {
	return slices.ContainsFunc(m.opt.Warnings, func(p string) bool {
		return regexp.MustCompile(p).MatchString(line)
	})
}

// openFiles lists what the daemon holds open, but for sockets, pipes and the
// kernel's anonymous files.
func (m *Mount) openFiles() []string {
	dir := fmt.Sprintf("/proc/%d/fd", m.PID())
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err == nil && strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "/dev/") {
			out = append(out, to)
		}
	}
	slices.Sort(out)
	return out
}

// checkFiles compares the daemon's open files with those at its start. The
// kernel sends RELEASE after the close has returned, and large files are packed
// in the background, so it waits for them.
func (m *Mount) checkFiles() {
	m.t.Helper()
	var extra []string
	for deadline := time.Now().Add(Slow(15 * time.Second)); ; time.Sleep(10 * time.Millisecond) {
		extra = extra[:0]
		for _, f := range m.openFiles() {
			if !slices.Contains(m.start, f) {
				extra = append(extra, f)
			}
		}
		if len(extra) == 0 {
			return
		}
		if time.Now().After(deadline) {
			break
		}
	}
	m.t.Errorf("the daemon holds %d files open that it did not at its start: %q", len(extra), extra)
}
