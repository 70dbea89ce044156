package attachment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/disktest"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
)

func TestStoredName(t *testing.T) {
	long := strings.Repeat("图", 200)
	for name, want := range map[string]string{
		"notes.txt": "notes.txt", "/a/b/table one.csv": "table one.csv", "图表.png": "图表.png", "": "file", "..": "file", ". .": "file",
		"a:b*c\x00\n.txt": "a_b_c__.txt", `C:\x\y.txt`: "C__x_y.txt", "é½Ⅷ": "é½Ⅷ", "a\xff": "a_", "a/": "file",
		".opdedup.json": "attachment-.opdedup.json", ".opsourcepaths.json": "attachment-.opsourcepaths.json",
		".gitignore": "attachment-.gitignore", ".GIT": "attachment-.GIT", ".dot": ".dot",
		strings.Repeat("a", 300) + ".txt": strings.Repeat("a", 116) + ".txt",
		strings.Repeat("a", 120):          strings.Repeat("a", 120),
		strings.Repeat("a", 121):          strings.Repeat("a", 120),
		long + ".png":                     strings.Repeat("图", 65) + ".png",
		"a." + long:                       "a." + strings.Repeat("图", 66),
	} {
		got := StoredName(name)
		if got != want {
			t.Errorf("StoredName(%q) = %q, want %q", name, got, want)
		}
		if !utf8.ValidString(got) || len(got) > 255-41 {
			t.Errorf("StoredName(%q) = %q: %d bytes", name, got, len(got))
		}
	}
	if got := numbered("a.tar.gz", 2) + numbered(".dot", 1); got != "a.tar-2.gz.dot-1" {
		t.Error(got)
	}
}

