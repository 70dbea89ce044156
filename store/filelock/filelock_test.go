package filelock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childEnv makes the test binary a second process: "hold PATH" takes the lock,
// says so and waits for the end of its input; "count PATH FILE N" adds one to
// the number in FILE N times, each time under the lock.
const childEnv = "FILELOCK_TEST_CHILD"

func TestMain(m *testing.M) {
	if args := os.Getenv(childEnv); args != "" {
		os.Exit(child(strings.Split(args, "\n")))
	}
	goleak.VerifyTestMain(m)
}

func child(args []string) int {
	var err error
	switch args[0] {
	case "hold":
		err = hold(args[1])
	case "count":
		n, _ := strconv.Atoi(args[3])
		err = count(args[1], args[2], n)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func hold(path string) error {
	l, err := Acquire(context.Background(), path, 20*time.Second)
	if err != nil {
		return err
	}
	fmt.Println("locked")
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, l.Unlock())
}

func count(path, file string, n int) error {
	for range n {
		l, err := Acquire(context.Background(), path, 60*time.Second)
		if err != nil {
			return err
		}
		if err := increment(file); err != nil {
			return err
		}
		if err := l.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

func increment(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(b))
	if err != nil {
		return err // a torn number: two were in at once
	}
	return os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0o600)
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(args, "\n"))
	cmd.Stderr = os.Stderr
	return cmd
}

// holder starts a process that holds path, and returns it once it does.
func holder(t *testing.T, path string) (cmd *exec.Cmd, release func()) {
	t.Helper()
	cmd = command(t, "hold", path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	release = func() { once.Do(func() { in.Close(); cmd.Wait() }) }
	t.Cleanup(release)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "locked\n" {
		t.Fatalf("child said %q, %v", line, err)
	}
	return cmd, release
}

func mustAcquire(t *testing.T, path string) *Lock {
	t.Helper()
	l, err := Acquire(context.Background(), path, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Unlock() })
	return l
}

func wantHeld(t *testing.T, path string, want bool) {
	t.Helper()
	got, err := Held(path)
	if err != nil || got != want {
		t.Fatalf("Held = %v, %v, want %v", got, err, want)
	}
}

func TestAnotherProcessExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".locks", "s.lock")
	_, release := holder(t, path)
	wantHeld(t, path, true)
	start := time.Now()
	_, err := Acquire(context.Background(), path, 120*time.Millisecond)
	if !errors.Is(err, ErrTimeout) {
		t.Fatalf("Acquire of a held lock: %v, want ErrTimeout", err)
	}
	if waited := time.Since(start); waited < 120*time.Millisecond {
		t.Errorf("gave up after %v", waited)
	}
	if _, ok, err := Try(path); ok || err != nil {
		t.Errorf("Try of a held lock: %v, %v", ok, err)
	}
	if _, err := AcquireShared(context.Background(), path, 0); !errors.Is(err, ErrTimeout) {
		t.Errorf("AcquireShared of a held lock: %v, want ErrTimeout", err)
	}
	release()
	wantHeld(t, path, false)
	mustAcquire(t, path)
}

func TestKilledHolderReleases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.lock")
	cmd, _ := holder(t, path)
	got := make(chan error, 1)
	go func() {
		l, err := Acquire(context.Background(), path, 20*time.Second)
		if err == nil {
			err = l.Unlock()
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("acquired while the other process holds it: %v", err)
	case <-time.After(80 * time.Millisecond):
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

func TestSameProcessWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.lock")
	first := mustAcquire(t, path)
	wantHeld(t, path, true)
	var released atomic.Bool
	done := make(chan error, 1)
	go func() {
		l, err := Acquire(context.Background(), path, 20*time.Second)
		if err == nil && !released.Load() {
			err = errors.New("two holders")
		}
		done <- errors.Join(err, l.Unlock())
	}()
	time.Sleep(60 * time.Millisecond)
	released.Store(true)
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestMutualExclusion lets goroutines of this process and other processes add
// to one number; a lost addition is a lock that two held.
func TestMutualExclusion(t *testing.T) {
	dir := t.TempDir()
	path, file := filepath.Join(dir, "s.lock"), filepath.Join(dir, "n")
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	const each, processes, goroutines = 40, 2, 3
	var wg sync.WaitGroup
	errs := make(chan error, processes+goroutines)
	for range processes {
		cmd := command(t, "count", path, file, strconv.Itoa(each))
		wg.Go(func() { errs <- cmd.Run() })
	}
	for range goroutines {
		wg.Go(func() { errs <- count(path, file, each) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	b, _ := os.ReadFile(file)
	if want := strconv.Itoa(each * (processes + goroutines)); string(b) != want {
		t.Errorf("counted %s, want %s", b, want)
	}
}

func TestContextEndsTheWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.lock")
	mustAcquire(t, path)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(30*time.Millisecond, cancel)
	start := time.Now()
	_, err := Acquire(ctx, path, time.Minute)
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrTimeout) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if time.Since(start) > 5*time.Second {
		t.Error("cancellation did not end the wait")
	}
	if _, err := Acquire(ctx, path+"2", time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v from a context that had ended", err)
	}
	if lexists(path + "2") {
		t.Error("a context that had ended made a file")
	}
}

func TestReadersCreateNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ".locks", "s.lock")
	wantHeld(t, path, false)
	l, err := AcquireShared(context.Background(), path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("a reader left %v, %v", entries, err)
	}
}

func TestSharedHoldersShare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.lock")
	if err := mustAcquire(t, path).Unlock(); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	a, err := AcquireShared(ctx, path, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := AcquireShared(ctx, path, 0)
	if err != nil {
		t.Fatal(err)
	}
	wantHeld(t, path, false)
	if _, ok, err := Try(path); ok || err != nil {
		t.Fatalf("Try beside shared holders: %v, %v", ok, err)
	}
	if err := errors.Join(a.Unlock(), b.Unlock()); err != nil {
		t.Fatal(err)
	}
	mustAcquire(t, path)
}

// TestTryBesideProbes: a probe holds the lock for a moment, and must not make
// a free lock look held.
func TestTryBesideProbes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.lock")
	if err := mustAcquire(t, path).Unlock(); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			if _, err := Held(path); err != nil {
				t.Error(err)
			}
			// A sleep lasts a millisecond at least; the probes have to be
			// close together to meet anybody.
			for end := time.Now().Add(30 * time.Microsecond); time.Now().Before(end); {
				runtime.Gosched()
			}
		}
	})
	for i := range 2000 {
		l, ok, err := Try(path)
		if !ok || err != nil {
			t.Errorf("round %d: Try of a free lock: %v, %v", i, ok, err)
			break
		}
		l.Unlock()
	}
	stop.Store(true)
	wg.Wait()
}

