package layout_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/layout"
)

func TestBindChangesOneList(t *testing.T) {
	state := t.TempDir()
	path := filepath.Join(state, "projects", "projects.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	const before = `{
  "p1": {
    "id": "p1",
    "path": "/tmp/p1",
    "session_ids": [
      "a"
    ],
    "odd": 1e400
  },
  "p2": {
    "id": "p2",
    "session_ids": []
  }
}`
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	l := layout.New(disk.OS, filepath.Join(state, "sessions"), state, nil)
	if err := l.Bind("p1", "b"); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(before, "\"a\"\n", "\"a\",\n      \"b\"\n", 1)
	if got := read(t, path); got != want {
		t.Errorf("after Bind\n got %s\nwant %s", got, want)
	}
	if p, ok := l.BoundProject("b"); !ok || p.ID != "p1" {
		t.Errorf("bound to %v, %v", p, ok)
	}
	if err := l.Unbind("b"); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != before {
		t.Errorf("after Unbind\n got %s\nwant %s", got, before)
	}
	if err := l.Bind("p3", "b"); err == nil {
		t.Error("an unknown project was bound")
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