func TestSave(t *testing.T) {
	repo := realTemp(t)
	s := NewSaver(disk.OS, repo)
	save := func(name, text string) Saved {
		t.Helper()
		got, err := s.Bytes(t.Context(), Upload{Name: name, Count: "1 lines"}, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if m := Find(got.Marker); len(m) != 1 || m[0].Path != got.Path || m[0].Name != filepath.Base(name) {
			t.Errorf("marker %s of %+v", got.Marker, got)
		}
		if b, err := os.ReadFile(got.Path); err != nil || string(b) != text {
			t.Errorf("%s holds %q, %v", got.Path, b, err)
		}
		return got
	}
	first := save("up/notes.txt", "one")
	if first.Path != filepath.Join(repo, "workdir/attachments/notes.txt") || first.Reused {
		t.Errorf("%+v", first)
	}
	if got := save("notes.txt", "two"); got.Stored != "notes-1.txt" {
		t.Errorf("%+v", got)
	}
	if got := save("other.md", "one"); got.Stored != "notes.txt" || !got.Reused {
		t.Errorf("the same bytes: %+v", got)
	}
	index := filepath.Join(repo, Dir, ".opdedup.json")
	want := fmt.Sprintf(`{"%s": "notes.txt", "%s": "notes-1.txt"}`, first.SHA256, save("notes.txt", "two").SHA256)
	if b, _ := os.ReadFile(index); string(b) != want {
		t.Errorf("index %s, want %s", b, want)
	}
	if fi, _ := os.Stat(index); fi.Mode().Perm() != 0o600 {
		t.Error(fi.Mode())
	}
	// A stored file that was changed or removed is not the same bytes any more.
	if err := os.WriteFile(first.Path, []byte("0ne"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := save("notes.txt", "one"); got.Stored != "notes-2.txt" {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(index, []byte(`{"torn`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := save("notes.txt", "two"); got.Stored != "notes-3.txt" {
		t.Errorf("after a torn index: %+v", got)
	}
	wantFiles(t, repo, ".opdedup.json", "notes-1.txt", "notes-2.txt", "notes-3.txt", "notes.txt")
}

func TestSaveHostileIndex(t *testing.T) {
	repo := realTemp(t)
	secret := filepath.Join(repo, "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("x"), 0o600), os.MkdirAll(filepath.Join(repo, Dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(repo, Dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../../secret", "link", "..", "/etc/passwd"} {
		index := fmt.Sprintf(`{"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881": %q}`, name)
		if err := os.WriteFile(filepath.Join(repo, Dir, ".opdedup.json"), []byte(index), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := NewSaver(disk.OS, repo).Bytes(t.Context(), Upload{Name: "x"}, []byte("x"))
		if err != nil || got.Reused {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestSaveLimits(t *testing.T) {
	repo := realTemp(t)
	s := NewSaver(disk.OS, repo)
	save := func(n int64) error {
		_, err := s.Reader(t.Context(), Upload{Name: "a.bin"}, io.LimitReader(zeros{}, n))
		return err
	}
	var large *TooLargeError
	if err := save(MaxFile + 1); !errors.As(err, &large) || large.Turn || large.Limit != MaxFile {
		t.Errorf("%v", err)
	}
	if err := errors.Join(save(MaxFile), save(MaxFile-1), save(1)); err != nil {
		t.Error(err)
	}
	if err := save(1); !errors.As(err, &large) || !large.Turn || large.Limit != MaxTurn {
		t.Errorf("%v", err)
	}
	if err := save(0); err != nil {
		t.Error(err)
	}
	wantFiles(t, repo, ".opdedup.json", "a-1.bin", "a-2.bin", "a-3.bin", "a.bin")
}

func TestSaveRefuses(t *testing.T) {
	outside := realTemp(t)
	for _, link := range []string{"workdir", Dir} {
		repo := realTemp(t)
		if err := os.MkdirAll(filepath.Join(repo, filepath.Dir(link)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, filepath.Join(repo, link)); err != nil {
			t.Fatal(err)
		}
		if _, err := NewSaver(disk.OS, repo).Bytes(t.Context(), Upload{Name: "a"}, []byte("x")); !errors.Is(err, safefile.ErrEscapes) {
			t.Errorf("%s is a symlink: %v", link, err)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		t.Errorf("written outside: %v", entries)
	}
	repo := realTemp(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewSaver(disk.OS, repo).Bytes(ctx, Upload{Name: "a"}, []byte("x")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := NewSaver(disk.OS, repo).File(t.Context(), Upload{}, repo); !errors.Is(err, safefile.ErrNotRegular) {
		t.Error(err)
	}
	wantFiles(t, repo)
}

func TestSaveFile(t *testing.T) {
	dir := realTemp(t)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "real"), []byte("x"), 0o600), os.Symlink("real", filepath.Join(dir, "a.md"))); err != nil {
		t.Fatal(err)
	}
	got, err := NewSaver(disk.OS, dir).File(t.Context(), Upload{}, filepath.Join(dir, "a.md"))
	if err != nil || got.Stored != "a.md" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSaveOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	repo := realTemp(t)
	if err := os.Chown(repo, 1234, 2345); err != nil {
		t.Fatal(err)
	}
	got, err := NewSaver(disk.OS, repo).Bytes(t.Context(), Upload{Name: "a"}, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{got.Path, filepath.Dir(got.Path), filepath.Join(repo, Dir, ".opdedup.json")} {
		if fi, err := os.Stat(p); err != nil || fmt.Sprint(ownerOf(fi)) != "1234 2345" {
			t.Errorf("%s belongs to %s (%v)", p, ownerOf(fi), err)
		}
	}
}

func TestSaveConcurrently(t *testing.T) {
	repo := realTemp(t)
	savers := []*Saver{NewSaver(disk.OS, repo), NewSaver(disk.OS, repo)}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			got, err := savers[i%2].Bytes(t.Context(), Upload{Name: "a.txt"}, fmt.Appendf(nil, "%d", i))
			if b, rerr := os.ReadFile(got.Path); err != nil || string(b) != fmt.Sprint(i) {
				t.Errorf("%d: %q %v %v", i, b, err, rerr)
			}
		})
	}
	wg.Wait()
}

// TestSaveFaults fails each change that a save makes: an error leaves no
// temporary file that could be removed, and success means the file is there.
func TestSaveFaults(t *testing.T) {
	for n := 1; ; n++ {
		repo := realTemp(t)
		d := disktest.New(disk.OS)
		d.FailAt(n, false)
		got, err := NewSaver(d, repo).Bytes(t.Context(), Upload{Name: "a"}, []byte("x"))
		if d.Calls() < n {
			if err != nil || n < 12 {
				t.Errorf("%d calls, %v", n, err)
			}
			return
		}
		if err == nil {
			if b, _ := os.ReadFile(got.Path); !bytes.Equal(b, []byte("x")) {
				t.Errorf("call %d failed: a success without a file", n)
			}
		}
		entries, _ := os.ReadDir(filepath.Join(repo, Dir))
		for _, e := range entries {
			if disk.IsTemp(e.Name()) {
				t.Errorf("call %d failed: %s is left", n, e.Name())
			}
		}
		if _, err := NewSaver(disk.OS, repo).Bytes(t.Context(), Upload{Name: "a"}, []byte("x")); err != nil {
			t.Errorf("after call %d failed: %v", n, err)
		}
	}
}

func wantFiles(t *testing.T, repo string, want ...string) {
	t.Helper()
	entries, _ := os.ReadDir(filepath.Join(repo, Dir))
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("attachments %q, want %q", got, want)
	}
}
