package store

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// branchEntry is one value of meta.branches (reference 2.4): an object, or in
// old stores a bare string, the name.
type branchEntry struct {
	name             string
	named            bool
	created, updated float64
	hasCreated       bool
	hasUpdated       bool
	archived         bool
	object           bool // a dict entry: its times count, even when absent
}

func parseBranchEntry(raw []byte) branchEntry {
	if name, ok := jsonedit.String(raw); ok {
		return branchEntry{name: name, named: true}
	}
	obj, err := jsonedit.ParseObject(raw)
	if err != nil {
		return branchEntry{}
	}
	e := branchEntry{object: true, archived: obj.Truthy("archived")}
	if raw, ok := obj.Get("name"); ok {
		e.name, e.named = jsonedit.String(raw)
	}
	e.created, e.hasCreated = obj.Float("created_at")
	e.updated, e.hasUpdated = obj.Float("updated_at")
	return e
}

// branchEntries reads meta.branches, by node id.
func (sn *Snapshot) branchEntries() map[string]branchEntry {
	raw, ok := sn.meta.obj.Get("branches")
	if !ok {
		return nil
	}
	obj, err := jsonedit.ParseObject(raw)
	if err != nil {
		return nil
	}
	keys := obj.Keys()
	out := make(map[string]branchEntry, len(keys))
	for _, k := range keys {
		v, _ := obj.Get(k)
		out[k] = parseBranchEntry(v)
	}
	return out
}

// nodesNamed lists the existing nodes that carry a branch name.
func (sn *Snapshot) nodesNamed(name string) []string {
	var out []string
	for id, e := range sn.branchEntries() {
		if _, exists := sn.Index.Get(id); e.named && e.name == name && exists {
			out = append(out, id)
		}
	}
	sort.Strings(out)
	return out
}

// row makes a list_branches row of a node (reference 5.7).
func (sn *Snapshot) branchRow(n dag.Node, e branchEntry, has, merged bool) Branch {
	b := Branch{Head: n.ID, Name: e.name, Named: e.named, Archived: e.archived, Merged: merged}
	if has && e.object {
		b.CreatedAt, b.HasCreated = e.created, e.hasCreated
		b.UpdatedAt, b.HasUpdated = e.updated, e.hasUpdated
		return b
	}
	b.CreatedAt, b.HasCreated = n.CreatedAt, true
	b.UpdatedAt, b.HasUpdated = n.CreatedAt, true
	return b
}

// byUpdated sorts rows by updated_at, newest first, null as 0, stable.
func byUpdated(rows []Branch) {
	sort.SliceStable(rows, func(i, j int) bool { return rows[i].UpdatedAt > rows[j].UpdatedAt })
}

// Tips lists the tips of the conversation, newest first (reference 5.7);
// merged ones are left out, archived ones are not.
func (sn *Snapshot) Tips() []Branch {
	entries, merged := sn.branchEntries(), sn.mergedHeads()
	var rows []Branch
	for _, n := range sn.Index.Tips(func(id string) bool { return merged[id] }) {
		e, has := entries[n.ID]
		rows = append(rows, sn.branchRow(n, e, has, false))
	}
	byUpdated(rows)
	return rows
}

// Branches lists what branch/ shows: every tip that is neither merged nor
// archived, and every node that has been given a name.
func (sn *Snapshot) Branches() []Branch {
	entries, merged := sn.branchEntries(), sn.mergedHeads()
	rows := slices.DeleteFunc(sn.Tips(), func(b Branch) bool { return b.Archived && !b.Named })
	shown := make(map[string]bool, len(rows))
	for _, b := range rows {
		shown[b.Head] = true
	}
	ids := make([]string, 0, len(entries))
	for id, e := range entries {
		if e.named && !shown[id] {
			ids = append(ids, id)
		}
	}
	sort.Strings(ids)
	for _, id := range ids {
		if n, ok := sn.Index.Get(id); ok {
			rows = append(rows, sn.branchRow(n, entries[id], true, merged[id]))
		}
	}
	byUpdated(rows)
	return rows
}

