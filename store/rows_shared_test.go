package store_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// sharedRow is what index.json says of a session.
type sharedRow struct {
	Title     string  `json:"title"`
	Preview   string  `json:"preview"`
	Channel   any     `json:"channel"`
	Status    string  `json:"status"`
	Group     *string `json:"group"`
	UpdatedAt float64 `json:"updated_at"`
	fields    map[string]json.RawMessage
}

func decodeRow(t *testing.T, index []byte, id string) sharedRow {
	t.Helper()
	var rows map[string]json.RawMessage
	if err := json.Unmarshal(index, &rows); err != nil {
		t.Fatal(err)
	}
	var r sharedRow
	if err := json.Unmarshal(rows[id], &r); err != nil {
		t.Fatalf("row of %s: %v in %s", id, err, index)
	}
	if err := json.Unmarshal(rows[id], &r.fields); err != nil {
		t.Fatal(err)
	}
	return r
}

func rowOnDisk(t *testing.T, root, id string) sharedRow {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	return decodeRow(t, raw, id)
}

// open2 opens a store that the test closes itself, which writes its rows.
func open2(t *testing.T, opt store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeNow(t *testing.T, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func sharedRoot(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "sessions")
	closeNow(t, open2(t, store.Options{Root: root, Create: true}))
	return root
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inAMinute is a clock for which no row is on its way any more.
func inAMinute() time.Time { return time.Now().Add(time.Minute) }

// wantNoStaleRow checks that the registry's rows agree with the sessions.
func wantNoStaleRow(t *testing.T, root string) {
	t.Helper()
	s := open2(t, store.Options{Root: root, ReadOnly: true, Clock: inAMinute})
	defer s.Close()
	noErr(t, s.CheckRoot(t.Context(), func(f store.Finding) { t.Errorf("check: %+v", f) }))
}

// TestLearnedRowYields: a store that finds another's session on disk before
// its row gives it one of its own, which must not replace the other's.
func TestLearnedRowYields(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		root := sharedRoot(t)
		mount := open2(t, store.Options{Root: root, ReadOnly: readOnly})
		cli := open2(t, store.Options{Root: root})
		noErr(t, cli.CreateSession(t.Context(), store.NewSession{ID: "w1", Title: "zz", Root: true}))
		// No notification has come: the mount knows the directory, not the row.
		if _, err := mount.ListSessions(t.Context(), store.ListQuery{}); err != nil {
			t.Fatal(err)
		}
		_, err := cli.AppendText(t.Context(), "w1", "user", "hi")
		noErr(t, err)
		noErr(t, cli.SetField(t.Context(), "w1", "title", "later"))
		closeNow(t, cli)
		before := rowOnDisk(t, root, "w1")
		closeNow(t, mount)
		got := rowOnDisk(t, root, "w1")
		if got.Preview != "hi" || got.Title != "later" || got.UpdatedAt != before.UpdatedAt {
			t.Errorf("read-only %v: row on disk is %+v", readOnly, got)
		}
		if _, ok := got.fields["channel"]; !ok {
			t.Errorf("read-only %v: the row lost its channel", readOnly)
		}
		wantNoStaleRow(t, root)
	}
}

// TestWaitingRowIsNotOlder: a change of a row that waits to be written holds
// no older value than the session has by then.
func TestWaitingRowIsNotOlder(t *testing.T) {
	root := sharedRoot(t)
	mount := open2(t, store.Options{Root: root})
	newSession(t, mount, "x", "first", "reply")
	noErr(t, mount.SetField(t.Context(), "x", "title", "mine"))
	noErr(t, mount.SetField(t.Context(), "x", "group", "work"))
	cli := open2(t, store.Options{Root: root})
	_, err := cli.AppendText(t.Context(), "x", "user", "second")
	noErr(t, err)
	noErr(t, cli.SetField(t.Context(), "x", "title", "theirs"))
	noErr(t, cli.SetField(t.Context(), "x", "group", ""))
	closeNow(t, cli)
	want := rowOnDisk(t, root, "x")
	closeNow(t, mount)
	got := rowOnDisk(t, root, "x")
	if got.Preview != "second" || got.Title != "theirs" || got.Group != nil || got.UpdatedAt != want.UpdatedAt {
		t.Errorf("row is %+v, want %+v", got, want)
	}
	wantNoStaleRow(t, root)
}

// TestRunKeepsAnothersRow: another process appends while a turn runs.
func TestRunKeepsAnothersRow(t *testing.T) {
	root := sharedRoot(t)
	runner := open2(t, store.Options{Root: root})
	newSession(t, runner, "x", "question")
	run, err := runner.BeginTurn(t.Context(), "x", store.Turn{Placeholder: true})
	noErr(t, err)
	cli := open2(t, store.Options{Root: root})
	_, err = cli.AppendText(t.Context(), "x", "assistant", "q")
	noErr(t, err)
	closeNow(t, cli)
	want := rowOnDisk(t, root, "x").UpdatedAt
	noErr(t, run.Finish(t.Context(), store.Outcome{Status: "completed"}))
	closeNow(t, runner)
	if got := rowOnDisk(t, root, "x"); got.UpdatedAt != want || got.Status != "idle" {
		t.Errorf("row is %+v, want updated_at %v", got, want)
	}
	wantNoStaleRow(t, root)
}

// TestRowChangedBack: another process changed a field, and this one, whose memory
// of the row is older than that, changes it back.
func TestRowChangedBack(t *testing.T) {
	root := sharedRoot(t)
	cli := open2(t, store.Options{Root: root})
	newSession(t, cli, "x", "first")
	noErr(t, cli.SetField(t.Context(), "x", "title", "before"))
	closeNow(t, cli)
	mount := open2(t, store.Options{Root: root})
	cli = open2(t, store.Options{Root: root})
	noErr(t, cli.SetField(t.Context(), "x", "title", "between"))
	closeNow(t, cli)
	noErr(t, mount.SetField(t.Context(), "x", "title", "before"))
	closeNow(t, mount)
	if got := rowOnDisk(t, root, "x").Title; got != "before" {
		t.Errorf("the row's title is %q", got)
	}
	wantNoStaleRow(t, root)
}

// onRead is a disk on which others write just before a file is read, or after
// it; once.
type onRead struct {
	disk.FS
	path          string
	before, after func()
}

func (f *onRead) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	if name != f.path {
		return f.FS.OpenFile(name, flag, perm)
	}
	once(&f.before)
	file, err := f.FS.OpenFile(name, flag, perm)
	return closing{file, &f.after}, err
}

