package mounted

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// pathRow is a row of the table "Every path" of docs/filesystem.md.
type pathRow struct {
	pattern  string
	match    *regexp.Regexp
	kind     string // file, directory, link
	modes    []string
	writable bool
	seen     int
}

var placeholderName = regexp.MustCompile(`<[^>]+>`)

// pathTable reads the table. In a pattern <x> stands for a name or a part of
// one, and a last … for everything below.
func pathTable(t *testing.T) []*pathRow {
	t.Helper()
	text := read(t, harness.ModuleDir(t), "docs", "filesystem.md")
	_, text, ok := strings.Cut(text, "\n## Every path\n")
	if !ok {
		t.Fatal("docs/filesystem.md has no table of every path")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var rows []*pathRow
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || !strings.HasPrefix(strings.TrimSpace(cells[0]), "`") {
			continue
		}
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		pattern := regexp.QuoteMeta(cells[0])
		pattern = placeholderName.ReplaceAllString(pattern, `[^/]+`)
		pattern = strings.Replace(pattern, "/…", "/.+", 1)
		rows = append(rows, &pathRow{
			pattern: cells[0], match: regexp.MustCompile("^" + pattern + "$"), kind: cells[1],
			modes: strings.Split(cells[2], " or "), writable: cells[3] == "yes",
		})
	}
	if len(rows) < 40 {
		t.Fatalf("the table has only %d rows", len(rows))
	}
	return rows
}

// rowOf finds the first row that a path matches; rows are in order of
// precedence.
func rowOf(rows []*pathRow, path string) *pathRow {
	for _, r := range rows {
		if r.match.MatchString(path) {
			r.seen++
			return r
		}
	}
	return nil
}

// TestEveryPath: a walk over mounts has exactly what docs/filesystem.md lists,
// with the type, the mode and the writability that it says.
func TestEveryPath(t *testing.T) {
	rows := pathTable(t)
	for _, run := range []struct {
		golden string
		args   []string
	}{
		{"chat_branches", nil}, {"chat_tools", nil}, {"attachments", nil}, {"workdir_files", nil}, {"broken_nodes", nil},
		{"nested_projects", nil}, {"chat_branches", []string{"-o", "commits=tree"}},
	} {
		m := harness.Start(t, harness.Options{Store: harness.Golden(t, run.golden), Args: run.args, Warnings: []string{".*"}})
		prepareWalk(t, m)
		err := filepath.WalkDir(m.Dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				if slices.Contains(broken, run.golden) {
					return nil
				}
				return err
			}
			rel, err := filepath.Rel(m.Dir, path)
			if err != nil || rel == "." {
				return err
			}
			checkRow(t, run.golden, rows, path, rel)
			return nil
		})
		if err != nil {
			t.Error(run.golden, err)
		}
		m.Stop()
	}
	for _, r := range rows {
		if r.seen == 0 {
			t.Errorf("docs/filesystem.md lists %s, and no mount has it", r.pattern)
		}
	}
}

// prepareWalk makes what a store does not have by itself: an archived session,
// one that is pinned and in a group, and a text that could not be applied.
func prepareWalk(t *testing.T, m *harness.Mount) {
	t.Helper()
	ids := names(t, m.Path("sessions"))
	steps := []error{
		os.Mkdir(m.Session("walked"), 0o700),
		put(m.Session("walked", "fields", "group"), "g\n"),
		put(m.Session("walked", "fields", "pinned"), "true\n"),
		put(m.Session("walked", "append", "user"), "hello\n"),
		os.Mkdir(m.Session("walked", "branch", "named"), 0o700),
		put(m.Session("walked", "workdir", "f"), ""),
	}
	if os.IsNotExist(steps[5]) {
		steps[5] = os.WriteFile(m.Session("walked", "workdir", "f"), []byte("x"), 0o600)
	}
	for i, err := range steps {
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	if err := put(m.Session("walked", "append", "message.json"), "{no JSON\n"); err == nil {
		t.Error("what is no message was taken")
	}
	if len(ids) > 1 {
		if err := os.Rename(m.Session(ids[0]), m.Path("archived", ids[0])); err != nil {
			t.Fatal(err)
		}
	}
}

// checkRow checks one path against the table.
func checkRow(t *testing.T, golden string, rows []*pathRow, path, rel string) {
	t.Helper()
	r := rowOf(rows, rel)
	if r == nil {
		t.Errorf("%s: docs/filesystem.md does not list %s", golden, rel)
		return
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		if !slices.Contains(broken, golden) {
			t.Error(rel, err)
		}
		return
	}
	kind := map[uint32]string{syscall.S_IFREG: "file", syscall.S_IFDIR: "directory", syscall.S_IFLNK: "link"}[st.Mode&syscall.S_IFMT]
	if r.kind != "any" && kind != r.kind {
		t.Errorf("%s: %s (%s) is a %s, listed as %s", golden, rel, r.pattern, kind, r.kind)
	}
	mode := fmt.Sprintf("%04o", st.Mode&0o7777)
	if r.modes[0] != "any" && !slices.Contains(r.modes, mode) {
		t.Errorf("%s: %s (%s) has mode %s, listed as %s", golden, rel, r.pattern, mode, strings.Join(r.modes, " or "))
	}
	if kind != "file" {
		return
	}
	// Opened for writing, nothing written: root may open what modes forbid.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		f.Close()
	}
	if can := err == nil; can != r.writable && len(r.modes) == 1 && r.modes[0] != "any" {
		t.Errorf("%s: %s (%s): opened for writing: %v, listed as writable %v", golden, rel, r.pattern, err, r.writable)
	}
}
