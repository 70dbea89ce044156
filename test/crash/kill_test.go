package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/storetest"
	"github.com/sessionfs/sessionfs/test/harness"
)

const (
	// kills is how many processes are killed, in two lanes side by side.
	kills     = 300
	killsLong = 3000
	lanes     = 2
	// loadSessions is how many sessions a process works on at once.
	loadSessions = 3
	// shortest and longest are how long a process lives after it has begun.
	shortest, longest = 5 * time.Millisecond, 60 * time.Millisecond
	// fsckKills is how many kills share one git fsck.
	fsckKills = 15
	// renewAfter is after how many kills a lane begins with a fresh store, so
	// that sessions do not grow without end.
	renewAfter = 50
)

// loadRequest tells a process what to work on.
type loadRequest struct {
	Root, Journal string
	Seed          uint64
}

// entry is one line of a journal: an operation that begins, or that has been
// acknowledged. It says what must be found after it.
type entry struct {
	N       int    // the operation's number
	Session string // the session
	Ack     bool   // it returned without an error
	Op      string // what it is
	Node    string `json:",omitempty"` // append, edit: the node; head moves: the new head
	Text    string `json:",omitempty"` // append: the text; field: the value
	Head    string `json:",omitempty"` // acknowledged: the head afterwards
	Key     string `json:",omitempty"` // field: its name; name: the branch's
}

// journal writes entries durably, outside of the store.
type journal struct {
	mu sync.Mutex
	f  *os.File
	n  int
}

func (j *journal) write(e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, err = j.f.Write(append(b, '\n'))
	return errors.Join(err, j.f.Sync())
}

func (j *journal) number() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.n++
	return j.n
}

// loadRole is the process that is killed: it answers once that it has begun,
// then works until it dies.
func loadRole([]string) int {
	return harness.Serve(func(q loadRequest) string {
		f, err := os.OpenFile(q.Journal, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err.Error()
		}
		s, err := store.Open(context.Background(), store.Options{Root: q.Root, Reconcile: store.ReconcileAuto, CommitAfter: 10 * time.Millisecond})
		if err != nil {
			return err.Error()
		}
		j := &journal{f: f}
		for i := range loadSessions {
			w := &loader{s: s, j: j, id: fmt.Sprintf("s%d", i), rng: rand.New(rand.NewPCG(q.Seed, uint64(i)))}
			go w.work()
		}
		return ""
	})
}

// loader works on one session.
type loader struct {
	s   *store.Store
	j   *journal
	id  string
	rng *rand.Rand
}

func (w *loader) work() {
	for {
		if err := w.step(); err != nil {
			_ = w.j.write(entry{Session: w.id, Op: "fail", Text: err.Error()})
			return
		}
	}
}

// step does one operation, chosen by chance.
func (w *loader) step() error {
	ctx := context.Background()
	sn, err := w.s.Load(ctx, w.id)
	if err != nil {
		return err
	}
	e := entry{N: w.j.number(), Session: w.id}
	node := sn.Index.At(w.rng.IntN(sn.Index.Len())).ID
	switch k := w.rng.IntN(20); {
	case k < 7 || sn.Index.Len() < 5:
		return w.append(ctx, sn, e)
	case k < 11:
		return w.move(ctx, e, node)
	case k < 13:
		e.Op, e.Key, e.Text = "field", []string{"title", "group"}[w.rng.IntN(2)], fmt.Sprintf("value %d", w.rng.Uint32())
		return w.do(e, func() (string, error) { return "", w.s.SetField(ctx, w.id, e.Key, e.Text) })
	case k < 14:
		e.Op, e.Node, e.Text = "name", node, fmt.Sprintf("name-%d", w.rng.Uint32())
		return w.do(e, func() (string, error) { return "", w.s.SetBranchName(ctx, w.id, node, e.Text) })
	case k < 15:
		e.Op = "commit"
		return w.do(e, func() (string, error) { _, _, err := w.s.CommitTurn(ctx, w.id, "by hand"); return "", err })
	case k < 16 && sn.Index.Len() > 12:
		e.Op, e.Node = "delete", node
		return w.do(e, func() (string, error) { d, err := w.s.DeleteBranch(ctx, w.id, node); return d.Head, err })
	case k < 17:
		e.Op = "attach"
		return w.do(e, func() (string, error) {
			_, err := w.s.Attach(ctx, store.AttachSpec{Source: w.id, Target: node})
			return "", err
		})
	case k < 18:
		return w.extra(ctx, e)
	}
	return w.turn(ctx, e)
}