type closing struct {
	disk.File
	then *func()
}

func (f closing) Close() error {
	err := f.File.Close()
	once(f.then)
	return err
}

func once(fn *func()) {
	if do := *fn; do != nil {
		*fn = nil
		do()
	}
}

// TestRowOfAWriterWithoutLock: OpenProgram, which takes no lock for the registry,
// changes a session and writes its row while this process is writing its own
// older one.
func TestRowOfAWriterWithoutLock(t *testing.T) {
	root := sharedRoot(t)
	hooked := &onRead{FS: disk.OS, path: filepath.Join(root, "index.json")}
	mount := open2(t, store.Options{Root: root, FS: hooked})
	newSession(t, mount, "x", "first")
	noErr(t, mount.SetField(t.Context(), "x", "title", "mine"))
	index := hooked.path
	called := false
	hooked.before = func() {
		called = true
		edit(t, filepath.Join(root, "x", "meta.json"), `"mine"`, `"theirs"`)
		raw, err := os.ReadFile(index)
		noErr(t, err)
		var rows map[string]map[string]any
		noErr(t, json.Unmarshal(raw, &rows))
		rows["x"]["title"] = "theirs"
		raw, err = json.Marshal(rows)
		noErr(t, err)
		noErr(t, disk.WriteAtomic(disk.OS, index, raw, disk.WriteOptions{}))
	}
	closeNow(t, mount)
	if got := rowOnDisk(t, root, "x").Title; got != "theirs" || !called {
		t.Errorf("the row's title is %q, read %v", got, called)
	}
	wantNoStaleRow(t, root)
}

