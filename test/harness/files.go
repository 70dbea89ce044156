package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Read returns a file's text; an error fails the test.
func Read(t testing.TB, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Names lists a directory, sorted; an error fails the test.
func Names(t testing.TB, path ...string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// Put writes a text as `echo` with > does: the file is there, O_TRUNC, one
// write, close. It returns the first error.
func Put(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Tree maps every path below dir to its kind, and to its target or its
// content.
func Tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			out[rel] = "directory"
		case e.Type()&os.ModeSymlink != 0:
			var to string
			to, err = os.Readlink(path)
			out[rel] = "-> " + to
		default:
			var b []byte
			b, err = os.ReadFile(path)
			out[rel] = string(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Difference names the paths in which two trees differ.
func Difference(before, after map[string]string) []string {
	var out []string
	for path, was := range before {
		if is, ok := after[path]; !ok {
			out = append(out, "gone: "+path)
		} else if is != was {
			out = append(out, fmt.Sprintf("changed: %s: %.60q, was %.60q", path, is, was))
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok {
			out = append(out, "new: "+path)
		}
	}
	slices.Sort(out)
	return out
}