// archivedBranches lists the archived dict entries whose node exists
// (reference 5.7), even merged ones.
func (sn *Snapshot) archivedBranches() []Branch {
	entries := sn.branchEntries()
	var rows []Branch
	seen := map[string]bool{}
	for n := range sn.Index.All() {
		e, ok := entries[n.ID]
		if !ok || !e.object || !e.archived || seen[n.ID] {
			continue
		}
		seen[n.ID] = true
		rows = append(rows, sn.branchRow(n, e, true, false))
	}
	byUpdated(rows)
	return rows
}

// mergedContexts is how many of the newest context commits are asked for
// merged parents (reference 5.8).
const mergedContexts = 50

// mergedHeads is the set of consumed tips (reference 5.8): meta.merged_heads
// and what the newest context commits with several parents consumed.
func (sn *Snapshot) mergedHeads() map[string]bool {
	out := map[string]bool{}
	if raw, ok := sn.meta.obj.Get("merged_heads"); ok {
		items, _ := jsonedit.Array(raw)
		for _, it := range items {
			if id, ok := jsonedit.String(it); ok {
				out[id] = true
			}
		}
	}
	sn.s.addContextMerges(filepath.Join(sn.Dir, contextDir, "commits"), out)
	return out
}

// contextCommit is what matters of a context commit's file (reference 2.9).
type contextCommit struct {
	created float64
	head    string
	parents []string
}

// addContextMerges adds the heads of every parent after the first of the
// newest context commits. The directory belongs to another subsystem of the
// peer and is only read; what cannot be read adds nothing.
func (s *Store) addContextMerges(dir string, out map[string]bool) {
	files, err := s.fs.ReadDir(dir)
	if err != nil || len(files) == 0 {
		return
	}
	commits := map[string]contextCommit{}
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok || !f.Type().IsRegular() {
			continue
		}
		raw, err := s.fs.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			continue
		}
		if c, ok := parseContextCommit(raw); ok {
			commits[id] = c
		}
	}
	newest := make([]string, 0, len(commits))
	for id := range commits {
		newest = append(newest, id)
	}
	sort.Slice(newest, func(i, j int) bool {
		a, b := commits[newest[i]], commits[newest[j]]
		if a.created != b.created {
			return a.created > b.created
		}
		return newest[i] < newest[j]
	})
	for _, id := range newest[:min(len(newest), mergedContexts)] {
		for i, p := range commits[id].parents {
			if h := commits[p].head; i > 0 && h != "" {
				out[h] = true
			}
		}
	}
}

func parseContextCommit(raw []byte) (contextCommit, bool) {
	obj, err := jsonedit.ParseObject(raw)
	if err != nil {
		return contextCommit{}, false
	}
	c := contextCommit{head: obj.Str("head_node_id")}
	c.created, _ = obj.Float("created_at")
	if raw, ok := obj.Get("commit_parents"); ok {
		items, _ := jsonedit.Array(raw)
		for _, it := range items {
			if id, ok := jsonedit.String(it); ok {
				c.parents = append(c.parents, id)
			}
		}
	}
	return c, true
}

// maxBranchName is the longest branch name, in characters (reference 6.11).
const maxBranchName = 80

// SetBranchName names a node: the name is trimmed, must have 1 to 80
// characters, read as no reference with ~N, and is locked against automatic
// naming, as the peer's rename does (reference 6.11). NotFound for an unknown node, Invalid, Exists when
// another node carries the name.
func (s *Store) SetBranchName(ctx context.Context, id, node, name string) error {
	err := s.change(ctx, "name branch", id, 0, func(t *tx) error { return t.nameBranch(node, name) })
	if err == nil {
		s.Dirty(id)
	}
	return err
}

