package recipes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// target is a node to move to, and its name in branch/.
type target struct{ id, branch string }

// TestP05Head: a link kept its old target in the kernel's cache, or had no
// length; here every way to read head agrees right after a move, by the mount
// and by the command, it is relative, never dangles, and its size is its
// target's length.
func TestP05Head(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	head := filepath.Join(s, "head")
	for i, x := range slices.Repeat([]target{{tipTrunk, "trunk"}, {tipDetour, "détour ☂"}, {tipSame, "same name~" + tipSame}}, 3) {
		if i%2 == 0 {
			quiet(t, s, `ln -sfn "branch/$1" head`, x.branch)
		} else if r := harness.CLI(t, m.Store, m.State, "head", nested, x.id); r.Code != 0 {
			t.Fatalf("sessionfs head: %s", r.Err)
		} else if !harness.Wait(harness.Slow(2*time.Second), func() bool {
			link, err := os.Readlink(head)
			return err == nil && strings.Contains(link, x.id) && read(t, s, "head_id") == x.id+"\n"
		}) {
			t.Fatalf("the command's move is not seen")
		}
		link, err := os.Readlink(head)
		st, statErr := os.Lstat(head)
		if err != nil || statErr != nil {
			t.Fatal(err, statErr)
		}
		if link != "nodes/"+stem(t, m, x.id)+".md" || st.Size() != int64(len(link)) || st.Mode() != os.ModeSymlink|0o777 {
			t.Errorf("head is %q, size %d, mode %v", link, st.Size(), st.Mode())
		}
		if _, err := os.Stat(head); err != nil {
			t.Errorf("head dangles: %v", err)
		}
	}
	r := harness.Shell(t, s, "ls -l head | sed 's/.* -> //'; tar -cf - head | tar -tvf - | sed 's/.* -> //'")
	link, err := os.Readlink(head)
	if err != nil || r.Out != link+"\n"+link+"\n" {
		t.Errorf("ls and tar say %q, readlink %q", r.Out, link)
	}
	// The node that was renamed onto head stays where it was.
	node := filepath.Join(s, "nodes", stem(t, m, tipTrunk)+".md")
	if err := os.Rename(node, head); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(node); err != nil {
		t.Errorf("the renamed node is gone: %v", err)
	}
	if err := syscall.Access(node, 4); err != nil {
		t.Errorf("the renamed node cannot be read: %v", err)
	}
}
