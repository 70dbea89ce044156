package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// edge is a size around which the tests look.
const edge = 64 << 10

func TestMain(m *testing.M) {
	if dir := os.Getenv("SPOOL_TEST_DIE_IN"); dir != "" {
		dieWith(dir)
	}
	goleak.VerifyTestMain(m)
}

// open makes a Spool that is closed, and whose directory is empty, at the end.
func open(t *testing.T, lim Limits) *Spool {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "state", "spool"), lim)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if left := names(t, s.dir); len(left) != 1 || left[0] != lockName {
			t.Errorf("left in the spool directory: %q", left)
		}
	})
	return s
}

func create(t *testing.T, s *Spool, hint string) *Buf {
	t.Helper()
	b, err := s.Create(hint)
	if err != nil {
		t.Fatalf("Create(%q): %v", hint, err)
	}
	return b
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// failedFiles returns the contents in failed/, by name.
func failedFiles(t *testing.T, s *Spool) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range names(t, s.FailedDir()) {
		path := filepath.Join(s.FailedDir(), name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", name, fi.Mode())
		}
		out[name] = string(data)
	}
	return out
}

func TestPrivateDirectories(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "spool")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, d := range []string{dir, s.live, s.FailedDir()} {
		fi, err := os.Stat(d)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v, want 0700", d, fi.Mode())
		}
	}
	if want := filepath.Join(base, "failed"); s.FailedDir() != want {
		t.Errorf("FailedDir() = %q, want %q", s.FailedDir(), want)
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(link, Limits{}); err == nil {
		s.Close()
		t.Error("Open of a symlink succeeded")
	}
}

func TestForeignDirectoryIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a directory of another user")
	}
	dir := filepath.Join(t.TempDir(), "spool")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(dir, Limits{}); !errors.Is(err, os.ErrPermission) {
		if s != nil {
			s.Close()
		}
		t.Errorf("Open = %v, want a permission error", err)
	}
}

// TestSizes goes over the boundary between memory and disk in one write, at
// every size that could be off by one.
func TestSizes(t *testing.T) {
	s := open(t, Limits{})
	for _, n := range []int{0, 1, edge - 1, edge, edge + 1, 3 * edge} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			b := create(t, s, "doc")
			want := bytes.Repeat([]byte("abcdefg"), n/7+1)[:n]
			if w, err := b.WriteAt(want, 0); w != n || err != nil {
				t.Fatalf("WriteAt = %d, %v", w, err)
			}
			if inMemory := b.path == ""; inMemory != (n <= memoryMax) {
				t.Errorf("in memory: %v", inMemory)
			}
			checkContent(t, b, want)
			if err := b.Sync(); err != nil {
				t.Fatal(err)
			}
			checkContent(t, b, want)
			if err := b.Persist(); err != nil {
				t.Fatal(err)
			}
			if b.file != nil {
				t.Error("Persist kept the descriptor")
			}
			checkContent(t, b, want)
			b.Discard()
			b.Discard()
			if left := names(t, s.live); len(left) != 1 {
				t.Errorf("left after Discard: %q", left)
			}
		})
	}
}

func checkContent(t *testing.T, b *Buf, want []byte) {
	t.Helper()
	if b.Size() != int64(len(want)) {
		t.Fatalf("Size() = %d, want %d", b.Size(), len(want))
	}
	got, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("Bytes() differ: got %d bytes, want %d", len(got), len(want))
	}
	p := make([]byte, len(want)+10)
	n, err := b.ReadAt(p, 0)
	if n != len(want) || err != io.EOF || !bytes.Equal(p[:n], want) {
		t.Fatalf("ReadAt past the end = %d, %v, want %d, EOF", n, err, len(want))
	}
}

func TestLimits(t *testing.T) {
	s := open(t, Limits{File: 100, Total: 150, Count: 3})
	a, b := create(t, s, "a"), create(t, s, "b")
	if n, err := a.WriteAt(make([]byte, 101), 0); n != 0 || !errors.Is(err, ErrTooLarge) {
		t.Errorf("over the file limit: %d, %v", n, err)
	}
	if n, err := a.WriteAt([]byte("x"), 1<<62); n != 0 || !errors.Is(err, ErrTooLarge) {
		t.Errorf("far over the file limit: %d, %v", n, err)
	}
	if n, err := a.WriteAt([]byte("xy"), 1<<63-1); n != 0 || !errors.Is(err, ErrTooLarge) {
		t.Errorf("an offset that overflows: %d, %v", n, err)
	}
	if err := a.Truncate(101); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Truncate over the file limit: %v", err)
	}
	if _, err := a.WriteAt(make([]byte, 100), 0); err != nil {
		t.Errorf("exactly the file limit: %v", err)
	}
	if n, err := b.WriteAt(make([]byte, 51), 0); n != 0 || !errors.Is(err, ErrNoSpace) {
		t.Errorf("over the total: %d, %v", n, err)
	}
	if err := b.Truncate(50); err != nil {
		t.Errorf("exactly the total: %v", err)
	}
	if _, err := b.WriteAt(make([]byte, 50), 0); err != nil {
		t.Errorf("overwriting at the total: %v", err)
	}
	create(t, s, "c")
	if _, err := s.Create("d"); !errors.Is(err, ErrNoSpace) {
		t.Errorf("over the count: %v", err)
	}
	a.Discard()
	if used, n := s.Used(); used != 50 || n != 2 {
		t.Errorf("Used() = %d, %d, want 50, 2", used, n)
	}
	if _, err := b.WriteAt([]byte("x"), -1); !errors.Is(err, ErrInvalid) {
		t.Errorf("negative offset: %v", err)
	}
	if _, err := b.ReadAt(make([]byte, 1), -1); !errors.Is(err, ErrInvalid) {
		t.Errorf("negative offset: %v", err)
	}
	if err := b.Truncate(-1); !errors.Is(err, ErrInvalid) {
		t.Errorf("negative size: %v", err)
	}
}

