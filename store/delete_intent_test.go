package store_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/storetest"
)

// forked is a session with a line to keep and one to delete.
const forked = `
	session x
	root
	user q1 "first"
	llm a1 "answer one"
	user q2 "second"
	llm a2 "answer two"
	tool t2 "result"
	user q3 "third"
	llm a3 "answer three"
	user k2 <a1 "kept"
	llm k3 "kept answer"
	name a3 doomed
	name k3 kept
	head a3
	commit "turn: first"
`

// cutOff deletes the branch "doomed" and loses its disk at the first change of
// which at says so, and for every change after it.
func cutOff(t *testing.T, root string, at func(op string) bool) {
	t.Helper()
	d := storetest.NewDisk()
	s, err := store.Open(t.Context(), store.Options{Root: root, FS: d})
	if err != nil {
		t.Fatal(err)
	}
	d.Arm(storetest.Fault{At: 1, Down: true, Err: syscall.EIO, Only: func(op, name string) bool { return at(op + " " + name) }})
	_, err = s.DeleteBranch(t.Context(), "x", "doomed")
	if d.Hit() == "" {
		t.Fatalf("the deletion never came there: %v", err)
	}
	// The store is not closed: nothing of it may write any more, as its process has died.
}

// The points of a deletion.
func atFirstRemoval(hit string) bool {
	return strings.HasPrefix(hit, "remove ") && strings.Contains(hit, "/history/")
}

func atMeta(hit string) bool {
	return strings.HasPrefix(hit, "rename ") && strings.Contains(hit, "/x/meta.json")
}

func intentPath(root string) string { return filepath.Join(root, "x", ".git", "sessionfs-delete.json") }

func nodeIDs(sn *store.Snapshot) []string {
	var out []string
	for n := range sn.Index.All() {
		out = append(out, n.ID)
	}
	slices.Sort(out)
	return out
}

func buildForked(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "sessions")
	storetest.Build(t, root, forked)
	return root
}

func openAt(t *testing.T, root string, readOnly bool) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Root: root, ReadOnly: readOnly})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

var afterDeletion = []string{"ROOT", "a1", "k2", "k3", "q1"}

// TestACutDeletionIsAWholeOne: from the intent on, every reader shows the
// session without the nodes, and the next change by anybody finishes it.
func TestACutDeletionIsAWholeOne(t *testing.T) {
	root := buildForked(t)
	open := openAt(t, root, false) // another process of ours, all the time
	load(t, open, "x")
	cutOff(t, root, func(hit string) bool { return strings.HasPrefix(hit, "remove ") && strings.Contains(hit, "q3.json") })
	if _, err := os.Stat(intentPath(root)); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(root, "x", "history", "*-q3.json")); len(left) != 1 {
		t.Fatal("the deletion was not cut off in the middle")
	}
	ro := openAt(t, root, true)
	sn := load(t, ro, "x")
	if got := nodeIDs(sn); !slices.Equal(got, afterDeletion) || sn.Head != "k3" {
		t.Errorf("read-only: %v, head %s", got, sn.Head)
	}
	if len(sn.Branches()) != 1 || strings.Contains(string(sn.MetaJSON()), "doomed") {
		t.Errorf("read-only: branches %v, meta %s", sn.Branches(), sn.MetaJSON())
	}
	if found := findings(t, root); found["half_delete_nodes"] != 1 || len(found) != 1 {
		t.Errorf("check finds %v", found)
	}
	if _, err := open.SetHead(t.Context(), "x", "a1", store.HeadMove{}); err != nil {
		t.Fatal(err)
	}
	if got := nodeIDs(load(t, open, "x")); !slices.Equal(got, afterDeletion) {
		t.Errorf("after a change: %v", got)
	}
	if left, _ := filepath.Glob(filepath.Join(root, "x", "history", "*.json")); len(left) != len(afterDeletion) {
		t.Errorf("files left: %v", left)
	}
	if _, err := os.Stat(intentPath(root)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the intent is still there: %v", err)
	}
	if found := findings(t, root); len(found) != 0 {
		t.Errorf("check finds %v afterwards", found)
	}
}

