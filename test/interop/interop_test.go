package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/storetest"
	"github.com/sessionfs/sessionfs/test/harness"
)

const (
	// appends and moves are what each of the four processes of a session does.
	appends = 500
	moves   = 200
	// commitEach is after how many operations a process of ours commits.
	commitEach = 120
)

// sessionIDs are written to at once.
var sessionIDs = []string{"s1", "s2"}

// kinds are the processes of each session.
var kinds = []string{"ours", "ours", "peer", "bynode"}

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, map[string]harness.Role{"writer": writerRole}))
}

// job is what a process is to do.
type job struct {
	Root, Session, Kind, Prefix string
	Appends, Moves              int
	Seed                        uint64
}

// result is what it did: the nodes that were acknowledged.
type result struct {
	IDs []string
	Err string
}

func writerRole([]string) int {
	return harness.Serve(func(j job) result {
		r := result{}
		w, done, err := j.writer()
		if err != nil {
			return result{Err: err.Error()}
		}
		rng := rand.New(rand.NewPCG(j.Seed, 1))
		toAppend, toMove := j.Appends, j.Moves
		for n := 1; toAppend+toMove > 0; n++ {
			if toMove == 0 || len(r.IDs) == 0 || rng.IntN(toAppend+toMove) < toAppend {
				id := fmt.Sprintf("%sx%04dx%s", j.Prefix, len(r.IDs), randomHex(2))
				err = w.append(id, "text of "+id)
				r.IDs = append(r.IDs, id)
				toAppend--
			} else {
				err = w.setHead(r.IDs[rng.IntN(len(r.IDs))])
				toMove--
			}
			if o, ok := w.(ours); ok && err == nil && n%commitEach == 0 {
				_, _, err = o.s.CommitTurn(context.Background(), j.Session, "turn: "+j.Prefix)
			}
			if err != nil {
				r.Err = fmt.Sprintf("operation %d: %v", n, err)
				break
			}
		}
		if err := done(); err != nil && r.Err == "" {
			r.Err = err.Error()
		}
		return r
	})
}

// writer appends and moves the head.
type writer interface {
	append(id, text string) error
	setHead(id string) error
}

func (j job) writer() (writer, func() error, error) {
	if j.Kind != "ours" {
		return peer{root: j.Root, id: j.Session, byNode: j.Kind == "bynode"}, func() error { return nil }, nil
	}
	s, err := store.Open(context.Background(), store.Options{Root: j.Root, LockTimeout: time.Minute, Watch: true})
	if err != nil {
		return nil, nil, err
	}
	return ours{s, j.Session}, s.Close, nil
}

// ours writes through the store.
type ours struct {
	s  *store.Store
	id string
}

func (o ours) append(id, text string) error {
	msg, err := json.Marshal(map[string]string{"id": id, "role": "assistant", "content": text})
	if err != nil {
		return err
	}
	r, err := o.s.AppendMessage(context.Background(), o.id, msg)
	if err == nil && (r.ID != id || r.Existed) {
		return fmt.Errorf("append of %s: %+v", id, r)
	}
	return err
}

func (o ours) setHead(id string) error {
	_, err := o.s.SetHead(context.Background(), o.id, id, store.HeadMove{})
	return err
}

// TestFourWriters lets four processes write to each of two sessions, while
// others read, commit and collect garbage with git.
func TestFourWriters(t *testing.T) {
	root := filepath.Join(scratch(t), "sessions")
	var spec strings.Builder
	for _, id := range sessionIDs {
		fmt.Fprintf(&spec, "session %s\nroot\nuser u%s \"first\"\nllm a%s \"answer\"\nfield odd \"[1e400, 12345678901234567890]\"\ncommit \"turn: first\"\n", id, id, id)
	}
	storetest.Build(t, root, spec.String())
	stop := make(chan struct{})
	var watchers sync.WaitGroup
	polls, gits := 0, 0
	watchers.Go(func() { polls = pollMeta(t, root, stop) })
	watchers.Go(func() { gits = foreignGit(t, root, stop) })
	results := run(t, root)
	close(stop)
	watchers.Wait()
	written := 0
	for _, id := range sessionIDs {
		for _, r := range results[id] {
			written += len(r.IDs)
		}
		verify(t, root, id, results[id])
	}
	t.Logf("%d nodes by %d processes, meta.json read %d times, git run %d times", written, len(kinds)*len(sessionIDs), polls, gits)
}

// run lets all processes work and returns what each did.
func run(t *testing.T, root string) map[string][]result {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := map[string][]result{}
	for i, id := range sessionIDs {
		for k, kind := range kinds {
			p := harness.Spawn(t, "writer")
			j := job{Root: root, Session: id, Kind: kind, Prefix: fmt.Sprintf("%s%d", kind, k), Appends: appends, Moves: moves, Seed: uint64(10*i + k)}
			wg.Go(func() {
				var r result
				err := p.Call(j, &r)
				mu.Lock()
				defer mu.Unlock()
				if err != nil || r.Err != "" {
					t.Errorf("%s on %s: %s, %v", kind, id, r.Err, err)
				}
				out[id] = append(out[id], r)
			})
		}
	}
	wg.Wait()
	return out
}

