package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sessionfs/sessionfs/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openStore opens a store in a fresh root and closes it with the test.
func openStore(t *testing.T, opt store.Options) *store.Store {
	t.Helper()
	if opt.Root == "" {
		opt.Root, opt.Create = filepath.Join(t.TempDir(), "sessions"), true
	}
	s, err := store.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// newSession makes a session with the given texts, user and assistant in turn,
// and returns the node ids.
func newSession(t *testing.T, s *store.Store, id string, texts ...string) []string {
	t.Helper()
	if err := s.CreateSession(t.Context(), store.NewSession{ID: id, Root: true}); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i, text := range texts {
		res, err := s.AppendText(t.Context(), id, []string{"user", "assistant"}[i%2], text)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, res.ID)
	}
	return ids
}

func head(t *testing.T, s *store.Store, id string) string {
	t.Helper()
	sn, err := s.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return sn.Head
}

func wantCode(t *testing.T, err error, want store.Code) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error = %v (code %q), want code %q", err, store.CodeOf(err), want)
	}
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestLifeOfASession(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "local_a", "Hello", "Hi there", "How are you?")
	if got := head(t, s, "local_a"); got != ids[2] {
		t.Errorf("head = %s, want %s", got, ids[2])
	}
	branch, err := s.GetBranch(t.Context(), "local_a", "")
	if err != nil || len(branch) != 3 {
		t.Fatalf("branch = %v, %v; want 3 nodes", branch, err)
	}
	rows, err := s.ListSessions(t.Context(), store.ListQuery{})
	if err != nil || len(rows) != 1 || rows[0].Preview != "How are you?" || rows[0].Source != "sessionfs" {
		t.Fatalf("rows = %+v, %v", rows, err)
	}
	c, ok, err := s.CommitTurn(t.Context(), "local_a", "")
	if err != nil || !ok || c.Message != "turn: How are you?" {
		t.Fatalf("commit = %+v, %v, %v", c, ok, err)
	}
	sn, _ := s.Load(t.Context(), "local_a")
	if out := git(t, sn.Dir, "status", "--porcelain"); out != "" {
		t.Errorf("git status after the commit: %q", out)
	}
	git(t, sn.Dir, "fsck", "--strict")
	commits, err := s.SessionCommits(t.Context(), "local_a", 0)
	if err != nil || len(commits) != 3 || commits[2].Message != "session init" {
		t.Errorf("commits = %+v, %v", commits, err)
	}
}

func TestSetHeadRefs(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "one", "two", "three", "four")
	ctx := t.Context()
	if err := s.SetBranchName(ctx, "x", ids[1], "ab/out"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		ref, want string
		code      store.Code
	}{
		{ref: ids[0], want: ids[0]},
		{ref: "ab/out", want: ids[1]},
		{ref: ids[3][:6], want: ids[3]},
		{ref: "@~1", want: ids[2]},
		{ref: "@", want: ids[2]},
		{ref: ids[3] + "~2", want: ids[1]},
		{ref: "ab/out~", want: ids[0]},
		{ref: "nothing", code: store.NotFound},
		{ref: ids[3][:3], code: store.NotFound},
		{ref: "", code: store.Invalid},
		{ref: ids[0] + "~9", code: store.NotFound},
	} {
		before := head(t, s, "x")
		got, err := s.SetHead(ctx, "x", tc.ref, store.HeadMove{})
		if tc.code != "" {
			wantCode(t, err, tc.code)
			if h := head(t, s, "x"); h != before {
				t.Errorf("%q: refused, yet the head moved to %s", tc.ref, h)
			}
			continue
		}
		if err != nil || got != tc.want || head(t, s, "x") != tc.want {
			t.Errorf("SetHead(%q) = %s, %v; head %s; want %s", tc.ref, got, err, head(t, s, "x"), tc.want)
		}
	}
}

func TestSetHeadExpect(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "one", "two")
	wrong := ids[0]
	_, err := s.SetHead(t.Context(), "x", ids[0], store.HeadMove{Expect: &wrong})
	wantCode(t, err, store.Conflict)
	_, err = s.SetHead(t.Context(), "x", ids[0], store.HeadMove{Expect: &ids[1]})
	if err != nil || head(t, s, "x") != ids[0] {
		t.Errorf("compare-and-set: %v, head %s", err, head(t, s, "x"))
	}
}

