package format

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/storetest"
)

const session = "local_demo"

// story is a session's life, told once with fixed ids and a fixed clock. What
// each part of it leaves on disk is kept under the example's name.
type story struct {
	t    *testing.T
	ctx  context.Context
	dir  string // holds the state directory and a project's folder
	root string
	disk *storetest.Disk
	s    *store.Store
	now  time.Time
	got  map[string]string
}

func newStory(t *testing.T) *story {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	st := &story{
		t: t, ctx: t.Context(), dir: dir, root: filepath.Join(dir, "state", "sessions"), disk: storetest.NewDisk(),
		now: time.Unix(1772442000, 0), got: map[string]string{},
	}
	st.projects()
	st.open()
	return st
}

func (st *story) must(err error) {
	st.t.Helper()
	if err != nil {
		st.t.Fatal(err)
	}
}

// projects writes the project registry, which is another program's.
func (st *story) projects() {
	for _, d := range []string{"state/projects", "state/sessions", "kyoto"} {
		st.must(os.MkdirAll(filepath.Join(st.dir, d), 0o755))
	}
	st.write("state/projects/projects.json", fmt.Sprintf(`{
  "proj_kyoto": {
    "id": "proj_kyoto",
    "name": "kyoto",
    "path": %q,
    "session_ids": [
      "local_plan"
    ],
    "directory_identity": "d"
  }
}`, filepath.Join(st.dir, "kyoto")))
}

func (st *story) write(name, text string) {
	st.t.Helper()
	path := filepath.Join(st.dir, name)
	st.must(os.MkdirAll(filepath.Dir(path), 0o755))
	st.must(os.WriteFile(path, []byte(text), 0o600))
}

func (st *story) open() {
	var err error
	st.s, err = store.Open(st.ctx, store.Options{
		Root: st.root, State: filepath.Dir(st.root), FS: st.disk, Clock: func() time.Time { return st.now },
	})
	st.must(err)
	st.t.Cleanup(func() { _ = st.s.Close() })
}

// later lets time pass.
func (st *story) later(d time.Duration) { st.now = st.now.Add(d) }

// file keeps a file's content; path is relative to the root, and may have a *.
func (st *story) file(example, path string) {
	st.t.Helper()
	found, err := filepath.Glob(filepath.Join(st.root, path))
	if err != nil || len(found) != 1 {
		st.t.Fatalf("%s: %s is %v, %v", example, path, found, err)
	}
	b, err := os.ReadFile(found[0])
	st.must(err)
	st.got[example] = string(b)
}

// steps keeps what f changes on disk, call by call, but for what belongs to
// Git's objects and index. catch names files whose content is kept the moment
// that they are first renamed into place: the example's name by a part of the
// path.
func (st *story) steps(example string, catch map[string]string, f func()) {
	st.t.Helper()
	st.must(st.s.Close()) // what came before is on disk
	st.open()
	var lines []string
	st.disk.Trace(func(op, name string) {
		name = st.relative(name)
		for suffix, as := range catch {
			if op == "rename" && strings.Contains(name, suffix) && st.got[as] == "" {
				b, _ := os.ReadFile(filepath.Join(st.root, name))
				st.got[as] = string(b)
			}
		}
		line := fmt.Sprintf("%-7s %s", op, name)
		if !ofGit(name) && (len(lines) == 0 || lines[len(lines)-1] != line) {
			lines = append(lines, line)
		}
	})
	f()
	st.must(st.s.Close()) // the registry follows within a second
	st.disk.Trace(nil)
	st.got[example] = strings.Join(lines, "\n")
	st.got[example+" in short"] = strings.Join(inShort(lines), "\n")
	st.open()
}

// relative is a path below the root, or in the project's folder.
func (st *story) relative(name string) string {
	if rest, ok := strings.CutPrefix(name, "/proc/self/fd/"); ok {
		fd, tail, _ := strings.Cut(rest, "/")
		dir, err := os.Readlink("/proc/self/fd/" + fd)
		st.must(err)
		name = filepath.Join(dir, tail)
	}
	rel, err := filepath.Rel(st.root, name)
	st.must(err)
	return rel
}

// ofGit: what the repository itself does is Git's format.
func ofGit(name string) bool {
	if strings.Contains(name, "/.git.sessionfs-") {
		return true
	}
	_, in, found := strings.Cut(name, "/.git/")
	return found && in != "sessionfs-delete.json" && !strings.HasPrefix(in, "sessionfs-delete.json.") && in != "refs/heads/main"
}

func (st *story) message(text string) string {
	st.t.Helper()
	res, err := st.s.AppendMessage(st.ctx, session, []byte(text))
	st.must(err)
	return res.ID
}

// tell goes through all of it.
func (st *story) tell() {
	st.create()
	st.talk()
	st.move()
	st.fork()
	st.run()
	st.deleteBranch()
	st.attach()
	st.commits()
	st.record()
	st.migrate()
	st.deleteSession()
}

func (st *story) create() {
	st.steps("create-steps", nil, func() {
		st.must(st.s.CreateSession(st.ctx, store.NewSession{ID: session, Title: "Two days in Kyoto", Root: true}))
	})
	st.file("node-root", session+"/history/0000-u-ROOT.json")
	st.file("meta-new", session+"/meta.json")
}

