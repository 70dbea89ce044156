package format

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// migrate moves a session out of its project's folder.
func (st *story) migrate() {
	st.later(time.Minute)
	old := filepath.Join("kyoto", ".openprogram", "sessions", "local_plan")
	st.write(filepath.Join(old, "meta.json"), `{"id": "local_plan", "agent_id": "main", "title": "Plan", "source": "cli", "created_at": 1772000000.0, "updated_at": 1772000000.0, "head_id": null}`)
	st.write(filepath.Join(old, "workdir", ".gitkeep"), "")
	st.must(os.MkdirAll(filepath.Join(st.dir, old, "history"), 0o755))
	env := append(harness.Environ(st.t.TempDir()), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	for _, args := range [][]string{{"init", "-q", "-b", "main", "--template="}, {"add", "-A"}, {"commit", "-q", "-m", "session init"}} {
		cmd := exec.Command("git", append([]string{"-C", filepath.Join(st.dir, old)}, args...)...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			st.t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	var stages []string
	st.disk.Trace(func(op, name string) {
		if op != "rename" || filepath.Base(name) != "journal.json" {
			return
		}
		b, _ := os.ReadFile(name)
		_, stage, _ := strings.Cut(string(b), `"stage": "`)
		stage, _, _ = strings.Cut(stage, `"`)
		stages = append(stages, stage)
		if stage == "publish" {
			st.got["journal"] = string(b)
		}
	})
	_, err := st.s.Migrate(st.ctx, nil, "local_plan")
	st.disk.Trace(nil)
	st.must(err)
	st.got["journal-stages"] = strings.Join(stages, "\n")
	st.file("journal-done", ".migration/journal.json")
}

func (st *story) deleteSession() {
	st.later(time.Minute)
	st.steps("delete-steps", nil, func() { st.must(st.s.DeleteSession(st.ctx, session)) })
	st.file("delete-intent", ".deleted/"+session)
}