func TestSetHeadChangesOnlyTheHead(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "one", "two")
	sn, _ := s.Load(t.Context(), "x")
	path := filepath.Join(sn.Dir, "meta.json")
	hostile := `{ "id":"x" ,"big": 123456789012345678901234567890, "inf":1e400,"nan": NaN, "lone":"\ud800", "dup": 1, "dup": 2, "ünï": "é",
	"head_id" :  "` + ids[1] + `"  , "z":[ 1,2 ]}`
	if err := os.WriteFile(path+".new", []byte(hostile), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetHead(t.Context(), "x", ids[0], store.HeadMove{}); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(path)
	if want := strings.Replace(hostile, ids[1], ids[0], 1); string(got) != want {
		t.Errorf("meta.json\n got %s\nwant %s", got, want)
	}
}

func TestRunGuard(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "one", "two")
	ctx := t.Context()
	run, err := s.Begin(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.SetHead(ctx, "x", ids[0], store.HeadMove{})
	wantCode(t, err, store.RunActive)
	_, err = s.AppendText(ctx, "x", "user", "no")
	wantCode(t, err, store.RunActive)
	_, err = s.Begin(ctx, "x")
	wantCode(t, err, store.RunActive)
	wantCode(t, s.DeleteSession(ctx, "x"), store.RunActive)
	wantCode(t, s.SetField(ctx, "x", "status", "idle"), store.RunActive)
	if _, err := s.AppendText(ctx, "x", "assistant", "the run's own"); err != nil {
		t.Errorf("the run's own append: %v", err)
	}
	if err := run.End(ctx, "done"); err != nil {
		t.Fatal(err)
	}
	row, err := s.Row(ctx, "x")
	if err != nil || row.Status != "done" || !row.Unread {
		t.Errorf("row after the run: %+v, %v", row, err)
	}
	if _, err := s.SetHead(ctx, "x", ids[0], store.HeadMove{}); err != nil {
		t.Errorf("after the run: %v", err)
	}
}

func TestForeignRunGuard(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "one", "two")
	for _, status := range []string{"running", "needs_input", "cancelling"} {
		stampStatus(t, s, "x", status)
		_, err := s.SetHead(t.Context(), "x", ids[0], store.HeadMove{})
		wantCode(t, err, store.RunActive)
	}
	stampStatus(t, s, "x", "cancelled")
	if _, err := s.SetHead(t.Context(), "x", ids[0], store.HeadMove{}); err != nil {
		t.Error(err)
	}
}

// stampStatus writes the status as a foreign worker does.
func stampStatus(t *testing.T, s *store.Store, id, status string) {
	t.Helper()
	sn, err := s.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(sn.MetaJSON(), &m); err != nil {
		t.Fatal(err)
	}
	m["status"] = status
	raw, _ := json.Marshal(m)
	path := filepath.Join(sn.Dir, "meta.json")
	if err := os.WriteFile(path+".x.tmp", raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".x.tmp", path); err != nil {
		t.Fatal(err)
	}
}

func TestDeleteBurnsTheID(t *testing.T) {
	s := openStore(t, store.Options{})
	newSession(t, s, "x", "one")
	ctx := t.Context()
	wantCode(t, s.RemoveEmpty(ctx, "x"), store.NotEmpty)
	if err := s.DeleteSession(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.CreateSession(ctx, store.NewSession{ID: "x"}), store.BurntID)
	wantCode(t, s.DeleteSession(ctx, "x"), store.NotFound)
	if n, _ := s.CountSessions(ctx, store.ListQuery{IncludeArchived: true}); n != 0 {
		t.Errorf("%d sessions are still listed", n)
	}
}

