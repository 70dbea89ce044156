package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

// A store may belong to somebody who has fewer rights than this process, so
// nothing of a session is read or written through a symlink.
func TestNothingOfASessionIsReachedThroughALink(t *testing.T) {
	s := openStore(t, store.Options{})
	newSession(t, s, "x", "one")
	dir := load(t, s, "x").Dir
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte(`{"id": "secret", "role": "user", "output": "secret", "title": "secret"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link(secret, "history/0009-u-link.json")
	sn := load(t, s, "x")
	if _, ok := sn.Index.Get("secret"); ok {
		t.Error("a linked node file was read")
	}
	if _, ok := sn.EntryByFile("0009-u-link.json"); ok {
		t.Error("a linked node file is shown")
	}
	if _, err := sn.Raw("0009-u-link.json"); err == nil {
		t.Error("a linked node file was served")
	}

	record := filepath.Join(dir, ".git", "sessionfs.lock")
	_ = os.Remove(record)
	link(secret, ".git/sessionfs.lock")
	if _, _, err := s.CommitTurn(t.Context(), "x", "m"); err == nil {
		t.Error("a commit went through a linked lock file")
	}
	if b, _ := os.ReadFile(secret); len(b) == 0 {
		t.Error("the file behind the link was emptied")
	}
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}

	if err := os.Rename(filepath.Join(dir, "history"), filepath.Join(dir, "h2")); err != nil {
		t.Fatal(err)
	}
	link(outside, "history")
	_, err := s.AppendText(t.Context(), "x", "user", "two")
	wantCode(t, err, store.Corrupt)
	if names, _ := os.ReadDir(outside); len(names) != 1 {
		t.Errorf("something was written through the link: %v", names)
	}
	if err := os.Remove(filepath.Join(dir, "history")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "h2"), filepath.Join(dir, "history")); err != nil {
		t.Fatal(err)
	}

	meta := filepath.Join(dir, "meta.json")
	if err := os.Rename(meta, meta+".old"); err != nil {
		t.Fatal(err)
	}
	link(secret, "meta.json")
	if sn := load(t, s, "x"); sn.Title() == "secret" {
		t.Error("a linked meta.json was read")
	}
}
