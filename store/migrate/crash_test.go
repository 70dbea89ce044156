package migrate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
)

// crashAt lets a migration die as soon as its row says stage.
func (w *world) crashAt(stage string) {
	w.t.Helper()
	down := newDownDisk(w.fs, 0, true)
	cfg := w.config()
	cfg.FS, cfg.Layout = down, layout.New(down, w.root, w.state, nil)
	cfg.Progress = func(_, s string, _, _ int64) {
		if s == stage {
			down.breakNow()
		}
	}
	if _, err := Run(context.Background(), cfg, sid); err == nil {
		w.t.Fatalf("no crash at %s", stage)
	}
}

// crashBeforeRecord dies when locations.json is to name the destination.
func (w *world) crashBeforeRecord() {
	w.t.Helper()
	w.crashAt(StagePublish)
	if p := w.place(); p.Dir != w.source {
		w.t.Fatalf("served from %s before the record", p.Dir)
	}
	w.wantTree(w.dest, w.want)
}

// TestWritesBetweenPublishAndRecord: the source is the authority until the
// record; an outdated publication gives way.
func TestWritesBetweenPublishAndRecord(t *testing.T) {
	w := newWorld(t).build()
	w.crashBeforeRecord()
	w.write(filepath.Join(w.source, "history", "0003-u-d.json"), node("d", 3))
	w.must(os.Remove(filepath.Join(w.source, "workdir", "link")))
	w.write(filepath.Join(w.undo, "d", "manifest.json"), "{}")
	w.commit(w.source, "turn: later")
	w.measure()
	if res, err := w.run(); err != nil || len(res.Kept) > 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	w.wantDone()
}

// TestOutdatedAndTouched: what an interrupted run published and somebody
// changed is nobody's to remove.
func TestOutdatedAndTouched(t *testing.T) {
	w := newWorld(t).build()
	w.crashBeforeRecord()
	w.write(filepath.Join(w.source, "meta.json"), `{"id": "x"}`)
	w.write(filepath.Join(w.dest, "extra"), "y")
	if _, err := w.run(); !errors.Is(err, ErrConflict) {
		t.Errorf("%v", err)
	}
	if got, _ := os.ReadFile(filepath.Join(w.dest, "extra")); string(got) != "y" {
		t.Errorf("the destination was touched: %q", got)
	}
}

// TestChangesAfterRecord: the destination is the authority once the record
// names it, whatever is left at the source.
func TestChangesAfterRecord(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		kept   bool
	}{
		"destination goes on": {change: func(w *world) {
			w.write(filepath.Join(w.dest, "meta.json"), `{"id": "`+sid+`", "head_id": "e"}`)
			w.write(filepath.Join(w.dest, "history", "0003-u-e.json"), node("e", 3))
			w.commit(w.dest, "turn: two")
			w.write(filepath.Join(w.dest, "meta.json"), `{"id": "`+sid+`", "head_id": "f"}`)
		}},
		"destination repacked": {change: func(w *world) {
			w.commit(w.dest, "turn: two")
			repo, err := gitrepo.Open(w.dest, gitrepo.Options{Env: noEnv})
			w.must(err)
			_, err = repo.Compact(context.Background())
			w.must(err)
		}},
		"committed file deleted": {change: func(w *world) { w.must(os.Remove(filepath.Join(w.dest, "history", "0000-u-a.json"))) }},
		"uncommitted file deleted": {kept: true, change: func(w *world) {
			w.must(os.Remove(filepath.Join(w.dest, "history", "0002-u-c.json")))
		}},
		"source partly removed": {change: func(w *world) {
			w.must(os.RemoveAll(filepath.Join(w.source, ".git")))
			w.must(os.Remove(filepath.Join(w.source, "meta.json")))
		}},
		"source removed": {change: func(w *world) { w.must(os.RemoveAll(w.source)) }},
		"folder removed": {change: func(w *world) { w.must(os.RemoveAll(w.work)) }},
		"source written": {kept: true, change: func(w *world) {
			w.write(filepath.Join(w.source, "history", "0003-u-late.json"), node("late", 3))
		}},
		"source committed": {kept: true, change: func(w *world) {
			w.write(filepath.Join(w.source, "workdir", "late"), "late")
			w.commit(w.source, "late")
			w.must(os.Remove(filepath.Join(w.source, "workdir", "late")))
		}},
	} {
		for _, peer := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, peer %t", name, peer), func(t *testing.T) {
				w := newWorld(t).build()
				w.crashAt(StageCleanup)
				if p := w.place(); p.Dir != w.dest || !p.Recorded {
					t.Fatalf("served from %+v", p)
				}
				if peer { // whose rows have no digest
					w.edit(func(row *jsonedit.Object) { row.Delete("published"); row.Delete("recovery_published") })
				}
				c.change(w)
				now := w.tree(w.dest)
				res, err := w.run()
				if err != nil || res.Stage != StageDone || (len(res.Kept) == 1) != c.kept {
					t.Fatalf("%+v, %v", res, err)
				}
				w.wantTree(w.dest, now)
				if p := w.place(); p.Dir != w.dest {
					t.Errorf("served from %s", p.Dir)
				}
				if _, err := os.Lstat(w.source); !os.IsNotExist(err) {
					t.Errorf("the source is still there: %v", err)
				}
				if c.kept {
					if _, err := os.Stat(filepath.Join(res.Kept[0], "meta.json")); err != nil {
						t.Errorf("not kept: %v", err)
					}
				}
				w.wantClean()
				if res, err := w.run(); err != nil || (len(res.Kept) == 1) != c.kept {
					t.Errorf("again: %+v, %v", res, err)
				}
			})
		}
	}
}

