package store_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

// sendWorld is a store with a session bound to a project, and files around it.
func sendWorld(t *testing.T) (s *store.Store, at func(string) string) {
	t.Helper()
	s, project := projectStore(t)
	state := filepath.Dir(project)
	at = func(path string) string {
		return strings.NewReplacer("@project", project, "@state", state, "@x", load(t, s, "x").Dir).Replace(path)
	}
	for _, path := range []string{
		"@project/src/main.go", "@x/workdir/attachments/own.txt", "@x/workdir/attachments/sub/now.txt",
		"@state/channels/web/accounts/me/attachments/in.png", "@state/channels/web/accounts/me/token", "@state/secret",
	} {
		if err := os.MkdirAll(filepath.Dir(at(path)), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, at(path), path)
	}
	for name, target := range map[string]string{
		"@project/out": "@state/secret", "@project/dir": "@state", "@project/in": "@project/src/main.go",
		"@x/workdir/attachments/token": "@state/channels/web/accounts/me/token",
	} {
		if err := os.Symlink(at(target), at(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(at("@project/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, at
}

const oldPlace = "/gone/.openprogram/sessions/"

// TestResolveSendable: what an agent may send out, and every refusal.
func TestResolveSendable(t *testing.T) {
	s, at := sendWorld(t)
	for path, want := range map[string]string{
		"@project/src/main.go":                               "@project/src/main.go",
		"@project/in":                                        "@project/src/main.go",
		"@x/workdir/attachments/own.txt":                     "@x/workdir/attachments/own.txt",
		oldPlace + "x/workdir/attachments/sub/now.txt":       "@x/workdir/attachments/sub/now.txt",
		"@project/src/../src/main.go":                        "@project/src/main.go",
		"@project/nothing":                                   "not_found",
		"@x/workdir/attachments/nothing":                     "not_found",
		"@project/src":                                       "not_found", // a directory
		"@project/pipe":                                      "not_found", // opening it would wait
		"@project/out":                                       "invalid",   // a link that leads out
		"@project/dir/secret":                                "invalid",   // through a directory that does
		"@project/../secret":                                 "invalid",
		"@state/secret":                                      "invalid",
		"@x/workdir/attachments/token":                       "invalid",
		"@state/channels/web/accounts/me/attachments/in.png": "invalid", // to be read, not to be sent
		"@state/channels/web/accounts/me/token":              "invalid",
		oldPlace + "y/workdir/attachments/sub/now.txt":       "invalid", // another session's
		oldPlace + "x/workdir/attachments/token":             "invalid",
		oldPlace + "x/workdir/attachments/../../meta.json":   "invalid",
		"/etc/passwd":                                        "invalid",
		"src/main.go":                                        "invalid", // relative to nothing
		"":                                                   "invalid",
		"~/.ssh/id_ed25519":                                  "invalid",
		"@project/\x00main.go":                               "invalid",
	} {
		got, err := s.ResolveSendable("x", at(path))
		if code := string(store.CodeOf(err)); code != "" {
			got = code
		}
		if got != at(want) {
			t.Errorf("%s: %s, %v; want %s", path, got, err, at(want))
		}
		file, openErr := s.OpenSendable("x", at(path))
		if store.CodeOf(openErr) != store.CodeOf(err) {
			t.Errorf("%s: open says %v, resolve %v", path, openErr, err)
		}
		if openErr != nil {
			continue
		}
		if b, err := io.ReadAll(file); err != nil || len(b) == 0 {
			t.Errorf("%s: %q, %v", path, b, err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.ResolveAttachment("x", at("@state/channels/web/accounts/me/attachments/in.png")); err != nil {
		t.Errorf("what may be read is refused: %v", err)
	}
	// A session that is bound to no project sends nothing of one.
	newSession(t, s, "alone")
	_, err := s.ResolveSendable("alone", at("@project/src/main.go"))
	wantCode(t, err, store.Invalid)
}

// TestAnAssistantSendsOnlyWhatItMay: an assistant's message with a file hands
// it out, a user's hands it in.
func TestAnAssistantSendsOnlyWhatItMay(t *testing.T) {
	s, at := sendWorld(t)
	before := load(t, s, "x").Index.Len()
	for path, want := range map[string]store.Code{
		"@state/secret": store.Invalid, "@project/out": store.Invalid, "@project/dir/secret": store.Invalid,
		"@state/channels/web/accounts/me/attachments/in.png": store.Invalid, "@project/nothing": store.NotFound, "@project/pipe": store.NotFound,
	} {
		_, err := s.AppendWithFiles(t.Context(), "x", "assistant", "here", []string{at("@project/src/main.go"), at(path)})
		if store.CodeOf(err) != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if n := load(t, s, "x").Index.Len(); n != before {
		t.Errorf("%d messages were written", n-before)
	}
	if _, err := s.AppendWithFiles(t.Context(), "x", "user", "take this", []string{at("@state/secret")}); err != nil {
		t.Errorf("a user's own file is refused: %v", err)
	}
	if _, err := s.AppendWithFiles(t.Context(), "x", "assistant", "here", []string{at("@project/in")}); err != nil {
		t.Fatal(err)
	}
	refs, err := s.Attachments(t.Context(), "x")
	if err != nil || len(refs) != 2 || !refs[0].Sendable || !refs[1].Sendable {
		t.Fatalf("refs %+v, %v", refs, err)
	}
	if b, err := os.ReadFile(refs[1].Path); err != nil || string(b) != "@project/src/main.go" {
		t.Errorf("sent %q, %v", b, err)
	}
	if _, err := s.AppendText(t.Context(), "x", "user", "[attachment: in (png, 1 KB) @json \""+at("@state/channels/web/accounts/me/attachments/in.png")+"\"]"); err != nil {
		t.Fatal(err)
	}
	refs, err = s.Attachments(t.Context(), "x")
	if err != nil || len(refs) != 3 || refs[2].Err != nil || refs[2].Sendable {
		t.Errorf("a channel's file: %+v, %v", refs, err)
	}
}
