package recipes

import (
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestP11Destroy: rm and rmdir of what is not made to go were answered with
// success and took it out of the tree; here no ordinary command makes anything
// of a conversation vanish: each is refused, and the tree is what it was.
func TestP11Destroy(t *testing.T) {
	m := start(t, "chat_branches")
	s := m.Session(nested)
	node := stem(t, m, tipDetour)
	stable := func() map[string]string {
		all := harness.Tree(t, s)
		delete(all, "ctl")              // lists the outcome of commands
		delete(all, "workdir/.gitkeep") // an empty real file, which may go
		return all
	}
	before := stable()
	disk := harness.Tree(t, m.Repo(nested))
	for _, script := range []string{
		`rm -f head`, `unlink head`, `rm -f nodes/NODE.md`, `rm -rf nodes`, `rm -rf messages`, `rmdir branch`, `rm -rf branch`,
		`rm -rf branch/trunk`, `rm -f fields/title`, `rm -f meta.json`, `rm -f head_id ctl transcript.md`, `rm -rf history`, `rm -f append/user`,
		`mv nodes nodes.moved`, `mv head head.moved`, `mv messages/* "$1"`, `mv nodes/NODE.md nodes/other.md`, `mv branch/trunk head`,
		`cp --remove-destination /etc/hostname nodes/NODE.md`, `install -m 644 /etc/hostname fields/title`,
		`ln -sfn /etc head`, `ln -sf ../../../etc/passwd head`, `ln -sfn nodes head`, `mkdir nodes`, `mkdir nodes/x`, `mkdir messages/x`, `mkdir history/x`,
		`touch nodes/new.md`, `echo x > history/new.json`, `echo x > nodes/NODE.md`, `ln nodes/NODE.md hard`, `ln nodes/NODE.md nodes/hard.md`,
		`truncate -s 0 nodes/NODE.md`, `truncate -s 5 transcript.md`, `chmod 777 head_id`, `chmod 644 nodes/NODE.md`, `mkfifo nodes/pipe`,
		`mv -T branch/trunk nodes`, `cp /dev/null transcript.md && false`, `find . -mindepth 1 -maxdepth 1 ! -name attachments -exec rm -rf {} +`,
		`find nodes history messages fields append -delete`, `git clean -ffdx . 2>&1 || exit 1`, `cd .. && rm -rf SESSION`, `cd .. && mv SESSION other`, `cd .. && rmdir SESSION`,
		`cd ../.. && rm -rf sessions`, `cd ../.. && mv sessions elsewhere`, `cd ../.. && rm -f README.txt index.json`,
	} {
		script = strings.NewReplacer("NODE", node, "SESSION", nested).Replace(script)
		r := harness.Shell(t, s, script, t.TempDir())
		if r.Code == 0 {
			t.Errorf("%s: not refused", script)
		}
		if d := harness.Difference(before, stable()); len(d) > 0 {
			t.Fatalf("%s (exit status %d, %s) changed: %q", script, r.Code, r.Err, d)
		}
	}
	after := harness.Tree(t, m.Repo(nested))
	delete(disk, "workdir/.gitkeep")
	delete(after, "workdir/.gitkeep")
	if d := harness.Difference(disk, after); len(d) > 0 {
		t.Errorf("the repository changed: %q", d)
	}
}
