package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// mountLimit is how long nothing may come to an end before the connections of
// all mounts are aborted, so that a hang ends as an error and not as a process
// that nobody can kill.
const mountLimit = 5 * time.Minute

// readyLimit bounds the wait for a mount to answer.
const readyLimit = 2 * time.Minute

// daemon is a mounted store, served by a process of its own.
type daemon struct {
	dir, state string
	cmd        *exec.Cmd
	stderr     bytes.Buffer // read after exited
	exited     chan struct{}
	timer      *time.Timer
	once       sync.Once
	stopErr    error
	url        string // of its figures, once they were asked for
}

// mount serves a store and returns when it answers.
func (s *suite) mount(store string, flags ...string) (*daemon, error) {
	dir, err := s.fresh("mnt")
	if err != nil {
		return nil, err
	}
	state, err := s.fresh("mnt-state")
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir, state: state, exited: make(chan struct{})}
	args := append([]string{"--store", store, "mount", "--metrics-addr", "127.0.0.1:0", "--pprof"}, flags...)
	d.cmd = exec.Command(s.bin, append(args, dir)...)
	d.cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state, "XDG_CACHE_HOME="+filepath.Join(state, "cache"))
	d.cmd.Stderr = &d.stderr
	// In a group of its own, so that ^C reaches it through us, in our order;
	// should we be killed, it unmounts.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.closed || s.ctx.Err() != nil {
		s.mu.Unlock()
		return nil, context.Canceled
	}
	err = d.cmd.Start()
	if err == nil {
		d.timer = time.AfterFunc(mountLimit, d.abort)
		s.mounts = append(s.mounts, d)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	go d.follow(out, ready)
	select {
	case <-ready:
		return d, nil
	case <-d.exited:
		return nil, fmt.Errorf("mount: %v: %s", d.cmd.ProcessState, bytes.TrimSpace(d.stderr.Bytes()))
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	case <-time.After(readyLimit):
		d.abort()
		return nil, errors.New("mount: not ready")
	}
}

// follow waits for the line that says that the mount answers, then for the
// process's end.
func (d *daemon) follow(out io.Reader, ready chan<- struct{}) {
	r := bufio.NewReader(out)
	if _, err := r.ReadString('\n'); err == nil {
		close(ready)
	}
	_, _ = io.Copy(io.Discard, r)
	_ = d.cmd.Wait()
	close(d.exited)
}

// path names something in the mount.
func (d *daemon) path(names ...string) string {
	return filepath.Join(append([]string{d.dir}, names...)...)
}

// session names something in a session's directory.
func (d *daemon) session(id string, names ...string) string {
	return d.path(append([]string{"sessions", id}, names...)...)
}

// stop unmounts and waits for the process's end; where it does not end, the
// connection is aborted.
func (d *daemon) stop() error {
	d.once.Do(func() {
		defer d.timer.Stop()
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-d.exited:
			if !d.cmd.ProcessState.Success() {
				d.stopErr = fmt.Errorf("mount ended: %v: %s", d.cmd.ProcessState, bytes.TrimSpace(d.stderr.Bytes()))
			}
		case <-time.After(20 * time.Second):
			d.abort()
			_ = d.cmd.Process.Kill()
			d.stopErr = errors.New("the mount did not end")
			select {
			case <-d.exited:
			case <-time.After(5 * time.Second):
			}
		}
		detach(d.dir)
	})
	return d.stopErr
}

// stopMounts ends all mounts of the run.
func (s *suite) stopMounts() {
	s.mu.Lock()
	mounts := s.mounts
	s.mounts = nil
	s.mu.Unlock()
	for _, d := range mounts {
		if err := d.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
}

// alive gives the mounts their time anew: something has come to an end.
func (s *suite) alive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.mounts {
		d.timer.Reset(mountLimit)
	}
}

// abort ends the FUSE connection in the kernel: what hangs in it fails.
func (d *daemon) abort() {
	for _, m := range mountTable() {
		if m.dir != d.dir {
			continue
		}
		const connections = "/sys/fs/fuse/connections"
		path := filepath.Join(connections, strconv.Itoa(m.minor), "abort")
		if _, err := os.Stat(path); err != nil {
			_ = syscall.Mount("none", connections, "fusectl", 0, "")
		}
		fmt.Fprintln(os.Stderr, "bench: aborted a mount:", os.WriteFile(path, []byte("1"), 0o200))
	}
}

