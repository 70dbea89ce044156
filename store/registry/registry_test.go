package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// sample is a registry as the peer lays it out, with an unknown key, an int
// where a float is usual, a number that no float64 holds and raw non-ASCII.
const sample = `{
  "local_aaaa000001": {
    "id": "local_aaaa000001",
    "status": "idle",
    "pinned": false,
    "archived": false,
    "unread": false,
    "agent_id": "main",
    "title": "Süß 会话 \"x\"\n",
    "source": "tui",
    "created_at": 1735000000.0,
    "updated_at": 1735000001,
    "channel": null,
    "preview": "hello"
  },
  "local_bbbb000002": {
    "id": "local_bbbb000002",
    "updated_at": 1e400,
    "later_key": {
      "deep": [
        1,
        NaN
      ],
      "none": {}
    }
  },
  "local_cccc000003": {}
}`

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := disk.WriteAtomic(disk.OS, path, []byte(text), disk.WriteOptions{}); err != nil {
		t.Fatal(err)
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

// open opens a registry that holds text.
func open(t *testing.T, text string) (r *Registry, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "index.json")
	write(t, path, text)
	r, state, err := Open(disk.OS, path)
	if err != nil || state != Loaded {
		t.Fatalf("Open: %v, %v", state, err)
	}
	return r, path
}

