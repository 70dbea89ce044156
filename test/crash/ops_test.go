package crash

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/storetest"
)

// env is what an operation works with.
type env struct {
	ctx context.Context
	s   *store.Store
	run *store.Run
	opt store.Options
	// plan is the hash of a confirmed plan of a rewind.
	plan string
}

// op is an operation that is driven through every point where it can stop.
type op struct {
	name string
	spec string // the store before, see storetest.Build
	// options changes how the store is opened.
	options func(o *store.Options)
	// prepare runs before, undisturbed.
	prepare func(e *env) error
	// run is the operation. It sets e.s when opens is set.
	run   func(e *env) error
	opens bool // the operation is Open itself
	// closes is set when Close changes more than what may lag behind.
	closes bool
	// between recognises a lawful third state and says why it is one.
	between func(before, after, got state) string
	// allow are further findings of Check that are lawful, with the reason.
	allow map[string]string
	// settles is set when the reconciliation leaves nothing of the change.
	settles bool
	// asleep is set when nothing is reconciled when the store is opened again:
	// that would do the operation's work.
	asleep bool
	// resumed operations are run once more after what stopped them, which must
	// bring them to their end; allow holds until then.
	resumed bool
	// quiet operations are not acknowledged: an Open succeeds without what it
	// could not do.
	quiet bool
}

const talk = `
	session s1
	root
	user u1 "first"
	llm a1 "answer one"
	tool t1 "result"
	user u2 "second"
	llm a2 "answer two"
	llm a2b <u2 "answer two again"
	user u3 <a1 "other second"
	llm a3 "other answer"
	name a3 side
	field group "\"work\""
	head a2
	commit "turn: first"
	session s2
	root
	user v1 "hello"
	llm b1 "hi"
	commit "turn: hello"
`

const projects = `
	project p1 "Project One"
	session s1 project=p1
	root
	user u1 "first"
	llm a1 "answer"
	commit "turn: first"
`

func appendOp(name, role string) op {
	return op{name: "append " + name, spec: talk, run: func(e *env) error {
		_, err := e.s.AppendText(e.ctx, "s1", role, "new text")
		return err
	}, between: tipOnly}
}

func moveOp(name string, run func(e *env) (string, error)) op {
	return op{name: name, spec: talk, run: func(e *env) error {
		_, err := run(e)
		return err
	}}
}

func fieldOp(name, value string) op {
	return op{name: "set " + name + "=" + value, spec: talk, run: func(e *env) error {
		return e.s.SetField(e.ctx, "s1", name, value)
	}}
}

func runOp(name string, turn store.Turn, run func(e *env) error) op {
	return op{name: name, spec: talk, closes: true, prepare: func(e *env) (err error) {
		e.run, err = e.s.BeginTurn(e.ctx, "s1", turn)
		return err
	}, run: run}
}

var errNothingDone = errors.New("nothing was done")

