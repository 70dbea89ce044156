package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// parses fails unless the program understands a command line (without its
// name) as far as verb and flags go.
func parses(t *testing.T, where string, words []string) {
	t.Helper()
	cmd, rest, err := testRoot().Find(words)
	if err == nil && cmd.HasParent() {
		err = cmd.ParseFlags(rest)
	}
	if err != nil || !cmd.HasParent() {
		t.Errorf("%s: sessionfs %q is not understood: %v", where, words, err)
	}
}

func readRoot(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestContainerfile: its images are plain names, Go is the module's, and what
// it runs is a command line of this program.
func TestContainerfile(t *testing.T) {
	text := readRoot(t, "contrib/Containerfile")
	images := regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(text, -1)
	if len(images) != 2 {
		t.Fatalf("images: %q", images)
	}
	for _, m := range images {
		if !regexp.MustCompile(`^[a-z0-9]+:[a-z0-9.-]+$`).MatchString(m[1]) {
			t.Errorf("image %s is not a plain name with a tag", m[1])
		}
	}
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readRoot(t, "go.mod"))[1]
	if images[0][1] != "golang:"+goVersion {
		t.Errorf("it builds with %s, go.mod wants %s", images[0][1], goVersion)
	}
	for _, flag := range []string{"--device /dev/fuse", "--cap-add SYS_ADMIN"} {
		if !strings.Contains(text, flag) || !strings.Contains(readDoc(t, "operations.md"), flag) {
			t.Errorf("%s is not said in the recipe and in docs/operations.md", flag)
		}
	}
	var entry, args []string
	for key, into := range map[string]*[]string{"ENTRYPOINT": &entry, "CMD": &args} {
		m := regexp.MustCompile(`(?m)^` + key + ` (\[.*\])$`).FindStringSubmatch(text)
		if m == nil || json.Unmarshal([]byte(m[1]), into) != nil {
			t.Fatalf("%s: %q", key, m)
		}
	}
	if len(entry) != 1 || entry[0] != "sessionfs" {
		t.Errorf("entry point %q", entry)
	}
	parses(t, "contrib/Containerfile", args)
}

// TestUnit: the unit's command is one of this program's, and its variables have
// values.
func TestUnit(t *testing.T) {
	text := readRoot(t, "contrib/systemd/sessionfs.service.in")
	m := regexp.MustCompile(`(?m)^ExecStart=@BINDIR@/sessionfs (.*)$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatal("no ExecStart")
	}
	for _, v := range regexp.MustCompile(`\$\{?([A-Z_]+)`).FindAllStringSubmatch(m[1], -1) {
		if !regexp.MustCompile(`(?m)^Environment=.*\b` + v[1] + `=`).MatchString(text) {
			t.Errorf("$%s has no value", v[1])
		}
	}
	parses(t, "sessionfs.service", strings.Fields(m[1]))
	// mkdir fails on a dead mount, which the start itself would replace.
	if regexp.MustCompile(`(?m)^ExecStartPre=[^-]`).MatchString(text) {
		t.Error("a failing ExecStartPre keeps a dead mount from being replaced")
	}
	// A restart does not mend what the user has to.
	prevent := regexp.MustCompile(`(?m)^RestartPreventExitStatus=(.*)$`).FindStringSubmatch(text)
	want := fmt.Sprint(exitUsage, exitNotFound, exitInvalid)
	if prevent == nil || prevent[1] != want {
		t.Errorf("RestartPreventExitStatus: %q, want %q", prevent, want)
	}
}

// TestOperationsCommands: every command line of docs/operations.md is understood.
func TestOperationsCommands(t *testing.T) {
	n := 0
	for _, m := range regexp.MustCompile("(?m)(?:^|`)sessionfs ([a-z][^`#\n]*)").FindAllStringSubmatch(readDoc(t, "operations.md"), -1) {
		parses(t, "docs/operations.md", strings.Fields(m[1]))
		n++
	}
	if n < 15 {
		t.Errorf("only %d command lines found", n)
	}
}
