package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/sessionfs/sessionfs/store"
)

const megabyte = 1e6

// memoryGroup measures what a mount and an open session keep.
func memoryGroup(s *suite) error {
	if s.wants("memory/session") {
		if err := s.memorySession(); err != nil {
			return err
		}
	}
	if !s.wants("memory/mount") {
		return nil
	}
	if s.noFUSE != "" {
		s.skip("memory/mount", "no FUSE: "+s.noFUSE)
		return nil
	}
	return s.memoryMount()
}

// memorySession is the heap that an open session of many nodes takes.
func (s *suite) memorySession() error {
	root, err := s.longSession()
	if err != nil {
		return err
	}
	st, err := store.Open(s.ctx, store.Options{Root: root})
	if err != nil {
		return err
	}
	defer st.Close()
	before := heapInUse()
	sn, watched, release, err := st.Pin(s.ctx, longID)
	if err != nil {
		return err
	}
	defer release()
	branch, err := st.GetBranch(s.ctx, longID, "")
	if err != nil || len(branch) != s.nodes {
		return fmt.Errorf("a branch of %d messages, %w", len(branch), err)
	}
	branch = nil
	kept := heapInUse() - before
	runtime.KeepAlive(sn)
	_ = watched
	s.add(figure{Name: fmt.Sprintf("memory/open session of %d nodes", s.nodes), Unit: "MB", Bound: 5, Value: kept / megabyte, Note: "heap, after a reading of the branch"})
	return nil
}

// heapInUse is what the heap holds after everything dead was taken away.
func heapInUse() float64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// memoryMount is the memory of a mount: idle, with many inodes known to the
// kernel, and when those are forgotten.
func (s *suite) memoryMount() error {
	root, err := s.manySessions(s.many)
	if err != nil {
		return err
	}
	d, err := s.mount(root)
	if err != nil {
		return err
	}
	if err := s.command("", "ls", d.path("sessions")); err != nil {
		return err
	}
	idle, err := s.steady(d, 2*time.Second)
	if err != nil {
		return err
	}
	s.add(figure{Name: fmt.Sprintf("memory/idle mount of %d sessions", s.many), Unit: "MB", Bound: 60, Value: idle.rss / megabyte, Note: "RSS, after ls"})
	known, err := s.look(d)
	if err != nil {
		return err
	}
	full, err := s.steady(d, time.Second)
	if err != nil {
		return err
	}
	s.add(figure{Name: "memory/100000 inodes known", Unit: "MB", Bound: 80, Value: (full.rss - idle.rss) / megabyte / float64(known) * 100000,
		Note: fmt.Sprintf("RSS beyond idle, from %d inodes; %s MB of heap", known, number((full.heap-idle.heap)/megabyte/float64(known)*100000))})
	return errors.Join(s.forgotten(d, idle, full), d.stop())
}

// look makes the kernel know inodes and returns how many.
func (s *suite) look(d *daemon) (int, error) {
	known := 0
	for n := 0; n < s.many && known < s.known; n += 50 {
		var dirs []string
		for i := n; i < min(n+50, s.many); i++ {
			dirs = append(dirs, d.session(smallID(i)))
		}
		// A comparison by time makes find look at every entry.
		out, err := s.output("", "find", append(dirs, "-not", "-newermt", "2200-01-01", "-printf", "x")...)
		if err != nil {
			return 0, err
		}
		known += len(out)
	}
	return known, nil
}

// forgotten makes the kernel forget and looks what comes back.
func (s *suite) forgotten(d *daemon, idle, full memory) error {
	const name = "memory/returned when forgotten"
	if os.Geteuid() != 0 {
		s.skip(name, "only root can make the kernel forget")
		return nil
	}
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0o200); err != nil {
		s.skip(name, err.Error())
		return nil
	}
	var after memory
	part := func(idle, full, after float64) float64 { return 100 * (full - after) / (full - idle) }
	for began := time.Now(); time.Since(began) < 20*time.Second; {
		var err error
		if after, err = s.steady(d, time.Second); err != nil {
			return err
		}
		if part(idle.rss, full.rss, after.rss) >= 90 {
			break
		}
	}
	s.add(figure{Name: name + ", RSS", Unit: "%", Bound: 90, AtLeast: true, Value: part(idle.rss, full.rss, after.rss),
		Note: fmt.Sprintf("%s, %s, %s MB", number(idle.rss/megabyte), number(full.rss/megabyte), number(after.rss/megabyte))})
	s.add(figure{Name: name + ", heap", Unit: "%", Bound: 90, AtLeast: true, Value: part(idle.heap, full.heap, after.heap),
		Note: fmt.Sprintf("%s, %s, %s MB", number(idle.heap/megabyte), number(full.heap/megabyte), number(after.heap/megabyte))})
	return nil
}

// memory is what a process has, in bytes.
type memory struct{ rss, heap float64 }

// steady measures a daemon after a pause and a collection of its garbage.
func (s *suite) steady(d *daemon, pause time.Duration) (memory, error) {
	select {
	case <-time.After(pause):
	case <-s.ctx.Done():
		return memory{}, context.Cause(s.ctx)
	}
	profile, err := d.get("/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return memory{}, err
	}
	var m memory
	for line := range strings.Lines(profile) {
		if value, ok := strings.CutPrefix(line, "# HeapAlloc = "); ok {
			m.heap, err = strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	if err != nil || m.heap == 0 {
		return memory{}, fmt.Errorf("no HeapAlloc in the profile, %w", err)
	}
	m.rss, err = d.rss()
	return m, err
}

// longID is the session of many nodes.
const longID = "long"

// longSession is a store with one session of many nodes.
func (s *suite) longSession() (string, error) {
	return s.corpus("long", 1, func(int) spec { return spec{longID, s.nodes, 1500, repoFull} })
}