func flush(t *testing.T, r *Registry) {
	t.Helper()
	if err := r.Flush(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if r.Dirty() {
		t.Error("dirty after a flush")
	}
}

func reload(t *testing.T, r *Registry) []string {
	t.Helper()
	changed, err := r.Reload()
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func raw(kv ...string) map[string][]byte {
	m := map[string][]byte{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = []byte(kv[i+1])
	}
	return m
}

func ids(r *Registry) []string {
	var list []string
	for id := range r.Rows() {
		list = append(list, id)
	}
	return list
}

func TestStates(t *testing.T) {
	for text, state := range map[string]State{
		"":                      Empty,
		"{":                     Corrupt,
		sample[:len(sample)-40]: Corrupt,
		"\xff{}":                Corrupt,
		"{} {}":                 Corrupt,
		" ":                     Corrupt,
		"[]":                    NotObject,
		"null":                  NotObject,
		`"{}"`:                  NotObject,
		"{}":                    Loaded,
		sample:                  Loaded,
	} {
		path := filepath.Join(t.TempDir(), "index.json")
		write(t, path, text)
		r, got, err := Open(disk.OS, path)
		if err != nil || got != state {
			t.Errorf("Open of %.20q: %v, %v, want %v", text, got, err, state)
			continue
		}
		if state != Loaded && (r.Len() != 0 || string(r.Bytes()) != "{}") {
			t.Errorf("%v: %d rows, %q", state, r.Len(), r.Bytes())
		}
		if read(t, path) != text {
			t.Errorf("%v: opening changed the file", state)
		}
		changed, err := r.Reload()
		if len(changed) != 0 || errors.Is(err, ErrDamaged) != (state != Loaded) {
			t.Errorf("%v: an untouched file reloads %v, %v", state, changed, err)
		}
	}
	dir := t.TempDir()
	r, state, err := Open(disk.OS, filepath.Join(dir, "index.json"))
	if err != nil || state != Missing || r.Len() != 0 {
		t.Errorf("Open of nothing: %v, %v", state, err)
	}
	if changed := reload(t, r); len(changed) != 0 {
		t.Errorf("nothing reloads %v", changed)
	}
	if _, _, err := Open(disk.OS, dir); err == nil {
		t.Error("a directory opens")
	}
	if State(99).String() == "" || Missing.String() != "missing" {
		t.Error("State.String")
	}
}

func TestUntouchedIsByteIdentical(t *testing.T) {
	for _, text := range []string{
		"{}", "{ }\n", sample, sample + "\n", `{"a":{"id":"a"},"b":{}}`, "\t{ \"a\" : { } }",
		"{\"\\u00e9\\\"\": {\"id\": \"\\u00e9\"}}", "{\"a\": {\"t\": 1}, \"b\": {}, \"a\": {\"t\": 2}}",
		`{"a": 7, "b": null}`,
	} {
		r, path := open(t, text)
		want(t, "Bytes", string(r.Bytes()), text)
		flush(t, r)
		want(t, "file", read(t, path), text)
	}
}

func TestRows(t *testing.T) {
	r, _ := open(t, sample)
	if d := cmp.Diff([]string{"local_aaaa000001", "local_bbbb000002", "local_cccc000003"}, ids(r)); d != "" {
		t.Error(d)
	}
	row, ok := r.Row("local_aaaa000001")
	if !ok || row.Str("title") != "Süß 会话 \"x\"\n" {
		t.Errorf("Row: %v, %q", ok, row.Str("title"))
	}
	row.Set("title", []byte(`"mine"`))
	if again, _ := r.Row("local_aaaa000001"); again.Str("title") == "mine" || r.Dirty() {
		t.Error("a row given out is not a copy")
	}
	if _, ok := r.Row("nobody"); ok {
		t.Error("a row that is not there")
	}
	for id := range r.Rows() {
		if id != "local_aaaa000001" {
			t.Error("iteration does not stop")
		}
		break
	}
}

func TestPutTouchesOneRow(t *testing.T) {
	r, path := open(t, sample)
	r.Put("local_aaaa000001", raw("updated_at", "1735000009.5", "preview", `"new"`, "head_id", `"x"`))
	flush(t, r)
	text := strings.Replace(sample, `"updated_at": 1735000001,`, `"updated_at": 1735000009.5,`, 1)
	text = strings.Replace(text, `"preview": "hello"`, `"preview": "new"`, 1)
	want(t, "values", read(t, path), text)

	r.Put("local_bbbb000002", raw("unread", "true", "group", `{"a": [1, 2]}`))
	flush(t, r)
	text = strings.Replace(text, "\"none\": {}\n    }\n", "\"none\": {}\n    },\n    \"unread\": true,\n    \"group\": {\n      \"a\": [\n        1,\n        2\n      ]\n    }\n", 1)
	want(t, "new keys", read(t, path), text)

	r.Put("local_cccc000003", raw("title", `"t"`))
	flush(t, r)
	text = strings.Replace(text, `"local_cccc000003": {}`, "\"local_cccc000003\": {\n    \"title\": \"t\"\n  }", 1)
	want(t, "an empty row", read(t, path), text)

	r.Put("local_cccc000003", map[string][]byte{"title": nil})
	r.Put("local_bbbb000002", map[string][]byte{"unread": nil, "group": nil, "pinned": nil})
	flush(t, r)
	row, _ := r.Row("local_bbbb000002")
	if got := row.Keys(); !slices.Equal(got, []string{"id", "updated_at", "later_key"}) {
		t.Errorf("keys after removal: %v", got)
	}
}

func TestPutOfTheSameWritesNothing(t *testing.T) {
	r, path := open(t, sample)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	r.Put("local_aaaa000001", raw("head_id", `"n"`))
	r.Put("local_aaaa000001", nil)
	if r.Dirty() {
		t.Error("what no row has makes the registry dirty")
	}
	r.Put("local_aaaa000001", raw("title", `"S\u00fc\u00df 会话 \"x\"\n"`, "pinned", "false"))
	row, _ := r.Row("local_bbbb000002")
	r.SetRow("local_bbbb000002", row)
	flush(t, r)
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("what the file has already is written again (%v)", err)
	}
}

// TestPutOfWhatMemoryHas: another writer changed the field since the file was
// read, and this one changes it back.
func TestPutOfWhatMemoryHas(t *testing.T) {
	r, path := open(t, sample)
	write(t, path, strings.Replace(sample, `"pinned": false`, `"pinned": true`, 1))
	r.Put("local_aaaa000001", raw("pinned", "false"))
	flush(t, r)
	want(t, "the file", read(t, path), sample)
}

func TestNewRows(t *testing.T) {
	r, path := open(t, sample)
	r.Put("zz", raw("source", `"web"`, "title", `"T"`, "pinned", "true"))
	r.Put("aa", nil)
	flush(t, r)
	added := `,
  "zz": {
    "id": "zz",
    "status": "idle",
    "pinned": true,
    "archived": false,
    "unread": false,
    "title": "T",
    "source": "web"
  },
  "aa": {
    "id": "aa",
    "status": "idle",
    "pinned": false,
    "archived": false,
    "unread": false
  }
}`
	want(t, "appended", read(t, path), sample[:len(sample)-2]+added)

	for _, empty := range []string{"", "{}", "{", "[]"} {
		path := filepath.Join(t.TempDir(), "index.json")
		write(t, path, empty)
		r, _, err := Open(disk.OS, path)
		if err != nil {
			t.Fatal(err)
		}
		r.Put("aa", nil)
		flush(t, r)
		want(t, fmt.Sprintf("into %q", empty), read(t, path), "{\n"+added[strings.Index(added, "  \"aa\""):])
	}
}

func TestNewRowFollowsTheLayout(t *testing.T) {
	for text, lead := range map[string]string{
		`{"a": {}, "b": {}}`:         `{"a": {}, "b": {}, "c": {`,
		`{"a":{}}`:                   `{"a":{}, "c": {`,
		"{\n\t\"a\": {}\n}":          "{\n\t\"a\": {},\n\t\"c\": {",
		"{\n  \"a\": {\n  }\n}\n":    "{\n  \"a\": {\n  },\n  \"c\": {",
		"{ \"a\": {} , \"b\": {} } ": "{ \"a\": {} , \"b\": {} , \"c\": {",
	} {
		r, _ := open(t, text)
		r.Put("c", nil)
		got := string(r.Bytes())
		if !strings.HasPrefix(got, lead) || jsonedit.Check([]byte(got)) != nil {
			t.Errorf("added to %q: %q", text, got)
		}
	}
}

func TestDelete(t *testing.T) {
	parts := strings.SplitAfter(sample, "\n  },\n")
	r, path := open(t, sample)
	r.Delete("local_aaaa000001")
	if _, ok := r.Row("local_aaaa000001"); ok || r.Len() != 2 {
		t.Error("a deleted row is there")
	}
	flush(t, r)
	want(t, "the first", read(t, path), "{\n"+parts[1]+parts[2])
	r.Delete("local_cccc000003")
	r.Delete("nobody")
	flush(t, r)
	want(t, "the last", read(t, path), "{\n"+strings.TrimSuffix(parts[1], ",\n")+"\n}")
	r.Delete("local_bbbb000002")
	flush(t, r)
	want(t, "the only one", read(t, path), "{}")
	r.Put("x", nil)
	r.Delete("x")
	if len(ids(r)) != 0 || string(r.Bytes()) != "{}" {
		t.Errorf("a new row deleted again: %s", r.Bytes())
	}
	r.Put("x", raw("title", `"again"`))
	flush(t, r)
	if row, ok := r.Row("x"); !ok || row.Str("title") != "again" {
		t.Error("a row made after its deletion")
	}
}

func TestPutAfterDelete(t *testing.T) {
	r, path := open(t, sample)
	r.Delete("local_aaaa000001")
	r.Put("local_aaaa000001", raw("title", `"anew"`))
	r.Put("local_aaaa000001", raw("unread", "true"))
	flush(t, r)
	row, _ := r.Row("local_aaaa000001")
	if row.Str("preview") != "" || row.Str("title") != "anew" || !row.Truthy("unread") {
		t.Errorf("the deleted row shines through: %s", row.Bytes())
	}
	want(t, "Bytes", string(r.Bytes()), read(t, path))
}

func TestDuplicateIDs(t *testing.T) {
	r, path := open(t, `{"a": {"title": "1"}, "b": {}, "a": {"title": "2"}}`)
	if got := ids(r); !slices.Equal(got, []string{"a", "b"}) || r.Len() != 2 {
		t.Errorf("ids %v", got)
	}
	if row, _ := r.Row("a"); row.Str("title") != "2" {
		t.Error("not the last one counts")
	}
	r.Put("a", raw("title", `"3"`))
	flush(t, r)
	want(t, "put", read(t, path), `{"a": {"title": "1"}, "b": {}, "a": {"title": "3"}}`)
	r.Delete("a")
	flush(t, r)
	want(t, "delete", read(t, path), `{"b": {}}`)
}

func TestRowThatIsNoObject(t *testing.T) {
	r, path := open(t, "{\n  \"a\": 7,\n  \"b\": {}\n}")
	if got := ids(r); !slices.Equal(got, []string{"b"}) {
		t.Errorf("ids %v", got)
	}
	r.Put("a", raw("title", `"t"`))
	flush(t, r)
	if got := read(t, path); !strings.HasPrefix(got, "{\n  \"a\": {\n    \"id\": \"a\",") {
		t.Errorf("file %s", got)
	}
}

func TestSetRow(t *testing.T) {
	r, path := open(t, sample)
	meta, err := jsonedit.ParseObject([]byte(`{"title": "M", "created_at": 5.0}`))
	if err != nil {
		t.Fatal(err)
	}
	r.SetRow("local_bbbb000002", RowFromMeta("local_bbbb000002", meta, 1))
	flush(t, r)
	row, _ := r.Row("local_bbbb000002")
	if d := cmp.Diff([]string{"id", "status", "pinned", "archived", "unread", "title", "created_at"}, row.Keys()); d != "" {
		t.Error(d)
	}
	if got := read(t, path); !strings.HasPrefix(got, sample[:strings.Index(sample, `  "local_bbbb`)]) ||
		!strings.HasSuffix(got, ",\n  \"local_cccc000003\": {}\n}") {
		t.Errorf("another row changed:\n%s", got)
	}
}

func TestRowFromMeta(t *testing.T) {
	for name, c := range map[string]struct{ meta, want string }{
		"nothing": {`{}`, `{"id": "s", "status": "idle", "pinned": false, "archived": false, "unread": false, "created_at": 7.5}`},
		"all": {
			`{"group": "g", "id": "other", "head_id": "n", "title": "T", "created_at": 3, "status": "done", "unread": true, "preview": "no", "channel": null, "source": ""}`,
			`{"id": "s", "status": "done", "pinned": false, "archived": false, "unread": true, "title": "T", "source": "", "created_at": 3, "channel": null, "group": "g"}`,
		},
		"falsy time": {`{"created_at": 0.0}`, `{"id": "s", "status": "idle", "pinned": false, "archived": false, "unread": false, "created_at": 7.5}`},
		"odd values": {
			`{"title": "\ud800x\u00e9\/", "updated_at": 1e400, "created_at": 123456789012345678901234567890}`,
			"{\"id\": \"s\", \"status\": \"idle\", \"pinned\": false, \"archived\": false, \"unread\": false, \"title\": \"\ufffdxé/\", \"created_at\": 123456789012345678901234567890, \"updated_at\": 1e400}",
		},
	} {
		meta, err := jsonedit.ParseObject([]byte(c.meta))
		if err != nil {
			t.Fatal(err)
		}
		row := RowFromMeta("s", meta, 7.5)
		want(t, name, string(jsonedit.Compact(row.Bytes())), c.want)
		want(t, name+" layout", string(row.Bytes()), string(jsonedit.Indent(row.Bytes(), "  ")))
	}
	if row := RowFromMeta("s", nil, 1); row.Str("id") != "s" {
		t.Error("no meta.json at all")
	}
}

// TestTwoWriters: each writer's changes survive the other's, field by field.
func TestTwoWriters(t *testing.T) {
	a, path := open(t, sample)
	b, _, err := Open(disk.OS, path)
	if err != nil {
		t.Fatal(err)
	}
	a.Put("local_aaaa000001", raw("title", `"by a"`))
	a.Put("new_a", nil)
	a.Delete("local_cccc000003")
	b.Put("local_aaaa000001", raw("title", `"by b"`, "pinned", "true"))
	b.Put("new_b", nil)
	flush(t, b)
	a.Put("local_aaaa000001", raw("unread", "true"))
	flush(t, a)
	row, _ := a.Row("local_aaaa000001")
	if row.Str("title") != "by a" || !row.Truthy("pinned") || !row.Truthy("unread") {
		t.Errorf("merged row: %s", row.Bytes())
	}
	if got := ids(a); !slices.Equal(got, []string{"local_aaaa000001", "local_bbbb000002", "new_b", "new_a"}) {
		t.Errorf("merged ids: %v", got)
	}
	if got := reload(t, a); !slices.Equal(got, []string{"local_aaaa000001", "new_b"}) {
		t.Errorf("a is told of %v", got)
	}
	if got := reload(t, b); !slices.Equal(got, []string{"local_aaaa000001", "local_cccc000003", "new_a"}) {
		t.Errorf("b is told of %v", got)
	}
	want(t, "b's view", string(b.Bytes()), read(t, path))
}

// TestPeerRewritesFromMemory: the peer writes all rows from its own memory,
// without those that it does not know.
func TestPeerRewritesFromMemory(t *testing.T) {
	r, path := open(t, sample)
	r.Put("mine", nil)
	flush(t, r)
	reload(t, r)
	write(t, path, sample) // the peer has never seen "mine"
	r.Put("local_aaaa000001", raw("unread", "true"))
	flush(t, r)
	if got := reload(t, r); !slices.Equal(got, []string{"mine"}) {
		t.Errorf("told of %v", got)
	}
	r.Put("mine", nil)
	r.Put("local_bbbb000002", raw("pinned", "true"))
	write(t, path, "{}") // and now it drops a row that is being changed
	flush(t, r)
	if got := ids(r); !slices.Equal(got, []string{"mine", "local_bbbb000002"}) {
		t.Errorf("ids %v", got)
	}
	row, _ := r.Row("local_bbbb000002")
	if _, ok := row.Get("later_key"); !ok {
		t.Error("a dropped row came back without its unknown key")
	}
}

func TestPutMeetsARowMadeElsewhere(t *testing.T) {
	r, path := open(t, "{}")
	write(t, path, "{\n  \"s\": {\n    \"id\": \"s\",\n    \"title\": \"theirs\"\n  }\n}")
	r.Put("s", raw("unread", "true"))
	flush(t, r)
	row, _ := r.Row("s")
	if row.Str("title") != "theirs" || !row.Truthy("unread") {
		t.Errorf("row %s", row.Bytes())
	}
	write(t, path, "{\n  \"t\": {}\n}")
	r.Delete("t")
	flush(t, r)
	want(t, "deleted unseen", read(t, path), "{}")
}

func TestReloadKeepsPending(t *testing.T) {
	r, path := open(t, sample)
	r.Put("local_aaaa000001", raw("title", `"mine"`))
	r.Put("new", nil)
	write(t, path, strings.Replace(sample, `"preview": "hello"`, `"preview": "theirs"`, 1))
	if got := reload(t, r); !slices.Equal(got, []string{"local_aaaa000001"}) {
		t.Errorf("told of %v", got)
	}
	row, _ := r.Row("local_aaaa000001")
	if row.Str("title") != "mine" || row.Str("preview") != "theirs" {
		t.Errorf("row %s", row.Bytes())
	}
	if got := ids(r); len(got) != 4 || got[3] != "new" {
		t.Errorf("ids %v", got)
	}
}

func TestFileGoneOrDamaged(t *testing.T) {
	r, path := open(t, sample)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reload(); !errors.Is(err, fs.ErrNotExist) || r.Len() != 3 {
		t.Errorf("Reload of nothing: %v, %d rows", err, r.Len())
	}
	write(t, path, sample[:100])
	if _, err := r.Reload(); !errors.Is(err, ErrDamaged) || r.Len() != 3 {
		t.Errorf("Reload of half a file: %v, %d rows", err, r.Len())
	}
	r.Put("local_cccc000003", raw("pinned", "true"))
	flush(t, r)
	if got := read(t, path); !strings.HasPrefix(got, sample[:strings.Index(sample, `  "local_cccc`)]) {
		t.Errorf("the damaged file became\n%s", got)
	}
	if got := reload(t, r); len(got) != 0 {
		t.Errorf("told of %v", got)
	}
}

func TestFlushOfNothingWritesNothing(t *testing.T) {
	r, path := open(t, sample)
	before, _ := os.Stat(path)
	flush(t, r)
	r.Put("local_aaaa000001", raw("title", `"x"`))
	write(t, path, strings.Replace(sample, `"Süß 会话 \"x\"\n"`, `"x"`, 1)) // somebody did it already
	middle, _ := os.Stat(path)
	flush(t, r)
	after, _ := os.Stat(path)
	if os.SameFile(before, middle) || !os.SameFile(middle, after) {
		t.Error("a file that was right was written again")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r.Put("local_aaaa000001", raw("title", `"y"`))
	if err := r.Flush(ctx, nil); !errors.Is(err, context.Canceled) || !r.Dirty() {
		t.Errorf("Flush with an ended context: %v", err)
	}
}

// TestRandom compares a registry, and what it writes, with a plain map under
// random changes, flushes and foreign writers.
func TestRandom(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r, path := open(t, sample)
		other, _, err := Open(disk.OS, path)
		if err != nil {
			t.Fatal(err)
		}
		// title[id] is the only field that is changed; each writer has ids of
		// its own, so the expected end is known whatever the interleaving.
		model := map[string]string{}
		for step := range 120 {
			mine := rng.IntN(2) == 0
			w := r
			if !mine {
				w = other
			}
			id := fmt.Sprintf("s%v_%d", mine, rng.IntN(8))
			switch rng.IntN(6) {
			case 0:
				w.Delete(id)
				delete(model, id)
			case 1:
				flush(t, w)
			case 2:
				reload(t, w)
			default:
				model[id] = fmt.Sprint(step)
				w.Put(id, raw("title", `"`+model[id]+`"`))
			}
		}
		flush(t, r)
		flush(t, other)
		reload(t, r)
		reload(t, other)
		for _, w := range []*Registry{r, other} {
			got := map[string]string{}
			for id, row := range w.Rows() {
				if strings.HasPrefix(id, "s") {
					got[id] = row.Str("title")
				}
			}
			if d := cmp.Diff(model, got); d != "" {
				t.Fatalf("seed %d (-want +got):\n%s", seed, d)
			}
			if w.Len() != len(model)+3 {
				t.Fatalf("seed %d: Len %d", seed, w.Len())
			}
		}
		text := read(t, path)
		if !bytes.Equal(r.Bytes(), []byte(text)) || string(jsonedit.Indent([]byte(text), "")) != text {
			t.Fatalf("seed %d: the text is not laid out as the peer's:\n%s", seed, text)
		}
		if !strings.HasPrefix(text, sample[:len(sample)-2]) {
			t.Fatalf("seed %d: rows that nobody touched changed", seed)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	r, path := open(t, sample)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				r.Put(fmt.Sprintf("g%d", g), raw("title", fmt.Sprintf("%q", fmt.Sprint(i))))
				r.Row("local_aaaa000001")
				for range r.Rows() {
				}
				if i%10 == g {
					if err := r.Flush(context.Background(), nil); err != nil {
						t.Error(err)
					}
					if _, err := r.Reload(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	flush(t, r)
	again, _, err := Open(disk.OS, path)
	if err != nil {
		t.Fatal(err)
	}
	for g := range 4 {
		if row, ok := again.Row(fmt.Sprintf("g%d", g)); !ok || row.Str("title") != "49" {
			t.Errorf("row g%d: %v", g, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{sample, "{}", `{"a":{}}`, `{"a\"\\": {"x": "}"}, "a\"\\": 1}`, "[", ""} {
		f.Add([]byte(s), "id")
	}
	f.Fuzz(func(t *testing.T, text []byte, id string) {
		base, state := parse(text)
		if state != Loaded {
			return
		}
		if got := compose(base, nil, nil); string(got.text) != string(text) && len(base.members) > 0 {
			t.Fatalf("%q composes to %q", text, got.text)
		}
		id = strings.ToValidUTF8(id, "?")
		added := merge(base, map[string]*change{id: {row: newRow(id), whole: true}})
		again, state := parse(added.text)
		if state != Loaded {
			t.Fatalf("%q with a row: %q is %v", text, added.text, state)
		}
		if got, ok := again.row(id); !ok || string(got) != string(newRow(id).Bytes()) {
			t.Fatalf("%q lost the new row: %q", text, added.text)
		}
		if d := diff(base, again); len(d) != 1 || d[0] != id {
			if old, _ := base.row(id); string(old) != string(newRow(id).Bytes()) {
				t.Fatalf("%q: %q changed", text, d)
			}
		}
		if string(added.text) != string(again.text) || len(added.members) != len(again.members) {
			t.Fatal("composed members differ from parsed ones")
		}
		for i := range added.members {
			if added.members[i] != again.members[i] {
				t.Fatalf("member %d: composed %+v, parsed %+v", i, added.members[i], again.members[i])
			}
		}
	})
}

// TestAdopt: a row made up for a session that has none yields to the row that
// another writer has put into the file.
func TestAdopt(t *testing.T) {
	open := func() (*Registry, string) {
		path := filepath.Join(t.TempDir(), "index.json")
		write(t, path, "{}")
		r, _, err := Open(disk.OS, path)
		if err != nil {
			t.Fatal(err)
		}
		return r, path
	}
	ours := RowFromMeta("a", nil, 7)
	const theirs = "{\n  \"a\": {\"id\": \"a\", \"preview\": \"theirs\", \"unknown\": 1}\n}"

	r, path := open()
	if !r.Adopt("a", ours) || r.Adopt("a", ours) {
		t.Error("a row is adopted once")
	}
	flush(t, r)
	if !strings.Contains(read(t, path), `"created_at": 7`) {
		t.Errorf("not written: %s", read(t, path))
	}

	r, path = open()
	r.Adopt("a", ours)
	write(t, path, theirs)
	flush(t, r)
	want(t, "after a flush", read(t, path), theirs)

	r, path = open()
	r.Adopt("a", ours)
	write(t, path, theirs)
	if _, err := r.Reload(); err != nil {
		t.Fatal(err)
	}
	want(t, "after a reload", string(r.Bytes()), theirs)
	if r.Dirty() {
		t.Error("there is something to write")
	}

	r, path = open()
	r.Adopt("a", ours)
	r.Put("a", raw("title", `"mine"`))
	write(t, path, theirs)
	flush(t, r)
	if got := read(t, path); !strings.Contains(got, `"preview": "theirs"`) || !strings.Contains(got, `"mine"`) || strings.Contains(got, "created_at") {
		t.Errorf("a field put on top: %s", got)
	}
}
