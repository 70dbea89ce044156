package mounted

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// load is one mount under many readers and writers.
type load struct {
	t        *testing.T
	m        *harness.Mount
	until    time.Time
	talks    []*talk
	crowd    *crowd
	wrong    atomic.Int64
	looks    atomic.Int64
	writes   atomic.Int64
	busy     atomic.Int64
	stopped  atomic.Bool
	checkers []checker
}

// talk is a session in which one writer talks and moves the head, and another
// one changes everything else.
type talk struct {
	id    string
	heads *register[moment]
	title *register[string]
	file  *register[string] // attachments/latest

	mu  sync.Mutex
	all []*said // in the order of their making
}

// crowd is a session to which two writers append at once.
type crowd struct {
	id           string
	begun, acked [2]atomic.Int64
}

// TestManyAtOnce: 64 readers and 8 writers on one mount for a minute. Each
// reader holds what it sees to the states that there were between just before
// and just after its look. At the end the store is whole, nothing is left
// open, and the unmount works.
func TestManyAtOnce(t *testing.T) {
	t.Parallel() // with what mostly waits
	addr := harness.FreeAddr(t)
	m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Args: []string{"--metrics-addr", addr, "--pprof"}, Limit: 4 * time.Minute})
	routines := harness.Profile(t, addr, "goroutine", "goroutine profile: total ")
	l := newLoad(t, m)
	var readers, writers sync.WaitGroup
	for i := range 64 {
		readers.Go(func() { l.read(rand.New(rand.NewPCG(uint64(i), 1))) })
	}
	for i, s := range l.talks {
		writers.Go(func() { l.talk(s, rand.New(rand.NewPCG(uint64(i), 2))) })
		writers.Go(func() { l.arrange(s, rand.New(rand.NewPCG(uint64(i), 3))) })
	}
	for w := range l.crowd.begun {
		writers.Go(func() { l.crowdIn(w) })
	}
	writers.Wait()
	l.stopped.Store(true)
	readers.Wait()
	t.Logf("%d looks, %d changes, %d of them asked to come again", l.looks.Load(), l.writes.Load(), l.busy.Load())
	if l.looks.Load() < 500 || l.writes.Load() < 40 {
		t.Error("that was no load")
	}
	if !harness.Wait(harness.Slow(5*time.Second), func() bool {
		return harness.Profile(t, addr, "goroutine", "goroutine profile: total ") <= routines+8 // those that wait for requests
	}) {
		t.Errorf("%d goroutines, at the start there were %d", harness.Profile(t, addr, "goroutine", "goroutine profile: total "), routines)
	}
	m.Stop()
	l.checkStore()
}

