package harness

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Foreign is another process that writes the store as OpenProgram's worker
// does: under the session's flock, by temporary file and rename, node first
// and meta.json after it. It shares no code with the product. Rows of index.json,
// which the worker writes up to five seconds later, it never writes.
type Foreign struct {
	t testing.TB
	p *Process
}

// ForeignRequest is one thing to do. Op is "append" (a node, and the head
// with it when Head is set), "meta" (Key gets the JSON text Value), "rewrite"
// (the node ID gets the text Text), "lock" and "unlock" (the session's flock
// is held in between).
type ForeignRequest struct {
	Store, Session  string
	Op              string
	ID, Role, Text  string
	Predecessor     string
	Head            bool
	Key, Value      string
	LeaveTornTemp   bool // first leave a half-written temporary file behind
	Pause           time.Duration
	PredecessorHead bool // the predecessor is the head that meta.json names
}

// ForeignAnswer says what was done, and when: At is the clock right after the
// last rename, in nanoseconds.
type ForeignAnswer struct {
	Err  string
	ID   string
	Stem string // of the history file
	At   int64
}

// NewForeign starts the process.
func NewForeign(t testing.TB) *Foreign {
	t.Helper()
	return &Foreign{t: t, p: Spawn(t, "foreign")}
}

// Do does one thing; a failure fails the test.
func (f *Foreign) Do(q ForeignRequest) ForeignAnswer {
	f.t.Helper()
	var a ForeignAnswer
	if err := f.p.Call(q, &a); err != nil {
		f.t.Fatal(err)
	}
	if a.Err != "" {
		f.t.Fatalf("foreign %s: %s", q.Op, a.Err)
	}
	return a
}

func foreignRole([]string) int {
	held := map[string]*os.File{}
	return Serve(func(q ForeignRequest) ForeignAnswer {
		a, err := foreignDo(q, held)
		if err != nil {
			a.Err = err.Error()
		}
		return a
	})
}

func foreignDo(q ForeignRequest, held map[string]*os.File) (ForeignAnswer, error) {
	if q.Op == "unlock" {
		f := held[q.Session]
		delete(held, q.Session)
		return ForeignAnswer{}, f.Close()
	}
	lock, err := lockSession(q.Store, q.Session)
	if err != nil {
		return ForeignAnswer{}, err
	}
	if q.Op == "lock" {
		held[q.Session] = lock
		return ForeignAnswer{}, nil
	}
	defer lock.Close()
	dir := filepath.Join(q.Store, q.Session)
	switch q.Op {
	case "append":
		return foreignAppend(dir, q)
	case "meta":
		err := editMeta(dir, member{q.Key, json.RawMessage(q.Value)})
		return ForeignAnswer{At: time.Now().UnixNano()}, err
	case "rewrite":
		return foreignRewrite(dir, q)
	}
	return ForeignAnswer{}, fmt.Errorf("unknown operation %q", q.Op)
}