func (w *loader) append(ctx context.Context, sn *store.Snapshot, e entry) error {
	e.Op, e.Node = "append", fmt.Sprintf("n%08x%08x", w.rng.Uint32(), w.rng.Uint32())
	e.Text = strings.Repeat("words ", w.rng.IntN(40)) + e.Node
	msg, err := json.Marshal(map[string]string{"id": e.Node, "role": []string{"user", "assistant"}[w.rng.IntN(2)], "content": e.Text})
	if err != nil {
		return err
	}
	return w.do(e, func() (string, error) {
		r, err := w.s.AppendMessage(ctx, w.id, msg)
		return r.Head, err
	})
}

func (w *loader) move(ctx context.Context, e entry, node string) error {
	e.Op, e.Node = "move", node
	return w.do(e, func() (string, error) {
		switch w.rng.IntN(4) {
		case 0:
			e.Node = ""
			return w.s.Leaf(ctx, w.id, node)
		case 1:
			e.Node = ""
			return w.s.Retry(ctx, w.id, node)
		case 2:
			e.Node = ""
			return w.s.Edit(ctx, w.id, node, "edited")
		}
		return w.s.SetHead(ctx, w.id, node, store.HeadMove{})
	})
}

// turn begins a run, lets it grow, and ends it.
func (w *loader) turn(ctx context.Context, e entry) error {
	e.Op = "turn"
	var run *store.Run
	err := w.do(e, func() (_ string, err error) {
		run, err = w.s.BeginTurn(ctx, w.id, store.Turn{Placeholder: true})
		if err != nil {
			return "", err
		}
		return run.Node(), nil
	})
	if err != nil || run == nil {
		return err
	}
	for range 3 {
		if err := run.SetText(ctx, strings.Repeat("so far ", w.rng.IntN(30))); err != nil {
			return err
		}
	}
	e = entry{N: w.j.number(), Session: w.id, Op: "end", Node: run.Node(), Text: fmt.Sprintf("reply %d", w.rng.Uint32())}
	return w.do(e, func() (string, error) {
		return "", run.Finish(ctx, store.Outcome{Status: "completed", Text: &e.Text})
	})
}

// extra makes a session, and deletes it again.
func (w *loader) extra(ctx context.Context, e entry) error {
	e.Op, e.Session = "create", fmt.Sprintf("x%08x%08x", w.rng.Uint32(), w.rng.Uint32())
	err := w.do(e, func() (string, error) {
		return "", w.s.CreateSession(ctx, store.NewSession{ID: e.Session, Root: true})
	})
	if err != nil || w.rng.IntN(2) == 0 {
		return err
	}
	d := entry{N: w.j.number(), Session: e.Session, Op: "remove"}
	return w.do(d, func() (string, error) { return "", w.s.DeleteSession(ctx, e.Session) })
}

// do notes an operation, does it, and notes that it was acknowledged. A
// refusal acknowledges nothing; anything else that fails ends the work.
func (w *loader) do(e entry, fn func() (head string, err error)) error {
	if err := w.j.write(e); err != nil {
		return err
	}
	head, err := fn()
	switch store.CodeOf(err) {
	case "":
	case store.RunActive, store.Invalid, store.Immutable, store.NotFound, store.SummaryHead, store.Exists, store.PredecessorMissing:
		e.Op = "refused"
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.Op, err)
	}
	e.Ack, e.Head = true, head
	return w.j.write(e)
}

// TestKill kills a process under a mixed load, again and again, and looks each
// time at what it left.
func TestKill(t *testing.T) {
	total := kills
	if long() {
		total = killsLong
	}
	var mu sync.Mutex
	var done, acked int
	t.Run("lanes", func(t *testing.T) {
		for i := range lanes {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				l := &lane{t: t, rng: rand.New(rand.NewPCG(uint64(i), 0x6b111))}
				for n := range total / lanes {
					if n%renewAfter == 0 {
						l.renew()
					}
					if err := l.kill(n); err != nil {
						t.Errorf("kill %d: %v", n, err)
						return
					}
					mu.Lock()
					done++
					mu.Unlock()
				}
				mu.Lock()
				acked += l.acked
				mu.Unlock()
			})
		}
	})
	t.Logf("%d kills, %d acknowledged operations", done, acked)
	if acked < done {
		t.Errorf("only %d operations were acknowledged by %d processes: they are killed too early", acked, done)
	}
}

