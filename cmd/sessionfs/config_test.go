package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// configHome makes a configuration directory with a file of this text.
func configHome(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	for _, s := range settingKeys() {
		for _, name := range append(s.env, "NO_COLOR") {
			t.Setenv(name, "")
		}
	}
	path := filepath.Join(dir, "sessionfs", "config.toml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// configured runs a command line that only resolves the settings.
func configured(t *testing.T, args ...string) *app {
	t.Helper()
	a := &app{stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	root := newRootCommand(a)
	root.AddCommand(&cobra.Command{Use: "nothing", RunE: func(*cobra.Command, []string) error { return nil }})
	root.SetArgs(append([]string{"nothing"}, args...))
	if err := root.ExecuteContext(context.Background()); err != nil {
		t.Fatal(err)
	}
	return a
}

func sources(a *app) map[string]string {
	out := map[string]string{}
	for _, s := range a.settings {
		out[s.key] = s.value + " from " + s.source
	}
	return out
}

func TestSettingsPrecedence(t *testing.T) {
	path := configHome(t, "store = \"/from/file\"\nlog_level = \"info\"\ncolor = \"always\"\npager = \"most\"\n")
	check := func(a *app, key, want string) {
		t.Helper()
		if got := sources(a)[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	a := configured(t)
	check(a, "store", "/from/file from "+path)
	check(a, "log_level", "info from "+path)
	check(a, "pager", "most from "+path)
	check(a, "lock_timeout", "10s from default")
	if a.store != "/from/file" || a.color != "always" || a.pager != "most" {
		t.Errorf("the settings are not taken over: %+v", a)
	}
	t.Setenv("SESSIONFS_STORE", "/from/env")
	t.Setenv("PAGER", "more")
	t.Setenv("NO_COLOR", "1")
	a = configured(t, "--log-level", "debug")
	check(a, "store", "/from/env from $SESSIONFS_STORE")
	check(a, "pager", "more from $PAGER")
	check(a, "color", "never from $NO_COLOR")
	check(a, "log_level", "debug from --log-level")
	t.Setenv("SESSIONFS_PAGER", "cat")
	a = configured(t, "--store", "/from/flag", "--color", "always", "--lock-timeout", "3s")
	check(a, "store", "/from/flag from --store")
	check(a, "pager", "cat from $SESSIONFS_PAGER")
	check(a, "color", "always from --color")
	check(a, "lock_timeout", "3s from --lock-timeout")
}

func TestConfigurationThatIsWrong(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"no TOML", "store = ", "configuration: "},
		{"unknown key", "colour = \"always\"\n", `unknown key "colour"`},
		{"no text", "log_level = 3\n", "is not a text"},
		{"bad value", "log_level = \"loud\"\n", `"loud" is none of`},
		{"relative store", "store = \"chats\"\n", "not an absolute path"},
		{"empty store", "store = \"\"\n", "not an absolute path"},
		{"bad time", "lock_timeout = \"soon\"\n", "not a time"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			configHome(t, tt.text)
			var stdout, stderr bytes.Buffer
			code := run(context.Background(), []string{"ls"}, strings.NewReader(""), &stdout, &stderr)
			if code != exitInvalid || !strings.Contains(stderr.String(), tt.want) {
				t.Errorf("status %d, %q; want %d and %q", code, stderr.String(), exitInvalid, tt.want)
			}
			if code := run(context.Background(), []string{"version"}, strings.NewReader(""), &stdout, &stderr); code != exitOK {
				t.Errorf("version needs the configuration: status %d", code)
			}
		})
	}
}

func TestHomeInTheConfiguration(t *testing.T) {
	configHome(t, "store = \"~/chats\"\n")
	t.Setenv("HOME", "/home/u")
	if a := configured(t); a.store != "/home/u/chats" {
		t.Errorf("the store is %q", a.store)
	}
}

func TestSettingsAreInTheManPage(t *testing.T) {
	man := readDoc(t, "sessionfs.1.md")
	section := regexp.MustCompile(`(?s)## CONFIGURATION.*?\n## `).FindString(man)
	for _, s := range settingKeys() {
		if !strings.Contains(section, "**"+s.key+"**") {
			t.Errorf("setting %s is not in the man page", s.key)
		}
		for _, name := range s.env {
			if !strings.Contains(section, "**$"+name+"**") {
				t.Errorf("$%s is not in the man page's CONFIGURATION", name)
			}
		}
	}
}