// lockSession takes the session's flock, as every writer of the store does.
func lockSession(root, id string) (*os.File, error) {
	dir := filepath.Join(root, ".locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, id+".lock"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return f, syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
}

func foreignAppend(dir string, q ForeignRequest) (ForeignAnswer, error) {
	meta, err := readMembers(filepath.Join(dir, "meta.json"))
	if err != nil {
		return ForeignAnswer{}, err
	}
	if q.ID == "" {
		q.ID = randomHex(6)
	}
	if q.PredecessorHead {
		_ = json.Unmarshal(meta.get("head_id"), &q.Predecessor)
	}
	seq, err := nextSeq(dir)
	if err != nil {
		return ForeignAnswer{}, err
	}
	letter := map[string]string{"user": "u", "llm": "l", "code": "c"}[q.Role]
	stem := fmt.Sprintf("%04d-%s-%s", seq, letter, q.ID)
	now := float64(time.Now().UnixMicro()) / 1e6
	node, err := encodeNode(q, seq, now)
	if err != nil {
		return ForeignAnswer{}, err
	}
	if q.LeaveTornTemp {
		torn := filepath.Join(dir, "history", stem+".json."+randomHex(16)+".tmp")
		if err := os.WriteFile(torn, node[:len(node)/2], 0o600); err != nil {
			return ForeignAnswer{}, err
		}
	}
	if err := replace(filepath.Join(dir, "history", stem+".json"), node); err != nil {
		return ForeignAnswer{}, err
	}
	time.Sleep(q.Pause)
	edits := []member{{"updated_at", rawJSON(now)}}
	if q.Head {
		edits = append(edits, member{"head_id", rawJSON(q.ID)})
	}
	err = editMeta(dir, edits...)
	return ForeignAnswer{ID: q.ID, Stem: stem, At: time.Now().UnixNano()}, err
}

func encodeNode(q ForeignRequest, seq int, now float64) ([]byte, error) {
	var pred any
	if q.Predecessor != "" {
		pred = q.Predecessor
	}
	return joinMembers(members{
		{"id", rawJSON(q.ID)}, {"created_at", rawJSON(now)}, {"seq", rawJSON(seq)}, {"role", rawJSON(q.Role)},
		{"name", rawJSON("")}, {"input", rawJSON(nil)}, {"output", rawJSON(q.Text)}, {"caller", rawJSON("")},
		{"predecessor", rawJSON(pred)}, {"reads", rawJSON([]string{})}, {"metadata", rawJSON(map[string]any{})},
	}), nil
}

func foreignRewrite(dir string, q ForeignRequest) (ForeignAnswer, error) {
	found, err := filepath.Glob(filepath.Join(dir, "history", "*-"+q.ID+".json"))
	if err != nil || len(found) != 1 {
		return ForeignAnswer{}, fmt.Errorf("node %s: %d files, %w", q.ID, len(found), err)
	}
	node, err := readMembers(found[0])
	if err != nil {
		return ForeignAnswer{}, err
	}
	node.set("output", rawJSON(q.Text))
	err = replace(found[0], joinMembers(node))
	stem := strings.TrimSuffix(filepath.Base(found[0]), ".json")
	return ForeignAnswer{ID: q.ID, Stem: stem, At: time.Now().UnixNano()}, err
}

// nextSeq is one more than the highest number of a history file.
func nextSeq(dir string) (int, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "history"))
	next := 0
	for _, e := range entries {
		digits, _, ok := strings.Cut(e.Name(), "-")
		if n, err := strconv.Atoi(digits); ok && err == nil && strings.HasSuffix(e.Name(), ".json") {
			next = max(next, n+1)
		}
	}
	return next, err
}

// replace writes a file for good: a private temporary file beside it, fsync,
// rename, fsync of the directory.
func replace(path string, data []byte) error {
	tmp := path + "." + randomHex(16) + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// member is one key of an object with its value's text.
type member struct {
	key string
	raw json.RawMessage
}

// members is an object whose order and values' texts are kept.
type members []member

func (m members) get(key string) json.RawMessage {
	for _, x := range m {
		if x.key == key {
			return x.raw
		}
	}
	return nil
}

func (m *members) set(key string, raw json.RawMessage) {
	for i := range *m {
		if (*m)[i].key == key {
			(*m)[i].raw = raw
			return
		}
	}
	*m = append(*m, member{key, raw})
}

func readMembers(path string) (members, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var out members
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		name, _ := key.(string)
		out = append(out, member{name, raw})
	}
	return out, nil
}

func editMeta(dir string, edits ...member) error {
	path := filepath.Join(dir, "meta.json")
	meta, err := readMembers(path)
	if err != nil {
		return err
	}
	for _, e := range edits {
		meta.set(e.key, e.raw)
	}
	return replace(path, joinMembers(meta))
}

// joinMembers lays an object out as the peer does: one line, ", " and ": ".
func joinMembers(m members) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, x := range m {
		if i > 0 {
			b.WriteString(", ")
		}
		b.Write(rawJSON(x.key))
		b.WriteString(": ")
		b.Write(x.raw)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// rawJSON encodes a value without HTML escapes.
func rawJSON(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return json.RawMessage("null") // the values here always encode
	}
	return bytes.TrimSpace(b.Bytes())
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
