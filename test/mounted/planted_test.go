package mounted

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestPlantedLink: a symlink in the place of attachments/ is refused with one
// errno, however often it is asked for.
func TestPlantedLink(t *testing.T) {
	store := harness.Golden(t, "chat_branches")
	work := filepath.Join(store, nested, "workdir")
	if err := errors.Join(os.MkdirAll(work, 0o700), os.Symlink(t.TempDir(), filepath.Join(work, "attachments"))); err != nil {
		t.Fatal(err)
	}
	m := harness.Start(t, harness.Options{Store: store})
	for range 3 {
		if _, err := os.Stat(m.Session(nested, "attachments")); !errors.Is(err, syscall.ELOOP) {
			t.Errorf("stat: %v", err)
		}
	}
}

// TestCopyIsGoneAtOnce: a session that was made for a copy is not listed any
// more once the copying has failed.
func TestCopyIsGoneAtOnce(t *testing.T) {
	m := start(t, "chat_branches")
	for range 8 {
		r := harness.Shell(t, m.Dir, `mkdir -p "$2"; cp -r sessions/"$1" sessions/copy 2> /dev/null; ls sessions; ls sessions/copy 2> /dev/null`, nested, t.TempDir())
		if strings.Contains(r.Out, "copy") || strings.Contains(r.Out, "head_id") {
			t.Errorf("after a copy that failed there is %q", r.Out)
		}
	}
}