// edit changes the journal's row as another program would.
func (w *world) edit(change func(*jsonedit.Object)) {
	w.t.Helper()
	r, err := newRunner(w.config())
	w.must(err)
	w.must(r.update(sid, false, change))
}

// TestPeerLeftovers resumes what the peer's own order of steps leaves: no
// place recorded for the source, no digests.
func TestPeerLeftovers(t *testing.T) {
	prepare := func(t *testing.T, stage string) *world {
		w := newWorld(t).build()
		w.crashBeforeRecord()
		w.must(w.layout().ForgetLocation(sid))
		w.must(os.RemoveAll(filepath.Join(w.root, "projects", pid, ".file-recovery")))
		w.edit(func(row *jsonedit.Object) {
			row.Delete("published")
			row.Delete("recovery_published")
			row.Set("stage", jsonedit.EncodeString(stage))
		})
		if p := w.place(); p.Dir != w.dest {
			t.Fatalf("served from %+v", p)
		}
		return w
	}
	for _, stage := range []string{StageVerify, StagePublish, StageFailed} {
		t.Run(stage, func(t *testing.T) {
			w := prepare(t, stage)
			if res, err := w.run(); err != nil || len(res.Kept) > 0 {
				t.Fatalf("%+v, %v", res, err)
			}
			w.wantDone()
		})
		t.Run(stage+" and gone on", func(t *testing.T) {
			w := prepare(t, stage)
			w.write(filepath.Join(w.dest, "history", "0003-u-e.json"), node("e", 3))
			w.want = w.tree(w.dest)
			if res, err := w.run(); err != nil || len(res.Kept) > 0 {
				t.Fatalf("%+v, %v", res, err)
			}
			w.wantDone()
		})
	}
	t.Run("unrelated", func(t *testing.T) {
		w := prepare(t, StagePending)
		w.write(filepath.Join(w.source, "history", "0003-u-e.json"), node("e", 3))
		if _, err := w.run(); !errors.Is(err, ErrConflict) {
			t.Errorf("%v", err)
		}
	})
	t.Run("recorded, rerun failed", func(t *testing.T) {
		w := newWorld(t).build()
		w.crashAt(StageCleanup)
		w.edit(func(row *jsonedit.Object) {
			row.Delete("published")
			row.Set("stage", jsonedit.EncodeString(StageFailed))
			row.Set("error", jsonedit.EncodeString("RuntimeError: migration inventory mismatch"))
		})
		if res, err := w.run(); err != nil || len(res.Kept) > 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		w.wantDone()
	})
}

// TestSourceChanges: a write while it is copied makes a new copy.
func TestSourceChanges(t *testing.T) {
	for _, stage := range []string{StageInventory, StageCopy, StageVerify, StagePublish} {
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, always %t", stage, always), func(t *testing.T) {
				w := newWorld(t).build()
				cfg := w.config()
				n := 0
				cfg.Progress = func(_, s string, _, _ int64) {
					if s == stage && (n == 0 || always) {
						n++
						w.write(filepath.Join(w.source, "workdir", "busy"), fmt.Sprint(n))
						w.measure()
					}
				}
				_, err := Run(context.Background(), cfg, sid)
				if always {
					if !errors.Is(err, ErrSourceChanged) {
						t.Errorf("%v", err)
					}
					if p := w.place(); p.Dir != w.source {
						t.Errorf("served from %s", p.Dir)
					}
					_, err = w.run()
				}
				if err != nil {
					t.Fatal(err)
				}
				w.wantDone()
			})
		}
	}
}

// TestEveryFault makes each disk call of a migration fail, once or from then
// on for ever, and goes on with a healthy disk.
func TestEveryFault(t *testing.T) {
	testFaults(t, newWorld(t).build(), func(w *world, p layout.Place) { w.wantTree(p.Dir, w.want) }, func(w *world) { w.wantDone() })
}