func TestFailKeepsMemoryAndDisk(t *testing.T) {
	s := open(t, Limits{})
	for _, n := range []int{0, 5, edge + 5} {
		b := create(t, s, "doc")
		want := strings.Repeat("x", n)
		if _, err := b.WriteAt([]byte(want), 0); err != nil {
			t.Fatal(err)
		}
		kept, err := b.Fail("sessions/s1/messages/000001-user-ab.md")
		if err != nil {
			t.Fatal(err)
		}
		if got := failedFiles(t, s)[filepath.Base(kept)]; got != want {
			t.Errorf("kept %d bytes, want %d", len(got), n)
		}
		if !regexp.MustCompile(`^\d{8}T\d{6}\.\d{6}Z-sessions\.s1\.messages\.000001-user-ab\.md-[0-9a-f]{8}$`).MatchString(filepath.Base(kept)) {
			t.Errorf("name %q", filepath.Base(kept))
		}
		if _, err := b.WriteAt([]byte("y"), 0); err != ErrClosed {
			t.Errorf("WriteAt after Fail: %v", err)
		}
		if _, err := b.Fail("again"); err != ErrClosed {
			t.Errorf("second Fail: %v", err)
		}
	}
	if used, n := s.Used(); used != 0 || n != 0 {
		t.Errorf("Used() = %d, %d after Fail", used, n)
	}
}

