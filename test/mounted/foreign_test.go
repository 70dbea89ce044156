package mounted

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestForeignWrites: another process appends a node and moves the head
// directly in the store, under the flock, node first and meta.json after it.
// The mount shows it without any cache timeout to wait for, and never a state
// that was not: old and new names mixed, or a message cut short.
func TestForeignWrites(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	if err := put(filepath.Join(s, "head_id"), tipTrunk+"\n"); err != nil {
		t.Fatal(err)
	}
	foreign := harness.NewForeign(t)
	look(s) // every cache of the kernel is warm
	watch := newWatch(s)
	defer watch.stop()
	var latencies []time.Duration
	for i := range 60 {
		before := strings.Join(names(t, s, "messages"), " ")
		a := foreign.Do(harness.ForeignRequest{
			Store: m.Store, Session: nested, Op: "append", Role: []string{"user", "llm"}[i%2], Head: true, PredecessorHead: true,
			Text: fmt.Sprintf("foreign message %d %s", i, strings.Repeat("x", i*700)), LeaveTornTemp: i%7 == 0,
			Pause: time.Duration(i%4) * 3 * time.Millisecond,
		})
		seen := watch.until(a.ID, harness.Slow(2*time.Second))
		if seen == 0 {
			t.Fatalf("append %d (%s) is not seen", i, a.ID)
		}
		latencies = append(latencies, time.Duration(seen-a.At))
		nodes := storedNodes(t, m, nested)
		want := expected(nodes, a.ID)
		got := look(s)
		want.Transcript = got.Transcript
		if d := got.differs(want); d != "" {
			t.Errorf("append %d: %s", i, d)
		}
		if after := strings.Join(got.Messages, " "); after == before || !strings.HasPrefix(after, before) {
			t.Errorf("append %d: messages were %s, are %s", i, before, after)
		}
	}
	if torn := watch.torn(); torn != "" {
		t.Errorf("a half state was seen: %s", torn)
	}
	slices.Sort(latencies)
	t.Logf("seen after: median %v, 90 %% %v, worst %v", latencies[len(latencies)/2], latencies[len(latencies)*9/10], latencies[len(latencies)-1])
	if worst := latencies[len(latencies)-1]; worst > harness.Slow(time.Second) {
		t.Errorf("the worst took %v", worst)
	}
}

// watch reads a session again and again, as a user's `tail` would, notes
// when each head is first seen, and what can never be right.
type watch struct {
	mu    sync.Mutex
	first map[string]int64 // head → when it was first seen whole
	bad   string
	quit  chan struct{}
	done  chan struct{}
}

func newWatch(session string) *watch {
	w := &watch{first: map[string]int64{}, quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for {
			select {
			case <-w.quit:
				return
			default:
			}
			w.once(session)
		}
	}()
	return w
}

// once looks. Between its system calls the head may move, so only what one
// answer says is judged: a listing is whole, a message is one of the texts
// that were written, the link names a node that can be read.
func (w *watch) once(session string) {
	id, err := os.ReadFile(filepath.Join(session, "head_id"))
	if err != nil {
		w.fault("read head_id: " + err.Error())
		return
	}
	entries, err := os.ReadDir(filepath.Join(session, "messages"))
	if err != nil {
		w.fault("ls messages: " + err.Error())
		return
	}
	for i, e := range entries {
		if !strings.HasPrefix(e.Name(), fmt.Sprintf("%06d-", i+1)) {
			w.fault(fmt.Sprintf("ls messages: entry %d of %d is %s", i, len(entries), e.Name()))
		}
	}
	text, err := os.ReadFile(filepath.Join(session, "head"))
	if err != nil {
		w.fault("cat head: " + err.Error())
		return
	}
	if n := 0; len(text) == 0 || text[len(text)-1] != '\n' {
		w.fault("cat head is cut short")
	} else if _, err := fmt.Sscanf(string(text), "foreign message %d", &n); err == nil && len(text) < n*700 {
		w.fault(fmt.Sprintf("cat head: message %d has %d bytes", n, len(text)))
	}
	now := time.Now().UnixNano()
	head := strings.TrimSpace(string(id))
	if len(entries) > 0 && strings.HasSuffix(entries[len(entries)-1].Name(), "-"+head[:min(8, len(head))]+".md") {
		w.mu.Lock()
		if w.first[head] == 0 {
			w.first[head] = now
		}
		w.mu.Unlock()
	}
}

func (w *watch) fault(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bad == "" {
		w.bad = what
	}
}

