package lint

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the module's directory: this package is two levels down.
const root = "../.."

// eachFile calls fn for every text file of the repository, with its path from
// the root.
func eachFile(t *testing.T, fn func(path string, text []byte)) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if e.IsDir() && (rel == ".git" || rel == "bin" || rel == "demo" || rel == "test/testdata/stores") {
			return filepath.SkipDir
		}
		if !e.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.IndexByte(b, 0) < 0 {
			fn(filepath.ToSlash(rel), b)
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 20 {
		t.Fatalf("only %d files found below %s", n, root)
	}
}

// goFile is a parsed source file.
type goFile struct {
	path string
	test bool
	set  *token.FileSet
	ast  *ast.File
}

func (f goFile) at(n ast.Node) string {
	return f.path + ":" + f.set.Position(n.Pos()).String()[strings.LastIndex(f.set.Position(n.Pos()).String(), ".go:")+4:]
}

// in reports whether the file lies below a directory of the module.
func (f goFile) in(dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(f.path, d+"/") })
}

func goFiles(t *testing.T) []goFile {
	t.Helper()
	var out []goFile
	eachFile(t, func(path string, text []byte) {
		if !strings.HasSuffix(path, ".go") || strings.Contains(path, "/testdata/") {
			return
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, text, parser.ParseComments)
		if err != nil {
			t.Error(err)
			return
		}
		out = append(out, goFile{path: path, test: strings.HasSuffix(path, "_test.go"), set: set, ast: f})
	})
	return out
}

// call is the name of what a call calls: "panic", "os.Exit".
func call(n ast.Node) string {
	c, ok := n.(*ast.CallExpr)
	if !ok {
		return ""
	}
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
	}
	return ""
}

// TestForbiddenCalls: nothing but main ends the process, one request must not
// take down every user of the mount, and every write of the store goes
// through its one disk interface.
func TestForbiddenCalls(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.test || f.in("test") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			name := call(n)
			switch {
			case strings.HasPrefix(name, "log.Fatal") || strings.HasPrefix(name, "log.Panic"):
				t.Errorf("%s: %s", f.at(n), name)
			case name == "panic" && f.in("dag", "store", "fsnode", "cmd"):
				t.Errorf("%s: panic in a room", f.at(n))
			case name == "os.Exit" && f.path != "cmd/sessionfs/main.go":
				t.Errorf("%s: os.Exit outside main", f.at(n))
			case f.in("store") && !f.in("store/internal/disk", "store/storetest", "store/filelock") && diskCall[name]:
				t.Errorf("%s: %s past the disk interface", f.at(n), name)
			case f.in("fsnode") && !f.in("fsnode/spool") && writingCall[name]:
				t.Errorf("%s: %s: the tree writes no files", f.at(n), name)
			}
			return true
		})
	}
}

// diskCall are calls that the store makes through its disk interface alone,
// so that tests can fail them. The lock files are no data and are left out.
var diskCall = map[string]bool{
	"os.WriteFile": true, "os.Create": true, "os.CreateTemp": true, "os.Rename": true, "os.Remove": true,
	"os.RemoveAll": true, "os.Mkdir": true, "os.MkdirAll": true, "os.Symlink": true, "os.Link": true, "os.Truncate": true,
}

// writingCall are calls that write files by path.
var writingCall = map[string]bool{"os.WriteFile": true, "os.Create": true, "os.Rename": true, "os.RemoveAll": true}

// TestErrnoInOnePlace: only the node kinds and the one table name errnos, and
// the store's interface has none.
func TestErrnoInOnePlace(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.test || f.in("test", "cmd", "store/internal", "store/storetest", "fsnode/vnode", "fsnode/spool") || f.path == "fsnode/errno.go" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "syscall" && s.Sel.Name == "Errno" {
				t.Errorf("%s: syscall.Errno outside vnode and errno.go", f.at(n))
			}
			return true
		})
	}
}

// TestOneDoor: head_id is assigned in one function. Whoever writes the key
// names it in a call that sets or builds it; the function that does is alone.
func TestOneDoor(t *testing.T) {
	var doors []string
	for _, f := range goFiles(t) {
		if f.test || !f.in("store", "fsnode", "cmd") || f.in("store/internal", "store/storetest") {
			continue
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || !assignsHead(fn) || answers[f.path+": "+fn.Name.Name] {
				continue
			}
			doors = append(doors, f.path+": "+fn.Name.Name)
		}
	}
	if len(doors) != 1 {
		t.Errorf("head_id is assigned in %d functions, want one: %q", len(doors), doors)
	}
}

