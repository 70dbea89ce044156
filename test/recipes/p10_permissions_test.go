package recipes

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestP10Permissions: with allow_other and nothing else anybody could write
// anything; here other users are kept out of both kinds of mount, and a chmod
// works or fails, but does not pretend.
func TestP10Permissions(t *testing.T) {
	if os.Geteuid() != 0 {
		harness.Missing(t, "root, who alone can be another user")
	}
	for _, args := range [][]string{nil, {"--allow-other"}} {
		// A mountpoint whose parents anybody may pass.
		base, err := os.MkdirTemp("", "open-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(base) })
		if err := os.Chmod(base, 0o755); err != nil {
			t.Fatal(err)
		}
		m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Dir: filepath.Join(base, "mnt"), Args: args})
		s := m.Session(nested)
		node := filepath.Join(s, "nodes", stem(t, m, tipTrunk)+".md")
		for what, script := range map[string]string{
			"list": `ls "$1"`, "read a field": `cat "$1/fields/title"`, "read a node": `cat "$2"`, "read the registry": `cat "$1/../../index.json"`,
			"write": `echo x > "$1/fields/title" && echo did`, "append": `echo x > "$1/append/user" && echo did`, "move": `echo trunk > "$1/head_id" && echo did`,
			"control": `echo begin > "$1/ctl" && echo did`, "delete": `rm -f "$1/head" && echo did`, "make": `mkdir "$1/../made" && echo did`,
		} {
			cmd := exec.Command("sh", "-c", script, "sh", s, node)
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			if out, err := cmd.Output(); err == nil || len(out) > 0 {
				t.Errorf("with %q nobody could %s: %.60q", args, what, out)
			}
		}
		title := filepath.Join(s, "fields", "title")
		if err := os.Chmod(title, 0o644); err == nil && lstat(t, title).Mode&0o777 != 0o644 {
			t.Error("chmod said that it had done what it had not")
		}
		quiet(t, m.Dir, `find . ! -type l -perm /077 ! -path '*/attachments*' ! -path '*/workdir*' ! -path '*/context*'`)
		if a, b := lstat(t, title).Uid, os.Getuid(); a != uint32(b) {
			t.Errorf("the owner is %d, who mounted is %d", a, b)
		}
		m.Stop()
	}
}