// TestACutDeletionIsFinishedWhenItIsSeen: a writable store needs no change to
// finish it, and Repair needs no look.
func TestACutDeletionIsFinishedWhenItIsSeen(t *testing.T) {
	for name, finish := range map[string]func(t *testing.T, root string){
		"load": func(t *testing.T, root string) { load(t, openAt(t, root, false), "x") },
		"repair": func(t *testing.T, root string) {
			if out, err := store.Repair(t.Context(), store.Options{Root: root}, nil); err != nil || len(out.Left) > 0 {
				t.Errorf("repair: %+v, %v", out, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := buildForked(t)
			cutOff(t, root, atFirstRemoval)
			finish(t, root)
			if found := findings(t, root); len(found) != 0 {
				t.Errorf("check finds %v", found)
			}
			if got := nodeIDs(load(t, openAt(t, root, true), "x")); !slices.Equal(got, afterDeletion) {
				t.Errorf("nodes %v", got)
			}
			if out := git(t, filepath.Join(root, "x"), "status", "--porcelain"); strings.Contains(out, "sessionfs") {
				t.Errorf("git sees the intent: %s", out)
			}
		})
	}
}

// TestAFailedDeletionChangesNothing: where the disk is there again, an error
// before meta.json is written leaves everything as it was.
func TestAFailedDeletionChangesNothing(t *testing.T) {
	for call := 1; ; call++ {
		root := buildForked(t)
		d := storetest.NewDisk()
		s, err := store.Open(t.Context(), store.Options{Root: root, FS: d})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		want := nodeIDs(load(t, s, "x"))
		d.Arm(storetest.Fault{At: call, Err: syscall.ENOSPC})
		_, err = s.DeleteBranch(t.Context(), "x", "doomed")
		hit := d.Hit()
		d.Arm(storetest.Fault{})
		switch {
		case hit == "" || atFirstRemoval(hit):
			return
		case err == nil: // Git's log, or the attributes of a file
			continue
		}
		wantCode(t, err, store.NoSpace)
		sn := load(t, s, "x")
		if strings.Contains(hit, "syncdir "+filepath.Join(root, "x")+" ") {
			continue // meta.json has its name already: the next change does the rest
		}
		if got := nodeIDs(sn); !slices.Equal(got, want) || sn.Head != "a3" {
			t.Errorf("%s: nodes %v, head %s", hit, got, sn.Head)
		}
		if _, err := os.Stat(intentPath(root)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the intent is there: %v", hit, err)
		}
	}
}

// TestADeletionThatIsCalledOffIsSeen: nothing but the intent goes, which no
// fingerprint of a session tells.
func TestADeletionThatIsCalledOffIsSeen(t *testing.T) {
	root := buildForked(t)
	cutOff(t, root, atMeta)
	ro := openAt(t, root, true)
	if got := nodeIDs(load(t, ro, "x")); !slices.Equal(got, afterDeletion) {
		t.Fatalf("shown are %v", got)
	}
	if err := os.Remove(intentPath(root)); err != nil {
		t.Fatal(err)
	}
	if sn := load(t, ro, "x"); sn.Index.Len() != 10 || sn.Head != "a3" {
		t.Errorf("shown are %v, head %s", nodeIDs(sn), sn.Head)
	}
}

// TestADeletionWhereGitIsAFile: the Git directory lies where .git points.
func TestADeletionWhereGitIsAFile(t *testing.T) {
	root := buildForked(t)
	dir, far := filepath.Join(root, "x"), filepath.Join(root, ".far.git")
	if err := os.Rename(filepath.Join(dir, ".git"), far); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, ".git"), "gitdir: "+far+"\n")
	cutOff(t, root, atFirstRemoval)
	if _, err := os.Stat(filepath.Join(far, "sessionfs-delete.json")); err != nil {
		t.Fatal(err)
	}
	if got := nodeIDs(load(t, openAt(t, root, true), "x")); !slices.Equal(got, afterDeletion) {
		t.Errorf("shown are %v", got)
	}
	s := openAt(t, root, false)
	if err := s.SetField(t.Context(), "x", "title", "done"); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "history", "*.json")); len(left) != len(afterDeletion) {
		t.Errorf("files left: %v", left)
	}
	if found := findings(t, root); found["half_delete_nodes"] > 0 {
		t.Errorf("check finds %v", found)
	}
}

// writeForeign writes a node as the peer does: the file, then meta.json.
func writeForeign(t *testing.T, root, file string, fields map[string]any) {
	t.Helper()
	node := map[string]any{"created_at": 1.0, "name": "", "input": nil, "caller": "", "reads": []string{}, "metadata": map[string]any{}}
	for k, v := range fields {
		node[k] = v
	}
	raw, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "x", "history", file), raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestWhatSomebodyWentOnFromStays: another program, which knows no intent, goes
// on from a node that is to be deleted, after the crash. Its message keeps what
// it follows, with the calls; the rest goes. What was removed already comes back
// from the commit before.
func TestWhatSomebodyWentOnFromStays(t *testing.T) {
	for name, at := range map[string]func(string) bool{
		"before the first removal": atFirstRemoval,
		"before meta.json":         atMeta,
		"after some removals":      func(hit string) bool { return strings.HasPrefix(hit, "remove ") && strings.Contains(hit, "-q2.json") },
	} {
		t.Run(name, func(t *testing.T) {
			root := buildForked(t)
			cutOff(t, root, at)
			writeForeign(t, root, "0099-u-p1.json", map[string]any{"id": "p1", "seq": 99, "role": "user", "output": "and on", "predecessor": "a2"})
			want := append([]string{"a2", "p1", "q2", "t2"}, afterDeletion...)
			slices.Sort(want)
			s := openAt(t, root, false)
			sn := load(t, s, "x")
			if got := nodeIDs(sn); !slices.Equal(got, want) {
				t.Errorf("nodes %v, want %v", got, want)
			}
			if _, err := sn.BranchOf("p1"); err != nil {
				t.Error(err)
			}
			if text, err := sn.Text("a2"); err != nil || string(text) != "answer two\n" {
				t.Errorf("a2 is %q, %v", text, err)
			}
			if found := findings(t, root); len(found) != 0 {
				t.Errorf("check finds %v", found)
			}
		})
	}
}

