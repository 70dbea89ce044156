package editors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// wholeID matches the ids of this session's nodes, which are of two lengths.
var wholeID = regexp.MustCompile(`^([0-9a-f]{8}|[0-9a-f]{12})\n$`)

// wholeDocument reports whether a text is one that a document of the session can have
// at any time.
func wholeDocument(name, text string) bool {
	ends := strings.HasSuffix(text, "\n")
	switch name {
	case "head_id":
		return wholeID.MatchString(text)
	case "meta.json":
		return json.Valid([]byte(text))
	case "fields/title":
		return ends && strings.Count(text, "\n") == 1
	case "transcript.jsonl":
		for line := range strings.Lines(text) {
			if !json.Valid([]byte(line)) {
				return false
			}
		}
		return ends
	case "transcript.md":
		return ends && strings.HasPrefix(text, "# ")
	case "graph.txt", "graph.dot":
		return ends && !strings.Contains(text, "\x00")
	}
	return !strings.Contains(text, "\x00")
}

// TestEditorsAtOnce: saves by rename in every directory, renames between the
// directories both ways, moves of the head and readers of everything, all at
// once: nothing hangs, no save is half done, and what everybody sees agrees
// when it is quiet.
func TestEditorsAtOnce(t *testing.T) {
	m := start(t, harness.Options{Warnings: []string{"could not be kept"}})
	s := m.Session(nested)
	p := func(name ...string) string { return filepath.Join(append([]string{s}, name...)...) }
	stop := time.Now().Add(4 * time.Second)
	var wg sync.WaitGroup
	work := func(step func(i int) error, lawful ...error) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; time.Now().Before(stop); i++ {
				err := step(i)
				for _, ok := range lawful {
					if errors.Is(err, ok) {
						err = nil
					}
				}
				if err != nil {
					t.Errorf("step %d: %v", i, err)
					return
				}
			}
		}()
	}
	moved := []error{syscall.ENOENT, syscall.ESTALE}
	work(func(i int) error {
		tmp := p("messages", "sedAbC")
		err := put(tmp, fmt.Sprintf("question %d\n", i))
		return errors.Join(err, os.Rename(tmp, p("messages", lastUser(t, m, nested))))
	}, moved...)
	work(func(i int) error { return put(p("messages", lastUser(t, m, nested)), fmt.Sprintf("in place %d\n", i)) }, moved...)
	work(func(i int) error {
		return errors.Join(put(p("fields", "t~"), fmt.Sprintf("title %d\n", i)), os.Rename(p("fields", "t~"), p("fields", "title")))
	})
	work(func(i int) error {
		b, err := os.ReadFile(p("meta.json"))
		if err == nil && !json.Valid(b) {
			return fmt.Errorf("meta.json reads %q", b)
		}
		text := strings.Replace(string(b), `{"id"`, fmt.Sprintf(`{"k%d": %d, "id"`, i%5, i), 1)
		return errors.Join(err, put(p("m~"), text), os.Rename(p("m~"), p("meta.json")))
	}, syscall.ESTALE)
	work(func(int) error {
		return errors.Join(put(p("a"), "a"), os.Rename(p("a"), p("messages", "a")), os.Rename(p("messages", "a"), p("fields", "a")), os.Rename(p("fields", "a"), p("a")), os.Remove(p("a")))
	})
	work(func(i int) error {
		to := []string{tipDetour, tipTrunk}[i%2]
		return errors.Join(put(p("h~"), to+"\n"), os.Rename(p("h~"), p("head_id")))
	})
	for range 2 {
		work(func(int) error {
			_ = filepath.WalkDir(s, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.Type().IsRegular() {
					b, err := os.ReadFile(path)
					name, _ := filepath.Rel(s, path)
					if err == nil && !wholeDocument(name, string(b)) {
						t.Errorf("%s reads %q", name, b)
					}
				}
				return nil
			})
			return nil
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(harness.Slow(40 * time.Second)):
		t.Fatal("somebody hangs")
	}
	for _, name := range foreign(t, m, nested) {
		if name != "messages/sedAbC" && name != "m~" { // of a save that was refused last
			t.Errorf("left: %s", name)
		}
	}
	head := text(t, m, nested, "head_id")
	if got := read(t, p("head_id")); got != head+"\n" {
		t.Errorf("head_id is %q, the store has %q", got, head)
	}
	if link, err := os.Readlink(p("head")); err != nil || !strings.Contains(link, head) {
		t.Errorf("head is %q, the store has %q", link, head)
	}
	if got := read(t, p("meta.json")); got != read(t, m.Repo(nested, "meta.json")) {
		t.Errorf("meta.json is %s", got)
	}
	if got := read(t, p("fields", "title")); got != text(t, m, nested, "title")+"\n" {
		t.Errorf("title is %q", got)
	}
	list := names(t, p("messages"))
	for i, name := range list {
		if ours.MatchString(name) && !strings.HasPrefix(name, fmt.Sprintf("%06d-", i+1)) {
			t.Errorf("messages/ lists %q", list)
			break
		}
	}
	pure(t, m, nested)
}
