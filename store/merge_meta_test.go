package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

// TestMergeMeta: only what was changed is written, byte for byte, counted from
// the text that its writer began from.
func TestMergeMeta(t *testing.T) {
	const disk = `{"id": "x", "title": "T", "created_at": 1.50, "updated_at": 2.0, "big": 12345678901234567890, "esc": "\u00e9", "head_version": 3, "obj": {"a":1,  "b":[1]}}`
	read := func(from, to string) string { return strings.Replace(disk, from, to, 1) }
	titled := func(s string) string { return strings.TrimSuffix(s, "}") + `, "_user_titled": true}` }
	for _, c := range []struct {
		name string
		seen []string
		text string
		want string // "" is what was there
		code store.Code
	}{
		{"the same", []string{disk}, disk, "", ""},
		{"laid out anew", []string{disk}, "{\n  " + strings.ReplaceAll(disk[1:], ", ", ",\n  "), "", ""},
		{"escaped anew", []string{disk}, read(`"\u00e9"`, `"é"`), "", ""},
		{"a key changed", []string{disk}, read(`"T"`, `"U"`), titled(read(`"T"`, `"U"`)), ""},
		{"a number's text", []string{disk}, read(`"big": 12345678901234567890`, `"big": 1e400`), read(`"big": 12345678901234567890`, `"big": 1e400`), ""},
		{"a key added", []string{disk}, strings.TrimSuffix(disk, "}") + `, "new": {"k":[1,2]}}`, strings.TrimSuffix(disk, "}") + `, "new": {"k": [1, 2]}}`, ""},
		{"a null", []string{disk}, read(`"\u00e9"`, `null`), read(`"\u00e9"`, `null`), ""},
		{"a key taken out", []string{disk}, read(`"esc": "\u00e9", `, ``), read(`"esc": "\u00e9", `, ``), ""},
		{"nothing was read", nil, read(`"T"`, `"U"`), titled(read(`"T"`, `"U"`)), ""},
		{"changed elsewhere, another key", []string{read(`"obj": {"a":1`, `"obj": {"a":0`)}, strings.Replace(read(`"obj": {"a":1`, `"obj": {"a":0`), `"T"`, `"U"`, 1), titled(read(`"T"`, `"U"`)), ""},
		{"changed elsewhere, the same key", []string{read(`"T"`, `"S"`)}, read(`"T"`, `"U"`), "", store.Conflict},
		{"changed elsewhere to the same", []string{read(`"T"`, `"S"`)}, disk, "", ""},
		{"taken out, and changed elsewhere", []string{read(`"\u00e9"`, `"e"`)}, read(`"esc": "\u00e9", `, ``), "", store.Conflict},
		{"begun from the older of two", []string{strings.Replace(read(`"T"`, `"S"`), `"big": 1`, `"big": 2`, 1), disk},
			strings.Replace(strings.Replace(read(`"T"`, `"S"`), `"big": 1`, `"big": 2`, 1), `"esc"`, `"new": 1, "esc"`, 1), strings.TrimSuffix(disk, "}") + `, "new": 1}`, ""},
		{"back to an older one", []string{read(`"T"`, `"S"`), disk}, read(`"T"`, `"S"`), titled(read(`"T"`, `"S"`)), ""},
		{"id", []string{disk}, read(`"x"`, `"y"`), "", store.Immutable},
		{"id taken out", []string{disk}, read(`"id": "x", `, ``), "", store.Immutable},
		{"created_at", []string{disk}, read(`1.50`, `1.6`), "", store.Immutable},
		{"updated_at", []string{disk}, read(`"updated_at": 2.0`, `"updated_at": 3.0`), "", store.Immutable},
		{"an old text that was not read", nil, read(`"updated_at": 2.0`, `"updated_at": 1.0`), "", store.Conflict},
		{"an updated_at of long ago", []string{disk}, read(`"updated_at": 2.0`, `"updated_at": 1.0`), "", store.Conflict},
		{"head_version", []string{disk}, read(`"head_version": 3`, `"head_version": 4`), "", store.Immutable},
		{"a title that is no text", []string{disk}, read(`"T"`, `7`), "", store.Invalid},
		{"a title of two lines", []string{disk}, read(`"T"`, `"a\nb"`), "", store.Invalid},
		{"a title taken out", []string{disk}, read(`"title": "T", `, ``), "", store.Invalid},
		{"a bad boolean", []string{disk}, read(`"title"`, `"pinned": 1, "title"`), "", store.Invalid},
		{"a run's status", []string{disk}, read(`"title"`, `"status": "running", "title"`), "", store.Invalid},
		{"a head that is none", []string{disk}, read(`"title"`, `"head_id": null, "title"`), "", store.Invalid},
		{"an unknown head", []string{disk}, read(`"title"`, `"head_id": "nonsense", "title"`), "", store.NotFound},
		{"one good and one bad", []string{disk}, strings.Replace(read(`"T"`, `"U"`), `"x"`, `"y"`, 1), "", store.Immutable},
		{"no JSON", []string{disk}, `{"id": `, "", store.Invalid},
		{"no object", []string{disk}, `[1]`, "", store.Invalid},
		{"nothing", []string{disk}, ``, "", store.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "store")
			s, err := store.Open(t.Context(), store.Options{Root: root, Create: true, GitSync: "off"})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.CreateSession(t.Context(), store.NewSession{ID: "x", Root: true}); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(root, "x", "meta.json")
			if err := os.WriteFile(path, []byte(disk), 0o600); err != nil {
				t.Fatal(err)
			}
			var seen [][]byte
			for _, text := range c.seen {
				seen = append(seen, []byte(text))
			}
			err = s.MergeMeta(t.Context(), "x", store.MetaSeen{Own: seen}, []byte(c.text))
			if got := store.CodeOf(err); got != c.code || (err == nil) != (c.code == "") {
				t.Errorf("%v, want %q", err, c.code)
			}
			want := c.want
			if want == "" {
				want = disk
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != want {
				t.Errorf("meta.json is\n%s\nwant\n%s\n%v", got, want, err)
			}
		})
	}
}

