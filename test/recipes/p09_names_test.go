package recipes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/store/storetest"
	"github.com/sessionfs/sessionfs/test/harness"
)

// titles are what people and programs call things.
var titles = []string{
	"plain", "a/b/c", "..", ".", " ", "-rf", "tab\there", "new\nline", "nul\x00byte", "CON", `a:b*c?"<>|`,
	strings.Repeat("あ", 200), strings.Repeat("é", 128), strings.Repeat("x", 5000), strings.Repeat("👩‍👩‍👧‍👦", 40),
	"caf\u00e9", "cafe\u0301", "Plain", "PLAIN", "plain", "\u202eevil", "~", ".hidden", ".git", "HEAD", "head", "branch",
	"node_modules", "trailing.", "trailing ", "", "100%", "%2F",
}

// TestP09Names: one title with a slash cut a listing short, and an empty one
// made it fail; here each title and each branch name gives one name that
// opens, is a lawful one, stays the same after a remount, and leads back to
// its object.
func TestP09Names(t *testing.T) {
	store := filepath.Join(t.TempDir(), "sessions")
	var b strings.Builder
	for i, title := range titles {
		fmt.Fprintf(&b, "session titled_%08d %s\nroot\nuser t%02d hello\n", i, strconv.Quote("title="+title), i)
	}
	b.WriteString("session named\nroot\nuser first hello\n")
	for i := range titles {
		fmt.Fprintf(&b, "llm node%04d <first hi\n", i)
	}
	for i, name := range titles {
		fmt.Fprintf(&b, "name node%04d %s\n", i, strconv.Quote(name))
	}
	storetest.Build(t, store, b.String())
	m := harness.Start(t, harness.Options{Store: store})
	before := map[string][]string{}
	for _, dir := range []string{"views/title", "sessions/named/branch"} {
		before[dir] = names(t, m.Path(dir))
		lawfulNames(t, m.Path(dir), before[dir])
	}
	var ids []string
	for _, name := range before["views/title"] {
		to, err := os.Readlink(m.Path("views", "title", name))
		if err != nil || read(t, m.Path("views", "title", name, "meta.json")) == "" {
			t.Errorf("views/title/%s: %v", name, err)
		}
		ids = append(ids, filepath.Base(to))
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != len(titles)+1 {
		t.Errorf("views/title leads to %d sessions of %d", len(slices.Compact(ids)), len(titles)+1)
	}
	var tips []string
	for _, name := range before["sessions/named/branch"] {
		chain := names(t, m.Session("named", "branch", name))
		tips = append(tips, chain[len(chain)-1])
		if read(t, m.Session("named", "branch", name, chain[len(chain)-1])) != "hi\n" {
			t.Errorf("branch/%s leads elsewhere", name)
		}
	}
	if len(tips) != len(titles) {
		t.Errorf("%d branches of %d: %q", len(tips), len(titles), before["sessions/named/branch"])
	}
	m.Stop()
	m = harness.Start(t, harness.Options{Store: store})
	for dir, was := range before {
		if is := names(t, m.Path(dir)); !slices.Equal(is, was) {
			t.Errorf("%s after a remount: %q, was %q", dir, is, was)
		}
	}
}

// lawfulNames checks what a directory lists, and that it lists no more.
func lawfulNames(t *testing.T, dir string, list []string) {
	t.Helper()
	for _, name := range list {
		odd := strings.IndexFunc(name, unicode.IsControl) >= 0 || strings.TrimSpace(name) != name || strings.HasPrefix(name, "-")
		if len(name) > 255 || !utf8.ValidString(name) || odd {
			t.Errorf("%s lists %q (%d bytes)", dir, name, len(name))
		}
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("listed, and not there: %v", err)
		}
	}
	if all := slices.Clone(list); len(slices.Compact(all)) != len(list) {
		t.Errorf("%s lists a name twice", dir)
	}
	for _, n := range []int{255, 256, 1024, 4000} {
		_, err := os.Lstat(filepath.Join(dir, strings.Repeat("x", n)))
		if !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ENAMETOOLONG) {
			t.Errorf("a name of %d bytes in %s: %v", n, dir, err)
		}
	}
}