// TestRowOfACreationIsNotOlder: a new session's row could not be written when it
// was made, and others have changed the session since.
func TestRowOfACreationIsNotOlder(t *testing.T) {
	root := sharedRoot(t)
	mount := open2(t, store.Options{Root: root, LockTimeout: 50 * time.Millisecond})
	lock, err := filelock.Acquire(t.Context(), filepath.Join(root, ".locks", ".index.lock"), time.Second)
	noErr(t, err)
	if err := mount.CreateSession(t.Context(), store.NewSession{ID: "x", Title: "mine"}); store.CodeOf(err) != store.Locked {
		t.Fatalf("create beside a held lock: %v", err)
	}
	noErr(t, lock.Unlock())
	cli := open2(t, store.Options{Root: root})
	_, err = cli.AppendText(t.Context(), "x", "user", "hello")
	noErr(t, err)
	noErr(t, cli.SetField(t.Context(), "x", "title", "theirs"))
	closeNow(t, cli)
	closeNow(t, mount)
	if got := rowOnDisk(t, root, "x"); got.Title != "theirs" || got.Preview != "hello" {
		t.Errorf("row is %+v", got)
	}
	wantNoStaleRow(t, root)
}

// TestReindexKeepsALateRow: a session that comes while the registry is made anew
// keeps its row.
func TestReindexKeepsALateRow(t *testing.T) {
	root := sharedRoot(t)
	s := open2(t, store.Options{Root: root})
	newSession(t, s, "x", "first")
	came := false
	_, err := s.Reindex(t.Context(), func(int, int) {
		came = true
		cli := open2(t, store.Options{Root: root})
		newSession(t, cli, "late", "hello")
		closeNow(t, cli)
		_, err := s.ListSessions(t.Context(), store.ListQuery{})
		noErr(t, err)
	})
	noErr(t, err)
	closeNow(t, s)
	raw, err := os.ReadFile(filepath.Join(root, "index.json"))
	noErr(t, err)
	if !came || !strings.Contains(string(raw), `"late"`) {
		t.Errorf("the late session has no row: %s", raw)
	}
	wantNoStaleRow(t, root)
}

// TestGoneSessionGetsNoRow: a session is removed by another process while a change
// of its row waits to be written, one that was learned from the disk too.
func TestGoneSessionGetsNoRow(t *testing.T) {
	for name, remove := range map[string]func(s *store.Store) error{
		"deleted": func(s *store.Store) error { return s.DeleteSession(t.Context(), "x") },
		"empty":   func(s *store.Store) error { return s.RemoveEmpty(t.Context(), "x") },
	} {
		for _, learned := range []bool{false, true} {
			root := sharedRoot(t)
			mount := open2(t, store.Options{Root: root})
			cli := open2(t, store.Options{Root: root})
			noErr(t, cli.CreateSession(t.Context(), store.NewSession{ID: "x"}))
			if _, err := mount.ListSessions(t.Context(), store.ListQuery{}); err != nil {
				t.Fatal(err)
			}
			if !learned {
				noErr(t, mount.SetField(t.Context(), "x", "title", "mine"))
			}
			noErr(t, remove(cli))
			closeNow(t, cli)
			closeNow(t, mount)
			raw, err := os.ReadFile(filepath.Join(root, "index.json"))
			noErr(t, err)
			if strings.Contains(string(raw), `"x"`) {
				t.Errorf("%s, learned %v: the row is back: %s", name, learned, raw)
			}
			wantNoStaleRow(t, root)
		}
	}
}

// TestOpenBesideADeletion: who opens the store while a session is being deleted
// waits for the deletion and leaves the rest to it.
func TestOpenBesideADeletion(t *testing.T) {
	root, _ := soundRoot(t)
	write(t, filepath.Join(root, ".deleted", "x"), "{}")
	lock, err := filelock.Acquire(t.Context(), filepath.Join(root, ".locks", "x.lock"), time.Second)
	noErr(t, err)
	var log strings.Builder
	removed := make(chan struct{})
	looking := &onLook{FS: disk.OS, path: filepath.Join(root, "x"), then: func() {
		go func() {
			defer close(removed)
			if err := errors.Join(os.RemoveAll(filepath.Join(root, "x")), lock.Unlock()); err != nil {
				t.Error(err)
			}
		}()
	}}
	s := open2(t, store.Options{Root: root, FS: looking, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	<-removed
	closeNow(t, s)
	if log.Len() > 0 {
		t.Errorf("logged: %s", log.String())
	}
	if _, err := os.Lstat(filepath.Join(root, ".repaired")); err == nil {
		t.Error("something was set aside")
	}
}

// onLook is a disk that tells when a directory is looked at for the first time.
type onLook struct {
	disk.FS
	path string
	then func()
}

func (f *onLook) Lstat(name string) (fs.FileInfo, error) {
	fi, err := f.FS.Lstat(name)
	if name == f.path {
		once(&f.then)
	}
	return fi, err
}
