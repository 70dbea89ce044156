package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/layout"
)

// state is what a store says, and has on disk, piece by piece. Keys begin with
// what a piece is:
//
//	session/<id>        it is listed: where it is
//	meta/<id>           meta.json
//	head/<id>           the head as the store gives it
//	node/<id>/<file>    a history file
//	file/<id>/<path>    any other file, .git and hidden directories left out
//	deleted/<id>        a delete intent
//	project/<path>      a file in a project's folder
//	plan/<id>           what a rewind to before u2 would do, where undo data is
//	row/<id>/<key>      what the listing shows
//	commits/<id>        the subjects in Git, newest first
//
// The pieces down to deleted are the content, which changes at one moment; the
// others may lag behind it.
type state map[string]string

func content(key string) bool {
	return !strings.HasPrefix(key, "row/") && !strings.HasPrefix(key, "commits/")
}

// capture reads the state of an open store.
func capture(ctx context.Context, s *store.Store) (state, error) {
	rows, err := s.ListSessions(ctx, store.ListQuery{IncludeArchived: true})
	if err != nil {
		return nil, err
	}
	st := state{}
	for _, r := range rows {
		if err := st.session(ctx, s, r); err != nil {
			return nil, err
		}
	}
	intents, err := os.ReadDir(filepath.Join(s.Root(), ".deleted"))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for _, e := range intents {
		if !strings.HasSuffix(e.Name(), ".tmp") {
			st["deleted/"+e.Name()] = "yes"
		}
	}
	return st, st.projects(filepath.Dir(s.Root()))
}

// projects reads the files of the projects' folders, as far as they are not
// sessions.
func (st state) projects(dir string) error {
	folders, err := filepath.Glob(filepath.Join(dir, "work-*"))
	if err != nil {
		return err
	}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case e.Name() == ".openprogram":
				return fs.SkipDir
			case e.IsDir():
				return nil
			}
			b, err := os.ReadFile(path)
			rel, _ := filepath.Rel(dir, path)
			st["project/"+rel] = string(b)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// plan notes what the undo data of a session says.
func (st state) plan(ctx context.Context, s *store.Store, sn *store.Snapshot) {
	if _, err := os.Stat(layout.RecoveryDir(sn.Dir, sn.ID)); err != nil {
		return
	}
	p, err := s.PlanRewind(ctx, sn.ID, "u2")
	if err != nil {
		st["plan/"+sn.ID] = err.Error()
		return
	}
	if len(p.Files)+len(p.Conflicts) > 0 {
		st["plan/"+sn.ID] = fmt.Sprint(p.Turns, p.Files, p.Conflicts)
	}
}

func (st state) session(ctx context.Context, s *store.Store, r store.Row) error {
	sn, err := s.Load(ctx, r.ID)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(s.Root(), sn.Dir)
	if err != nil {
		return err
	}
	st["session/"+r.ID] = rel
	st["head/"+r.ID] = sn.Head
	st.plan(ctx, s, sn)
	var row map[string]json.RawMessage
	if err := json.Unmarshal(r.JSON, &row); err != nil {
		return fmt.Errorf("row %s: %w", r.JSON, err)
	}
	for k, v := range row {
		st["row/"+r.ID+"/"+k] = string(v)
	}
	commits, err := s.SessionCommits(ctx, r.ID, 0)
	if err != nil {
		return err
	}
	subjects := make([]string, len(commits))
	for i, c := range commits {
		subjects[i] = c.Message
	}
	st["commits/"+r.ID] = strings.Join(subjects, "\n")
	return filepath.WalkDir(sn.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(sn.Dir, path)
		switch {
		case e.IsDir() && (e.Name() == ".git" || strings.HasPrefix(e.Name(), ".git.sessionfs-") || strings.HasPrefix(rel, ".sessionfs-")):
			return fs.SkipDir
		case e.IsDir(), isTemp(e.Name()), rel == "workdir/.gitkeep", e.Name() == ".opdedup.json": // a cache
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		key := "file/" + r.ID + "/" + rel
		if name, ok := strings.CutPrefix(rel, "history/"); ok {
			key = "node/" + r.ID + "/" + name
		} else if rel == "meta.json" {
			key = "meta/" + r.ID
			b = bytes.Replace(b, []byte(`, "status": "idle"`), nil, 1) // what an absent one means
			if !json.Valid(b) {
				return fmt.Errorf("meta.json of %s is not whole: %q", r.ID, b)
			}
		}
		st[key] = string(b)
		return nil
	})
}

// tempName is the name of an unfinished atomic write.
var tempName = regexp.MustCompile(`\.[0-9a-f]{32}\.tmp$`)

func isTemp(name string) bool { return tempName.MatchString(name) }