// ops are all operations of the store that change something. A further one is
// a line here. What is not here, and why:
//
//   - Repair takes the store apart and is run again after whatever stopped it;
//     its own tests do that (store/maintain_test.go).
//   - ExportTree and Grep write nothing of a store.
//   - A root of the historic name is renamed by one rename, before there is
//     anything that could be lost.
//   - The parts of a turn in other programs' protocol are the interop suite's.
var ops = []op{
	{name: "create", spec: talk, run: func(e *env) error {
		return e.s.CreateSession(e.ctx, store.NewSession{ID: "s3", Title: "third", Root: true})
	}},
	{name: "create in a project", spec: projects, run: func(e *env) error {
		return e.s.CreateSession(e.ctx, store.NewSession{ID: "s3", Project: "p1"})
	}, allow: map[string]string{"location_missing": "a place is recorded before anything is there; creating the session again takes it"}},
	appendOp("user", "user"), appendOp("assistant", "assistant"), appendOp("system", "system"),
	{name: "append a call", spec: talk, run: func(e *env) error {
		_, err := e.s.AppendMessage(e.ctx, "s1", []byte(`{"id": "t2", "role": "tool", "content": "out", "caller": "a2"}`))
		return err
	}, between: tipOnly},
	{name: "extend", spec: talk, run: func(e *env) error { return e.s.ExtendMessage(e.ctx, "s1", "a2", "answer two, longer") }},
	moveOp("set head", func(e *env) (string, error) { return e.s.SetHead(e.ctx, "s1", "side", store.HeadMove{}) }),
	moveOp("set head, compared", func(e *env) (string, error) {
		expect := "a2"
		return e.s.SetHead(e.ctx, "s1", "a1", store.HeadMove{Expect: &expect})
	}),
	moveOp("retry", func(e *env) (string, error) { return e.s.Retry(e.ctx, "s1", "@") }),
	moveOp("sibling", func(e *env) (string, error) { return e.s.Sibling(e.ctx, "s1", "@", "next") }),
	moveOp("leaf", func(e *env) (string, error) { return e.s.Leaf(e.ctx, "s1", "u3") }),
	moveOp("checkout", func(e *env) (string, error) { return e.s.Checkout(e.ctx, "s1", "side") }),
	moveOp("rewind", func(e *env) (string, error) { _, err := e.s.Rewind(e.ctx, "s1", "u2", ""); return "", err }),
	{name: "edit", spec: talk, run: func(e *env) error {
		_, err := e.s.Edit(e.ctx, "s1", "u2", "second, put otherwise")
		return err
	}, between: tipOnly},
	{name: "delete branch", spec: talk, run: func(e *env) error {
		_, err := e.s.DeleteBranch(e.ctx, "s1", "side")
		return err
	}},
	{name: "delete the head's branch", spec: talk, run: func(e *env) error {
		_, err := e.s.DeleteBranch(e.ctx, "s1", "@")
		return err
	}},
	{name: "delete subtree", spec: talk, run: func(e *env) error {
		_, err := e.s.DeleteSubtree(e.ctx, "s1", "u2")
		return err
	}},
	{name: "attach", spec: talk, run: func(e *env) error {
		_, err := e.s.Attach(e.ctx, store.AttachSpec{Source: "s1", Target: "side"})
		return err
	}, between: pointerOnly},
	{name: "attach across", spec: talk, run: func(e *env) error {
		_, err := e.s.Attach(e.ctx, store.AttachSpec{Source: "s2", Target: "b1", Anchor: "s1"})
		return err
	}, between: pointerOnly},
	{name: "finish a deletion", spec: talk, settles: true, prepare: cutDeletion, run: func(e *env) error {
		_, err := e.s.SetHead(e.ctx, "s1", "a2", store.HeadMove{}) // where it is
		return err
	}},
	{name: "record before a write", spec: work, run: func(e *env) error { return e.s.BeforeWrite(e.ctx, "s1", "a2", workFile(e, "f.txt")) }},
	{name: "record after a write", spec: work, prepare: func(e *env) error {
		f := workFile(e, "f.txt")
		return errors.Join(e.s.BeforeWrite(e.ctx, "s1", "a2", f), put(e, f, "after"))
	}, run: func(e *env) error { return e.s.AfterWrite(e.ctx, "s1", "a2", workFile(e, "f.txt")) }},
	{name: "record that nothing was written", spec: work, prepare: func(e *env) error {
		return e.s.BeforeWrite(e.ctx, "s1", "a2", workFile(e, "f.txt"))
	}, run: func(e *env) error { return e.s.AbortWrite(e.ctx, "s1", "a2", workFile(e, "f.txt"), "changed its mind") }},
	{name: "rewind over files", spec: work, prepare: changeFiles, run: func(e *env) error {
		_, err := e.s.Rewind(e.ctx, "s1", "u2", e.plan)
		return err
	}},
	{name: "migrate out of a folder", spec: oldFolder, run: migrate("s1"), resumed: true, allow: migrating},
	{name: "migrate the first layout", spec: firstLayout, run: migrate("s1"), resumed: true, allow: migrating},
	{name: "edit on the branch", spec: talk, run: func(e *env) error {
		_, err := e.s.EditOnBranch(e.ctx, "s1", "u2", "second, in place")
		return err
	}, between: tipOnly},
	{name: "merge meta.json", spec: talk, run: func(e *env) error {
		sn, err := e.s.Load(e.ctx, "s1")
		if err != nil {
			return err
		}
		text := strings.Replace(string(sn.MetaJSON()), `"s1", "source"`, `"merged", "x": 1e400, "source"`, 1)
		text = strings.Replace(text, `"head_id": "a2"`, `"head_id": "a3"`, 1)
		return e.s.MergeMeta(e.ctx, "s1", store.MetaSeen{Served: [][]byte{sn.MetaJSON()}}, []byte(text))
	}},
	{name: "commit at close", spec: talk, closes: true, options: func(o *store.Options) { o.CommitAfter = time.Hour },
		prepare: func(e *env) error { return e.s.SetField(e.ctx, "s1", "title", "to be committed") },
		run:     func(e *env) error { return e.s.Close() }},
	fieldOp("title", "A new title"), fieldOp("group", ""), fieldOp("pinned", "true"), fieldOp("status", "done"),
	{name: "archive", spec: talk, run: func(e *env) error { return e.s.SetArchived(e.ctx, "s1", true) }},
	{name: "update", spec: talk, run: func(e *env) error {
		return e.s.UpdateSession(e.ctx, "s1", []store.KV{{Key: "title", Raw: []byte(`"T"`)}, {Key: "x", Raw: []byte("1e400")}, {Key: "head_id", Raw: []byte(`"a3"`)}})
	}},
	{name: "name branch", spec: talk, run: func(e *env) error { return e.s.SetBranchName(e.ctx, "s1", "a2b", "again") }},
	{name: "rename branch", spec: talk, run: func(e *env) error { return e.s.SetBranchName(e.ctx, "s1", "a3", "front") }},
	{name: "unarchive", spec: strings.Replace(talk, "field group", "field archived true\n\tfield group", 1),
		run: func(e *env) error { return e.s.SetArchived(e.ctx, "s1", false) }},
	{name: "unname branch", spec: talk, run: func(e *env) error { return e.s.DeleteBranchName(e.ctx, "s1", "a3") }},
	{name: "begin", spec: talk, closes: true, run: func(e *env) (err error) { e.run, err = e.s.Begin(e.ctx, "s1"); return err }},
	{name: "begin turn", spec: talk, closes: true, run: func(e *env) (err error) {
		e.run, err = e.s.BeginTurn(e.ctx, "s1", store.Turn{Placeholder: true, Model: "m"})
		return err
	}, between: beginning},
	runOp("write reply", store.Turn{Placeholder: true}, func(e *env) error { return e.run.SetText(e.ctx, "so far") }),
	{name: "wait for input", spec: talk, closes: true, settles: true, prepare: begin(store.Turn{}),
		run: func(e *env) error { return e.run.NeedsInput(e.ctx, true) }},
	{name: "end run", spec: talk, prepare: begin(store.Turn{}), run: func(e *env) error { return e.run.End(e.ctx, "done") }},
	{name: "finish turn", spec: talk, prepare: begin(store.Turn{Placeholder: true, Background: true}), run: func(e *env) error {
		text := "the end"
		return e.run.Finish(e.ctx, store.Outcome{Status: "error", Text: &text, Error: "no luck", ErrorType: "E"})
	}, between: replyEnded},
	{name: "commit", spec: talk + "\n\traw workdir/a.txt one\n\traw workdir/b/c.txt two", run: func(e *env) error {
		_, ok, err := e.s.CommitTurn(e.ctx, "s2", "by hand")
		if err == nil && !ok {
			return errNothingDone
		}
		return err
	}},
	{name: "reindex", spec: talk + "\n\tnoindex", quiet: true, run: func(e *env) error { _, err := e.s.Reindex(e.ctx, nil); return err }},
	{name: "compact", spec: talk, quiet: true, run: func(e *env) error {
		n, err := e.s.Compact(e.ctx, "s1")
		if err == nil && n == 0 {
			return errNothingDone
		}
		return err
	}},
	{name: "append with a file", spec: talk + "\n\traw workdir/a.txt one", run: func(e *env) error {
		_, err := e.s.AppendWithFiles(e.ctx, "s2", "user", "see", []string{e.opt.Root + "/s2/workdir/a.txt"})
		return err
	}, between: tipOrFile},
	{name: "delete session", spec: talk, run: func(e *env) error { return e.s.DeleteSession(e.ctx, "s2") }, between: intentFirst},
	{name: "delete session in a project", spec: projects, run: func(e *env) error { return e.s.DeleteSession(e.ctx, "s1") }, between: intentFirst},
	{name: "remove empty", spec: talk + "\n\tsession s3\n\troot", run: func(e *env) error { return e.s.RemoveEmpty(e.ctx, "s3") }},
	{name: "remove empty in a project", spec: projects + "\n\tsession s3 project=p1\n\troot", run: func(e *env) error { return e.s.RemoveEmpty(e.ctx, "s3") }},
	{name: "sweep nodes", spec: talk + "\n\tsession s3\n\tuser w1 q\n\trunning r1 \"\"\n\trunning r2 <w1 half", run: func(e *env) error {
		n, err := e.s.SweepNodes(e.ctx, "s3")
		if err == nil && n != 2 {
			return errNothingDone
		}
		return err
	}, between: someSwept, asleep: true,
		allow: map[string]string{"node_without_run": "what the sweep has not come to yet"}},
	openOp("reconcile", talk+"\n\tfield status \"\\\"running\\\"\"", func(o *store.Options) { o.Reconcile = store.ReconcileAlways }),
	{name: "sweep shells", spec: talk + "\n\tsession e1\n\tbreak history", options: func(o *store.Options) { o.Sweep = true },
		opens: true, quiet: true, run: open},
	openOp("restore history", talk+"\n\tbreak history", nil),
	openOp("finish a delete", talk+"\n\tdeleted s2", nil),
	openOp("rebuild the registry", talk+"\n\tnoindex", nil),
	openOp("rebuild a broken registry", talk+"\n\tbreak index", nil),
}

