package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sessionfs/sessionfs"

// goPackage is what go list tells of a package.
type goPackage struct {
	ImportPath  string
	Dir         string
	Standard    bool
	GoFiles     []string
	CgoFiles    []string
	TestGoFiles []string
	Imports     []string
	Deps        []string
}

// room is the package's path within the module, "" for another module's.
func (p goPackage) room() string { return room(p.ImportPath) }

func room(path string) string {
	r, ok := strings.CutPrefix(path, module+"/")
	if !ok {
		return ""
	}
	return r
}

// packages lists every package of the module with its imports.
func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Standard,GoFiles,CgoFiles,TestGoFiles,Imports,Deps", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if p.room() != "" {
			all = append(all, p)
		}
	}
	if len(all) < 10 {
		t.Fatalf("only %d packages found", len(all))
	}
	return all
}

// rule says what the packages of a room may reach. The first matching rule
// holds; a room that matches none fails the test.
type rule struct {
	room string // a path, or a path with /... for everything below it
	// may are the rooms of this module that may be imported directly, with
	// /... as above; the standard library always may.
	may []string
	// modules are the other modules that may be imported directly.
	modules []string
	// never are packages that must not be reached by any way.
	never []string
}

// The arrows: cmd → fsnode → store → dag, and types from anywhere above.
var rules = []rule{
	{room: "dag", never: []string{"os", "net", "os/exec", "log", "log/slog", "math/rand", "math/rand/v2"}},
	{room: "dag/render", may: []string{"dag"}, never: []string{"os/exec", "net", "log/slog"}},
	{room: "store/internal/...", may: []string{"store/internal/..."}, modules: []string{"golang.org/x/sys"}},
	{room: "store/storetest", may: []string{"store", "store/...", "dag", "dag/..."}, modules: storeModules},
	{room: "store/nodefile", may: []string{"dag", "store/internal/..."}, never: []string{"net", "os/exec"}},
	{room: "store/filelock", may: []string{"store/internal/..."}, modules: []string{"github.com/gofrs/flock", "golang.org/x/sys"}},
	{room: "store/attachment", may: []string{"store/internal/...", "store/layout"}, modules: storeModules, never: terminalAndKernel},
	{room: "store/recovery", may: []string{"store/internal/...", "store/filelock"}, modules: storeModules, never: terminalAndKernel},
	{
		room: "store/migrate", may: []string{"store/internal/...", "store/filelock", "store/layout", "store/gitrepo", "dag"},
		modules: storeModules, never: terminalAndKernel,
	},
	{room: "store/layout", may: []string{"store/internal/...", "store/filelock"}, never: []string{"github.com/go-git/go-git/v5"}},
	{room: "store/registry", may: []string{"store/internal/...", "dag", "store/nodefile"}, never: []string{"github.com/go-git/go-git/v5"}},
	{room: "store/gitrepo", may: []string{"store/internal/...", "store/gitrepo/..."}, modules: storeModules},
	{room: "store/gitrepo/...", may: []string{"store/internal/..."}, modules: storeModules},
	{room: "store", may: []string{"store/...", "dag", "dag/render"}, modules: storeModules, never: terminalAndKernel},
	{room: "store/...", may: []string{"store/internal/...", "dag"}, modules: storeModules, never: terminalAndKernel},
	{room: "fsnode/vnode", modules: []string{"github.com/hanwen/go-fuse/v2", "golang.org/x/sys"}},
	{room: "fsnode/spool", modules: []string{"golang.org/x/sys"}},
	{
		room: "fsnode", may: []string{"fsnode/...", "store", "dag", "dag/render"},
		modules: []string{"github.com/hanwen/go-fuse/v2", "golang.org/x/sys"}, never: []string{"github.com/spf13/cobra"},
	},
	{room: "fsnode/...", may: []string{"fsnode/..."}, modules: []string{"github.com/hanwen/go-fuse/v2", "golang.org/x/sys"}},
	{
		room: "cmd/sessionfs", may: []string{"fsnode", "store", "store/layout", "dag", "dag/render", "docs"},
		modules: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/BurntSushi/toml", "golang.org/x/sys"},
	},
	{room: "docs"},
	{room: "test/harness"},
	{room: "test", may: []string{"..."}, modules: append(slices.Clone(storeModules), "github.com/rogpeppe/go-internal", "go.uber.org/goleak", "github.com/google/go-cmp")},
	{room: "test/...", may: []string{"..."}, modules: append(slices.Clone(storeModules), "go.uber.org/goleak", "github.com/google/go-cmp", "github.com/rogpeppe/go-internal")},
}