func TestFileAndDirectory(t *testing.T) {
	root := t.TempDir()
	uid := os.Geteuid()
	if uid == 0 {
		uid = 12345
		if err := os.Chown(root, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(root, "a", ".locks", "s.lock")
	l := mustAcquire(t, path)
	if l.Path() != path {
		t.Errorf("Path = %q", l.Path())
	}
	for p, mode := range map[string]fs.FileMode{
		path: 0o600, filepath.Dir(path): 0o700 | fs.ModeDir, filepath.Join(root, "a"): 0o700 | fs.ModeDir,
	} {
		fi, err := os.Lstat(p)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode() != mode {
			t.Errorf("%s has mode %v, want %v", p, fi.Mode(), mode)
		}
		if got := fi.Sys().(*syscall.Stat_t).Uid; int(got) != uid {
			t.Errorf("%s is owned by %d, want %d", p, got, uid)
		}
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 || entries[0].Name() != "s.lock" {
		t.Errorf("after unlocking the directory holds %v, %v", entries, err)
	}
}

// TestFirstOpenersAgree: whoever makes the file, there is one file.
func TestFirstOpenersAgree(t *testing.T) {
	dir := t.TempDir()
	for round := range 20 {
		path := filepath.Join(dir, strconv.Itoa(round))
		var inside, worst atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				l, err := Acquire(context.Background(), path, 20*time.Second)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n > worst.Load() {
					worst.Store(n)
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				l.Unlock()
			})
		}
		wg.Wait()
		if worst.Load() != 1 {
			t.Fatalf("round %d: %d holders at once", round, worst.Load())
		}
	}
}

func TestReplacedFileIsNotLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.lock")
	old := mustAcquire(t, path)
	for _, c := range []struct {
		name    string
		replace func() error
	}{
		{"removed", func() error { return os.Remove(path) }},
		{"made anew", func() error { return os.WriteFile(path, nil, 0o600) }},
	} {
		if err := c.replace(); err != nil {
			t.Fatal(err)
		}
		if err := verify(old.file); !errors.Is(err, errReplaced) {
			t.Errorf("%s: verify = %v, want errReplaced", c.name, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	fresh := mustAcquire(t, path)
	if err := verify(fresh.file); err != nil {
		t.Error(err)
	}
}

func TestNotALockFile(t *testing.T) {
	dir := t.TempDir()
	fifo, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, fifo, link, filepath.Join(file, "x", "s.lock")} {
		l, err := Acquire(context.Background(), path, time.Second)
		if err == nil || errors.Is(err, ErrTimeout) {
			t.Errorf("Acquire(%s) = %v", path, err)
		}
		l.Unlock()
	}
}

func TestUnlockTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.lock")
	a := mustAcquire(t, path)
	if err := a.Unlock(); err != nil {
		t.Fatal(err)
	}
	mustAcquire(t, path)
	if err := a.Unlock(); err != nil {
		t.Error(err)
	}
	wantHeld(t, path, true) // the second Unlock of a took nothing from b
	var none *Lock
	if err := none.Unlock(); err != nil {
		t.Error(err)
	}
}

// TestPlainCreation is the way on file systems without hard links.
func TestPlainCreation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.lock")
	for range 2 {
		if err := createPlain(path, dir); err != nil {
			t.Fatal(err)
		}
	}
	l := mustAcquire(t, path)
	fi, err := l.file.Stat()
	if err != nil || fi.Mode() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
}

func TestSafeName(t *testing.T) {
	for id, want := range map[string]string{
		"local_0123456789": "local_0123456789",
		"a/b":              "a_b",
		`a\b`:              "a_b",
		"a..b":             "a_b",
		"..":               "_",
		"...":              "_.",
		"../../etc/x":      "____etc_x",
		"":                 "",
		"会话":               "会话",
	} {
		if got := SafeName(id); got != want {
			t.Errorf("SafeName(%q) = %q, want %q", id, got, want)
		}
	}
}

func FuzzSafeName(f *testing.F) {
	for _, s := range []string{"a", "../x", `..\..`, "/./", "a.../b", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		got := SafeName(id)
		if strings.ContainsAny(got, `/\`) || strings.Contains(got, "..") {
			t.Errorf("SafeName(%q) = %q", id, got)
		}
		if SafeName(got) != got {
			t.Errorf("SafeName is not idempotent on %q", id)
		}
	})
}

func BenchmarkAcquireUnlock(b *testing.B) {
	path := filepath.Join(b.TempDir(), "s.lock")
	b.ReportAllocs()
	for b.Loop() {
		l, err := Acquire(context.Background(), path, time.Second)
		if err != nil {
			b.Fatal(err)
		}
		l.Unlock()
	}
}
