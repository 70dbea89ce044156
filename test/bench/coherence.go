package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// foreignRate is how many writes a second another program makes.
	foreignRate = 200
	// foreignSessions are written in turn.
	foreignSessions = 20
	// staleAfter is when a mount that still shows the old state counts as
	// stale for ever.
	staleAfter = 5 * time.Second
)

// coherenceGroup writes into a store as another program would, and looks when
// a mount shows it.
func coherenceGroup(s *suite) error {
	for _, mode := range []struct {
		name  string
		flags []string
	}{{"rw", nil}, {"ro", []string{"--read-only"}}} {
		if !s.wants("coherence/" + mode.name) {
			continue
		}
		if err := s.coherence(mode.name, mode.flags...); err != nil {
			return fmt.Errorf("%s: %w", mode.name, err)
		}
	}
	return nil
}

func (s *suite) coherence(mode string, flags ...string) error {
	root, err := s.corpus("foreign-"+mode, foreignSessions, func(n int) spec { return spec{smallID(n), 6, 400, repoFull} })
	if err != nil {
		return err
	}
	d, err := s.mount(root, flags...)
	if err != nil {
		return err
	}
	w := &foreignWriter{s: s, root: root, d: d}
	for n := range foreignSessions {
		w.sessions = append(w.sessions, &foreignSession{id: smallID(n), nodes: 6})
	}
	if err := s.command("", "grep", "-r", needle, d.path("sessions")); err != nil { // so that the kernel knows all
		return err
	}
	if err := w.storm(s.foreign); err != nil {
		return err
	}
	name := "coherence/foreign write seen (" + mode + ")"
	note := fmt.Sprintf("%d writes, %.0f a second; titles and appended messages in turn", len(w.seen), w.rate)
	raw := map[string][]float64{"seen": w.seen}
	s.add(figure{Name: name + ", p50", Unit: "ms", None: true, Value: 1e3 * percentile(w.seen, 50), Note: note})
	s.add(figure{Name: name + ", p99", Unit: "ms", Bound: 50, Value: 1e3 * percentile(w.seen, 99), Note: note, Raw: raw})
	if err := w.sameStamp(); err != nil {
		return err
	}
	w.final()
	s.add(figure{Name: "coherence/stale for ever (" + mode + ")", Unit: "", Bound: 0, Value: float64(len(w.stale)),
		Note: withFindings("titles, heads, links, listings, names missed before, texts of the same size and time", w.stale)})
	return d.stop()
}

// foreignSession is what the other program knows of a session.
type foreignSession struct {
	id    string
	nodes int
	title int
	mu    sync.Mutex // one write at a time
}

func (f *foreignSession) head() string { return nodeID(f.id, f.nodes-1) }

// foreignWriter is the other program, and who looks into the mount after it.
type foreignWriter struct {
	s        *suite
	root     string
	d        *daemon
	sessions []*foreignSession

	mu    sync.Mutex
	seen  []float64 // seconds until a write showed
	stale []string  // what never did
	rate  float64
}

// storm writes at the rate for a time, each write watched until it shows.
func (w *foreignWriter) storm(limit time.Duration) error {
	tick := time.NewTicker(time.Second / foreignRate)
	defer tick.Stop()
	began := time.Now()
	var wg sync.WaitGroup
	n := 0
	for ; time.Since(began) < limit && w.s.ctx.Err() == nil; n++ {
		<-tick.C
		f, title := w.sessions[n%len(w.sessions)], n/len(w.sessions)%2 == 0
		wg.Go(func() {
			look, err := w.write(f, title)
			if err != nil {
				w.never(err.Error())
				return
			}
			w.wait(look, time.Now())
		})
	}
	w.rate = float64(n) / time.Since(began).Seconds()
	wg.Wait()
	return w.s.ctx.Err()
}

// look is what must be seen after a write.
type look struct {
	what  string
	shown func() bool
}

