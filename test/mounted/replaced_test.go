package mounted

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestSessionReplacedByItsCopy: a session's directory that is moved away, with a
// copy made slowly in its place, is listed and followed again.
func TestSessionReplacedByItsCopy(t *testing.T) {
	for name, args := range map[string][]string{"mount": nil, "read-only": {"--read-only"}} {
		t.Run(name, func(t *testing.T) {
			m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Args: args, Warnings: []string{"."}})
			dir, copied, away := m.Repo(nested), filepath.Join(t.TempDir(), "copy"), t.TempDir()
			shell := func(script string, words ...string) {
				t.Helper()
				if r := harness.Shell(t, away, script, words...); r.Code != 0 {
					t.Fatal(r.Err)
				}
			}
			shell(`cp -a "$1" "$2"`, dir, copied)
			all := len(names(t, m.Session(nested, "nodes")))
			for range 12 {
				shell(`rm -rf g; mv "$1" g && stat "$3" > /dev/null 2>&1; cp -a "$2" "$1"`, dir, copied, m.Session(nested))
				within(t, "the session is listed", func() bool {
					_, err := os.Stat(m.Session(nested))
					return err == nil && slices.Contains(names(t, m.Path("sessions")), nested)
				})
				nodes := func() int {
					list, _ := os.ReadDir(m.Session(nested, "nodes"))
					return len(list)
				}
				within(t, "its nodes are listed", func() bool { return nodes() == all })
				shell(`rm "$1"/history/0018-*`, dir)
				within(t, "a node that was removed is listed no more", func() bool { return nodes() < all })
			}
		})
	}
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal(strings.Join([]string{"not within 10 s:", what}, " "))
		}
	}
}