// pollMeta reads every meta.json again and again: each reading must be whole.
func pollMeta(t *testing.T, root string, stop <-chan struct{}) (n int) {
	for {
		for _, id := range sessionIDs {
			meta, err := readMeta(filepath.Join(root, id))
			if err != nil || string(meta["odd"]) != "[1e400, 12345678901234567890]" && string(meta["odd"]) != "[1e400,12345678901234567890]" {
				t.Errorf("reading %d of %s: %v, %s", n, id, err, meta["odd"])
				return n
			}
			n++
		}
		select {
		case <-stop:
			return n
		case <-time.After(time.Millisecond):
		}
	}
}

// foreignGit commits and collects garbage as a user would, without any lock of
// the store. It may find Git's own lock taken, or a private file gone that it
// was about to add: then it has done nothing.
func foreignGit(t *testing.T, root string, stop <-chan struct{}) (n int) {
	for i := 0; ; i++ {
		dir := filepath.Join(root, sessionIDs[i%len(sessionIDs)])
		if out, err := git(dir, "add", "-A"); err == nil {
			out, err = git(dir, "commit", "-qm", "by a user")
			if err != nil && !strings.Contains(out, "nothing to commit") && !strings.Contains(out, "nothing added") && !strings.Contains(out, "no changes added") && !isBusy(out) {
				t.Errorf("git commit: %s", out)
			}
		} else if !isBusy(out) {
			t.Errorf("git add: %s", out)
		}
		if i%4 == 3 {
			if out, err := git(dir, "gc", "-q"); err != nil && !isBusy(out) {
				t.Errorf("git gc: %s", out)
			}
		}
		n++
		select {
		case <-stop:
			return n
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// isBusy reports whether git says that somebody was at work.
func isBusy(out string) bool {
	for _, text := range []string{".lock", "unable to stat", "failed to stat", "No such file", "unable to index", "cannot lock ref", "adding files failed", "gc is already running"} {
		if strings.Contains(out, text) {
			return true
		}
	}
	return false
}

func git(dir string, args ...string) (string, error) {
	args = append([]string{"-C", dir, "-c", "safe.directory=*", "-c", "gc.auto=0", "-c", "core.hooksPath=/dev/null"}, args...)
	cmd := exec.Command("git", args...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// verify looks at a session when all is quiet.
func verify(t *testing.T, root, id string, results []result) {
	t.Helper()
	ctx := t.Context()
	later := func() time.Time { return time.Now().Add(time.Minute) } // no row is on its way any more
	s, err := store.Open(ctx, store.Options{Root: root, Clock: later})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sn, err := s.Load(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if len(sn.Problems) > 0 {
		t.Errorf("%s: problems: %v", id, sn.Problems)
	}
	for _, r := range results {
		for _, node := range r.IDs {
			text, err := sn.Text(node)
			if err != nil || string(text) != "text of "+node+"\n" {
				t.Errorf("%s: node %s is lost: %q, %v", id, node, text, err)
			}
		}
	}
	if want := 3 + len(kinds)*appends; sn.Index.Len() != want {
		t.Errorf("%s: %d nodes, not %d", id, sn.Index.Len(), want)
	}
	collisions(t, sn)
	err = s.Check(ctx, func(f store.Finding) {
		if f.Kind != "duplicate_seq" { // see collisions
			t.Errorf("%s: %s", id, f)
		}
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := s.SetHead(ctx, id, "a"+id, store.HeadMove{}); err != nil {
		t.Errorf("%s: a move at the end: %v", id, err)
	}
	if _, ok, err := s.CommitTurn(ctx, id, "the end"); err != nil || !ok {
		t.Errorf("%s: the last commit: %v, %v", id, ok, err)
	}
	for _, args := range [][]string{{"fsck", "--strict", "--no-dangling", "--no-progress"}, {"status", "--porcelain"}} {
		if out, err := git(filepath.Join(root, id), args...); err != nil || out != "" {
			t.Errorf("%s: git %s: %v\n%s", id, args[0], err, out)
		}
	}
}

// collisions: two nodes share a seq only where one of them was written by the
// node writer, which takes no lock; then both are there, in the order of their
// names.
func collisions(t *testing.T, sn *store.Snapshot) {
	t.Helper()
	seen := map[int64]string{}
	shared := 0
	for n := range sn.Index.All() {
		first, ok := seen[n.Seq]
		if !ok {
			seen[n.Seq] = n.ID
			continue
		}
		shared++
		if !strings.HasPrefix(first, "bynode") && !strings.HasPrefix(n.ID, "bynode") {
			t.Errorf("%s: %s and %s share seq %d, and both writers held the lock", sn.ID, first, n.ID, n.Seq)
		}
	}
	t.Logf("%s: %d seqs are shared with the node writer", sn.ID, shared)
}

// scratch is a directory of the test's own, in memory where that is possible:
// the processes sync some twenty thousand times.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "sessionfs-interop-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