func TestRemoveEmpty(t *testing.T) {
	s := openStore(t, store.Options{})
	newSession(t, s, "x")
	sn, _ := s.Load(t.Context(), "x")
	if err := s.RemoveEmpty(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(sn.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	newSession(t, s, "x") // the id may be used again
	if err := os.WriteFile(filepath.Join(sn.Dir, "workdir", "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.RemoveEmpty(t.Context(), "x"), store.NotEmpty)
}

func TestReadOnlyWritesNothing(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sessions")
	w, err := store.Open(t.Context(), store.Options{Root: root, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	ids := newSession(t, w, "x", "one", "two")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(root, "index.json")); err != nil {
		t.Fatal(err)
	}
	before := tree(t, root)
	s := openStore(t, store.Options{Root: root, ReadOnly: true, Reconcile: store.ReconcileAlways, Sweep: true, Watch: true, CommitAfter: time.Millisecond})
	rows, err := s.ListSessions(t.Context(), store.ListQuery{})
	if err != nil || len(rows) != 1 || rows[0].Preview != "one" {
		t.Errorf("rows = %+v, %v", rows, err)
	}
	_, err = s.SetHead(t.Context(), "x", ids[0], store.HeadMove{})
	wantCode(t, err, store.ReadOnly)
	_, err = s.AppendText(t.Context(), "x", "user", "no")
	wantCode(t, err, store.ReadOnly)
	wantCode(t, s.CreateSession(t.Context(), store.NewSession{ID: "y"}), store.ReadOnly)
	if after := tree(t, root); after != before {
		t.Errorf("the root changed:\n%s\nbefore:\n%s", after, before)
	}
}

// tree lists a directory with sizes and times, .git included.
func tree(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("find", dir, "-printf", "%p %s %T@\n").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestNamedHeadMovesAlong(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "one", "two")
	if err := s.SetBranchName(t.Context(), "x", ids[1], "main line"); err != nil {
		t.Fatal(err)
	}
	res, err := s.AppendText(t.Context(), "x", "user", "three")
	if err != nil {
		t.Fatal(err)
	}
	sn, _ := s.Load(t.Context(), "x")
	if id, err := sn.Resolve("main line"); err != nil || id != res.ID {
		t.Errorf("the name leads to %s, %v; want %s", id, err, res.ID)
	}
	wantCode(t, s.SetBranchName(t.Context(), "x", ids[0], "main line"), store.Exists)
	if err := s.DeleteBranchName(t.Context(), "x", res.ID); err != nil {
		t.Error(err)
	}
}

func TestExtendMessage(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "one")
	if err := s.ExtendMessage(t.Context(), "x", ids[0], "one and more"); err != nil {
		t.Fatal(err)
	}
	sn, _ := s.Load(t.Context(), "x")
	if text, err := sn.Text(ids[0]); err != nil || string(text) != "one and more\n" {
		t.Errorf("text = %q, %v", text, err)
	}
	if e, _ := sn.Entry(ids[0]); e.TextLen != int64(len("one and more\n")) {
		t.Errorf("TextLen = %d", e.TextLen)
	}
	if _, err := s.AppendText(t.Context(), "x", "assistant", "two"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.ExtendMessage(t.Context(), "x", ids[0], "late"), store.Conflict)
}

// recorder is an observer that remembers.
type recorder struct{ swapped, published chan store.Change }

func (r recorder) Swapped(c store.Change)                      { r.swapped <- c }
func (r recorder) Published(_ context.Context, c store.Change) { r.published <- c }

func TestForeignWriteIsPublished(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sessions")
	s := openStore(t, store.Options{Root: root, Create: true, Watch: true})
	ids := newSession(t, s, "x", "one", "two")
	_, watched, release, err := s.Pin(t.Context(), "x")
	if err != nil || !watched {
		t.Fatalf("pin: watched %v, %v", watched, err)
	}
	defer release()
	rec := recorder{make(chan store.Change, 100), make(chan store.Change, 100)}
	defer s.Subscribe(rec)()

	other, err := store.Open(t.Context(), store.Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.SetHead(t.Context(), "x", ids[0], store.HeadMove{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, rec.published, func(c store.Change) bool { return c.New != nil && c.New.Head == ids[0] && c.Foreign })
	res, err := other.AppendText(t.Context(), "x", "assistant", "from elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, rec.published, func(c store.Change) bool { return c.New != nil && c.New.Head == res.ID })
	newSession(t, other, "y")
	waitFor(t, rec.published, func(c store.Change) bool { return c.ID == "y" && c.Listing })
	if err := other.DeleteSession(t.Context(), "y"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, rec.published, func(c store.Change) bool { return c.ID == "y" && c.Listing })
	if err := other.SetArchived(t.Context(), "x", true); err != nil {
		t.Fatal(err)
	}
	waitFor(t, rec.published, func(c store.Change) bool { return c.ID == "x" && c.Listing })
}

func waitFor(t *testing.T, ch chan store.Change, ok func(store.Change) bool) {
	t.Helper()
	limit := time.After(10 * time.Second)
	for {
		select {
		case c := <-ch:
			if ok(c) {
				return
			}
		case <-limit:
			t.Fatal("the change was not published within 10 s")
		}
	}
}

func TestHistoricRootIsAdopted(t *testing.T) {
	state := t.TempDir()
	old := filepath.Join(state, "sessions-git")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, store.Options{Root: old, State: state})
	if want := filepath.Join(state, "sessions"); s.Root() != want {
		t.Errorf("root = %s, want %s", s.Root(), want)
	}
	newSession(t, s, "x", "one")
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the historic root is still there: %v", err)
	}
}

func TestDeadRunOfOursDoesNotRefuse(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sessions")
	s := openStore(t, store.Options{Root: root, Create: true})
	ids := newSession(t, s, "x", "one", "two")
	// What a killed process leaves: the status, and a lease that names it.
	stampStatus(t, s, "x", "running")
	lease := filepath.Join(root, ".locks", ".run-x.lock")
	if err := os.WriteFile(lease, []byte(`{"pid": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetHead(t.Context(), "x", ids[0], store.HeadMove{}); err != nil {
		t.Errorf("a dead run refuses: %v", err)
	}
}

func TestReconcile(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sessions")
	s := openStore(t, store.Options{Root: root, Create: true})
	newSession(t, s, "x", "one", "two")
	run, err := s.BeginTurn(t.Context(), "x", store.Turn{Placeholder: true})
	if err != nil {
		t.Fatal(err)
	}
	auto, err := store.Open(t.Context(), store.Options{Root: root, Reconcile: store.ReconcileAuto})
	if err != nil {
		t.Fatal(err)
	}
	if row, _ := auto.Row(t.Context(), "x"); row.Status != "running" {
		t.Errorf("a live run was reconciled: %s", row.Status)
	}
	if n, err := auto.SweepNodes(t.Context(), "x"); n != 0 || err != nil {
		t.Errorf("a live run's node was swept: %d, %v", n, err)
	}
	if err := auto.Close(); err != nil {
		t.Fatal(err)
	}
	always, err := store.Open(t.Context(), store.Options{Root: root, Reconcile: store.ReconcileAlways})
	if err != nil {
		t.Fatal(err)
	}
	defer always.Close()
	if row, _ := always.Row(t.Context(), "x"); row.Status != "interrupted" {
		t.Errorf("status after reconciling is %s", row.Status)
	}
	if n, err := always.SweepNodes(t.Context(), "x"); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	msg, _ := load(t, always, "x").MessageJSON(run.Node())
	if !strings.Contains(string(msg), "[interrupted] worker restarted mid-turn") {
		t.Errorf("the node is %s", msg)
	}
	if err := run.End(t.Context(), "idle"); err != nil {
		t.Fatal(err)
	}
}

func TestTurn(t *testing.T) {
	s := openStore(t, store.Options{})
	ids := newSession(t, s, "x", "one")
	ctx := t.Context()
	run, err := s.BeginTurn(ctx, "x", store.Turn{Placeholder: true, Background: true, Model: "m", Source: "cli"})
	if err != nil {
		t.Fatal(err)
	}
	if want := ids[0] + "_reply"; run.Node() != want || head(t, s, "x") != want {
		t.Errorf("placeholder %s, head %s, want %s", run.Node(), head(t, s, "x"), want)
	}
	if err := run.SetText(ctx, "partial"); err != nil {
		t.Fatal(err)
	}
	if err := run.NeedsInput(ctx, true); err != nil {
		t.Fatal(err)
	}
	_, err = s.SetHead(ctx, "x", ids[0], store.HeadMove{})
	wantCode(t, err, store.RunActive)
	text := "the whole reply"
	if err := run.Finish(ctx, store.Outcome{Status: "completed", Text: &text}); err != nil {
		t.Fatal(err)
	}
	msg, _ := load(t, s, "x").MessageJSON(run.Node())
	for _, want := range []string{`"content": "the whole reply"`, `"status": "completed"`, `"token_model": "m"`} {
		if !strings.Contains(string(msg), want) {
			t.Errorf("message %s lacks %s", msg, want)
		}
	}
	if row, _ := s.Row(ctx, "x"); row.Status != "done" || !row.Unread {
		t.Errorf("row = %+v", row)
	}
	if out := git(t, load(t, s, "x").Dir, "status", "--porcelain"); out != "" {
		t.Errorf("git status after the turn: %q", out)
	}
	wantCode(t, run.SetText(ctx, "late"), store.Conflict)
}

func TestRebuildTellsItsProgress(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sessions")
	s, err := store.Open(t.Context(), store.Options{Root: root, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c"} {
		newSession(t, s, id, "one")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var steps [][2]int
	note := func(done, total int) { steps = append(steps, [2]int{done, total}) }
	openStore(t, store.Options{Root: root, Progress: note})
	if len(steps) != 0 {
		t.Errorf("a whole registry was rebuilt: %v", steps)
	}
	if err := os.Remove(filepath.Join(root, "index.json")); err != nil {
		t.Fatal(err)
	}
	openStore(t, store.Options{Root: root, Progress: note})
	if want := [][2]int{{1, 3}, {2, 3}, {3, 3}}; !slices.Equal(steps, want) {
		t.Errorf("steps = %v, want %v", steps, want)
	}
}
