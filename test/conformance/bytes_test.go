package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/test/harness"
)

// TestByteFaithfulness opens, lists and reads every store without any
// start-up work, moves each session's head to each of its branches and back,
// and compares the bytes: no history file changes, and meta.json is what it
// was but for the value of head_id.
func TestByteFaithfulness(t *testing.T) {
	tarballs, err := filepath.Glob(filepath.Join(harness.StoresDir(t), "*.tar.gz"))
	if err != nil || len(tarballs) == 0 {
		t.Fatalf("no stores: %v", err)
	}
	var moves atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d moves", moves.Load())
		if moves.Load() == 0 {
			t.Error("no head was moved")
		}
	})
	for _, tarball := range tarballs {
		t.Run(strings.TrimSuffix(filepath.Base(tarball), ".tar.gz"), func(t *testing.T) {
			t.Parallel()
			c := extract(t, tarball)
			moves.Add(int64(faithful(t, c.root, c.disk)))
		})
	}
}

// faithful does everything that must change nothing and returns the number of
// head moves that were made.
func faithful(t *testing.T, root string, disk *diskStore) int {
	t.Helper()
	before := manifest(t, root)
	s, err := store.Open(t.Context(), store.Options{Root: root, Clock: time.Now})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	moves := 0
	for i, id := range disk.order {
		if len(disk.order) < 100 || i%10 == 0 { // hundreds of sessions are much alike
			moves += readAndMove(t, s, disk.sessions[id])
		}
	}
	if _, err := s.ListSessions(t.Context(), store.ListQuery{IncludeArchived: true}); err != nil {
		t.Errorf("ListSessions: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	after := manifest(t, root)
	for path, was := range before {
		if is := after[path]; is != was && !registryFile(path) {
			t.Errorf("%s changed", path)
		}
	}
	for path := range after {
		if before[path] == "" && !registryFile(path) && !restored(before, path) {
			t.Errorf("%s appeared", path)
		}
	}
	return moves
}

// registryFile: the registry may be rebuilt and lock files made.
func registryFile(path string) bool {
	return path == "index.json" || strings.HasPrefix(path, ".locks/")
}

// restored: a history that had vanished comes back from Git (start-up work of
// reference 8, which opening always does).
func restored(before map[string]string, path string) bool {
	dir, _, found := strings.Cut(path, "/history/")
	return found && before[dir+"/history/"] == ""
}

func readAndMove(t *testing.T, s *store.Store, d *diskSession) int {
	t.Helper()
	sn, err := s.Load(t.Context(), d.id)
	if err != nil || !sn.Openable {
		return 0
	}
	readAll(t.Context(), s, sn)
	metaPath := filepath.Join(sn.Dir, "meta.json")
	original, err := os.ReadFile(metaPath)
	if err != nil || d.meta == nil {
		return 0 // nothing to move in: what SetHead says then is TestDamaged's
	}
	before := original
	moves := 0
	heads := []string{}
	for _, b := range sn.Branches() {
		heads = append(heads, b.Head)
	}
	first, ok := d.meta["head_id"].(string)
	if _, there := sn.Index.Get(first); ok && there {
		heads = append(heads, first) // and back
	}
	for _, head := range heads {
		_, err := s.SetHead(t.Context(), d.id, head, store.HeadMove{})
		switch store.CodeOf(err) {
		case "":
			moves++
		case store.RunActive, store.SummaryHead, store.Corrupt:
			continue // refused: what follows shows that nothing moved
		default:
			t.Errorf("SetHead(%s, %s): %v", d.id, head, err)
			continue
		}
		after, err := os.ReadFile(metaPath)
		if err != nil {
			t.Fatal(err)
		}
		if !onlyHead(before, after, head) {
			t.Errorf("moving the head of %s to %s changed more than head_id:\n%.600s\n%.600s", d.id, head, before, after)
		}
		before = after
	}
	if len(heads) > 0 && heads[len(heads)-1] == first && ok {
		if !bytes.Equal(before, original) {
			t.Errorf("%s: moved there and back, meta.json differs:\n%.600s\n%.600s", d.id, original, before)
		}
		return moves
	}
	// A head that could not be moved back to: the file as it was.
	if err := os.WriteFile(metaPath, original, 0o600); err != nil {
		t.Fatal(err)
	}
	return moves
}

// onlyHead: cutting the value of the last head_id out of both texts leaves the
// same bytes; where there was no such key, the old text without its closing
// brace is the new one's beginning.
func onlyHead(before, after []byte, head string) bool {
	was, is := pyObject(before), pyObject(after)
	if is["head_id"] == nil && is["last_node_id"] == head {
		return bytes.Equal(before, after) // already there, under the old key
	}
	if is["head_id"] != head {
		return false
	}
	if _, hadKey := was["head_id"]; !hadKey {
		return bytes.HasPrefix(after, bytes.TrimRight(bytes.TrimSpace(before), "} \t\r\n"))
	}
	a, okA := cutHead(before)
	b, okB := cutHead(after)
	return okA && okB && bytes.Equal(a, b)
}

// cutHead removes the value of the last top-level head_id from an object's
// text.
func cutHead(text []byte) ([]byte, bool) {
	d := &decoder{s: string(text)}
	d.space()
	if !d.eat("{") {
		return nil, false
	}
	from, to := -1, -1
	for d.space(); !d.eat("}"); d.space() {
		d.eat(",")
		d.space()
		key, err := d.str()
		d.space()
		if err != nil || !d.eat(":") {
			return nil, false
		}
		d.space()
		begin := d.i
		if _, err := d.value(1); err != nil {
			return nil, false
		}
		if key == "head_id" {
			from, to = begin, d.i
		}
	}
	if from < 0 {
		return nil, false
	}
	return append(bytes.Clone(text[:from]), text[to:]...), true
}

// readAll asks for everything that reads.
func readAll(ctx context.Context, s *store.Store, sn *store.Snapshot) {
	for _, e := range sn.Entries() {
		_, _ = sn.Raw(e.File)
	}
	for n := range sn.Index.All() {
		_, _ = sn.Text(n.ID)
		_, _ = sn.MessageJSON(n.ID)
	}
	_, _ = sn.Transcript()
	sn.Fields()
	sn.MetaJSON()
	_, _ = s.GetMessages(ctx, sn.ID, 0)
	_, _ = s.SessionCommits(ctx, sn.ID, 0)
	_, _ = s.ListArchivedBranches(ctx, sn.ID)
}

// hostileMeta are meta.json texts that a careless rewrite would damage. Each
// has a head_id; %HEAD% is put in for it.
var hostileMeta = map[string]string{
	"odd spacing":        "{\n\t\"id\" :\"S\" ,\r\n \"head_id\"\t:\t%HEAD% ,\n\n\"title\":\"x\"  }\n",
	"no spacing":         `{"id":"S","head_id":%HEAD%,"title":"x"}`,
	"indented":           "{\n  \"id\": \"S\",\n  \"nested\": {\n    \"head_id\": \"not this one\"\n  },\n  \"head_id\": %HEAD%\n}",
	"unknown keys":       `{"id": "S", "head_id": %HEAD%, "zzz": {"deep": [1, {"head_id": "no"}]}, "": null, "a\"b": [], "head_id ": "no"}`,
	"big integers":       `{"id": "S", "n": 123456789012345678901234567890, "m": -0, "head_id": %HEAD%}`,
	"wild numbers":       `{"id": "S", "a": 1e400, "b": -1E-400, "c": NaN, "d": Infinity, "e": -Infinity, "f": 1.10, "g": 1e5, "head_id": %HEAD%, "updated_at": 1788000000.10}`,
	"lone surrogates":    `{"id": "S", "title": "\ud83d alone \udc00", "\ud800": 1, "head_id": %HEAD%}`,
	"escapes":            `{"id": "S", "title": "\u0041\/\u00e9\b\f\u2028", "head_id": %HEAD%, "x": "\u003c"}`,
	"non-ASCII":          "{\"id\": \"S\", \"title\": \"détour ☂ \U0001F469\u200d\U0001F467 \u202e \u2028\x7f\", \"head_id\": %HEAD%, \"ключ\": \"значение\"}",
	"duplicate keys":     `{"id": "S", "head_id": "old", "title": "a", "title": "b", "head_id": %HEAD%, "x": 1, "x": 2}`,
	"escaped key":        `{"id": "S", "head\u005fid": %HEAD%, "title": "x"}`,
	"head first":         `{"head_id": %HEAD%, "id": "S"}`,
	"head null":          `{"id": "S", "head_id": null, "title": "x"}`,
	"head only":          `{"head_id": %HEAD%}`,
	"text with head_id":  `{"id": "S", "title": "\"head_id\": \"fake\"", "head_id": %HEAD%}`,
	"a long text":        `{"id": "S", "title": "` + strings.Repeat("長い", 40000) + `", "head_id": %HEAD%}`,
	"deep nesting":       `{"id": "S", "deep": ` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `, "head_id": %HEAD%}`,
	"branches by number": `{"id": "S", "branches": {"1": {"name": "n", "turns": 00.5e1}}, "head_id": %HEAD%}`,
}

// hostileNodes are history files that must stay as they are.
var hostileNodes = []string{
	"{\"id\":\"n0\" , \"seq\": 0,\"role\":\"user\",\"output\":\"\\ud83d lone\",\"extra\":{\"z\":1e400},\"metadata\":{\"big\":99999999999999999999}}\n",
	`{"id": "n1", "created_at": NaN, "seq": 1, "role": "llm", "output": "b` + "\u2028" + `", "predecessor": "n0", "reads": null, "metadata": null, "unknown": [1.0, 1, 1e2]}`,
	"{\n  \"id\": \"n2\",\n  \"seq\": 2,\n  \"role\": \"user\",\n  \"predecessor\": \"n1\",\n  \"output\": \"c\"\n}",
	`{"id": "n3", "seq": 3, "role": "llm", "predecessor": "n0", "output": {"not": "text", "inf": Infinity}, "metadata": {"display": ""}}`,
}

// TestHostileStores is the same for stores that no peer would write and any
// editor or older program may have.
func TestHostileStores(t *testing.T) {
	for name, meta := range hostileMeta {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			meta := strings.ReplaceAll(meta, "00.5e1", "0.5e1")
			root := hostileStore(t, meta)
			c := &check{t: t, root: root, disk: readDisk(t, root)}
			if c.disk.sessions["S"].meta == nil {
				t.Fatalf("the suite itself cannot read %.200s", meta)
			}
			if n := faithful(t, root, c.disk); n < 2 {
				t.Errorf("%d moves, want at least 2", n)
			}
		})
	}
}

func hostileStore(t *testing.T, meta string) string {
	t.Helper()
	root := t.TempDir()
	s, err := store.Open(t.Context(), store.Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CreateSession(t.Context(), store.NewSession{ID: "S", Title: "hostile"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "S")
	head, err := json.Marshal("n2")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("meta.json", strings.ReplaceAll(meta, "%HEAD%", string(head)))
	for i, text := range hostileNodes {
		write(filepath.Join("history", []string{"0000-u-n0.json", "0001-l-n1.json", "0002-u-n2.json", "0003-l-n3.json"}[i]), text)
	}
	return root
}
