package recipes

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestP14Cost: a listing that read the store for each name took minutes, and
// questions for attributes that nobody has doubled the price of a write; here
// the requests are counted: a listing asks for each name at most once, opens
// and reads nothing, again asks next to nothing, and a save is a handful of
// requests. What that takes in time is measured in the benchmarks.
func TestP14Cost(t *testing.T) {
	m := start(t, "big_1500")
	id := names(t, m.Path("sessions"))[0]
	dir := m.Session(id, "nodes")
	n := len(names(t, dir))
	if n < 1000 {
		t.Fatalf("only %d nodes", n)
	}
	harness.DropCaches(t)
	before, readsBefore := requests(t, m), storeReads(t, m)
	quiet(t, dir, `ls -l . > /dev/null`)
	cold, reads := requests(t, m), storeReads(t, m)-readsBefore
	asked := func(since, until map[string]int) (names, content, all int) {
		for op, k := range until {
			k -= since[op]
			all += k
			switch op {
			case "lookup", "getattr", "readlink":
				names += k
			case "open", "read":
				content += k
			}
		}
		return names, content, all
	}
	about, content, all := asked(before, cold)
	if about > n+50 || content > 10 || all == 0 {
		t.Errorf("a first ls -l of %d names made %d questions about names and %d opens and reads: %v", n, about, content, cold)
	}
	if reads > 2*all+500 {
		t.Errorf("the daemon read %d times for %d requests", reads, all)
	}
	quiet(t, dir, `ls -l . > /dev/null`)
	warm := requests(t, m)
	if again, _, all := asked(cold, warm); again > 50 || all > n/5 {
		t.Errorf("a second ls -l of %d names made %d requests, %d of them about names", n, all, again)
	}
	const saves = 100
	quiet(t, m.Session(id, "fields"), fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo $i > title; i=$((i+1)); done`, saves))
	if _, _, all := asked(warm, requests(t, m)); all > 8*saves+100 {
		t.Errorf("%d saves made %d requests", saves, all)
	}
	t.Logf("first ls -l: %d about names, %d in all, %d reads by the daemon", about, all, reads)
}

var requestCount = regexp.MustCompile(`(?m)^sessionfs_request_seconds_count\{op="([a-z]+)"\} ([0-9]+)$`)

// requests counts the kernel's requests so far, by operation.
func requests(t *testing.T, m *harness.Mount) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, p := range requestCount.FindAllStringSubmatch(read(t, m.Path(".sessionfs", "metrics")), -1) {
		out[p[1]], _ = strconv.Atoi(p[2])
	}
	if len(out) == 0 {
		t.Fatal("metrics count no requests")
	}
	return out
}

// storeReads counts the read calls of the daemon so far, those for requests
// among them.
func storeReads(t *testing.T, m *harness.Mount) int {
	t.Helper()
	for line := range strings.Lines(read(t, fmt.Sprintf("/proc/%d/io", m.PID()))) {
		if n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "syscr: "))); err == nil {
			return n
		}
	}
	t.Fatal("the kernel does not count reads")
	return 0
}
