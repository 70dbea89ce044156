package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

// pickProject finds the project that a reference names: an exact id, else the
// project with this name, else the one whose folder it is, else the only one
// whose id or name begins with it.
func pickProject(projects []store.Project, ref string) (string, error) {
	if ref == "" {
		return "", &store.Error{Code: store.Invalid, Op: "find project", Err: errors.New("the reference is empty")}
	}
	for _, fits := range []func(store.Project) bool{
		func(p store.Project) bool { return p.ID == ref },
		func(p store.Project) bool { return p.Name == ref },
		func(p store.Project) bool { return p.Path != "" && sameFolder(p.Path, ref) },
		func(p store.Project) bool { return strings.HasPrefix(p.ID, ref) || strings.HasPrefix(p.Name, ref) },
	} {
		var found []string
		id := ""
		for _, p := range projects {
			if fits(p) {
				id = p.ID
				found = append(found, fmt.Sprintf("%s (%s)", p.ID, oneLine(p.Name)))
			}
		}
		switch len(found) {
		case 0:
			continue
		case 1:
			return id, nil
		}
		return "", &store.Error{Code: store.Ambiguous, Op: "find project", Ref: ref,
			Err: fmt.Errorf("%d projects match: %s", len(found), listed(found))}
	}
	return "", &store.Error{Code: store.NotFound, Op: "find project", Ref: ref,
		Err: errors.New("no project has this id, name, folder or prefix"), Hint: projectsHint(projects)}
}

// projectsHint names the projects that there are.
func projectsHint(projects []store.Project) string {
	if len(projects) == 0 {
		return "the store has no projects: none are registered beside it"
	}
	var names []string
	for _, p := range projects {
		names = append(names, fmt.Sprintf("%s (%s)", p.ID, oneLine(p.Name)))
	}
	return "the projects are " + listed(names)
}

// sameFolder reports whether a reference is a path to the folder. A folder that
// is gone is compared by its name.
func sameFolder(folder, ref string) bool {
	abs, err := filepath.Abs(ref)
	if err != nil {
		return false
	}
	a, err1 := os.Stat(folder)
	b, err2 := os.Stat(abs)
	if err1 != nil || err2 != nil {
		return filepath.Clean(folder) == abs
	}
	return os.SameFile(a, b)
}

// completeProject completes a flag by the projects' ids and names.
func (a *app) completeProject(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if err := a.configure(cmd); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	err := a.withStore(cmd, true, func(_ context.Context, st *store.Store) error {
		for _, p := range st.Projects() {
			out = append(out, p.ID+"\t"+oneLine(p.Name), oneLine(p.Name))
		}
		return nil
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return out, cobra.ShellCompDirectiveDefault
}
