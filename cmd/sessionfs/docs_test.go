package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sessionfs/sessionfs/store"
)

// testRoot builds the command tree without streams.
func testRoot() *cobra.Command {
	root := newRootCommand(&app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard})
	root.InitDefaultHelpCmd()
	root.InitDefaultHelpFlag()
	return root
}

// storeCodes reads the error codes out of the store's source, so that a new
// one cannot be forgotten here.
func storeCodes(t *testing.T) []store.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../store/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []store.Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Code" {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		codes = append(codes, store.Code(value))
		return true
	})
	if len(codes) < 17 {
		t.Fatalf("found only %d codes in store/errors.go: %v", len(codes), codes)
	}
	return codes
}

func TestEveryCodeHasAStatusAndACure(t *testing.T) {
	man, operations := readDoc(t, "sessionfs.1.md"), readDoc(t, "operations.md")
	for _, code := range storeCodes(t) {
		if _, known := statusOf(code); !known {
			t.Errorf("code %s has no exit status", code)
		}
		if !strings.Contains(man, "**"+string(code)+"**") {
			t.Errorf("code %s is not in the man page", code)
		}
		if !strings.Contains(operations, "| `"+string(code)+"` |") {
			t.Errorf("code %s has no row in docs/operations.md", code)
		}
	}
}

// findingKinds reads the kinds of findings out of the store's source.
func findingKinds(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../store/check*.go")
	if err != nil || len(files) < 2 {
		t.Fatalf("the check's source: %v, %v", files, err)
	}
	var kinds []string
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\.add\("([a-z_]+)"`).FindAllStringSubmatch(string(source), -1) {
			if m[1] == "index_" { // followed by the registry's state
				kinds = append(kinds, "index_missing", "index_empty", "index_corrupt", "index_not_an_object")
				continue
			}
			kinds = append(kinds, m[1])
		}
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	if len(kinds) < 35 {
		t.Fatalf("found only %d kinds: %v", len(kinds), kinds)
	}
	return kinds
}

func TestFindingKindsAreInTheOperations(t *testing.T) {
	text := readDoc(t, "operations.md")
	_, section, _ := strings.Cut(text, "## Check and repair\n")
	section, _, _ = strings.Cut(section, "\n## ")
	kinds := findingKinds(t)
	documented := map[string]bool{}
	for line := range strings.Lines(section) {
		cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !ok || !strings.HasPrefix(cell, "`") {
			continue
		}
		for _, kind := range strings.Fields(cell) {
			documented[strings.Trim(kind, "`")] = true
		}
	}
	for _, kind := range kinds {
		if !documented[kind] {
			t.Errorf("finding kind %s has no row in docs/operations.md", kind)
		}
	}
	for kind := range documented {
		if !slices.Contains(kinds, kind) {
			t.Errorf("docs/operations.md has a finding kind %s, the store has not", kind)
		}
	}
}

// exitConstants reads the constants of exit.go with their comments.
func exitConstants(t *testing.T) map[int]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "exit.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "exit") {
			return true
		}
		value, err := strconv.Atoi(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		if spec.Comment == nil {
			t.Errorf("%s has no comment", spec.Names[0].Name)
		}
		if _, twice := out[value]; twice {
			t.Errorf("exit status %d is given twice", value)
		}
		out[value] = spec.Names[0].Name
		return true
	})
	return out
}