// work is a session whose turn a2 is about to change files of its project.
const work = `
	project p1 "Project One"
	work p1 f.txt "before"
	work p1 sub/g.txt "to be removed"
	session s1 project=p1
	root
	user u1 "first"
	llm a1 "answer"
	user u2 "second"
	llm a2 "answer two"
	commit "turn: first"
`

// oldFolder is a session in its project's folder, as old versions left it.
const oldFolder = `
	project p1 "Project One"
	session s1 project=p1 place=folder
	root
	user u1 "first"
	llm a1 "answer"
	raw workdir/a.txt one
	commit "turn: first"
	user u2 "not committed"
	session s2
	root
	user w1 "hello"
`

// firstLayout is a session whose history/ is the repository.
const firstLayout = `
	session s1 place=history
	root
	user u1 "first"
	llm a1 "answer"
	raw workdir/a.txt one
	commit "turn: first"
	user u2 "not committed"
	session s2
	root
	user w1 "hello"
`

// migrating are findings until a migration has come to its end.
var migrating = map[string]string{
	"half_migration": "the journal says how far it has come; the next call goes on from there",
	"stale_hold":     "the hold of a process that died; the next start of a writable store removes it",
	"old_layout":     "it waits for its migration",
	"unmigrated":     "it waits for its migration",
	"no_repository":  "it waits for its migration",
	"stray_file":     "the first layout's repository, until it is set aside",
}

