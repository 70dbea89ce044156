package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// TestWatcherDropsTheRowOfADeletedSession: a program that keeps the registry in
// memory writes the row of a session that was deleted meanwhile.
func TestWatcherDropsTheRowOfADeletedSession(t *testing.T) {
	root, _ := soundRoot(t)
	s := openStore(t, store.Options{Root: root, Watch: true})
	newSession(t, s, "y", "question")
	noErr(t, s.DeleteSession(t.Context(), "y"))
	index := filepath.Join(root, "index.json")
	read := func() string {
		raw, err := os.ReadFile(index)
		noErr(t, err)
		return string(raw)
	}
	for strings.Contains(read(), `"y"`) {
		time.Sleep(10 * time.Millisecond) // the registry is written a second later
	}
	old := strings.Replace(read(), "{", `{"y": {"id": "y", "title": "gone"}, "elsewhere": {"id": "elsewhere"}, `, 1)
	noErr(t, disk.WriteAtomic(disk.OS, index, []byte(old), disk.WriteOptions{}))
	deadline := time.Now().Add(30 * time.Second)
	for strings.Contains(read(), `"y"`) {
		if time.Now().After(deadline) {
			t.Fatalf("the row is still there:\n%s", read())
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(read(), `"elsewhere"`) {
		t.Errorf("a row of a session that was not deleted went, too:\n%s", read())
	}
}