func (w *watch) torn() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bad
}

// until waits for a head to be seen and says when it was, 0 for never.
func (w *watch) until(head string, limit time.Duration) int64 {
	at := int64(0)
	harness.Wait(limit, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		at = w.first[head]
		return at != 0
	})
	return at
}

func (w *watch) stop() {
	close(w.quit)
	<-w.done
}

// TestForeignRewrite: a node that another process rewrites (a placeholder
// that is filled) shows its new text and size everywhere.
func TestForeignRewrite(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	foreign := harness.NewForeign(t)
	nodes := storedNodes(t, m, nested)
	path := filepath.Join(s, "nodes", nodes[tipTrunk].Stem+".md")
	message := filepath.Join(s, "messages", messageName(len(chainOf(nodes, tipTrunk)), nodes[tipTrunk]))
	if err := put(filepath.Join(s, "head_id"), tipTrunk+"\n"); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		read(t, path)
		read(t, message)
		text := fmt.Sprintf("rewritten %02d%s", i, strings.Repeat(" and longer", i%5))
		foreign.Do(harness.ForeignRequest{Store: m.Store, Session: nested, Op: "rewrite", ID: tipTrunk, Text: text})
		for _, p := range []string{path, message, filepath.Join(s, "head")} {
			if !harness.Wait(harness.Slow(time.Second), func() bool { return read(t, p) == text+"\n" }) {
				t.Fatalf("%s is %q, want %q", p, read(t, p), text)
			}
			if st, err := os.Stat(p); err != nil || st.Size() != int64(len(text))+1 {
				t.Errorf("size of %s: %v, %v", p, st.Size(), err)
			}
		}
		if !strings.Contains(read(t, s, "transcript.md"), text) {
			t.Errorf("transcript.md lacks %q", text)
		}
	}
}

// TestForeignSessions: a session that appears, changes its title, is archived
// and goes away beneath the mount.
func TestForeignSessions(t *testing.T) {
	m := start(t, "chat_branches")
	names(t, m.Path("sessions"))
	if _, err := os.Stat(m.Session("newcomer")); err == nil {
		t.Fatal("newcomer is there")
	}
	copyTree(t, m.Repo(otherID), m.Repo("newcomer"))
	replaceInFile(t, m.Repo("newcomer", "meta.json"), `"id": "`+otherID+`"`, `"id": "newcomer"`)
	wait := func(what string, ok func() bool) {
		t.Helper()
		if !harness.Wait(harness.Slow(3*time.Second), ok) {
			t.Errorf("%s is not seen", what)
		}
	}
	listed := func(dir, name string) bool { return slices.Contains(names(t, m.Path(dir)), name) }
	wait("a new session", func() bool { return listed("sessions", "newcomer") })
	if _, err := os.Stat(m.Session("newcomer", "head")); err != nil {
		t.Errorf("the new session's head: %v", err)
	}
	foreign := harness.NewForeign(t)
	foreign.Do(harness.ForeignRequest{Store: m.Store, Session: "newcomer", Op: "meta", Key: "title", Value: `"Changed outside"`})
	wait("a foreign title", func() bool { return read(t, m.Session("newcomer", "fields", "title")) == "Changed outside\n" })
	foreign.Do(harness.ForeignRequest{Store: m.Store, Session: "newcomer", Op: "meta", Key: "archived", Value: "true"})
	wait("archiving", func() bool { return listed("archived", "newcomer") && !listed("sessions", "newcomer") })
	if err := os.RemoveAll(m.Repo("newcomer")); err != nil {
		t.Fatal(err)
	}
	wait("a removed session", func() bool { return !listed("archived", "newcomer") })
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if r := harness.Shell(t, "/", `cp -a "$1" "$2.part" && mv "$2.part" "$2"`, from, filepath.Join(filepath.Dir(to), "."+filepath.Base(to))); r.Code != 0 {
		t.Fatal(r.Err)
	}
	if err := os.Rename(filepath.Join(filepath.Dir(to), "."+filepath.Base(to)), to); err != nil {
		t.Fatal(err)
	}
}

func replaceInFile(t *testing.T, path, old, new string) {
	t.Helper()
	text := read(t, path)
	if !strings.Contains(text, old) {
		t.Fatalf("%s has no %s", path, old)
	}
	tmp := path + ".0123456789abcdef0123456789abcdef.tmp"
	if err := os.WriteFile(tmp, []byte(strings.Replace(text, old, new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatal(err)
	}
}