// migrate moves one session to where it belongs.
func migrate(id string) func(e *env) error {
	return func(e *env) error {
		done, err := e.s.Migrate(e.ctx, nil, id)
		for _, m := range done {
			err = errors.Join(err, m.Err)
		}
		if err == nil && len(done) == 0 {
			return &store.Error{Code: store.NotFound, Op: "migrate", Session: id, Err: errNothingDone}
		}
		return err
	}
}

func workFile(e *env, name string) string {
	return filepath.Join(filepath.Dir(e.opt.Root), "work-p1", filepath.FromSlash(name))
}

// put writes a file, durably, as another program than the store would, but on
// the store's disk.
func put(e *env, path, text string) error {
	f, err := e.opt.FS.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	return errors.Join(err, f.Sync(), f.Close(), e.opt.FS.SyncDir(filepath.Dir(path)))
}

// changeFiles is a turn that changes, removes and makes a file, and the plan to
// take that back.
func changeFiles(e *env) error {
	for name, text := range map[string]string{"f.txt": "after", "sub/g.txt": "", "new/h.txt": "made"} {
		path := workFile(e, name)
		if err := e.s.BeforeWrite(e.ctx, "s1", "a2", path); err != nil {
			return err
		}
		var err error
		switch dir := filepath.Dir(path); {
		case text == "":
			err = errors.Join(e.opt.FS.Remove(path), e.opt.FS.SyncDir(dir))
		default:
			err = errors.Join(e.opt.FS.MkdirAll(dir, 0o700), e.opt.FS.SyncDir(filepath.Dir(dir)), put(e, path, text))
		}
		if err = errors.Join(err, e.s.AfterWrite(e.ctx, "s1", "a2", path)); err != nil {
			return err
		}
	}
	plan, err := e.s.PlanRewind(e.ctx, "s1", "u2")
	if err == nil {
		e.plan = plan.Hash
	}
	return err
}