// lane is one store whose processes are killed one after the other.
type lane struct {
	t     *testing.T
	rng   *rand.Rand
	dir   string
	root  string
	want  map[string]*expected
	acked int
}

// expected is what must be found of a session.
type expected struct {
	nodes  map[string]string // id to text, "" when the text is not known
	head   string
	fields map[string]string
	names  map[string]string // of branches, by node
	gone   bool              // deleted
}

func (l *lane) renew() {
	l.dir = scratch(l.t)
	l.root = filepath.Join(l.dir, rootName)
	var spec strings.Builder
	for i := range loadSessions {
		fmt.Fprintf(&spec, "session s%d\nroot\nuser u%dx1 \"first\"\nllm a%dx1 \"answer\"\ncommit \"turn: first\"\n", i, i, i)
	}
	storetest.Build(l.t, l.root, spec.String())
	l.want = map[string]*expected{}
}

// kill starts a process, kills it, and checks.
func (l *lane) kill(n int) error {
	log := filepath.Join(l.dir, fmt.Sprintf("journal-%d", n))
	p := harness.Spawn(l.t, "load")
	var answer string
	err := p.Call(loadRequest{Root: l.root, Journal: log, Seed: l.rng.Uint64()}, &answer)
	if err != nil || answer != "" {
		return fmt.Errorf("start: %s, %w", answer, err)
	}
	time.Sleep(shortest + time.Duration(l.rng.Int64N(int64(longest-shortest))))
	p.Kill()
	entries, err := readJournal(log)
	if err != nil {
		return err
	}
	return l.check(entries, n)
}

func readJournal(path string) ([]entry, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []entry
	for _, line := range bytes.Split(b, []byte("\n")) {
		var e entry
		if json.Unmarshal(line, &e) == nil { // the last one may be torn
			out = append(out, e)
		}
	}
	return out, nil
}

// check opens the store as the next process would and compares.
func (l *lane) check(entries []entry, n int) error {
	ctx := context.Background()
	s, err := store.Open(ctx, store.Options{Root: l.root})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer s.Close()
	if err := l.moveAtOnce(ctx, s, entries); err != nil {
		return err
	}
	open := map[string]entry{} // what was not acknowledged, by session
	for _, e := range entries {
		switch {
		case e.Op == "fail":
			return fmt.Errorf("the process itself failed: %s", e.Text)
		case !e.Ack:
			open[e.Session] = e
			continue
		}
		delete(open, e.Session)
		l.acked++
		l.expect(e)
	}
	for id, x := range l.want {
		if err := l.compare(ctx, s, id, x, open); err != nil {
			return fmt.Errorf("session %s, in the middle of %+v: %w", id, open[id], err)
		}
	}
	if err := s.Close(); err != nil {
		return err
	}
	return l.whole(ctx, n)
}

// expect adds what an acknowledged operation has done.
func (l *lane) expect(e entry) {
	x := l.of(e.Session)
	switch e.Op {
	case "append":
		x.nodes[e.Node] = e.Text
	case "end":
		x.nodes[e.Node] = e.Text
	case "field":
		x.fields[e.Key] = e.Text
	case "name":
		x.names[e.Node] = e.Text
	case "delete":
		x.nodes, x.names = map[string]string{}, map[string]string{} // see known
	case "remove":
		x.gone = true
	}
	if e.Head != "" {
		x.head = strings.TrimPrefix(e.Head, "ROOT") // the sentinel reads as no head
	}
	if e.Op == "append" || e.Op == "turn" {
		x.names = map[string]string{} // a name moves along with its tip
	}
}

func (l *lane) of(id string) *expected {
	x := l.want[id]
	if x == nil {
		x = &expected{nodes: map[string]string{}, fields: map[string]string{}, names: map[string]string{}}
		l.want[id] = x
	}
	return x
}

