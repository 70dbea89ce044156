package test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionfs/sessionfs/test/harness"
)

// updateDocs writes what the commands print into the document.
var updateDocs = flag.Bool("update", false, "write the printed output into the documents")

// recipe is a section of docs/scripting.md.
type recipe struct {
	title string
	lines []string // of the document, from the heading on
}

// TestScriptingRecipes runs every block of docs/scripting.md.
func TestScriptingRecipes(t *testing.T) {
	recipes := testDocument(t, filepath.Join("..", "docs", "scripting.md"))
	if n := len(recipes) - 1; n < 10 {
		t.Errorf("docs/scripting.md has %d recipes, at least 10 are promised", n)
	}
}

// TestReadme runs every block of README.md that shows what is printed.
func TestReadme(t *testing.T) { testDocument(t, filepath.Join("..", "README.md")) }

// testDocument runs the blocks of a document. Each section has a home of its own
// with the sample store, mounted on ~/chats where the section names that path and
// does not mount it itself. A block "```console" holds commands after "$ " (continued
// after "> ") and what they print; a block whose first line is "# file: NAME"
// is a file that the section uses.
func testDocument(t *testing.T, path string) []recipe {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	recipes := splitRecipes(string(raw))
	var out []string
	for _, r := range recipes {
		got := r.lines
		if r.title != "" {
			t.Run(strings.ReplaceAll(r.title, " ", "_"), func(t *testing.T) { got = runRecipe(t, r) })
		}
		out = append(out, got...)
	}
	text := strings.Join(out, "\n")
	if *updateDocs {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return recipes
	}
	if diff := cmp.Diff(string(raw), text); diff != "" {
		t.Errorf("the commands print something else than the document says (-document +printed):\n%s", diff)
	}
	return recipes
}

// splitRecipes splits the document at its headings of the second level, outside
// of blocks; the first part has no title.
func splitRecipes(text string) []recipe {
	recipes := []recipe{{}}
	block := false
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "```") {
			block = !block
		}
		if title, ok := strings.CutPrefix(line, "## "); ok && !block {
			recipes = append(recipes, recipe{title: title})
		}
		last := &recipes[len(recipes)-1]
		last.lines = append(last.lines, line)
	}
	return recipes
}

// recipeHome is where one recipe runs.
type recipeHome struct {
	dir string
	cwd string // where the last command left off
	env []string
}

func newRecipeHome(t *testing.T, r recipe) *recipeHome {
	t.Helper()
	binary := harness.Binary(t)
	h := &recipeHome{dir: t.TempDir()}
	h.cwd = h.dir
	h.env = append(harness.Environ(filepath.Join(h.dir, ".state")), "HOME="+h.dir, "TZ=UTC", "LC_ALL=C.UTF-8",
		"PATH="+filepath.Dir(binary)+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"SESSIONFS_STORE="+filepath.Join(h.dir, "store"), "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=u", "GIT_AUTHOR_EMAIL=u@example.org", "GIT_COMMITTER_NAME=u", "GIT_COMMITTER_EMAIL=u@example.org")
	h.must(t, "sessionfs sample-store store")
	text := strings.Join(r.lines, "\n")
	if !strings.Contains(text, "~/chats") {
		return h
	}
	if !fuseUsable() {
		t.Skip("nothing can be mounted here")
	}
	if !strings.Contains(text, "$ sessionfs mount") {
		h.must(t, "mkdir chats && sessionfs mount --background chats")
	}
	t.Cleanup(func() {
		h.cwd = h.dir
		if harness.Mounts(filepath.Join(h.dir, "chats")) == 0 {
			return
		}
		if _, err := h.run("sessionfs umount chats || sessionfs umount --lazy chats"); err != nil {
			t.Errorf("umount: %v", err)
		}
	})
	return h
}

// run runs a command line of bash where the last one left off, and returns what
// it prints.
func (h *recipeHome) run(script string) (string, error) {
	left := filepath.Join(h.dir, ".cwd")
	script += "\nstatus=$?; pwd > '" + left + "'; exit $status"
	cmd := exec.Command("timeout", "-k", "5", stepLimit, "bash", "-c", script)
	cmd.Dir, cmd.Env = h.cwd, h.env
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if dir, err := os.ReadFile(left); err == nil {
		h.cwd = strings.TrimSuffix(string(dir), "\n")
	}
	return string(out), err
}

func (h *recipeHome) must(t *testing.T, script string) {
	t.Helper()
	if out, err := h.run(script); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

var fileBlock = regexp.MustCompile(`^# file: (\S+)$`)

// runRecipe runs the blocks of a recipe and returns its lines with the output
// as it was printed.
func runRecipe(t *testing.T, r recipe) []string {
	h := newRecipeHome(t, r)
	var out []string
	for i := 0; i < len(r.lines); i++ {
		out = append(out, r.lines[i])
		if !strings.HasPrefix(r.lines[i], "```") {
			continue
		}
		end := i + 1
		for r.lines[end] != "```" {
			end++
		}
		body := r.lines[i+1 : end]
		if r.lines[i] == "```console" {
			body = h.console(t, body)
		} else {
			h.file(t, body)
		}
		out = append(append(out, body...), "```")
		i = end
	}
	return out
}

// file writes a block that is a file. Other blocks are only to be read.
func (h *recipeHome) file(t *testing.T, body []string) {
	t.Helper()
	for i, line := range body {
		m := fileBlock.FindStringSubmatch(line)
		if m == nil || i > 1 {
			continue
		}
		path := filepath.Join(h.dir, m[1])
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Join(body, "\n")+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// console runs the commands of a block.
func (h *recipeHome) console(t *testing.T, body []string) []string {
	t.Helper()
	var out []string
	for i := 0; i < len(body); {
		command, ok := strings.CutPrefix(body[i], "$ ")
		if !ok {
			i++ // printed by the command before
			continue
		}
		out = append(out, body[i])
		for i++; i < len(body) && strings.HasPrefix(body[i], "> "); i++ {
			command += "\n" + body[i][2:]
			out = append(out, body[i])
		}
		printed, err := h.run(command)
		if err != nil {
			t.Errorf("%s: %v\n%s", command, err, printed)
		}
		if printed = strings.TrimSuffix(printed, "\n"); printed != "" {
			out = append(out, strings.Split(printed, "\n")...)
		}
	}
	return out
}