var (
	nodeFile = regexp.MustCompile(`^node/([^/]+)/(\d+)-.-(.*)\.json$`)
	// byChance are values that another run of an operation gives anew.
	byChance = regexp.MustCompile(`"worker_id": "[^"]*"|branch_restore_[0-9a-f]+|"mutation_id": "[^"]*"`)
)

// named gives the nodes that st has and before lacks names that do not depend
// on chance, so that two runs of one operation compare.
func (st state) named(before state) state {
	var added []string
	for k := range st {
		if _, old := before[k]; !old && nodeFile.MatchString(k) {
			added = append(added, k)
		}
	}
	sort.Strings(added) // by session, then by seq
	var pairs []string
	for i, k := range added {
		id := nodeFile.FindStringSubmatch(k)[3]
		if len(id) >= 8 && !strings.Contains(id, "_") { // chosen by chance
			pairs = append(pairs, id, fmt.Sprintf("NEW%d", i))
		}
	}
	r := strings.NewReplacer(pairs...)
	out := make(state, len(st))
	for k, v := range st {
		out[r.Replace(k)] = byChance.ReplaceAllString(r.Replace(v), "W")
	}
	return out
}

// diff lists the pieces of a and b that differ, of those that want selects.
func diff(a, b state, want func(string) bool) []string {
	var out []string
	for k, v := range a {
		if got, ok := b[k]; want(k) && (!ok || got != v) {
			out = append(out, fmt.Sprintf("%s: %q, now %q", k, v, orMissing(b, k)))
		}
	}
	for k, v := range b {
		if _, ok := a[k]; want(k) && !ok {
			out = append(out, fmt.Sprintf("%s: missing, now %q", k, v))
		}
	}
	slices.Sort(out)
	return out
}

func orMissing(st state, key string) string {
	if v, ok := st[key]; ok {
		return v
	}
	return "(missing)"
}

// judge compares what was found with the states before and after an
// operation. The content must be one of them, all of it; what lags behind may
// be either, piece by piece. between may recognise a third state and give the
// reason why it is lawful.
func judge(before, after, got state, between func(before, after, got state) string) (verdict string, err error) {
	fromBefore, fromAfter := diff(before, got, content), diff(after, got, content)
	switch {
	case len(fromAfter) == 0:
		verdict = "after"
	case len(fromBefore) == 0:
		verdict = "before"
	default:
		reason := ""
		if between != nil {
			reason = between(before, after, got)
		}
		if reason == "" {
			return "", fmt.Errorf("neither before nor after\n  from before: %s\n  from after:  %s",
				strings.Join(fromBefore, "\n    "), strings.Join(fromAfter, "\n    "))
		}
		return "between", nil
	}
	for k, v := range got {
		if content(k) || strings.HasSuffix(k, "/preview") {
			continue
		}
		if b, a := before[k], after[k]; v != b && v != a {
			return "", fmt.Errorf("%s is %q, neither %q nor %q", k, v, b, a)
		}
	}
	return verdict, nil
}

// sound checks what holds of every store at any time: Check finds nothing that
// is not allowed, and every head names a node.
func sound(ctx context.Context, s *store.Store, st state, allow map[string]string) error {
	var found []string
	err := s.Check(ctx, func(f store.Finding) {
		if allowed[f.Kind] == "" && allow[f.Kind] == "" {
			found = append(found, f.String())
		}
	})
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("Check reports\n    %s", strings.Join(found, "\n    "))
	}
	for k, head := range st {
		id, ok := strings.CutPrefix(k, "head/")
		if !ok || head == "" {
			continue
		}
		sn, err := s.Load(ctx, id)
		if err != nil {
			return err
		}
		if _, ok := sn.Index.Get(head); !ok {
			return fmt.Errorf("the head of %s names no node: %s", id, head)
		}
	}
	return nil
}

// allowed are the findings that are lawful after a crash, with the reason.
var allowed = map[string]string{
	"temp_file": "a write that was cut off leaves its private file; no reader takes it for anything",
	"git_lock":  "the lock of a commit that was cut off; the next commit removes it",
}

// fsck asks git about every repository of a state; it must be silent. Objects
// that nothing names yet are lawful: a commit that was cut off leaves them.
func fsck(t testing.TB, root string, st state) error {
	t.Helper()
	for k, rel := range st {
		if !strings.HasPrefix(k, "session/") {
			continue
		}
		dir := filepath.Join(root, rel)
		if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
			continue
		}
		cmd := exec.Command("git", "-C", dir, "-c", "safe.directory=*", "fsck", "--strict", "--no-dangling", "--no-progress")
		out, err := cmd.CombinedOutput()
		if err != nil || len(out) > 0 {
			return fmt.Errorf("git fsck in %s: %v\n%s", rel, err, out)
		}
	}
	return nil
}