// cutDeletion leaves what a crash leaves of a deletion of the branch "side":
// its intent alone.
func cutDeletion(e *env) error {
	sn, err := e.s.Load(e.ctx, "s1")
	if err != nil {
		return err
	}
	type doomed struct {
		File        string `json:"file"`
		ID          string `json:"id"`
		Sum         string `json:"sha256"`
		Predecessor string `json:"predecessor"`
		Caller      string `json:"caller"`
	}
	var nodes []doomed
	for _, id := range []string{"u3", "a3"} {
		n, _ := sn.Index.Get(id)
		file, _ := sn.Entry(id)
		raw, err := sn.Raw(file.File)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(raw)
		nodes = append(nodes, doomed{file.File, id, hex.EncodeToString(sum[:]), n.Predecessor, n.Caller})
	}
	text, err := json.Marshal(map[string]any{"version": 1, "commit": "", "nodes": nodes, "left": []string{}})
	if err != nil {
		return err
	}
	// What was read before the intent stays right until something changes.
	return errors.Join(put(e, filepath.Join(sn.Dir, ".git", "sessionfs-delete.json"), string(text)), e.s.Reload(e.ctx, "s1"))
}

func begin(turn store.Turn) func(e *env) error {
	return func(e *env) (err error) { e.run, err = e.s.BeginTurn(e.ctx, "s1", turn); return err }
}

// openOp is what Open does by itself.
func openOp(name, spec string, options func(o *store.Options)) op {
	return op{name: name, spec: spec, options: options, opens: true, quiet: true, run: open}
}

func open(e *env) (err error) {
	e.s, err = store.Open(e.ctx, e.opt)
	return err
}

// The third states that are lawful, each with its reason.

// tipOnly: a node whose file is there and which meta.json does not know yet is
// a further tip (reference 6.7).
func tipOnly(before, after, got state) string {
	return onlyNodes(before, after, got, "the node came before meta.json: legal, a further tip")
}

// tipOrFile: as tipOnly, or the attachment is there and no message names it.
func tipOrFile(before, after, got state) string {
	without := state{}
	for k, v := range got {
		if !strings.HasPrefix(k, "file/") {
			without[k] = v
		}
	}
	for k, v := range before {
		if strings.HasPrefix(k, "file/") && got[k] == v {
			without[k] = v
		}
	}
	if len(diff(before, without, content)) == 0 {
		return "a file is saved before the message that names it"
	}
	for k, v := range got {
		if strings.HasPrefix(k, "file/") && after[k] != v {
			return ""
		}
	}
	return onlyNodes(before, after, without, "the node came before meta.json: legal, a further tip")
}

