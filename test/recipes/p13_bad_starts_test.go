package recipes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestP13BadStarts: a mount on a file left an entry behind, and one over its
// own store hung the machine; here every start that cannot work ends fast,
// says why in one clear line, and leaves no mount. Blanks and commas in a path
// are no reason.
func TestP13BadStarts(t *testing.T) {
	harness.RequireFUSE(t)
	store, state, dir := harness.Golden(t, "chat_branches"), t.TempDir(), t.TempDir()
	full := filepath.Join(dir, "full")
	below := filepath.Join(store, "mountpoint")
	for _, d := range []string{full, below, filepath.Join(dir, "empty"), filepath.Join(dir, "notastore")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(full, "keep"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "none"), filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	for what, args := range map[string][]string{
		"a missing mountpoint":    {"mount", filepath.Join(dir, "none")},
		"a file as mountpoint":    {"mount", filepath.Join(full, "keep")},
		"a dangling link":         {"mount", filepath.Join(dir, "dangling")},
		"a mountpoint with files": {"mount", full},
		"mount over the store":    {"mount", store},
		"mount below the store":   {"mount", below},
		"the store below it":      {"mount", filepath.Dir(store)},
		"a missing store":         {"mount", "--store", filepath.Join(dir, "nostore"), filepath.Join(dir, "empty")},
		"a file as store":         {"mount", "--store", filepath.Join(full, "keep"), filepath.Join(dir, "empty")},
		"no mountpoint":           {"mount"},
		"an unknown flag":         {"mount", "--frobnicate", filepath.Join(dir, "empty")},
		"an unknown option":       {"mount", "-o", "frobnicate", filepath.Join(dir, "empty")},
	} {
		begin := time.Now()
		r := harness.CLI(t, store, state, args...)
		if r.Code == 0 || time.Since(begin) > harness.Slow(5*time.Second) {
			t.Errorf("%s: exit status %d after %v", what, r.Code, time.Since(begin))
		}
		first, _, _ := strings.Cut(r.Err, "\n")
		if !strings.HasPrefix(first, "sessionfs: ") || strings.Contains(r.Err, "goroutine ") {
			t.Errorf("%s: it says %.300q", what, r.Err)
		}
		for _, d := range []string{full, below, store, filepath.Dir(store), filepath.Join(dir, "empty")} {
			if n := harness.Mounts(d); n != 0 {
				t.Fatalf("%s: a mount is left on %s", what, d)
			}
		}
	}
	m := harness.Start(t, harness.Options{Store: store, Dir: filepath.Join(t.TempDir(), "a b,c\\d")})
	read(t, m.Session(nested, "transcript.md"))
	if got := harness.FSType(m.Dir); got != "fuse.sessionfs" {
		t.Errorf("the file system's type is %q", got)
	}
}
