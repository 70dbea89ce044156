package editors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// inPieces reads a file in small pieces, as a program with a small buffer does.
func inPieces(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var out bytes.Buffer
	_, err = io.CopyBuffer(struct{ io.Writer }{&out}, struct{ io.Reader }{f}, make([]byte, 300))
	return out.Bytes(), err
}

// lawful collects what each document of a session holds in each of the states
// that TestWholeReads moves between. Documents that keep count of what was
// written are only checked for their form.
func lawful(t *testing.T, states []func() error, path func(string) string, docs []string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, one := range states {
		if err := one(); err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			if b := read(t, path(d)); !slices.Contains(out[d], b) {
				out[d] = append(out[d], b)
			}
		}
	}
	return out
}

// TestWholeReads: whoever reads a document that changes meanwhile, in whatever
// pieces, gets one of the texts that it had, never the size of one and the
// bytes of another.
func TestWholeReads(t *testing.T) {
	m := start(t, harness.Options{})
	p := func(name string) string { return filepath.Join(m.Session(nested), name) }
	title := func(text string) func() error { return func() error { return put(p("fields/title"), text+"\n") } }
	head := func(to string) func() error { return func() error { return put(p("head_id"), to+"\n") } }
	long := strings.Repeat("a long title ", 900)
	long = strings.TrimSpace(long)
	states := []func() error{title("short"), head(tipTrunk), title(long), head(tipDetour), title("short"), head(tipTrunk)}
	docs := []string{"fields/title", "head_id", "meta.json", "transcript.md", "transcript.jsonl", "graph.txt", "graph.dot"}
	ok := lawful(t, states, p, docs)
	for _, d := range docs {
		if len(ok[d]) < 2 {
			t.Fatalf("%s does not change", d)
		}
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	var reads atomic.Int64
	for i := range 6 {
		wg.Go(func() {
			for n := i; !stop.Load(); n++ {
				d := docs[n%len(docs)]
				get := os.ReadFile
				if n/len(docs)%2 == 1 {
					get = inPieces
				}
				b, err := get(p(d))
				if err != nil || !slices.Contains(ok[d], string(b)) {
					t.Errorf("%s: %v, %d bytes that it never had: %.200q", d, err, len(b), b)
					return
				}
				if b, err = get(m.Path("index.json")); err != nil || !json.Valid(b) {
					t.Errorf("index.json: %v, %d bytes", err, len(b))
					return
				}
				reads.Add(1)
			}
		})
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end) && !t.Failed(); {
		for _, one := range states {
			if err := one(); err != nil {
				t.Error(err)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d whole reads", reads.Load())
}

// TestHeldReaders: a descriptor that stays open reads a text to its end as it
// was when the reading began; whoever goes back to the beginning gets the text
// of now, and who stays at the end what is added to it.
func TestHeldReaders(t *testing.T) {
	m := start(t, harness.Options{})
	path := m.Session(nested, "transcript.md")
	before := read(t, path)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	piece := make([]byte, 100)
	if _, err := io.ReadFull(f, piece); err != nil {
		t.Fatal(err)
	}
	if err := put(m.Session(nested, "head_id"), tipDetour+"\n"); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(f)
	if got := string(piece) + string(rest); err != nil || got != before {
		t.Errorf("a reader across a move got %v, %q", err, got)
	}
	if fi, err := f.Stat(); err != nil || fi.Size() != int64(len(read(t, path))) {
		t.Errorf("stat says %v, %v", fi, err)
	}
	_, err = f.Seek(0, io.SeekStart)
	again, errRead := io.ReadAll(f)
	if now := read(t, path); errors.Join(err, errRead) != nil || string(again) != now || now == before {
		t.Errorf("from the beginning again: %v, %q", errors.Join(err, errRead), again)
	}
	for i := range 3 {
		if err := put(m.Session(nested, "append", "user"), fmt.Sprintf("more %d\n", i)); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(f)
		again = append(again, rest...)
		if now := read(t, path); err != nil || string(again) != now || len(rest) == 0 {
			t.Errorf("after message %d: %v, %q was added", i, err, rest)
		}
	}
	// The text is another one, and longer: who was told of the end is given
	// what stands behind it now, as on a disk.
	if err := put(m.Session(nested, "fields", "title"), strings.Repeat("a title ", 100)+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := put(m.Session(nested, "head_id"), tipTrunk+"\n"); err != nil {
		t.Fatal(err)
	}
	now := read(t, path)
	if rest, err := io.ReadAll(f); err != nil || string(rest) != now[min(len(now), len(again)):] {
		t.Errorf("behind the end of another text: %v, %q", err, rest)
	}
}

// TestFollowers: programs that stay with a file follow a transcript, over
// messages and over a move of the head.
func TestFollowers(t *testing.T) {
	need(t, "tail")
	m := start(t, harness.Options{})
	path := m.Session(nested, "transcript.md")
	log := filepath.Join(t.TempDir(), "out")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("tail", "-n", "+1", "-f", path)
	cmd.Stdout = out
	if err := errors.Join(cmd.Start(), out.Close()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	shows := func(what, text string) {
		t.Helper()
		if !harness.Wait(time.Minute, func() bool { return strings.Contains(read(t, log), text) }) {
			t.Errorf("%s does not show: %q", what, read(t, log))
		}
	}
	shows("the text", "\n")
	for i := range 3 {
		text := fmt.Sprintf("a question that is number %d", i)
		if err := put(m.Session(nested, "append", "user"), text+"\n"); err != nil {
			t.Fatal(err)
		}
		shows("a message", text)
	}
	if err := put(m.Session(nested, "head_id"), tipDetour+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := put(m.Session(nested, "append", "user"), "a question on the other branch\n"); err != nil {
		t.Fatal(err)
	}
	shows("a message of the other branch", "a question on the other branch")
}

// TestMappedReaders: who maps a document, as Git does, sees it whole.
func TestMappedReaders(t *testing.T) {
	need(t, "git")
	m := start(t, harness.Options{})
	for _, name := range []string{"transcript.md", "meta.json", "graph.txt", "fields/title"} {
		plain := filepath.Join(t.TempDir(), "plain")
		path := m.Session(nested, name)
		for range 2 {
			if err := os.WriteFile(plain, []byte(read(t, path)), 0o600); err != nil {
				t.Fatal(err)
			}
			if r := harness.Command(t, t.TempDir(), nil, "git", "diff", "--no-index", "--stat", path, plain); r.Code != 0 || r.Out != "" {
				t.Errorf("%s: exit status %d, %s%s", name, r.Code, r.Out, r.Err)
			}
			if got, want := harness.Command(t, t.TempDir(), nil, "git", "hash-object", path).Out, harness.Command(t, t.TempDir(), nil, "git", "hash-object", plain).Out; got != want {
				t.Errorf("%s has the hash %s, want %s", name, got, want)
			}
			if err := errors.Join(put(m.Session(nested, "fields", "title"), "another "+name+"\n"), put(m.Session(nested, "head_id"), tipDetour+"\n")); err != nil {
				t.Fatal(err)
			}
		}
	}
}
