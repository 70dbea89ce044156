package life

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// two mounts one store twice, as one user does who mounts it at two places.
func two(t *testing.T) (a, b *harness.Mount) {
	t.Helper()
	store, state := harness.Golden(t, "chat_branches"), t.TempDir()
	a = harness.Start(t, harness.Options{Store: store, State: state})
	b = harness.Start(t, harness.Options{Store: store, State: state})
	return a, b
}

// TestTwoMounts: what is done through one mount is seen through the other,
// which has everything of before in the kernel's caches.
func TestTwoMounts(t *testing.T) {
	a, b := two(t)
	stem := func(id string) string {
		for _, n := range names(t, a.Session(nested, "nodes")) {
			if strings.HasSuffix(n, "-"+id+".md") {
				return n
			}
		}
		t.Fatalf("no node %s", id)
		return ""
	}
	for i, m := range slices.Repeat([]*harness.Mount{a, b}, 4) {
		other := []*harness.Mount{b, a}[i%2]
		here, there := m.Session(nested), other.Session(nested)
		if r := harness.Shell(t, there, `ls -lR . > /dev/null; cat head_id transcript.md fields/* > /dev/null`); r.Err != "" {
			t.Error(r.Err)
		}
		try := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("round %d: %s: %v", i, what, err)
			}
		}
		text := fmt.Sprintf("said in round %d", i)
		try("append", put(here+"/append/user", text+"\n"))
		eventually(t, "a message", func() bool { return read(t, there, "head") == text+"\n" })
		eventually(t, "the transcript", func() bool { return strings.Contains(read(t, there, "transcript.md"), text) })
		eventually(t, "the messages", func() bool { return slices.Equal(names(t, there, "messages"), names(t, here, "messages")) })
		to := []string{tipTrunk, tipDetour, tipSame}[i%3]
		try("move", os.Rename(here+"/nodes/"+stem(to), here+"/head"))
		eventually(t, "a move of the head", func() bool { return read(t, there, "head_id") == to+"\n" })
		eventually(t, "the link", func() bool { link, err := os.Readlink(there + "/head"); return err == nil && link == "nodes/"+stem(to) })
		try("title", put(here+"/fields/title", text+"\n"))
		eventually(t, "a title", func() bool { return read(t, there, "fields", "title") == text+"\n" })
		try("a name", os.Mkdir(fmt.Sprintf("%s/branch/name-%d", here, i), 0o700))
		eventually(t, "a branch's name", func() bool { return slices.Contains(names(t, there, "branch"), fmt.Sprint("name-", i)) })
		try("attach", os.WriteFile(here+"/attachments/file", []byte(text), 0o600))
		if got := read(t, there, "attachments", "file"); got != text {
			t.Errorf("round %d: an attachment is %q there", i, got)
		}
		try("archive", os.Rename(m.Session(otherID), m.Path("archived", otherID)))
		eventually(t, "archiving", func() bool { return !slices.Contains(names(t, other.Path("sessions")), otherID) })
		try("unarchive", os.Rename(m.Path("archived", otherID), m.Session(otherID)))
		eventually(t, "unarchiving", func() bool { return slices.Contains(names(t, other.Path("sessions")), otherID) })
		fresh := fmt.Sprint("fresh_", i)
		try("mkdir", os.Mkdir(m.Session(fresh), 0o700))
		eventually(t, "a new session", func() bool { _, err := os.Stat(other.Session(fresh, "append", "user")); return err == nil })
		try("rmdir there", syscall.Rmdir(other.Session(fresh)))
		eventually(t, "a removed session", func() bool { _, err := os.Stat(m.Session(fresh)); return errors.Is(err, os.ErrNotExist) })
	}
}

// TestRunOnTheOtherMount: a run that was begun through one mount guards the
// head on the other one, there can be no second one, and its end is seen.
func TestRunOnTheOtherMount(t *testing.T) {
	a, b := two(t)
	ctl, err := os.OpenFile(a.Session(nested, "ctl"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ctl.Close()
	head := read(t, b.Session(nested, "head_id"))
	if _, err := ctl.WriteString("begin\n"); err != nil {
		t.Fatal(err)
	}
	there := b.Session(nested)
	eventually(t, "a run", func() bool { return read(t, there, "fields", "status") == "running\n" })
	for what, err := range map[string]error{
		"a move":        put(there+"/head_id", tipDetour+"\n"),
		"a question":    put(there+"/append/user", "in between\n"),
		"another run":   put(there+"/ctl", "begin\n"),
		"another state": put(there+"/fields/status", "done\n"),
	} {
		if !errors.Is(err, syscall.EBUSY) {
			t.Errorf("%s during a run on the other mount: %v, want %v", what, err, syscall.EBUSY)
		}
	}
	if got := read(t, b.Path(".sessionfs", "errors")); !strings.Contains(got, "\trun_active\t") {
		t.Errorf("errors: %q", got)
	}
	if got := read(t, there, "head_id"); got != head {
		t.Errorf("the head is %q, was %q", got, head)
	}
	if _, err := ctl.WriteString("end\n"); err != nil {
		t.Fatal(err)
	}
	if err := put(there+"/head_id", tipDetour+"\n"); err != nil {
		t.Errorf("a move after the run: %v", err)
	}
	eventually(t, "the move", func() bool { return read(t, a.Session(nested, "head_id")) == tipDetour+"\n" })
	eventually(t, "the end", func() bool { return read(t, there, "fields", "status") == "idle\n" })
}

// TestBothWrite: two writers on each of two mounts lose nothing and break no
// chain.
func TestBothWrite(t *testing.T) {
	a, b := two(t)
	const each = 15
	var wg sync.WaitGroup
	for w := range 4 {
		path := []*harness.Mount{a, b}[w%2].Session(nested, "append", "user")
		wg.Go(func() {
			for i := range each {
				if err := put(path, fmt.Sprintf("writer %d says %d\n", w, i)); err != nil {
					t.Errorf("writer %d, message %d: %v", w, i, err)
				}
			}
		})
	}
	wg.Wait()
	for _, m := range []*harness.Mount{a, b} {
		last := ""
		whole := soon(func() bool {
			last = read(t, m.Session(nested, "transcript.md"))
			for w := range 4 {
				for i := range each {
					if strings.Count(last, fmt.Sprintf("writer %d says %d\n", w, i)) != 1 {
						return false
					}
				}
			}
			return true
		})
		if !whole {
			t.Errorf("the branch does not have every message once:\n%s", last)
		}
	}
	if r := harness.CLI(t, a.Store, a.State, "check", nested); r.Code != 0 {
		t.Errorf("check: %s%s", r.Out, r.Err)
	}
}
