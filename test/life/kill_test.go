package life

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// killed kills a mount's daemon and mounts again at the same place: there is
// one mount, and it answers.
func killed(t *testing.T, m *harness.Mount) *harness.Mount {
	t.Helper()
	m.Kill()
	if _, err := os.ReadDir(m.Dir); !errors.Is(err, syscall.ENOTCONN) {
		t.Errorf("a killed daemon's mountpoint: %v, want %v", err, syscall.ENOTCONN)
	}
	next := harness.Start(t, harness.Options{Store: m.Store, Dir: m.Dir, State: m.State, Warnings: []string{"WARN"}})
	if n := harness.Mounts(m.Dir); n != 1 {
		t.Fatalf("%d mounts are on %s", n, m.Dir)
	}
	return next
}

func mount(t *testing.T) *harness.Mount {
	t.Helper()
	return harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Warnings: []string{"WARN"}})
}

// TestKilledWithOpenFiles: who has files of the dead mount open is told so,
// also when it has been replaced, and is in nobody's way.
func TestKilledWithOpenFiles(t *testing.T) {
	m := mount(t)
	var open []*os.File
	for _, name := range []string{"transcript.md", "fields/title", "meta.json", "ctl", "attachments", "messages"} {
		f, err := os.Open(m.Session(nested, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		open = append(open, f)
	}
	next := killed(t, m)
	for _, f := range open {
		_, err := f.Read(make([]byte, 1))
		if errors.Is(err, syscall.EISDIR) {
			_, err = f.Readdirnames(1)
		}
		if !errors.Is(err, syscall.ENOTCONN) {
			t.Errorf("%s of the dead mount: %v, want %v", filepath.Base(f.Name()), err, syscall.ENOTCONN)
		}
	}
	read(t, next.Session(nested, "transcript.md"))
	if err := put(next.Session(nested, "append", "user"), "after it\n"); err != nil {
		t.Errorf("append after it: %v", err)
	}
}

// TestKilledWithScratchFiles: editors' files and half a message, which only
// the dead daemon had, are in failed/ of the next mount, and no part of the
// session.
func TestKilledWithScratchFiles(t *testing.T) {
	m := mount(t)
	before := outputs(t, m.Repo(nested))
	if err := os.WriteFile(m.Session(nested, ".notes.swp"), []byte("an editor's own"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(m.Session(nested, "append", "user"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("the half of a sen"); err != nil {
		t.Fatal(err)
	}
	edited := m.Session(nested, "messages", names(t, m.Session(nested, "messages"))[0])
	e, err := os.OpenFile(edited, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.WriteString("half an edit"); err != nil {
		t.Fatal(err)
	}
	next := killed(t, m)
	for _, text := range []string{"an editor's own", "the half of a sen", "half an edit"} {
		if got := kept(t, next.State); !strings.Contains(got, text) {
			t.Errorf("failed/ does not have %q: %q", text, got)
		}
	}
	if _, err := os.Lstat(next.Session(nested, ".notes.swp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the scratch file of the dead daemon: %v", err)
	}
	if after := outputs(t, next.Repo(nested)); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the session has other messages: %q, were %q", after, before)
	}
}

// TestKilledDuringWrites: of what writers were told is done nothing is lost,
// what they were in the middle of is there whole or not at all, and the store
// is sound. They go on as soon as there is a mount again.
func TestKilledDuringWrites(t *testing.T) {
	m := mount(t)
	const writers, rounds = 4, 3
	acked := map[string]bool{}
	for round := range rounds {
		type answer struct {
			text, said string
			err        error
		}
		answers := make(chan answer)
		for w := range writers {
			p := harness.Spawn(t, "append", m.Session(nested, "append", "user"))
			go func() {
				for i := 0; ; i++ {
					a := answer{text: fmt.Sprintf("round %d writer %d message %d", round, w, i)}
					a.err = p.Call(a.text+"\n", &a.said)
					answers <- a
					if a.err != nil || a.said != "" {
						return
					}
				}
			}()
		}
		begun, ended := map[string]bool{}, 0
		deadline := time.AfterFunc(harness.Slow(time.Minute), m.Kill)
		for done := 0; ended < writers; {
			a := <-answers
			begun[a.text] = true
			if a.err != nil || a.said != "" {
				ended++
				continue
			}
			acked[a.text] = true
			if done++; done == 20+5*round { // in the middle of the next ones
				m.Kill()
			}
		}
		deadline.Stop()
		m = killed(t, m)
		all := outputs(t, m.Repo(nested))
		for text := range begun {
			if n := times(all, text); n > 1 || n == 0 && acked[text] {
				t.Errorf("%q is there %d times; acknowledged: %v", text, n, acked[text])
			}
		}
		for text := range acked {
			if times(all, text) != 1 {
				t.Errorf("%q of an earlier round is lost", text)
			}
		}
		if r := harness.CLI(t, m.Store, m.State, "check", nested); r.Code != 0 {
			t.Errorf("check: %s%s", r.Out, r.Err)
		}
	}
	if len(acked) < 60 {
		t.Errorf("only %d messages were written", len(acked))
	}
}

// TestKilledDuringARun: a run whose daemon died is over, and says how.
func TestKilledDuringARun(t *testing.T) {
	m := mount(t)
	ctl, err := os.OpenFile(m.Session(nested, "ctl"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ctl.Close()
	if _, err := ctl.WriteString("begin\n"); err != nil {
		t.Fatal(err)
	}
	if err := put(m.Session(nested, "append", "assistant"), "as far as it came\n"); err != nil {
		t.Fatal(err)
	}
	next := killed(t, m)
	eventually(t, "the end of the run", func() bool { return read(t, next.Session(nested, "fields", "status")) == "interrupted\n" })
	if got := read(t, next.Session(nested, "head")); got != "as far as it came\n" {
		t.Errorf("the head is %q", got)
	}
	if err := put(next.Session(nested, "head_id"), tipDetour+"\n"); err != nil {
		t.Errorf("a move after it: %v", err)
	}
}