func TestFailedIsBoundedAtOpenAndNeverEvicted(t *testing.T) {
	s := open(t, Limits{Failed: 10, Total: 20})
	early := create(t, s, "early")
	if _, err := early.WriteAt([]byte("0123456789abcdef"), 0); err != nil {
		t.Fatal(err)
	}
	first, err := s.FailBytes("first", []byte("0123456789"))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Full() {
		t.Error("not full at the limit")
	}
	if _, err := s.Create("late"); !errors.Is(err, ErrNoSpace) {
		t.Errorf("Create while full: %v", err)
	}
	kept, err := early.Fail("early") // what was accepted is kept
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.FailBytes("huge", make([]byte, 21)); !errors.Is(err, ErrNoSpace) {
		t.Errorf("FailBytes far over the limit: %v", err)
	}
	if got := failedFiles(t, s); len(got) != 2 {
		t.Errorf("failed/ holds %d files, want 2", len(got))
	}
	for _, path := range []string{first, kept} { // its user makes room
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if s.Full() {
		t.Error("still full after the files were removed")
	}
	create(t, s, "late").Discard()
	if err := os.RemoveAll(s.FailedDir()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.FailBytes("after rm -r", []byte("x")); err != nil {
		t.Errorf("after failed/ was removed: %v", err)
	}
}

func TestCloseKeepsWhatIsLive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, err := Open(dir, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	small, big, empty := create(t, s, "small"), create(t, s, "big"), create(t, s, "empty")
	if _, err := small.WriteAt([]byte("small"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := big.WriteAt([]byte("end"), edge); err != nil {
		t.Fatal(err)
	}
	if err := empty.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	got := failedFiles(t, s)
	if len(got) != 2 {
		t.Errorf("failed/ holds %d files, want 2", len(got))
	}
	for name, data := range got {
		if strings.Contains(name, "-small-") != (data == "small") || strings.Contains(name, "-big-") != (len(data) == edge+3) {
			t.Errorf("%s holds %d bytes", name, len(data))
		}
	}
	if _, err := s.Create("x"); err != ErrClosed {
		t.Errorf("Create after Close: %v", err)
	}
	if _, err := s.FailBytes("x", nil); err != ErrClosed {
		t.Errorf("FailBytes after Close: %v", err)
	}
	if _, err := small.Bytes(); err != ErrClosed {
		t.Errorf("Bytes after Close: %v", err)
	}
}

// dieWith is the process of TestDeadProcessIsRecovered: it leaves one synced,
// one persisted and two unsynced files, small and large, says so, and waits to be killed.
func dieWith(dir string) {
	s, err := Open(dir, Limits{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for hint, n := range map[string]int{"synced": 10, "persisted": 20, "small": 30, "large": edge + 1} {
		b, err := s.Create("notes/" + hint)
		if err == nil {
			_, err = b.WriteAt(bytes.Repeat([]byte("z"), n), 0)
		}
		switch hint {
		case "synced":
			err = errors.Join(err, b.Sync())
		case "persisted":
			err = errors.Join(err, b.Persist())
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	fmt.Println("ready")
	time.Sleep(time.Minute)
	os.Exit(1)
}

func TestDeadProcessIsRecovered(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SPOOL_TEST_DIE_IN="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 6)
	if _, err := io.ReadFull(out, line); err != nil || string(line) != "ready\n" {
		cmd.Process.Kill()
		t.Fatalf("the other process said %q, %v", line, err)
	}
	// While it lives, its files are its own.
	s, err := Open(dir, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := s.Recovered(); len(kept) != 0 || err != nil {
		t.Errorf("recovered from a living process: %q, %v", kept, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	s, err = Open(dir, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	kept, err := s.Recovered()
	if err != nil {
		t.Errorf("Recovered: %v", err)
	}
	sizes := map[string]int{}
	for name, data := range failedFiles(t, s) {
		parts := strings.Split(name, "-")
		sizes[parts[1]] = len(data)
	}
	want := map[string]int{"notes.synced": 10, "notes.persisted": 20, "notes.small": 30, "notes.large": edge + 1}
	if fmt.Sprint(sizes) != fmt.Sprint(want) || len(kept) != 4 {
		t.Errorf("recovered %v (%d), want %v", sizes, len(kept), want)
	}
	if left := names(t, dir); len(left) != 2 { // the lock and the own directory
		t.Errorf("left in the spool directory: %q", left)
	}
}

// TestSweepGoesOn has a leftover that cannot be moved: Open succeeds, says so,
// and the rest is recovered.
func TestSweepGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	for _, name := range []string{"live-1-aa/1-good", "live-1-bb/1-bad/inner"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(dir, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	kept, err := s.Recovered()
	if len(kept) != 1 || err == nil {
		t.Errorf("Recovered() = %q, %v", kept, err)
	}
}

// TestFullDisk fills a real file system: every error answers to ErrNoSpace,
// the books stay right, and nothing that was accepted is lost.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	mnt := t.TempDir()
	if err := syscall.Mount("tmpfs", mnt, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mount tmpfs: %v", err)
	}
	defer syscall.Unmount(mnt, syscall.MNT_DETACH)
	s, err := Open(filepath.Join(mnt, "spool"), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	big, small := create(t, s, "big"), create(t, s, "small")
	if _, err := small.WriteAt([]byte("precious"), 0); err != nil {
		t.Fatal(err)
	}
	n, err := big.WriteAt(make([]byte, 4<<20), 0)
	if !errors.Is(err, ErrNoSpace) {
		t.Fatalf("WriteAt on a full disk = %d, %v", n, err)
	}
	if big.Size() != int64(n) {
		t.Errorf("Size() = %d after %d bytes were written", big.Size(), n)
	}
	if used, _ := s.Used(); used != int64(n)+8 {
		t.Errorf("Used() = %d, want %d", used, n+8)
	}
	if _, err := create(t, s, "late").WriteAt([]byte("x"), 0); !errors.Is(err, ErrNoSpace) {
		t.Errorf("a small text on a full disk: %v", err)
	}
	// What was accepted is on disk already, so that keeping it needs no room.
	if kept, err := small.Fail("small"); err != nil || kept == "" {
		t.Errorf("Fail on a full disk: %q, %v", kept, err)
	}
	if _, err := s.FailBytes("x", []byte("x")); !errors.Is(err, ErrNoSpace) {
		t.Errorf("FailBytes on a full disk: %v", err)
	}
	big.Discard()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if got := failedFiles(t, s); len(got) != 1 {
		t.Errorf("failed/ holds %v", got)
	}
}

// TestConcurrent writes from many goroutines, each to its own Buf and all to
// one, while others discard and fail, and closes in the middle of it.
func TestConcurrent(t *testing.T) {
	s := open(t, Limits{File: 256 << 10, Total: 1 << 20})
	shared := create(t, s, "shared")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(g)))
			for range 60 {
				b, err := s.Create(fmt.Sprint("g", g))
				if err != nil {
					return
				}
				for range 4 {
					_, err := b.WriteAt(make([]byte, rnd.IntN(50<<10)), rnd.Int64N(100<<10))
					if err != nil && !errors.Is(err, ErrNoSpace) && err != ErrClosed {
						t.Error(err)
					}
					shared.WriteAt([]byte{byte(g)}, int64(g))
				}
				if rnd.IntN(10) == 0 {
					if _, err := b.Fail("f"); err != nil && err != ErrClosed {
						t.Error(err)
					}
				}
				b.Discard()
				if _, err := s.FailBytes("small", []byte("x")); err != nil && err != ErrClosed {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		time.Sleep(50 * time.Millisecond)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	if used, n := s.Used(); used != 0 || n != 0 {
		t.Errorf("Used() = %d, %d at the end", used, n)
	}
}