// TestAnotherNodeOfTheSameNameStays: a file that was written since is not the
// one that was to be deleted, whatever its name.
func TestAnotherNodeOfTheSameNameStays(t *testing.T) {
	root := buildForked(t)
	cutOff(t, root, func(hit string) bool { return strings.HasPrefix(hit, "remove ") && strings.Contains(hit, "-q3.json") })
	gone, _ := filepath.Glob(filepath.Join(root, "x", "history", "*-a3.json"))
	if len(gone) != 0 {
		t.Fatalf("a3 is still there: %v", gone)
	}
	writeForeign(t, root, "0008-l-a3.json", map[string]any{"id": "a3", "seq": 8, "role": "llm", "output": "another", "predecessor": "k3"})
	sn := load(t, openAt(t, root, false), "x")
	if text, err := sn.Text("a3"); err != nil || string(text) != "another\n" {
		t.Errorf("the new node is %q, %v", text, err)
	}
}

// TestAnUnknownDeletionIsLeftAlone: what a newer version has begun is shown as
// it is and blocks every change.
func TestAnUnknownDeletionIsLeftAlone(t *testing.T) {
	for _, text := range []string{`{"version": 2}`, `{"version": 1, "nodes": [{"file": "../meta.json", "id": "x"}]}`, `[`} {
		root := buildForked(t)
		if err := os.WriteFile(intentPath(root), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := openAt(t, root, false)
		if got := nodeIDs(load(t, s, "x")); len(got) != 10 {
			t.Errorf("%s: nodes %v", text, got)
		}
		_, err := s.AppendText(t.Context(), "x", "user", "more")
		wantCode(t, err, store.ReadOnly)
		if found := findings(t, root); found["unfinished_change"] != 1 {
			t.Errorf("%s: check finds %v", text, found)
		}
	}
}

// TestACutDeletionWaitsForARun: a run of another program may be about to go on
// from what is to be deleted.
func TestACutDeletionWaitsForARun(t *testing.T) {
	root := buildForked(t)
	cutOff(t, root, atMeta)
	edit(t, filepath.Join(root, "x", "meta.json"), `"head_id"`, `"status": "running", "head_id"`)
	s := openAt(t, root, false)
	if got := nodeIDs(load(t, s, "x")); !slices.Equal(got, afterDeletion) {
		t.Errorf("shown are %v", got)
	}
	wantCode(t, s.SetField(t.Context(), "x", "title", "no"), store.RunActive)
	writeForeign(t, root, "0099-l-p1.json", map[string]any{"id": "p1", "seq": 99, "role": "llm", "output": "the reply", "predecessor": "a3"})
	edit(t, filepath.Join(root, "x", "meta.json"), `"status": "running", "head_id": "a3"`, `"status": "idle", "head_id": "p1"`)
	if err := s.SetField(t.Context(), "x", "title", "yes"); err != nil {
		t.Fatal(err)
	}
	sn := load(t, s, "x")
	if branch, err := sn.Branch(); err != nil || sn.Head != "p1" || len(branch) != 7 {
		t.Errorf("head %s, branch %v, %v", sn.Head, branch, err)
	}
}

// TestTheCommitBeforeADeletionIsAlwaysMade: without a change to commit too, so
// that what is deleted never looks lost.
func TestTheCommitBeforeADeletionIsAlwaysMade(t *testing.T) {
	root := buildForked(t)
	s := openAt(t, root, false)
	if _, err := s.DeleteBranch(t.Context(), "x", "doomed"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "x")
	if got := git(t, dir, "log", "-1", "--format=%s"); strings.TrimSpace(got) != "before delete: doomed" {
		t.Errorf("the newest commit is %q", got)
	}
	if got := git(t, dir, "log", "-1", "--format=%b"); !strings.Contains(got, `node "a3"`) || strings.Contains(got, "k3") {
		t.Errorf("it lists %q", got)
	}
	if out := git(t, dir, "fsck", "--strict"); strings.TrimSpace(out) != "" {
		t.Errorf("fsck: %s", out)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// A stale writer puts the head back, and the kept line's tip gets lost.
	edit(t, filepath.Join(dir, "meta.json"), `"head_id": "k3"`, `"head_id": "a3"`)
	if _, err := store.Repair(t.Context(), store.Options{Root: root}, nil); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "history", "*-a3.json")); len(left) > 0 {
		t.Errorf("the deleted branch came back: %v", left)
	}
	edit(t, filepath.Join(dir, "meta.json"), `"head_id": "a3"`, `"head_id": "k3"`)
	for _, id := range []string{"k3", "k2"} {
		if err := os.Remove(node(t, root, id)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Repair(t.Context(), store.Options{Root: root}, nil); err != nil {
		t.Fatal(err)
	}
	if got := nodeIDs(load(t, openAt(t, root, true), "x")); !slices.Equal(got, afterDeletion) {
		t.Errorf("after the repair of a loss: %v", got)
	}
}
