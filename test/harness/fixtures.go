package harness

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// placeholder stands for the extracted root in the files that a store's
// expected answers name.
const placeholder = "@SESSIONS_ROOT@"

// StoresDir is the directory of the golden stores: SESSIONFS_FIXTURES, or the
// repository's own.
func StoresDir(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("SESSIONFS_FIXTURES"); dir != "" {
		return dir
	}
	return filepath.Join(ModuleDir(t), "test", "testdata", "stores")
}

// Golden extracts one of the repository's own golden stores into a temporary
// directory and returns its root.
func Golden(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(ModuleDir(t), "test", "testdata", "stores")
	root, err := Extract(filepath.Join(dir, name+".tar.gz"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, name+".expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Files []string `json:"placeholder_files"`
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if err := FillPlaceholders(root, want.Files); err != nil {
		t.Fatal(err)
	}
	return root
}

// FillPlaceholders puts the absolute root into files below it that hold the
// placeholder; their times are kept.
func FillPlaceholders(root string, files []string) error {
	for _, name := range files {
		path := filepath.Join(root, name)
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(b), placeholder, root)), st.Mode().Perm()); err != nil {
			return err
		}
		if err := os.Chtimes(path, st.ModTime(), st.ModTime()); err != nil {
			return err
		}
	}
	return nil
}

// Extract unpacks a .tar.gz below dir, keeping modes, times and symlinks, and
// returns the absolute path of the single directory that it holds.
func Extract(tarball, dir string) (string, error) {
	f, err := os.Open(tarball)
	if err != nil {
		return "", err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return "", fmt.Errorf("%s: %w", tarball, err)
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	top, headers := "", []*tar.Header(nil)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", tarball, err)
		}
		if !filepath.IsLocal(h.Name) {
			return "", fmt.Errorf("%s: entry %q leaves the directory", tarball, h.Name)
		}
		if err := extractOne(r, h, filepath.Join(dir, h.Name)); err != nil {
			return "", fmt.Errorf("%s: %w", tarball, err)
		}
		top, _, _ = strings.Cut(filepath.Clean(h.Name), "/")
		headers = append(headers, h)
	}
	return filepath.Join(dir, top), restoreTimes(dir, headers)
}

func extractOne(r io.Reader, h *tar.Header, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		return os.Chmod(path, mode)
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, path)
	case tar.TypeReg:
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Chmod(mode), f.Close())
	}
	return fmt.Errorf("entry %s of an unknown kind %q", h.Name, h.Typeflag)
}

// restoreTimes sets modification times, children before their directories.
func restoreTimes(dir string, headers []*tar.Header) error {
	for _, h := range slices.Backward(headers) {
		ts := []syscall.Timespec{syscall.NsecToTimespec(h.ModTime.UnixNano()), syscall.NsecToTimespec(h.ModTime.UnixNano())}
		if h.Typeflag == tar.TypeSymlink {
			continue // nothing reads a link's own time
		}
		if err := syscall.UtimesNano(filepath.Join(dir, h.Name), ts); err != nil {
			return fmt.Errorf("times of %s: %w", h.Name, err)
		}
	}
	return nil
}

// Wait asks ready every millisecond until it says yes or the limit is over.
// It is for what other processes do in their own time, such as a release
// that follows a close; what a system call promises is checked at once.
func Wait(limit time.Duration, ready func() bool) bool {
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		if ready() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}
