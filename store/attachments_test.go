package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

func TestAppendWithFiles(t *testing.T) {
	s := openStore(t, store.Options{})
	newSession(t, s, "x")
	file := filepath.Join(t.TempDir(), "notes [1].txt")
	if err := os.WriteFile(file, []byte("some notes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	res, err := s.AppendWithFiles(t.Context(), "x", "user", "see here", []string{file})
	if err != nil {
		t.Fatal(err)
	}
	refs, err := s.Attachments(t.Context(), "x")
	if err != nil || len(refs) != 1 || refs[0].Node != res.ID || refs[0].Err != nil {
		t.Fatalf("refs = %+v, %v", refs, err)
	}
	if b, err := os.ReadFile(refs[0].Path); err != nil || string(b) != "some notes\n" {
		t.Errorf("attachment = %q, %v", b, err)
	}
	text, _ := load(t, s, "x").Text(res.ID)
	if !strings.HasPrefix(string(text), "see here\n[attachment: notes _1_.txt (txt, 1 KB) @json ") {
		t.Errorf("text = %q", text)
	}
	_, err = s.AppendWithFiles(t.Context(), "x", "user", "", []string{filepath.Join(t.TempDir(), "none")})
	wantCode(t, err, store.NotFound)
	_, err = s.ResolveAttachment("x", "/etc/passwd")
	wantCode(t, err, store.Invalid)
}