// TestMergeMetaOfAStranger: where it is not known what somebody has read who
// saves, the text that was served and fits best is taken for it; where several
// fit, what may undo somebody else's change is refused.
func TestMergeMetaOfAStranger(t *testing.T) {
	text := func(a, b int, updated int) []byte {
		return fmt.Appendf(nil, `{"id": "x", "title": "T", "updated_at": %d.0, "a": %d, "b": %d}`, updated, a, b)
	}
	for _, c := range []struct {
		name  string
		seen  store.MetaSeen
		saved []byte
		want  []byte // nil is what was there
		code  store.Code
	}{
		{"one was served", store.MetaSeen{Served: [][]byte{text(1, 1, 2)}}, text(1, 7, 2), text(2, 7, 2), ""},
		{"the older fits better", store.MetaSeen{Served: [][]byte{text(1, 1, 2), text(2, 1, 2)}}, text(1, 7, 2), text(2, 7, 2), ""},
		{"the newer fits better", store.MetaSeen{Served: [][]byte{text(1, 1, 2), text(2, 1, 2)}}, text(2, 7, 2), text(2, 7, 2), ""},
		{"nothing was changed of the older, or something of the newer", store.MetaSeen{Served: [][]byte{text(1, 1, 2), text(2, 1, 2)}}, text(1, 1, 2), nil, store.Conflict},
		{"set to a third value", store.MetaSeen{Served: [][]byte{text(1, 1, 2), text(2, 1, 2)}}, text(3, 1, 2), nil, store.Conflict},
		{"set to what it is", store.MetaSeen{Served: [][]byte{text(1, 1, 2), text(3, 1, 2)}}, text(2, 1, 2), nil, ""},
		{"his own is known", store.MetaSeen{Own: [][]byte{text(2, 1, 2)}, Served: [][]byte{text(1, 1, 2), text(2, 1, 2)}}, text(1, 1, 2), text(1, 1, 2), ""},
		{"his own is older", store.MetaSeen{Own: [][]byte{text(1, 1, 2)}, Served: [][]byte{text(2, 1, 2)}}, text(3, 1, 2), nil, store.Conflict},
		{"a state that nobody was served", store.MetaSeen{Served: [][]byte{text(0, 0, 1)}, States: [][]byte{text(0, 0, 1), text(1, 1, 2)}}, text(1, 7, 2), text(2, 7, 2), ""},
		{"no state fits", store.MetaSeen{Served: [][]byte{text(1, 1, 2)}, States: [][]byte{text(0, 0, 1)}}, text(3, 1, 2), nil, store.Conflict},
		{"only a state", store.MetaSeen{States: [][]byte{text(1, 1, 2)}}, text(1, 7, 2), text(2, 7, 2), ""},
		{"an old text that nobody knows", store.MetaSeen{}, text(1, 1, 1), nil, store.Conflict},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "store")
			s, err := store.Open(t.Context(), store.Options{Root: root, Create: true, GitSync: "off"})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.CreateSession(t.Context(), store.NewSession{ID: "x", Root: true}); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(root, "x", "meta.json")
			disk := text(2, 1, 2)
			if err := os.WriteFile(path, disk, 0o600); err != nil {
				t.Fatal(err)
			}
			err = s.MergeMeta(t.Context(), "x", c.seen, c.saved)
			if got := store.CodeOf(err); got != c.code || (err == nil) != (c.code == "") {
				t.Errorf("%v, want %q", err, c.code)
			}
			want := c.want
			if want == nil {
				want = disk
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
				t.Errorf("meta.json is\n%s\nwant\n%s\n%v", got, want, err)
			}
		})
	}
}

