package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// sizes are how large everything is that is measured.
type sizes struct {
	quick bool
	reps  int
	limit time.Duration

	sessions, messages, big int // the store that is mounted
	loop                    int // calls of a loop over one file
	many, huge              int // registries
	nodes, hugeNodes        int // one session; 0 leaves the figure out
	baseScale               int // what the huge ones are compared with
	commits                 []commitSize
	turns, turnsOn          int // from nothing, and on a session of nodes
	pairs                   int // of durable writes
	foreign                 time.Duration
	known                   int // inodes that the kernel is made to know
}

// commitSize is a number of history files and the bounds of a turn's commit
// on them.
type commitSize struct {
	files int
	bound float64
}

// fullSizes are those that the bounds are stated for.
var fullSizes = sizes{
	reps: 5, limit: 750 * time.Second,
	sessions: 1000, messages: 5, big: 5000, loop: 4000, many: 10000, huge: 100000, nodes: 10000, hugeNodes: 100000, baseScale: 1000,
	commits: []commitSize{{10, 0.10}, {1000, 0.12}, {10000, 0.20}},
	turns:   1000, turnsOn: 200, pairs: 100, foreign: 5 * time.Second, known: 100000,
}

// quickSizes give a first idea in less than two minutes. What needs 100,000
// of something is left out.
var quickSizes = sizes{
	quick: true, reps: 3, limit: 90 * time.Second,
	sessions: 200, messages: 5, big: 1000, loop: 1000, many: 10000, nodes: 10000,
	commits: []commitSize{{10, 0.10}, {1000, 0.12}},
	turns:   100, pairs: 25, foreign: 2 * time.Second, known: 30000,
}

// group is a set of figures that share what has to be made for them.
type group struct {
	name    string
	figures []string
	fuse    bool // needs a mount
	run     func(*suite) error
}

// groups are all, in the order of the table. What takes longest comes last.
var groups = []group{
	{"mount", mountFigures, true, mountGroup},
	{"requests", requestFigures, true, requestGroup},
	{"move", []string{"requests", "time"}, true, moveGroup},
	{"coherence", []string{"rw", "ro"}, true, coherenceGroup},
	{"memory", []string{"mount", "session"}, false, memoryGroup},
	{"open", []string{"cold", "again"}, false, openGroup},
	{"commit", []string{"turn"}, false, commitGroup},
	{"turns", []string{"from nothing", "on a long session"}, false, turnsGroup},
	{"durable", []string{"append", "head"}, false, durableGroup},
	{"list", []string{"fresh"}, false, listGroup},
	{"watches", []string{"fallback"}, true, watchesGroup},
	{"start", []string{"10k", "100k"}, true, startGroup},
	{"scale", []string{"sessions", "nodes"}, false, scaleGroup},
}

// suite is one run.
type suite struct {
	config
	ctx     context.Context
	base    string // everything of the run lies below
	rep     *report
	began   time.Time
	noFUSE  string // why nothing can be mounted, "" when it can
	corpora map[string]string

	mu     sync.Mutex
	mounts []*daemon
	closed bool
	n      int
}

func newSuite(ctx context.Context, c config) (*suite, error) {
	base, err := os.MkdirTemp(c.dir, "sessionfs-bench-")
	if err != nil {
		return nil, err
	}
	s := &suite{config: c, ctx: ctx, base: base, began: time.Now(), noFUSE: fuseMissing(), corpora: map[string]string{}}
	s.rep = &report{Began: s.began, Quick: c.quick, Reps: c.reps, Machine: machine(base)}
	if s.bin == "" {
		err = s.build()
	}
	// The build is the user's own, with his settings; all that follows is not.
	if err = errors.Join(err, s.isolate()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(base))
	}
	if s.bin, err = filepath.Abs(s.bin); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "bench: %s, %s %s, %s CPUs, %s on %s\n", s.rep.Machine["go"], s.rep.Machine["system"],
		s.rep.Machine["kernel"], s.rep.Machine["cpus"], s.rep.Machine["filesystem"], base)
	return s, nil
}