// wait looks until the write shows.
func (w *foreignWriter) wait(l look, wrote time.Time) {
	for !l.shown() {
		if time.Since(wrote) > staleAfter || w.s.ctx.Err() != nil {
			w.never(l.what)
			break
		}
		time.Sleep(300 * time.Microsecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, time.Since(wrote).Seconds())
}

func (w *foreignWriter) never(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale = append(w.stale, what)
}

// write changes a session under its lock: a title, or a message with the head.
func (w *foreignWriter) write(f *foreignSession, title bool) (look, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	unlock, err := lockSession(w.root, f.id)
	if err != nil {
		return look{}, err
	}
	defer unlock()
	if title {
		f.title++
		want := f.title
		return look{f.id + " fields/title", func() bool { return w.number(f.id, "fields/title") >= want }}, w.meta(f)
	}
	// The name is missed first: that it was not there must not be kept.
	stem := nodeFile(f.id, f.nodes)
	future := w.d.session(f.id, "nodes", stem+".md")
	if err := noEntry(future); err != nil {
		return look{}, err
	}
	raw := message(nodeID(f.id, f.nodes), f.nodes, f.head(), "what somebody else said")
	if err := durably(filepath.Join(w.root, f.id, "history", stem+".json"), raw); err != nil {
		return look{}, err
	}
	f.nodes++
	want := f.nodes
	return look{f.id + " head_id", func() bool { return w.headSeq(f.id) >= want-1 && lstat(future) == nil }}, w.meta(f)
}

// meta replaces meta.json.
func (w *foreignWriter) meta(f *foreignSession) error {
	title := fmt.Sprintf("title %d", f.title)
	return durably(filepath.Join(w.root, f.id, "meta.json"), metaText(f.id, title, f.head(), 1700000000+float64(f.nodes)))
}

// number reads the number at the end of a file in the mount, -1 when there is
// none.
func (w *foreignWriter) number(id, file string) int {
	text, err := readText(w.d.session(id, file))
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(text[strings.LastIndexByte(text, ' ')+1:])
	if err != nil {
		return -1
	}
	return n
}

// headSeq is the place of the head in its conversation, as the mount has it.
func (w *foreignWriter) headSeq(id string) int {
	text, err := readText(w.d.session(id, "head_id"))
	if err != nil || len(text) != 14 {
		return -1
	}
	n, err := strconv.ParseInt(text[8:], 16, 64)
	if err != nil {
		return -1
	}
	return int(n)
}

// sameStamp gives messages another text of the same length, with the old
// modification time.
func (w *foreignWriter) sameStamp() error {
	for _, f := range w.sessions[:10] {
		stem := nodeFile(f.id, 1)
		shown := w.d.session(f.id, "nodes", stem+".md")
		path := filepath.Join(w.root, f.id, "history", stem+".json")
		before, err := readText(shown)
		if err != nil {
			return err
		}
		after := strings.ToUpper(before)
		if after == before {
			return errors.New("nothing to change in " + path)
		}
		if err := w.rewrite(path, before, after); err != nil {
			return err
		}
		w.wait(look{f.id + " text of the same size and time", func() bool { text, _ := readText(shown); return text == after }}, time.Now())
	}
	return nil
}

// rewrite replaces a text in a history file and keeps the file's time.
func (w *foreignWriter) rewrite(path, before, after string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	escape := func(s string) string { return strings.ReplaceAll(s, "\n", `\n`) }
	text := strings.Replace(string(raw), escape(before), escape(after), 1)
	if text == string(raw) || len(text) != len(raw) {
		return fmt.Errorf("%s does not hold the text that is shown", path)
	}
	temp := path + ".fedcba9876543210fedcba9876543210.tmp"
	if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
		return err
	}
	if err := os.Chtimes(temp, st.ModTime(), st.ModTime()); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// final compares what the mount shows in the end with what was written.
func (w *foreignWriter) final() {
	for _, f := range w.sessions {
		if n := w.number(f.id, "fields/title"); n != f.title {
			w.never(fmt.Sprintf("%s: title %d, want %d", f.id, n, f.title))
		}
		if head, _ := readText(w.d.session(f.id, "head_id")); head != f.head() {
			w.never(fmt.Sprintf("%s: head_id %s, want %s", f.id, head, f.head()))
		}
		if to, _ := os.Readlink(w.d.session(f.id, "head")); to != "nodes/"+nodeFile(f.id, f.nodes-1)+".md" {
			w.never(fmt.Sprintf("%s: head leads to %s", f.id, to))
		}
		for _, dir := range []string{"nodes", "messages", "history"} {
			if e, err := os.ReadDir(w.d.session(f.id, dir)); len(e) != f.nodes {
				w.never(fmt.Sprintf("%s: %d names in %s/, want %d, %v", f.id, len(e), dir, f.nodes, err))
			}
		}
	}
}

// lockSession takes a session's lock as every writer of a store does.
func lockSession(root, id string) (unlock func(), err error) {
	dir := filepath.Join(root, ".locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, id+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