func (t *tx) nameBranch(node, name string) error {
	name = strings.TrimSpace(name)
	if !utf8.ValidString(name) {
		return t.fail(Invalid, strconv.Quote(name), errors.New("a branch name is UTF-8 text"))
	}
	if n := utf8.RuneCountInString(name); n < 1 || n > maxBranchName {
		return t.fail(Invalid, name, errors.New("a branch name has 1 to 80 characters"))
	}
	if name == "@" || strings.ContainsFunc(name, unicode.IsControl) {
		return t.fail(Invalid, strconv.Quote(name), errors.New("a branch name is one line of text, and @ means the head"))
	}
	if _, _, ok := splitAncestor(name); ok {
		return t.fail(Invalid, name, errors.New("a branch name does not end in ~ or ~N, which name a predecessor"))
	}
	if _, ok := t.sn.Index.Get(node); !ok {
		return t.fail(NotFound, node, errNoNode)
	}
	for _, other := range t.sn.nodesNamed(name) {
		if other != node {
			return t.fail(Exists, name, errors.New("another branch has this name"))
		}
	}
	m := t.editMeta()
	now := jsonedit.AppendFloat(nil, t.timestamp())
	editBranch(m, node, func(e *jsonedit.Object) {
		e.Set("name", jsonedit.AppendString(nil, name))
		if _, ok := e.Get("created_at"); !ok {
			e.Set("created_at", now)
		}
		e.Set("updated_at", now)
		e.Set("name_locked", []byte("true"))
	})
	return t.writeMeta(m)
}

// DeleteBranchName removes a node's name, and with it the whole entry, as the
// peer does (reference 6.11). NotFound when the node has no name.
func (s *Store) DeleteBranchName(ctx context.Context, id, node string) error {
	err := s.change(ctx, "remove branch name", id, 0, func(t *tx) error {
		if e, ok := t.sn.branchEntries()[node]; !ok || !e.named {
			return t.fail(NotFound, node, errors.New("the branch has no name"))
		}
		m := t.editMeta()
		branches := branchesOf(m)
		branches.Delete(node)
		m.Set("branches", branches.Bytes())
		return t.writeMeta(m)
	})
	if err == nil {
		s.Dirty(id)
	}
	return err
}

// branchesOf returns meta.branches to be edited; what is not an object counts
// as empty, as it does for readers.
func branchesOf(m *jsonedit.Object) *jsonedit.Object {
	if raw, ok := m.Get("branches"); ok {
		if obj, err := jsonedit.ParseObject(raw); err == nil {
			return obj
		}
	}
	return jsonedit.NewObject()
}

// editBranch edits the entry of a node in meta.branches. An old store's bare
// string becomes {"name": …}: the peer's own writers cannot handle it.
func editBranch(m *jsonedit.Object, node string, edit func(e *jsonedit.Object)) {
	branches := branchesOf(m)
	e := jsonedit.NewObject()
	if raw, ok := branches.Get(node); ok {
		if name, isString := jsonedit.String(raw); isString {
			e.Set("name", jsonedit.AppendString(nil, name))
		} else if obj, err := jsonedit.ParseObject(raw); err == nil {
			e = obj
		}
	}
	edit(e)
	branches.Set(node, e.Bytes())
	m.Set("branches", branches.Bytes())
}

// moveBranchEntry lets a branch's name move along when a message is appended
// to the head that carries it: the whole entry goes to the new tip.
func moveBranchEntry(m *jsonedit.Object, from, to string) {
	if from == "" {
		return
	}
	branches := branchesOf(m)
	raw, ok := branches.Get(from)
	if !ok || !parseBranchEntry(raw).named {
		return
	}
	if _, taken := branches.Get(to); taken {
		return
	}
	raw = slices.Clone(raw)
	branches.Delete(from)
	branches.Set(to, raw)
	m.Set("branches", branches.Bytes())
}
