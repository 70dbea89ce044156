package recipes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestP06OutOfBand: what a command added stayed hidden behind a warm cache, was
// listed and could not be opened, or stayed away because somebody had asked
// for it too early; here it is there without a time-out to wait for, by listing
// and by lookup, whole and with its size.
func TestP06OutOfBand(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	for i := range 5 {
		quiet(t, s, `ls -lR . > /dev/null; cat messages/* transcript.md > /dev/null`)
		text := fmt.Sprintf("added outside, %d", i)
		n := len(names(t, s, "messages"))
		r := harness.CLI(t, m.Store, m.State, "append", nested, text)
		if r.Code != 0 {
			t.Fatal(r.Err)
		}
		name := fmt.Sprintf("%06d-user-%.8s.md", n+1, strings.TrimSpace(r.Out))
		seen := follow(t, filepath.Join(s, "messages"), name)
		if got := read(t, s, "messages", name); got != text+"\n" || !seen {
			t.Errorf("%s is %q", name, got)
		}
		if st := lstat(t, filepath.Join(s, "messages", name)); st.Size != int64(len(text))+1 {
			t.Errorf("%s has %d bytes", name, st.Size)
		}
	}
	// A name that somebody looked for before it was there.
	if _, err := os.Lstat(filepath.Join(s, "branch", "later")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if r := harness.CLI(t, m.Store, m.State, "branch", nested, "name", "@", "later"); r.Code != 0 {
		t.Fatal(r.Err)
	}
	if !follow(t, filepath.Join(s, "branch"), "later") {
		t.Error("branch/later is not there")
	}
}

// follow waits for a name by lookup and by listing, which must come together:
// once one has it, the other has it within the time that a notification takes.
func follow(t *testing.T, dir, name string) bool {
	t.Helper()
	looked := func() bool { _, err := os.Lstat(filepath.Join(dir, name)); return err == nil }
	listed := func() bool {
		for _, n := range names(t, dir) {
			if n == name {
				return true
			}
		}
		return false
	}
	return harness.Wait(harness.Slow(2*time.Second), func() bool { return looked() || listed() }) &&
		harness.Wait(harness.Slow(time.Second), func() bool { return looked() && listed() })
}
