package mounted

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store/storetest"
	"github.com/sessionfs/sessionfs/test/harness"
)

// TestGrowth: the daemon's memory does not follow the number of files that
// were ever looked at. Of 1,000 sessions of 100 nodes, with a find and a grep
// -r over them, nothing is left when the kernel has dropped its caches and the
// sessions' time is over. By default find lists every node, and 40 sessions
// are searched with all that they have; SESSIONFS_FULL=1 finds and searches
// everything.
func TestGrowth(t *testing.T) {
	sessions, full := 1000, os.Getenv("SESSIONFS_FULL") != ""
	if testing.Short() {
		sessions = 50
	}
	t.Parallel() // it mostly waits
	const nodes = 100
	store := filepath.Join(t.TempDir(), "sessions")
	storetest.Build(t, store, manySessions(sessions, nodes))
	addr := harness.FreeAddr(t)
	// As users have it: the race detector has an overhead of its own.
	m := harness.Start(t, harness.Options{Store: store, Plain: true, Args: []string{"--metrics-addr", addr, "--pprof"}, Limit: 10 * time.Minute})
	objects := func() int { return harness.Profile(t, addr, "heap", "# HeapObjects = ") }
	bytes := func() int { return harness.Profile(t, addr, "heap", "# HeapAlloc = ") }
	objectsBefore, bytesBefore := objects(), bytes()
	walkAll(t, m, sessions, nodes, full)
	objectsPeak, bytesPeak := objects(), bytes()
	if objectsPeak < objectsBefore+3*sessions*nodes {
		t.Fatalf("%d objects before the walk and %d after it: the kernel knows nothing", objectsBefore, objectsPeak)
	}
	harness.DropCaches(t)
	// A session is released half a minute after the kernel let go of it.
	if !harness.Wait(2*time.Minute, func() bool { time.Sleep(time.Second); return knownSessions(t, m) == 0 }) {
		t.Errorf("the kernel still knows %d sessions", knownSessions(t, m))
	}
	objectsAfter, bytesAfter := objects(), bytes()
	t.Logf("objects %d, %d, %d; bytes %d, %d, %d", objectsBefore, objectsPeak, objectsAfter, bytesBefore, bytesPeak, bytesAfter)
	// What stays is what is kept of rendered texts and of Git's objects, and
	// that has its bounds; an inode is several objects.
	if left := objectsAfter - objectsBefore; left > (objectsPeak-objectsBefore)/10+20_000 {
		t.Errorf("%d objects are left of %d", left, objectsPeak-objectsBefore)
	}
	if bytesAfter > bytesBefore+128<<20 {
		t.Errorf("%d bytes are left", bytesAfter-bytesBefore)
	}
}

// walkAll lists every node and searches some sessions, or does both with
// everything.
func walkAll(t *testing.T, m *harness.Mount, sessions, nodes int, full bool) {
	t.Helper()
	listed, step := 0, 100 // sessions at a time: a script has its limit of time
	if full {
		step = 10
	}
	for at := 0; at < sessions; at += step {
		some := fmt.Sprintf("sessions/s%02d??", at/100)
		script := "find " + some + "/nodes | wc -l"
		if at == 0 {
			script += `; grep -r 'no such text' sessions/s00[0-3]?; [ $? = 1 ]`
		}
		if full {
			some = fmt.Sprintf("sessions/s%03d?", at/10)
			script = "find " + some + " | wc -l; grep -r 'no such text' " + some + "; [ $? = 1 ]"
		}
		r := harness.Shell(t, m.Dir, script)
		n, err := strconv.Atoi(strings.TrimSpace(r.Out))
		if err != nil || r.Code != 0 || r.Err != "" {
			t.Fatalf("%s: exit status %d, %.400q, %.400s", some, r.Code, r.Out, r.Err)
		}
		listed += n
	}
	if listed < sessions*nodes {
		t.Fatalf("%d names are listed of %d", listed, sessions*nodes)
	}
}

// manySessions is a store of sessions as storetest builds it.
func manySessions(sessions, nodes int) string {
	var b strings.Builder
	for i := range sessions {
		fmt.Fprintf(&b, "session s%04d\nroot\n", i)
		for k := range nodes {
			fmt.Fprintf(&b, "%s n%04d%03d \"message %d of %d\"\n", []string{"user", "llm"}[k%2], i, k, k, i)
		}
	}
	return b.String()
}

// knownSessions is how many sessions the kernel knows. The question makes it
// look at the file system's own files only.
func knownSessions(t *testing.T, m *harness.Mount) int {
	t.Helper()
	for line := range strings.Lines(read(t, m.Path(".sessionfs", "metrics"))) {
		if n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "sessionfs_sessions_known "))); err == nil {
			return n
		}
	}
	t.Fatal("metrics has no sessions_known")
	return 0
}
