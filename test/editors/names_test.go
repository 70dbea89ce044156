package editors

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestListedNamesAreReferences: whatever `ls branch` prints names that branch
// where a reference is read, also where the branch's own name cannot be a file
// name, or two have the same.
func TestListedNamesAreReferences(t *testing.T) {
	m := start(t, harness.Options{})
	dir := m.Session(nested)
	var err error
	for _, name := range []string{"a%2Fb", "100%25", "%2Ehidden"} {
		err = errors.Join(err, put(filepath.Join(dir, "append", "user"), name+"\n"))
		if r := harness.Shell(t, dir, `mkdir branch/"$1"`, name); r.Code != 0 {
			t.Error(r.Err)
		}
		err = errors.Join(err, put(filepath.Join(dir, "head_id"), tipTrunk+"\n"))
	}
	if err != nil {
		t.Fatal(err)
	}
	list := names(t, dir, "branch")
	if all := strings.Join(list, " "); !strings.Contains(all, "a%2Fb") || !strings.Contains(all, "same name~") {
		t.Fatalf("branch/ lists %q", list)
	}
	for _, name := range list {
		links := names(t, dir, "branch", name)
		tip := read(t, dir, "branch", name, links[len(links)-1])
		for how, move := range map[string]func() error{
			"head_id":             func() error { return put(filepath.Join(dir, "head_id"), name+"\n") },
			"head_id, no newline": func() error { return put(filepath.Join(dir, "head_id"), name) },
			"ctl":                 func() error { return put(filepath.Join(dir, "ctl"), `checkout "`+name+"\"\n") },
			"the command line": func() error {
				if r := harness.CLI(t, m.Store, m.State, "checkout", nested, name); r.Code != 0 {
					return errors.New(r.Err)
				}
				return nil
			},
		} {
			if how == "the command line" && !strings.ContainsAny(name, "%~") {
				continue
			}
			// From elsewhere: the first message of all.
			all := names(t, dir, "nodes")
			if r := harness.Shell(t, dir, `mv nodes/"$1" head`, all[1]); r.Code != 0 {
				t.Fatal(r.Err)
			}
			if err := move(); err != nil {
				t.Errorf("%s to %q: %v", how, name, err)
				continue
			}
			if !soon(func() bool { return read(t, dir, "head") == tip }) {
				t.Errorf("%s to %q: the head is %q, want %q", how, name, read(t, dir, "head"), tip)
			}
		}
	}
	// The name as it is comes first.
	if err := put(filepath.Join(dir, "head_id"), "a/b\n"); err != nil {
		t.Errorf("a name with a slash: %v", err)
	}
}