// TestMergeMetaMovesTheHead: a head_id that was changed is a move, with its
// guard; and the registry follows what was saved.
func TestMergeMetaMovesTheHead(t *testing.T) {
	s, err := store.Open(t.Context(), store.Options{Root: filepath.Join(t.TempDir(), "store"), Create: true, GitSync: "off"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	if err := s.CreateSession(ctx, store.NewSession{ID: "x", Root: true}); err != nil {
		t.Fatal(err)
	}
	first, err := s.AppendText(ctx, "x", "user", "one")
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.AppendText(ctx, "x", "assistant", "two")
	if err != nil {
		t.Fatal(err)
	}
	save := func(from, to string) error {
		sn, err := s.Load(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		raw := sn.MetaJSON()
		if !strings.Contains(string(raw), from) {
			t.Fatalf("meta.json has no %s: %s", from, raw)
		}
		return s.MergeMeta(ctx, "x", store.MetaSeen{Own: [][]byte{raw}}, []byte(strings.Replace(string(raw), from, to, 1)))
	}
	if err := save(second.ID, first.ID[:6]); err != nil {
		t.Fatal(err)
	}
	if sn, err := s.Load(ctx, "x"); err != nil || sn.Head != first.ID {
		t.Errorf("head is %s, %v", sn.Head, err)
	}
	if err := save(`"title": ""`, `"title": "new", "archived": true`); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Row(ctx, "x"); err != nil || r.Title != "new" || !r.Archived {
		t.Errorf("row %+v, %v", r, err)
	}
	run, err := s.Begin(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := save(first.ID, second.ID); !errors.Is(err, store.RunActive) {
		t.Errorf("a head during a run: %v", err)
	}
	if err := save(`"running"`, `"idle"`); !errors.Is(err, store.RunActive) {
		t.Errorf("a status during a run: %v", err)
	}
	if err := save(`"new"`, `"newer"`); err != nil {
		t.Errorf("a title during a run: %v", err)
	}
	if err := run.End(ctx, "idle"); err != nil {
		t.Fatal(err)
	}
}

// TestEditOnBranch: a message that left the active branch is not edited.
func TestEditOnBranch(t *testing.T) {
	s, err := store.Open(t.Context(), store.Options{Root: filepath.Join(t.TempDir(), "store"), Create: true, GitSync: "off"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	if err := s.CreateSession(ctx, store.NewSession{ID: "x", Root: true}); err != nil {
		t.Fatal(err)
	}
	r, err := s.AppendText(ctx, "x", "user", "one")
	if err != nil {
		t.Fatal(err)
	}
	made, err := s.EditOnBranch(ctx, "x", r.ID, "two")
	if err != nil || made == r.ID {
		t.Fatalf("%s, %v", made, err)
	}
	if _, err := s.EditOnBranch(ctx, "x", r.ID, "three"); !errors.Is(err, store.Conflict) {
		t.Errorf("an edit off the branch: %v", err)
	}
	if sn, err := s.Load(ctx, "x"); err != nil || sn.Head != made || !sn.Editable(made) || sn.Editable("nope") {
		t.Errorf("head is %s, %v", sn.Head, err)
	}
}