// onlyNodes: nothing but nodes of after beside what was before.
func onlyNodes(before, after, got state, reason string) string {
	for k := range union(before, got) {
		if !content(k) || got[k] == before[k] && has(got, k) == has(before, k) {
			continue
		}
		if !strings.HasPrefix(k, "node/") || got[k] != after[k] {
			return ""
		}
	}
	return reason
}

// pointerOnly: the attach pointer is there, and the target is not marked as
// merged yet.
func pointerOnly(before, after, got state) string {
	if got["head/s1"] != before["head/s1"] {
		return ""
	}
	for k := range union(before, got) {
		if content(k) && got[k] != before[k] && got[k] != after[k] && k != "meta/s1" {
			return ""
		}
	}
	return "the pointer row is written before the mark in meta.json"
}

// beginning: the run is there, its placeholder is not, or is no head yet.
func beginning(before, after, got state) string {
	for k := range union(before, got) {
		if content(k) && got[k] != before[k] && got[k] != after[k] && k != "meta/s1" {
			return ""
		}
	}
	if h := got["head/s1"]; h != before["head/s1"] && h != after["head/s1"] {
		return ""
	}
	return "the status comes before the placeholder, so that no placeholder is without a run"
}

// replyEnded: the reply has its end, the session still says running, which
// the reconciliation has made interrupted.
func replyEnded(before, after, got state) string {
	for k := range union(before, got) {
		if content(k) && got[k] != before[k] && got[k] != after[k] {
			return ""
		}
	}
	return "the reply's end comes before the session's"
}

// intentFirst: the session is gone or not, its intent is there.
func intentFirst(before, after, got state) string { return "" }

// someSwept: each node is swept by itself.
func someSwept(before, after, got state) string {
	return onlyNodes(before, after, got, "each node is swept by itself; the next sweep does the rest")
}

func has(st state, k string) bool { _, ok := st[k]; return ok }

func union(a, b state) state {
	u := make(state, len(a)+len(b))
	for k := range a {
		u[k] = ""
	}
	for k := range b {
		u[k] = ""
	}
	return u
}

// rootOf is the root of the store within the directory of a test.
const rootName = "sessions"

// options are how a store is opened for an operation.
func (o op) opening(root string, now time.Time) store.Options {
	opt := store.Options{Root: root, LockTimeout: 2 * time.Second, Clock: func() time.Time { return now }}
	if strings.Contains(o.spec, "project ") {
		opt.State = strings.TrimSuffix(root, "/"+rootName)
	}
	if o.options != nil {
		o.options(&opt)
	}
	return opt
}

// again is how the store is opened after what stopped the operation: a minute
// later, when no row is on its way any more (store.Check).
func (o op) again(root string, now time.Time) store.Options {
	opt := o.opening(root, now.Add(time.Minute))
	opt.FS = storetest.NewDisk()
	if !o.asleep {
		opt.Reconcile = store.ReconcileAlways
	}
	return opt
}

// resume runs an operation once more that is one of many steps, and checks that
// it comes to its end.
func (o op) resume(ctx context.Context, s *store.Store, before, after state) error {
	if !o.resumed {
		return nil
	}
	if err := o.run(&env{ctx: ctx, s: s}); err != nil && !errors.Is(err, errNothingDone) {
		return fmt.Errorf("run again: %w", err)
	}
	got, err := capture(ctx, s)
	if err != nil {
		return err
	}
	if d := diff(after.named(before), got.named(before), content); len(d) > 0 {
		return fmt.Errorf("run again, and not at its end:\n    %s", strings.Join(d, "\n    "))
	}
	return sound(ctx, s, got, nil)
}

// eachOp runs fn for every operation, two at a time.
func eachOp(t *testing.T, fn func(t *testing.T, o op)) {
	for _, o := range ops {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			fn(t, o)
		})
	}
}