// newLoad makes the sessions of a load.
func newLoad(t *testing.T, m *harness.Mount) *load {
	t.Helper()
	length := time.Minute
	if testing.Short() {
		length = 5 * time.Second
	}
	l := &load{t: t, m: m, crowd: &crowd{id: "crowd_00000004"}, checkers: checkers()}
	for i := range 3 {
		s := &talk{id: fmt.Sprintf("talk_0000000%d", i), title: newRegister(""), file: newRegister("")}
		if err := os.Mkdir(m.Session(s.id), 0o700); err != nil {
			t.Fatal(err)
		}
		first := s.say("user", nil)
		first.id.Store(s.ownID(first))
		s.heads = newRegister(moment{first, 1})
		err := errors.Join(
			put(m.Session(s.id, "append", "message.json"), s.message(first)),
			put(m.Session(s.id, "fields", "title"), "at first\n"),
			os.WriteFile(m.Session(s.id, "attachments", "latest"), []byte("at first"), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		s.title, s.file = newRegister("at first"), newRegister("at first")
		l.talks = append(l.talks, s)
	}
	if err := os.Mkdir(m.Session(l.crowd.id), 0o700); err != nil {
		t.Fatal(err)
	}
	l.until = time.Now().Add(length)
	return l
}

// say makes a message of the session that is not yet written.
func (s *talk) say(role string, pred *said) *said {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.all)
	m := &said{role: role, text: words(fmt.Sprintf("%s.%d", s.id, n), n*7), pred: pred, made: n}
	s.all = append(s.all, m)
	return m
}

// ownID is an id that the writer makes up.
func (s *talk) ownID(m *said) string {
	return fmt.Sprintf("%s%07xaaaa", s.id[len(s.id)-1:], m.made+1)
}

// message is the message as append/message.json takes it.
func (s *talk) message(m *said) string {
	pred := "ROOT"
	if m.pred != nil {
		pred = m.pred.ID()
	}
	return fmt.Sprintf(`{"id": %q, "role": %q, "content": %q, "predecessor": %q}`, m.ID(), m.role, m.text, pred)
}

// any is one of the messages that are there.
func (s *talk) any(r *rand.Rand) *said {
	made := s.heads.last().made
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[r.IntN(made)]
}

// change makes a change until it is not told to come again. Any other refusal
// is a fault.
func (l *load) change(what string, do func() error) {
	for range 60 {
		err := do()
		if err == nil {
			l.writes.Add(1)
			return
		}
		if !errors.Is(err, syscall.EBUSY) {
			l.fault("%s: %v", what, err)
			return
		}
		l.busy.Add(1)
	}
	l.fault("%s is refused again and again", what)
}

func (l *load) fault(format string, args ...any) {
	if l.wrong.Add(1) <= 20 {
		l.t.Errorf(format, args...)
	}
}

func (l *load) over() bool { return time.Now().After(l.until) || l.wrong.Load() > 20 }

// talk appends messages, edits, and moves the head.
func (l *load) talk(s *talk, r *rand.Rand) {
	for n := 0; !l.over(); n++ {
		switch head := s.heads.last().head; n % 8 {
		case 0, 3:
			l.appendMessage(s, s.say([]string{"user", "assistant"}[r.IntN(2)], head), true)
		case 1:
			l.append(s, s.say("assistant", head))
		case 4:
			l.append(s, s.say("user", head))
		case 2:
			l.edit(s, head)
		case 6:
			at := s.any(r)
			l.appendMessage(s, s.say("user", at), at == head)
		default:
			l.move(s, s.any(r), n)
		}
	}
}

// appendMessage writes a message with an id of its own; it becomes the head
// only where it continues the head.
func (l *load) appendMessage(s *talk, m *said, moves bool) {
	m.id.Store(s.ownID(m))
	next := moment{s.heads.last().head, m.made + 1}
	if moves {
		next.head = m
	}
	s.heads.begin(next)
	l.change("append/message.json", func() error { return put(l.m.Session(s.id, "append", "message.json"), s.message(m)) })
	s.heads.ack()
}

// append writes a text; the store makes up the id.
func (l *load) append(s *talk, m *said) {
	s.heads.begin(moment{m, m.made + 1})
	l.change("append/"+m.role, func() error { return put(l.m.Session(s.id, "append", m.role), m.text+"\n") })
	l.learn(s, m)
}

// learn reads the id that the store made up.
func (l *load) learn(s *talk, m *said) {
	b, err := os.ReadFile(l.m.Session(s.id, "head_id"))
	if err != nil {
		l.fault("head_id: %v", err)
	}
	m.id.Store(strings.TrimSpace(string(b)))
	s.heads.ack()
}

// edit saves another text to the last message of a user's.
func (l *load) edit(s *talk, head *said) {
	branch := head.branch()
	place := len(branch)
	for branch[place-1].role != "user" {
		place--
	}
	old := branch[place-1]
	m := s.say("user", old.pred)
	s.heads.begin(moment{m, m.made + 1})
	l.change("an edit", func() error { return put(l.m.Session(s.id, "messages", old.fileName(place)), m.text+"\n") })
	l.learn(s, m)
}

// move makes a message the head, in each way.
func (l *load) move(s *talk, to *said, n int) {
	dir := l.m.Session(s.id)
	stem := l.stem(dir, to.ID())
	way := gestures[n/8%4]
	s.heads.begin(moment{to, s.heads.last().made})
	l.change(way.name, func() error { return way.move(dir, target{ID: to.ID(), Stem: stem}) })
	s.heads.ack()
}

// stem finds a node's file name without its ending.
func (l *load) stem(dir, id string) string {
	found, err := filepath.Glob(filepath.Join(dir, "nodes", "*-"+id+".md"))
	if err != nil || len(found) != 1 {
		l.fault("nodes/ has %d files of %s, %v", len(found), id, err)
		return ""
	}
	return strings.TrimSuffix(filepath.Base(found[0]), ".md")
}

// arrange changes the title, the attachments and the branches' names, and
// commits.
func (l *load) arrange(s *talk, r *rand.Rand) {
	dir := l.m.Session(s.id)
	for n := 0; !l.over(); n++ {
		switch n % 6 {
		case 0, 3:
			title := fmt.Sprintf("title %d of %s", n, s.id)
			s.title.begin(title)
			l.change("fields/title", func() error { return put(filepath.Join(dir, "fields", "title"), title+"\n") })
			s.title.ack()
		case 1, 4:
			text := words(fmt.Sprint("file.", n), n*31)
			s.file.begin(text)
			l.change("a save in attachments/", func() error {
				tmp := filepath.Join(dir, "attachments", "new")
				return errors.Join(os.WriteFile(tmp, []byte(text), 0o600), os.Rename(tmp, filepath.Join(dir, "attachments", "latest")))
			})
			s.file.ack()
		case 2:
			stem := l.stem(dir, s.any(r).ID())
			l.change("a branch's name", func() error { return os.Symlink("../nodes/"+stem+".md", filepath.Join(dir, "branch", "here")) })
			l.change("another name", func() error {
				return os.Rename(filepath.Join(dir, "branch", "here"), filepath.Join(dir, "branch", "there"))
			})
			l.change("no name", func() error { return syscall.Rmdir(filepath.Join(dir, "branch", "there")) })
		case 5:
			l.change("a commit", func() error { return put(filepath.Join(dir, "ctl"), "commit\n") })
		}
	}
}

// crowdIn is one of two writers to a session.
func (l *load) crowdIn(w int) {
	for n := 0; !l.over(); n++ {
		text := words(fmt.Sprintf("crowd.%d.%d", w, n), n)
		l.crowd.begun[w].Add(1)
		l.change("append/user", func() error { return put(l.m.Session(l.crowd.id, "append", "user"), text+"\n") })
		l.crowd.acked[w].Add(1)
	}
}

// read looks at one thing after the other.
func (l *load) read(r *rand.Rand) {
	for !l.stopped.Load() && l.wrong.Load() <= 20 {
		if r.IntN(8) == 0 {
			l.lookAtCrowd()
			continue
		}
		s, c := l.talks[r.IntN(len(l.talks))], l.checkers[r.IntN(len(l.checkers))]
		if bad := c.look(l, s, r); bad != "" {
			l.fault("%s of %s: %s", c.what, s.id, bad)
		}
		l.looks.Add(1)
	}
}

// lookAtCrowd: every acknowledged message is in the transcript, each writer's
// in order, whole and once.
func (l *load) lookAtCrowd() {
	var low, high [2]int64
	for w := range low {
		low[w] = l.crowd.acked[w].Load()
	}
	b, err := os.ReadFile(l.m.Session(l.crowd.id, "transcript.md"))
	if err != nil {
		l.fault("the crowd's transcript: %v", err)
		return
	}
	text, n := string(b), 0
	for w := range high {
		high[w] = l.crowd.begun[w].Load()
		rest, seen := text, int64(0)
		for ; ; seen++ {
			_, after, ok := strings.Cut(rest, words(fmt.Sprintf("crowd.%d.%d", w, seen), int(seen)))
			if !ok {
				break
			}
			rest = after
		}
		if seen < low[w] || seen > high[w] {
			l.fault("the crowd's transcript has %d messages of writer %d, who had written %d to %d", seen, w, low[w], high[w])
		}
		n += int(seen)
	}
	if got := strings.Count(text, marker); got != 2*n {
		l.fault("the crowd's transcript has %d marks for %d messages", got, n)
	}
	l.looks.Add(1)
}

// checkStore: what was acknowledged is in the store on disk, and Git finds
// nothing wrong.
func (l *load) checkStore() {
	for _, s := range l.talks {
		nodes := storedNodes(l.t, l.m, s.id)
		for _, m := range s.all[:s.heads.last().made] {
			n, ok := nodes[m.ID()]
			if pred := m.pred; !ok || n.Output != m.text || pred != nil && n.Predecessor != pred.ID() {
				l.t.Errorf("%s: message %d (%s) is %.80q after %s", s.id, m.made, m.ID(), n.Output, n.Predecessor)
			}
		}
		if head := headOf(l.t, l.m, s.id); head != s.heads.last().head.ID() {
			l.t.Errorf("%s: the head on disk is %s, want %s", s.id, head, s.heads.last().head.ID())
		}
		if r := harness.Shell(l.t, l.m.Repo(s.id), "git status --porcelain && git fsck --strict"); r.Out != "" || r.Err != "" {
			l.t.Errorf("%s: git says %q %q", s.id, r.Out, r.Err)
		}
	}
	if r := harness.CLI(l.t, l.m.Store, l.m.State, "check"); r.Code != 0 {
		l.t.Errorf("check: %s%s", r.Out, r.Err)
	}
}