// detach takes away what is still mounted on dir.
func detach(dir string) {
	for range 3 {
		if len(mountsBelow(dir)) == 0 {
			return
		}
		if syscall.Unmount(dir, syscall.MNT_DETACH) != nil {
			_ = exec.Command("fusermount3", "-uz", dir).Run()
		}
	}
}

// mountLine is a line of the mount table.
type mountLine struct {
	minor int
	dir   string
}

func mountTable() []mountLine {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	var out []mountLine
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 5 {
			_, minor, _ := strings.Cut(f[2], ":")
			n, _ := strconv.Atoi(minor)
			out = append(out, mountLine{n, strings.ReplaceAll(f[4], `\040`, " ")})
		}
	}
	return out
}

// mountsBelow lists the mounts on dir and below it.
func mountsBelow(dir string) []string {
	var out []string
	for _, m := range mountTable() {
		if m.dir == dir || strings.HasPrefix(m.dir, dir+"/") {
			out = append(out, m.dir)
		}
	}
	return out
}

// fuseMissing says why nothing can be mounted here, "" when it can.
func fuseMissing() string {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err.Error()
	}
	_ = f.Close()
	if os.Geteuid() == 0 {
		return ""
	}
	if _, err := exec.LookPath("fusermount3"); err != nil {
		return "neither root nor fusermount3"
	}
	return ""
}

// get fetches from the daemon's address for figures and profiles.
func (d *daemon) get(path string) (string, error) {
	if d.url == "" {
		found, err := filepath.Glob(filepath.Join(d.state, "sessionfs", "mounts", "*.json"))
		if err != nil || len(found) != 1 {
			return "", fmt.Errorf("%d records of the mount, %w", len(found), err)
		}
		b, err := os.ReadFile(found[0])
		if err != nil {
			return "", err
		}
		var record struct{ Metrics string }
		if err := json.Unmarshal(b, &record); err != nil {
			return "", err
		}
		d.url = "http://" + record.Metrics
	}
	client := http.Client{Timeout: 30 * time.Second}
	r, err := client.Get(d.url + path)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, r.Status)
	}
	return string(b), err
}

// counts are the requests of the kernel that were answered, by operation.
type counts map[string]int64

// parseCounts reads the counters of the daemon's figures.
func parseCounts(text string) counts {
	const prefix = `sessionfs_request_seconds_count{op="`
	c := counts{}
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, prefix)
		op, value, ok2 := strings.Cut(rest, `"} `)
		if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); ok && ok2 && err == nil {
			c[op] += n
		}
	}
	return c
}

// gauge reads one value of the daemon's figures.
func (d *daemon) gauge(name string) (float64, error) {
	text, err := d.get("/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("no figure %s", name)
}

// settled counts the requests when no more come: a RELEASE follows its close
// in its own time.
func (d *daemon) settled() (counts, error) {
	var last counts
	for range 100 {
		text, err := d.get("/metrics")
		if err != nil {
			return nil, err
		}
		c := parseCounts(text)
		if last != nil && c.total() == last.total() {
			return c, nil
		}
		last = c
		time.Sleep(20 * time.Millisecond)
	}
	return last, nil
}

// requests counts what the kernel asks while f runs.
func (d *daemon) requests(f func() error) (counts, error) {
	before, err := d.settled()
	if err != nil {
		return nil, err
	}
	if err := f(); err != nil {
		return nil, err
	}
	after, err := d.settled()
	if err != nil {
		return nil, err
	}
	for op, n := range before {
		if after[op] -= n; after[op] == 0 {
			delete(after, op)
		}
	}
	return after, nil
}

// total sums some operations, or all when none is named.
func (c counts) total(ops ...string) int64 {
	var sum int64
	for op, n := range c {
		if len(ops) == 0 {
			sum += n
		}
		for _, want := range ops {
			if op == want {
				sum += n
			}
		}
	}
	return sum
}

// String lists the counts, the most frequent first.
func (c counts) String() string {
	ops := slices.SortedFunc(maps.Keys(c), func(a, b string) int {
		return cmp.Or(cmp.Compare(c[b], c[a]), strings.Compare(a, b))
	})
	words := make([]string, 0, len(c))
	for _, op := range ops {
		words = append(words, fmt.Sprintf("%s %d", op, c[op]))
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// rss is the memory of the daemon's process in bytes.
func (d *daemon) rss() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			return kb * 1024, err
		}
	}
	return 0, errors.New("no VmRSS")
}