func (st *story) talk() {
	st.later(time.Second)
	st.steps("append-steps", nil, func() {
		st.message(`{"id": "c93d5e18", "role": "user", "content": "Is Tofuku-ji worth the detour?"}`)
	})
	st.later(7 * time.Second)
	st.message(`{"id": "c93d5e18_reply", "role": "assistant", "content": "Yes, before nine.", "token_model": "sample-model-1"}`)
	st.message(`{"id": "c93d5e18_t_call1", "role": "tool", "content": {"opens": "09:00", "fee": 500}, "caller": "c93d5e18_reply",
		"function": "opening_hours", "extra": {"tool_use": {"name": "opening_hours", "arguments": {"place": "Tōfuku-ji"}, "tool_call_id": "call1"}}}`)
	st.file("node-user", session+"/history/0001-u-c93d5e18.json")
	st.file("node-llm", session+"/history/0002-l-c93d5e18_reply.json")
	st.file("node-code", session+"/history/0003-c-c93d5e18_t_call1.json")
	st.file("meta-before-move", session+"/meta.json")
	_, _, err := st.s.CommitTurn(st.ctx, session, "turn: Is Tofuku-ji worth the detour?")
	st.must(err)
}

func (st *story) move() {
	st.later(time.Minute)
	st.steps("move-steps", nil, func() {
		_, err := st.s.SetHead(st.ctx, session, "c93d5e18", store.HeadMove{})
		st.must(err)
	})
	st.file("meta-after-move", session+"/meta.json")
	st.file("index", "index.json")
	st.must(st.s.Close())
	st.must(os.Remove(filepath.Join(st.root, "index.json")))
	st.open()
	st.file("index-rebuilt", "index.json")
	_, err := st.s.SetHead(st.ctx, session, "c93d5e18_reply", store.HeadMove{})
	st.must(err)
}

func (st *story) fork() {
	st.later(time.Minute)
	var node string
	st.steps("edit-steps", nil, func() {
		var err error
		node, err = st.s.Edit(st.ctx, session, "c93d5e18", "Is Tofuku-ji worth it in winter?")
		st.must(err)
	})
	st.file("node-edit", session+"/history/0004-u-*.json")
	st.must(st.s.SetBranchName(st.ctx, session, node, "in winter"))
	st.file("meta-edited", session+"/meta.json")
}

func (st *story) attach() {
	st.later(time.Minute)
	_, err := st.s.Edit(st.ctx, session, "c93d5e18", "And Nanzen-ji?")
	st.must(err)
	_, err = st.s.Attach(st.ctx, store.AttachSpec{Source: session, Target: "c93d5e18_reply", Label: "the first answer"})
	st.must(err)
	st.file("node-attach", session+"/history/*-l-????????????.json")
}

func (st *story) run() {
	st.later(time.Minute)
	st.steps("run-steps", nil, func() {
		r, err := st.s.BeginTurn(st.ctx, session, store.Turn{Placeholder: true, Model: "sample-model-1", Source: "web"})
		st.must(err)
		st.file("lease", ".locks/.run-"+session+".lock")
		st.file("node-running", session+"/history/0005-l-*.json")
		st.later(3 * time.Second)
		text := "Yes: the maples are bare, the garden is not."
		st.must(r.Finish(st.ctx, store.Outcome{Status: "completed", Text: &text}))
	})
	st.file("node-completed", session+"/history/0005-l-*.json")
}

func (st *story) deleteBranch() {
	st.later(time.Minute)
	st.steps("delete-branch-steps", map[string]string{"sessionfs-delete.json": "delete-nodes"}, func() {
		_, err := st.s.DeleteBranch(st.ctx, session, "in winter")
		st.must(err)
	})
	st.file("meta-branch-deleted", session+"/meta.json")
}

func (st *story) commits() {
	_, _, err := st.s.CommitTurn(st.ctx, session, "sessionfs: changes outside a turn")
	st.must(err)
	commits, err := st.s.SessionCommits(st.ctx, session, 0)
	st.must(err)
	var lines []string
	for _, c := range commits {
		lines = append(lines, c.Message)
	}
	st.got["commits"] = strings.Join(lines, "\n")
}

func (st *story) record() {
	st.must(st.s.CreateSession(st.ctx, store.NewSession{ID: "local_maps", Project: "proj_kyoto"}))
	st.file("locations", "locations.json")
	for _, text := range []string{`{"id": "7f21a0c4", "role": "user", "content": "Add Fushimi Inari."}`,
		`{"id": "7f21a0c4_reply", "role": "assistant", "content": "Done."}`} {
		_, err := st.s.AppendMessage(st.ctx, "local_maps", []byte(text))
		st.must(err)
	}
	st.write("kyoto/route.txt", "Tofuku-ji\n")
	st.later(time.Minute)
	path := filepath.Join(st.dir, "kyoto", "route.txt")
	st.must(st.s.BeforeWrite(st.ctx, "local_maps", "7f21a0c4_reply", path))
	st.write("kyoto/route.txt", "Tofuku-ji\nFushimi Inari\n")
	st.later(time.Second)
	st.must(st.s.AfterWrite(st.ctx, "local_maps", "7f21a0c4_reply", path))
	st.file("manifest", "projects/proj_kyoto/.file-recovery/local_maps/7f21a0c4_reply/manifest.json")
	st.later(time.Minute)
	st.steps("rewind-steps", map[string]string{"/intents/": "rewind-intent"}, func() {
		plan, err := st.s.PlanRewind(st.ctx, "local_maps", "7f21a0c4")
		st.must(err)
		_, err = st.s.Rewind(st.ctx, "local_maps", "7f21a0c4", plan.Hash)
		st.must(err)
	})
	st.file("meta-rewound", "projects/proj_kyoto/local_maps/meta.json")
}