// storeModules are the libraries of the store and its rooms.
var storeModules = []string{
	"github.com/go-git/go-git/v5", "github.com/go-git/go-billy/v5", "github.com/gofrs/flock",
	"github.com/hashicorp/golang-lru/v2", "github.com/fsnotify/fsnotify", "golang.org/x/sys",
}

// terminalAndKernel is what the store must not know of.
var terminalAndKernel = []string{"github.com/hanwen/go-fuse/v2/fs", "github.com/hanwen/go-fuse/v2/fuse", "github.com/spf13/cobra"}

// matches reports whether a room is what a pattern names.
func matches(pattern, room string) bool {
	if pattern == "..." {
		return true
	}
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return strings.HasPrefix(room, dir+"/")
	}
	return room == pattern
}

func TestImportArrows(t *testing.T) {
	all := packages(t)
	standard := standardPackages(t)
	for _, p := range all {
		i := slices.IndexFunc(rules, func(r rule) bool { return matches(r.room, p.room()) })
		if i < 0 {
			t.Errorf("%s: no rule says what this room may import", p.room())
			continue
		}
		for _, path := range p.Imports {
			if !standard[path] && !rules[i].allows(path) {
				t.Errorf("%s imports %s, which its rule does not allow", p.room(), path)
			}
		}
		for _, path := range rules[i].never {
			if slices.Contains(p.Deps, path) && !slices.Contains(stdReach[p.room()], path) {
				t.Errorf("%s reaches %s, which it must not know", p.room(), path)
			}
		}
	}
	for _, p := range all {
		for _, path := range p.Imports {
			if strings.HasPrefix(room(path), "test/") && !strings.HasPrefix(p.room(), "test/") {
				t.Errorf("%s imports %s: nothing imports test/", p.room(), path)
			}
			if room(path) == "store/storetest" && !strings.HasPrefix(p.room(), "test/") {
				t.Errorf("%s imports store/storetest outside a test", p.room())
			}
		}
	}
}

// stdReach are packages that the standard library itself brings along.
var stdReach = map[string][]string{
	"dag": {"os"}, // fmt prints to files
}

func (r rule) allows(path string) bool {
	if in := room(path); in != "" {
		return slices.ContainsFunc(r.may, func(pattern string) bool { return matches(pattern, in) })
	}
	return slices.ContainsFunc(r.modules, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") })
}

func standardPackages(t *testing.T) map[string]bool {
	t.Helper()
	out, err := exec.Command("go", "list", "std").Output()
	if err != nil {
		t.Fatalf("go list std: %v", err)
	}
	set := map[string]bool{"C": true}
	for _, p := range strings.Fields(string(out)) {
		set[p] = true
	}
	return set
}

// TestPackageComments: every package says what it is for, once.
func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		comments := 0
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc == nil {
				continue
			}
			comments++
			text := f.Doc.Text()
			want := "Package " + f.Name.Name + " "
			if f.Name.Name == "main" {
				want = filepath.Base(p.ImportPath) + " "
			}
			if !strings.HasPrefix(text, want) && !strings.HasPrefix(text, "Command "+filepath.Base(p.ImportPath)+" ") {
				t.Errorf("%s/%s: the package comment starts %.40q, want %q", p.room(), name, text, want)
			}
		}
		if comments != 1 && len(p.GoFiles) > 0 {
			t.Errorf("%s has %d package comments", p.room(), comments)
		}
	}
}