// compare looks for everything acknowledged in one session. The operation in
// the middle of which the process died may have happened or not.
func (l *lane) compare(ctx context.Context, s *store.Store, id string, x *expected, open map[string]entry) error {
	mid := open[id]
	sn, err := s.Load(ctx, id)
	switch {
	case x.gone || mid.Op == "remove" && errors.Is(err, store.NotFound):
		if !errors.Is(err, store.NotFound) {
			return fmt.Errorf("it was deleted, and is there: %w", err)
		}
		x.gone = true
		return nil
	case err != nil:
		return err
	}
	for node, text := range x.nodes {
		got, err := sn.Text(node)
		if errors.Is(err, store.NotFound) && mid.Op == "delete" {
			continue
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", node, err)
		}
		if text != "" && strings.TrimSuffix(string(got), "\n") != text {
			return fmt.Errorf("node %s is %q, not %q", node, got, text)
		}
	}
	for k, v := range x.fields {
		f, _ := sn.Field(k)
		if f.Text != v && !(mid.Op == "field" && mid.Key == k && f.Text == mid.Text) {
			return fmt.Errorf("%s is %q, not %q", k, f.Text, v)
		}
	}
	names := map[string]string{}
	for _, b := range sn.Branches() {
		names[b.Head] = b.Name
	}
	for node, name := range x.names {
		if names[node] != name && !slices.Contains([]string{"name", "append", "turn", "delete"}, mid.Op) {
			return fmt.Errorf("branch %s is called %q, not %q", node, names[node], name)
		}
	}
	moves := map[string]bool{"append": true, "move": true, "turn": true, "delete": true}
	if x.head != "" && sn.Head != x.head && !moves[mid.Op] {
		return fmt.Errorf("the head is %s, not %s", sn.Head, x.head)
	}
	return l.adopt(sn, x)
}

// adopt takes what was found as what must be found after the next kill.
func (l *lane) adopt(sn *store.Snapshot, x *expected) error {
	x.head = sn.Head
	x.nodes = map[string]string{}
	for n := range sn.Index.All() {
		text, err := sn.Text(n.ID)
		if err != nil {
			return fmt.Errorf("node %s: %w", n.ID, err)
		}
		x.nodes[n.ID] = strings.TrimSuffix(string(text), "\n")
		if n.Status == "running" {
			x.nodes[n.ID] = ""
		}
	}
	for _, k := range []string{"title", "group"} {
		f, _ := sn.Field(k)
		x.fields[k] = f.Text
	}
	x.names = map[string]string{}
	for _, b := range sn.Branches() {
		if b.Named {
			x.names[b.Head] = b.Name
		}
	}
	return nil
}

// moveAtOnce: a run that died with its process stands in nobody's way, without
// any reconciliation.
func (l *lane) moveAtOnce(ctx context.Context, s *store.Store, entries []entry) error {
	for i := range loadSessions {
		id := fmt.Sprintf("s%d", i)
		sn, err := s.Load(ctx, id)
		if err != nil {
			return err
		}
		if active, err := s.RunIsActive(ctx, id); err != nil || active {
			return fmt.Errorf("session %s, status %s: the run of a dead process counts as active, %w", id, sn.Status(), err)
		}
		if sn.Status() != "running" {
			continue
		}
		head := sn.Head
		if _, err := s.SetHead(ctx, id, sn.Index.At(1).ID, store.HeadMove{}); err != nil {
			return fmt.Errorf("session %s, a move after the kill: %w", id, err)
		}
		if _, err := s.SetHead(ctx, id, head, store.HeadMove{}); err != nil {
			return err
		}
	}
	return nil
}

// whole checks the store as a whole.
func (l *lane) whole(ctx context.Context, n int) error {
	later := func() time.Time { return time.Now().Add(time.Minute) } // no row is on its way any more
	s, err := store.Open(ctx, store.Options{Root: l.root, Reconcile: store.ReconcileAuto, Clock: later})
	if err != nil {
		return err
	}
	defer s.Close()
	st, err := capture(ctx, s)
	if err != nil {
		return err
	}
	if err := sound(ctx, s, st, nil); err != nil {
		return err
	}
	if n%fsckKills == 0 {
		return fsck(l.t, l.root, st)
	}
	return nil
}
