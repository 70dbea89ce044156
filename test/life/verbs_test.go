package life

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestVerbThenMount: what a verb did is there when it has ended, on a mount that
// had everything of before in the kernel's caches. Nothing is waited for.
func TestVerbThenMount(t *testing.T) {
	store, state := harness.Golden(t, "chat_branches"), t.TempDir()
	for name, opt := range map[string]harness.Options{
		"read-write": {Store: store, State: state},
		"read-only":  {Store: store, State: state, Args: []string{"--read-only"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := harness.Start(t, opt)
			verb := func(args ...string) {
				t.Helper()
				if r := harness.CLI(t, store, state, args...); r.Code != 0 {
					t.Fatalf("%v: %s%s", args, r.Out, r.Err)
				}
			}
			for i := range 8 {
				if r := harness.Shell(t, m.Dir, `ls -lR . > /dev/null; cat sessions/*/head_id sessions/*/fields/* index.json > /dev/null`); r.Err != "" {
					t.Error(r.Err)
				}
				to := []string{tipTrunk, tipDetour, tipSame}[i%3]
				verb("head", nested, to)
				if got := read(t, m.Session(nested, "head_id")); got != to+"\n" {
					t.Errorf("round %d: head_id is %q, want %s", i, got, to)
				}
				if got, _ := os.Readlink(m.Session(nested, "head")); !strings.HasSuffix(got, to+".md") {
					t.Errorf("round %d: head is %q, want %s", i, got, to)
				}
				text := fmt.Sprint("said in round ", i)
				verb("append", nested, text)
				if got := read(t, m.Session(nested, "head")); got != text+"\n" {
					t.Errorf("round %d: the message at the head is %q", i, got)
				}
				if got := read(t, m.Session(nested, "transcript.md")); !strings.Contains(got, text) {
					t.Errorf("round %d: the transcript lacks it", i)
				}
				verb("set", nested, "title", text)
				if got := read(t, m.Session(nested, "fields", "title")); got != text+"\n" {
					t.Errorf("round %d: title %q", i, got)
				}
				if got := read(t, m.Path("index.json")); !strings.Contains(got, text) {
					t.Errorf("round %d: index.json lacks the title", i)
				}
				verb("archive", otherID)
				if slices.Contains(names(t, m.Path("sessions")), otherID) || !slices.Contains(names(t, m.Path("archived")), otherID) {
					t.Errorf("round %d: not archived", i)
				}
				verb("unarchive", otherID)
				fresh := fmt.Sprintf("%s_%d", name, i)
				if _, err := os.Lstat(m.Session(fresh)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("round %d: %s is there before it is made: %v", i, fresh, err)
				}
				verb("new", fresh)
				if _, err := os.Lstat(m.Session(fresh, "fields")); err != nil {
					t.Errorf("round %d: a new session: %v", i, err)
				}
				verb("rm", "--yes", fresh)
				if _, err := os.Lstat(m.Session(fresh)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("round %d: a removed session: %v", i, err)
				}
			}
		})
	}
}