// isolate points this process, and so all that it starts, away from the
// user's own files and Git configuration.
func (s *suite) isolate() error {
	set := map[string]string{
		"HOME": s.base, "XDG_STATE_HOME": s.path("state"), "XDG_CACHE_HOME": s.path("cache"), "XDG_CONFIG_HOME": s.path("config"),
		"XDG_RUNTIME_DIR": s.path("runtime"), "SESSIONFS_STORE": "", "LC_ALL": "C", "TZ": "UTC",
		"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_TERMINAL_PROMPT": "0",
		"GIT_AUTHOR_NAME": "bench", "GIT_AUTHOR_EMAIL": "bench@localhost", "GIT_COMMITTER_NAME": "bench", "GIT_COMMITTER_EMAIL": "bench@localhost",
	}
	for name, value := range set {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
		if strings.HasPrefix(name, "XDG_") {
			if err := os.MkdirAll(value, 0o700); err != nil {
				return err
			}
		}
	}
	return os.Unsetenv("SESSIONFS_STORE")
}

// build builds the program from the tree that this package lies in.
func (s *suite) build() error {
	mod, err := exec.CommandContext(s.ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	s.bin = s.path("sessionfs")
	cmd := exec.CommandContext(s.ctx, "go", "build", "-trimpath", "-o", s.bin, "./cmd/sessionfs")
	cmd.Dir = filepath.Dir(strings.TrimSpace(string(mod)))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// path names something below the run's directory.
func (s *suite) path(names ...string) string {
	return filepath.Join(append([]string{s.base}, names...)...)
}

// fresh makes a directory that nobody has used.
func (s *suite) fresh(what string) (string, error) {
	s.mu.Lock()
	s.n++
	dir := s.path(fmt.Sprintf("%s-%d", what, s.n))
	s.mu.Unlock()
	return dir, os.MkdirAll(dir, 0o700)
}

// wants reports whether a figure was asked for.
func (s *suite) wants(name string) bool { return s.only.MatchString(name) }

// runGroups measures group after group. One that fails does not keep the
// others from being measured.
func (s *suite) runGroups() error {
	defer func() { s.rep.Seconds = time.Since(s.began).Seconds() }()
	var failed []error
	for _, g := range groups {
		if !s.wanted(g) {
			continue
		}
		began := time.Now()
		switch {
		case s.ctx.Err() != nil:
			return s.ctx.Err()
		case g.fuse && s.noFUSE != "":
			s.skip(g.name, "no FUSE: "+s.noFUSE)
			continue
		case s.over():
			s.skip(g.name, errTimeOver.Error())
			continue
		}
		s.progress("%s …", g.name)
		switch err := g.run(s); {
		case s.ctx.Err() != nil:
			return s.ctx.Err()
		case errors.Is(err, errTimeOver):
			s.skip(g.name+", the rest", errTimeOver.Error())
		case err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", g.name, err))
			s.skip(g.name, "failed: "+err.Error())
		}
		s.stopMounts()
		s.progress("%s took %.1f s", g.name, time.Since(began).Seconds())
	}
	return errors.Join(failed...)
}

func (s *suite) wanted(g group) bool {
	for _, name := range g.figures {
		if s.wants(g.name + "/" + name) {
			return true
		}
	}
	return false
}

func (s *suite) add(f figure)          { s.rep.Figures = append(s.rep.Figures, f) }
func (s *suite) skip(name, why string) { s.add(figure{Name: name, Skipped: why}) }

// progress says on standard error what is done.
func (s *suite) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: %5.1f "+format+"\n", append([]any{time.Since(s.began).Seconds()}, args...)...)
}

// close ends what was started and removes what was made. It may be called
// twice, and while a group still runs.
func (s *suite) close() {
	s.stopMounts()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if left := mountsBelow(s.base); len(left) > 0 {
		// Never walk into a mount to remove it.
		fmt.Fprintf(os.Stderr, "bench: still mounted, not removed: %s\n", strings.Join(left, " "))
		return
	}
	if err := removeAll(s.base, 2); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// machine describes where the figures come from.
func machine(dir string) map[string]string {
	m := map[string]string{"go": runtime.Version(), "system": runtime.GOOS + "/" + runtime.GOARCH, "cpus": fmt.Sprint(runtime.NumCPU())}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m["kernel"] = unix.ByteSliceToString(u.Release[:])
	}
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) == nil {
		m["filesystem"] = fsName(int64(st.Type))
	}
	if out, err := exec.Command("git", "--version").Output(); err == nil {
		m["git"] = strings.TrimSpace(strings.TrimPrefix(string(out), "git version"))
	}
	return m
}

func fsName(magic int64) string {
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.TMPFS_MAGIC: "tmpfs (memory: what is durable costs nothing here)",
		unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
	}
	if name, ok := names[magic]; ok {
		return name
	}
	return fmt.Sprintf("file system %#x", magic)
}