// answers build an object of their own that has a head_id to tell.
var answers = map[string]bool{
	"store/peer.go: GetSession":       true,
	"store/attach.go: pointerMessage": true, // which head the pointer names
}

// assignsHead finds Set("head_id", …), x["head_id"] = … and {"head_id", …}
// composed as a key and its value.
func assignsHead(fn *ast.FuncDecl) bool {
	found := false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			s, ok := n.Fun.(*ast.SelectorExpr)
			found = found || ok && s.Sel.Name == "Set" && len(n.Args) > 0 && isHead(n.Args[0])
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				ix, ok := l.(*ast.IndexExpr)
				found = found || ok && isHead(ix.Index)
			}
		}
		return true
	})
	return found
}

func isHead(e ast.Expr) bool {
	l, ok := e.(*ast.BasicLit)
	return ok && l.Kind == token.STRING && strings.Trim(l.Value, "`\"") == "head_id"
}

// unfinished are words that say that something is not done.
var unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)

// foreignWords refer to a tracker's numbers, which say nothing to a reader of
// the code.
var foreignWords = regexp.MustCompile(`(?i)\bissue #?[0-9]+\b`)

// TestWords: nothing unfinished is committed, and the project speaks of
// itself alone.
func TestWords(t *testing.T) {
	eachFile(t, func(path string, text []byte) {
		if strings.HasPrefix(path, "test/lint/") || path == "go.sum" {
			return // the patterns themselves
		}
		for i, line := range strings.Split(string(text), "\n") {
			if m := unfinished.FindString(line); m != "" && !strings.Contains(path, "/testdata/") {
				t.Errorf("%s:%d: %s", path, i+1, m)
			}
			if m := foreignWords.FindString(line); m != "" {
				t.Errorf("%s:%d: %q", path, i+1, m)
			}
		}
	})
}

// TestFileNames: a file is found by its subject; a drawer for anything is not
// a subject.
func TestFileNames(t *testing.T) {
	for _, f := range goFiles(t) {
		switch filepath.Base(f.path) {
		case "utils.go", "util.go", "helpers.go", "helper.go", "common.go", "misc.go":
			t.Errorf("%s: name the file after what is in it", f.path)
		}
		limit := 500
		if f.test {
			limit = 800 // tables of cases are long
		}
		if lines := f.set.File(f.ast.Pos()).LineCount(); lines > limit {
			t.Errorf("%s has %d lines: split it", f.path, lines)
		}
	}
}

// TestNoPackageState: two stores or two mounts in one process must not notice
// each other, so packages hold no variable that anything assigns to.
func TestNoPackageState(t *testing.T) {
	byPackage := map[string][]goFile{}
	for _, f := range goFiles(t) {
		if !f.test && f.in("dag", "store", "fsnode", "cmd") {
			byPackage[filepath.Dir(f.path)] = append(byPackage[filepath.Dir(f.path)], f)
		}
	}
	for _, files := range byPackage {
		vars := map[string]bool{}
		for _, f := range files {
			for _, d := range f.ast.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok || g.Tok != token.VAR {
					continue
				}
				for _, s := range g.Specs {
					for _, n := range s.(*ast.ValueSpec).Names {
						vars[n.Name] = true
					}
				}
			}
		}
		for _, f := range files {
			checkAssignments(t, f, vars)
		}
	}
}

// checkAssignments reports assignments to package variables. The parser
// resolves names within a file, so a local variable of the same name has a
// declaration of its own.
func checkAssignments(t *testing.T, f goFile, vars map[string]bool) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		a, ok := n.(*ast.AssignStmt)
		if !ok || a.Tok == token.DEFINE {
			return true
		}
		for _, l := range a.Lhs {
			if id, ok := l.(*ast.Ident); ok && id.Name != "_" && vars[id.Name] && packageLevel(f, id) {
				t.Errorf("%s: assigns the package's variable %s", f.at(a), id.Name)
			}
		}
		return true
	})
}

// packageLevel: the name is not declared in a function around it.
func packageLevel(f goFile, id *ast.Ident) bool {
	if id.Obj == nil {
		return true // declared in another file: package level
	}
	for _, d := range f.ast.Decls {
		if g, ok := d.(*ast.GenDecl); ok {
			for _, s := range g.Specs {
				if id.Obj.Decl == s {
					return true
				}
			}
		}
	}
	return false
}