func TestExitStatusesAreInTheManPage(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| .+ \|$`).FindAllStringSubmatch(readDoc(t, "sessionfs.1.md"), -1)
	constants := exitConstants(t)
	if len(rows) != len(constants) {
		t.Errorf("the man page has %d statuses, exit.go %d", len(rows), len(constants))
	}
	for _, row := range rows {
		n, err := strconv.Atoi(row[1])
		if err != nil {
			t.Fatal(err)
		}
		if constants[n] == "" {
			t.Errorf("the man page has status %d, exit.go has not", n)
		}
	}
}

// manSections splits the COMMANDS of the man page by verb; "" holds the rest.
func manSections(t *testing.T) map[string]string {
	t.Helper()
	sections := map[string]string{}
	verb := ""
	for line := range strings.Lines(readDoc(t, "sessionfs.1.md")) {
		switch {
		case strings.HasPrefix(line, "### sessionfs "):
			verb = strings.Fields(line)[2]
		case strings.HasPrefix(line, "## "):
			verb = ""
		}
		sections[verb] += line
	}
	return sections
}

func TestVerbsAndFlagsAreInTheManPage(t *testing.T) {
	sections := manSections(t)
	root := testRoot()
	check := func(verb string, flags *pflag.FlagSet) {
		flags.VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return // documented once, for all
			}
			if !strings.Contains(sections[verb], "**--"+f.Name+"**") {
				t.Errorf("flag --%s of %q is not in the man page", f.Name, verb)
			}
		})
	}
	check("", root.PersistentFlags())
	var verbs []string
	for _, cmd := range root.Commands() {
		verbs = append(verbs, cmd.Name())
		if sections[cmd.Name()] == "" {
			t.Errorf("verb %s is not in the man page", cmd.Name())
			continue
		}
		heading, _, _ := strings.Cut(sections[cmd.Name()], "\n")
		if usage := strings.TrimSuffix(cmd.UseLine(), " [flags]"); cmd.Name() != "help" && heading != "### "+usage {
			t.Errorf("the man page says %q, the command %q", heading, usage)
		}
		check(cmd.Name(), cmd.LocalNonPersistentFlags())
	}
	for verb := range sections {
		if verb != "" && !slices.Contains(verbs, verb) {
			t.Errorf("the man page has a verb %q, the program has not", verb)
		}
	}
}

// TestManPageNamesNoUnknownFlag finds flags that the page has and no verb.
func TestManPageNamesNoUnknownFlag(t *testing.T) {
	root := testRoot()
	for verb, text := range manSections(t) {
		for _, m := range regexp.MustCompile(`\*\*--([a-z-]+)\*\*`).FindAllStringSubmatch(text, -1) {
			if !hasFlag(root, verb, m[1]) {
				t.Errorf("the man page has --%s at %q, the program has not", m[1], verb)
			}
		}
	}
}

func hasFlag(root *cobra.Command, verb, name string) bool {
	if name == "help" || root.PersistentFlags().Lookup(name) != nil {
		return true
	}
	for _, cmd := range root.Commands() {
		if cmd.Name() == verb && cmd.Flags().Lookup(name) != nil {
			return true
		}
	}
	return false
}

func TestMountOptionsAreInTheManPage(t *testing.T) {
	text := manSections(t)["mount"]
	for _, word := range append([]string{"ro", "allow_other", "nonempty", "fsname="}, passedOptions...) {
		if !strings.Contains(text, "**"+word+"**") {
			t.Errorf("mount option %s is not in the man page", word)
		}
	}
}

func TestReadmeIsShort(t *testing.T) {
	if n := strings.Count(readDoc(t, "../README.md"), "\n"); n > 120 {
		t.Errorf("README.md has %d lines, at most 120 are allowed", n)
	}
}

// scriptTexts returns all test scripts, by name.
func scriptTexts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../test/testdata/script/*.txtar")
	if err != nil || len(files) < 20 {
		t.Fatalf("the test scripts: %d, %v", len(files), err)
	}
	texts := map[string]string{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	return texts
}

// scriptLines returns the command lines of all test scripts, and of the recipes.
func scriptLines(t *testing.T) []string {
	t.Helper()
	texts := scriptTexts(t)
	texts["scripting"] = readDoc(t, "scripting.md")
	var lines []string
	for _, text := range texts {
		for line := range strings.Lines(text) {
			if strings.Contains(line, "sessionfs ") || strings.HasPrefix(line, "mount ") || strings.HasPrefix(line, "[root] mount ") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// TestEveryVerbAndFlagHasAScript finds verbs, and flags of verbs, that no script
// uses, and verbs of which no script expects a refusal.
func TestEveryVerbAndFlagHasAScript(t *testing.T) {
	lines := scriptLines(t)
	used := func(pattern string) bool {
		return slices.ContainsFunc(lines, regexp.MustCompile(pattern).MatchString)
	}
	root := testRoot()
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !used(`--` + f.Name + `\b`) {
			t.Errorf("no script gives --%s", f.Name)
		}
	})
	for _, cmd := range root.Commands() {
		name := cmd.Name()
		verb := `(sessionfs( -\S+( \S+)?)*|^(\[root\])?) ?` + name + `\b`
		if !used(verb) {
			t.Errorf("no script runs %s", name)
		}
		if !used(`(status [1-9]\d*|^!) .*`+verb) && name != "version" && name != "man" && name != "help" {
			t.Errorf("no script has %s refused", name)
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			pattern := `--` + f.Name + `\b`
			if f.Shorthand != "" {
				pattern = `(` + pattern + `| -` + f.Shorthand + `\b)`
			}
			if f.Name != "help" && !used(verb+`.* ?`+pattern) {
				t.Errorf("no script runs %s with --%s", name, f.Name)
			}
		})
	}
}

// TestEveryExitStatusHasAScript finds statuses that no script expects.
func TestEveryExitStatusHasAScript(t *testing.T) {
	lines := scriptLines(t)
	for n, name := range exitConstants(t) {
		switch n {
		case exitOK, exitPanic, exitNoSpace: // no crash is staged; the full disk is a script's own, see codes.txtar
			continue
		}
		want := "status " + strconv.Itoa(n) + " "
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, want) }) {
			t.Errorf("no script expects %s", name)
		}
	}
}

// mountOnlyCodes are codes that no verb can have, and a mounted test has: only
// the mount has a rmdir.
var mountOnlyCodes = []store.Code{store.NotEmpty}

// TestEveryCodeHasAScript finds error codes that no script expects in a message,
// and codes that the mounted tests do not provoke.
func TestEveryCodeHasAScript(t *testing.T) {
	var scripts strings.Builder
	for _, text := range scriptTexts(t) {
		scripts.WriteString(text)
	}
	mounted, err := os.ReadFile("../../test/mounted/codes_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range storeCodes(t) {
		if !strings.Contains(scripts.String(), `\[`+string(code)+`\]`) && !slices.Contains(mountOnlyCodes, code) {
			t.Errorf("no script expects [%s]", code)
		}
		if !strings.Contains(string(mounted), `"`+string(code)+`"`) {
			t.Errorf("no mounted test provokes %s", code)
		}
	}
}