var faultStep = flag.Int("faultstep", 9, "fail every n-th disk call only (1 takes minutes)")

// testFaults runs a world's migration with a fault at each call. Served checks
// what is served right after it, done what is there at the end.
func testFaults(t *testing.T, fresh *world, served func(*world, layout.Place), done func(*world)) {
	counter := newDownDisk(fresh.fs, 0, false)
	w := fresh.snapshot(t)
	if err := w.runOn(counter); err != nil {
		t.Fatal(err)
	}
	calls, step := counter.calls(), *faultStep
	if testing.Short() {
		step *= 4
	}
	t.Logf("%d disk calls, every %d. fails", calls, step)
	for _, forever := range []bool{false, true} {
		first := 1
		if forever {
			first += step / 2
		}
		for n := first; n <= calls; n += step {
			t.Run(fmt.Sprintf("call %d, forever %t", n, forever), func(t *testing.T) {
				w := fresh.snapshot(t)
				down := newDownDisk(w.fs, n, forever)
				err := w.runOn(down)
				if err == nil && forever {
					t.Errorf("no error, though %s failed", down.what())
				}
				p := w.place()
				if !p.Present {
					t.Fatalf("after %s the session is not served: %+v", down.what(), p)
				}
				served(w, p)
				if _, err := w.run(); err != nil {
					t.Fatalf("after %s: %v", down.what(), err)
				}
				done(w)
				if t.Failed() {
					t.Fatalf("after %s: %v", down.what(), err)
				}
			})
		}
	}
}

func (w *world) runOn(d *downDisk) error {
	cfg := w.config()
	cfg.FS, cfg.Layout = d, layout.New(d, w.root, w.state, nil)
	_, err := Run(context.Background(), cfg, sid)
	return err
}

const (
	childEnv  = "SESSIONFS_MIGRATE_TEST_CHILD"
	childCall = "SESSIONFS_MIGRATE_TEST_CALL" // the disk call that it tells of
)

// TestMain lets the test binary be the process that is killed.
func TestMain(m *testing.M) {
	flag.Parse()
	base := os.Getenv(childEnv)
	if base == "" {
		os.Exit(m.Run())
	}
	w := worldAt(nil, base) // it fails by its exit status
	n, _ := strconv.Atoi(os.Getenv(childCall))
	teller := newDownDisk(w.fs, n, false)
	teller.tell = func() { _, _ = os.Stdout.WriteString(".") }
	w.fs = teller
	cfg := w.config()
	cfg.DrainTimeout = 5 * time.Second
	if _, err := Run(context.Background(), cfg, sid); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestKill kills migrating processes at every part of their way; the next one
// goes on.
func TestKill(t *testing.T) {
	t.Run("relocation", func(t *testing.T) {
		testKill(t, newWorld(t).build(), 36, func(w *world) { w.wantDone() })
	})
	t.Run("conversion", func(t *testing.T) {
		w := newWorld(t)
		w.buildFirst(w.firstDir())
		files, old := w.files(w.source), w.log(filepath.Join(w.source, "history"))
		testKill(t, w, 24, func(w *world) { w.wantConverted(w.firstDir(), files, old) })
	})
}

func testKill(t *testing.T, fresh *world, kills int, done func(*world)) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	counter := newDownDisk(fresh.fs, 0, false)
	if err := fresh.snapshot(t).runOn(counter); err != nil {
		t.Fatal(err)
	}
	inTime := 0
	for i := range kills {
		w := fresh.snapshot(t)
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), childEnv+"="+filepath.Dir(w.state), fmt.Sprintf("%s=%d", childCall, 1+i*counter.calls()/kills))
		out, err := cmd.StdoutPipe()
		w.must(err)
		w.must(cmd.Start())
		_, _ = out.Read(make([]byte, 1)) // it has come to that call, or ended
		_ = cmd.Process.Kill()
		if err := cmd.Wait(); err != nil && strings.Contains(err.Error(), "killed") {
			inTime++
		}
		if p := w.place(); !p.Present {
			t.Fatalf("kill %d: not served: %+v", i, p)
		}
		if res, err := RunAll(context.Background(), w.config()); err != nil || len(res) > 1 || len(res) == 1 && res[0].Err != nil {
			t.Fatalf("kill %d: %+v, %v", i, res, err)
		}
		done(w)
		if t.Failed() {
			t.Fatalf("kill %d", i)
		}
	}
	t.Logf("%d of %d processes were killed before they ended", inTime, kills)
	if inTime < kills/4 {
		t.Errorf("only %d of %d processes were killed before they ended", inTime, kills)
	}
}
