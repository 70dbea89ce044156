package conformance

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// node is a history file as the suite itself reads it (reference 2.5).
type node struct {
	ID, Role, Name, Caller, Pred string
	Seq                          int64
	Created                      any // a number
	HasInput                     bool
	Input, Output                any
	Meta                         map[string]any
	File, Text                   string // the file's name and content
}

// model answers the questions about one session from its files alone, by the
// rules of reference 2.11, 5 and 6.3. It is what is right where the peer gave
// no answer: it failed on damaged data, or had removed the session.
// TestModel holds it to the answers that the peer did give.
type model struct {
	s     *diskSession
	meta  map[string]any
	nodes []node
	last  map[string]node // by id: of two files with one id the last counts
}

// modelOf reads a session; meta is its meta.json, nil for none.
func modelOf(s *diskSession, meta map[string]any) *model {
	m := &model{s: s, meta: meta, nodes: s.nodes(), last: map[string]node{}}
	for _, n := range m.nodes {
		m.last[n.ID] = n
	}
	return m
}

// openable: a directory, no link, with .git and history/ (reference 1.4).
func (s *diskSession) openable() bool {
	_, gitErr := os.Stat(filepath.Join(s.dir, ".git"))
	history, err := os.Lstat(filepath.Join(s.dir, "history"))
	return !s.symlink && gitErr == nil && err == nil && history.IsDir()
}

// nodes reads the history files in the order of their numbers, then of their
// bytes. What is not one JSON object in UTF-8 with text for an id is left out.
func (s *diskSession) nodes() []node {
	entries, _ := os.ReadDir(filepath.Join(s.dir, "history"))
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), ".json") {
			names = append(names, e.Name())
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return compareNames(a, b) })
	var out []node
	var next int64
	for _, name := range names {
		path := filepath.Join(s.dir, "history", name)
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		n, ok := readNode(name, pyObject(b), next)
		if !ok {
			continue
		}
		if n.Created == nil {
			if st, err := os.Stat(path); err == nil {
				n.Created = number{Float: float64(st.ModTime().UnixMicro()) / 1e6}
			}
		}
		n.File, n.Text = name, string(b)
		next = max(next, n.Seq+1)
		out = append(out, n)
	}
	return out
}

// compareNames orders names by the number in front; 10000 follows 9999. Names
// without one, and equal numbers, are ordered by bytes.
func compareNames(a, b string) int {
	x, okX := leading(a)
	y, okY := leading(b)
	if okX && okY && x != y {
		return cmp.Compare(x, y)
	}
	return strings.Compare(a, b)
}

func leading(name string) (uint64, bool) {
	end := strings.IndexFunc(name, func(r rune) bool { return r < '0' || r > '9' })
	n, err := strconv.ParseUint(name[:max(end, 0)], 10, 64)
	return n, err == nil
}

func readNode(file string, m map[string]any, next int64) (node, bool) {
	n := node{Seq: next, Input: m["input"], Output: m["output"], HasInput: m["input"] != nil}
	id, isText := m["id"].(string)
	if !isText && m["id"] == nil {
		// digits, "-", a letter, "-", the id, ".json"
		parts := strings.SplitN(strings.TrimSuffix(file, ".json"), "-", 3)
		if _, ok := leading(parts[0] + "-"); ok && len(parts) == 3 && len(parts[1]) == 1 && strings.Trim(parts[0], "0123456789") == "" {
			id = parts[2]
		}
	}
	n.ID = id
	for key, into := range map[string]*string{"caller": &n.Caller, "predecessor": &n.Pred} {
		text, isText := m[key].(string)
		if !isText && truthy(m[key]) {
			return node{}, false
		}
		*into = text
	}
	n.Role, _ = m["role"].(string)
	n.Name, _ = m["name"].(string)
	n.Meta, _ = m["metadata"].(map[string]any)
	if _, ok := m["created_at"].(number); ok {
		n.Created = m["created_at"]
	}
	if seq, ok := m["seq"].(number); ok && seq.Int != "" {
		if v, err := strconv.ParseInt(seq.Int, 10, 64); err == nil && v >= 0 {
			n.Seq = v
		}
	}
	return n, m != nil && n.ID != "" && (isText || m["id"] == nil)
}

func (n node) display(what string) bool { return n.Meta["display"] == any(what) }
func (n node) flag(key string) bool     { return truthy(n.Meta[key]) }
func (n node) speaks() bool             { return n.Role == "user" || n.Role == "llm" }
func (n node) topLevel() bool           { return n.Caller == "" || n.Caller == "ROOT" }
func (n node) context() bool            { return strings.HasPrefix(n.Name, "context/") }

// output is the output where it is text, "" else.
func (n node) output() string {
	s, _ := n.Output.(string)
	return s
}

// head is the session's own head (reference 2.3).
func (m *model) head() string {
	for _, key := range []string{"head_id", "last_node_id"} {
		if id, ok := m.meta[key].(string); ok && id != "" {
			return id
		}
	}
	return ""
}

// branch walks back from head (reference 5.4), "" being the session's own;
// brokenAt names the node without a predecessor that may not be the first.
func (m *model) branch(head string) (ids []string, brokenAt string) {
	if head == "" {
		head = m.head()
	}
	ids = []string{}
	seen := map[string]bool{}
	n, ok := m.last[head]
	for ; ok && !seen[n.ID]; n, ok = m.last[n.Pred] {
		seen[n.ID] = true
		if !n.display("root") && !n.flag("rewound") {
			ids = append(ids, n.ID)
		}
		if n.Pred == "" {
			if !m.mayBeFirst(n) {
				return nil, n.ID
			}
			break
		}
	}
	slices.Reverse(ids)
	return ids, ""
}

func (m *model) mayBeFirst(n node) bool {
	spawned := n.flag("spawn_branch_root") || n.Meta["source"] == any("agent_spawn")
	if spawned || n.display("root") || !n.speaks() || n.Meta["covers_ids"] != nil {
		return true
	}
	for _, o := range m.nodes {
		if o.Seq >= n.Seq {
			return true
		}
		if o.speaks() && o.topLevel() && !o.display("root") {
			return false
		}
	}
	return true
}

// conversation is reference 5.6.
func (m *model) conversation(n node) bool {
	if n.flag("structural") || n.display("root") || n.display("runtime") || n.Meta["function"] == any("attach") || n.context() {
		return false
	}
	if n.Role == "code" {
		return n.topLevel() && (n.Name != "" || n.flag("function"))
	}
	caller, known := m.last[n.Caller]
	return n.speaks() && (n.topLevel() || !known || caller.speaks())
}

// branches is list_branches (reference 5.7).
func (m *model) branches() []branchLine {
	merged := m.merged()
	out := []branchLine{}
	for _, n := range m.nodes {
		followed := slices.ContainsFunc(m.nodes, func(o node) bool { return o.Pred == n.ID && m.conversation(o) })
		if m.conversation(n) && !followed && !slices.Contains(merged, n.ID) && !strings.HasPrefix(n.ID, "summary_") {
			out = append(out, m.branchLine(n))
		}
	}
	return newestFirst(out)
}

// archived is list_archived_branches.
func (m *model) archived() []branchLine {
	out := []branchLine{}
	for _, n := range m.nodes {
		line := m.branchLine(n)
		if line.Archived && !slices.ContainsFunc(out, func(o branchLine) bool { return o.Head == line.Head }) {
			out = append(out, line)
		}
	}
	return newestFirst(out)
}

func newestFirst(lines []branchLine) []branchLine {
	at := func(l branchLine) float64 { f, _ := l.UpdatedAt.(float64); return f }
	slices.SortStableFunc(lines, func(a, b branchLine) int { return cmp.Compare(at(b), at(a)) })
	return lines
}

func (m *model) branchLine(n node) branchLine {
	line := branchLine{Head: n.ID}
	branches, _ := m.meta["branches"].(map[string]any)
	entry, isObject := branches[n.ID].(map[string]any)
	if !isObject {
		line.Name, line.Named = branches[n.ID].(string)
		line.CreatedAt, line.UpdatedAt = seconds(n.Created), seconds(n.Created)
		return line
	}
	line.Name, line.Named = entry["name"].(string)
	line.Archived = truthy(entry["archived"])
	if at, ok := entry["created_at"].(number); ok {
		line.CreatedAt = seconds(at)
	}
	if at, ok := entry["updated_at"].(number); ok {
		line.UpdatedAt = seconds(at)
	}
	return line
}

// merged is merged_heads (reference 5.8), sorted.
func (m *model) merged() []string {
	set := map[string]bool{}
	listed, _ := m.meta["merged_heads"].([]any)
	for _, v := range listed {
		if id, ok := v.(string); ok {
			set[id] = true
		}
	}
	commits := m.contextCommits()
	newest := sortedIDs(commits)
	slices.SortStableFunc(newest, func(a, b string) int {
		return cmp.Compare(seconds(commits[b]["created_at"]), seconds(commits[a]["created_at"]))
	})
	for _, id := range newest[:min(50, len(newest))] {
		parents, _ := commits[id]["commit_parents"].([]any)
		for i, p := range parents {
			parent, _ := p.(string)
			if head, ok := commits[parent]["head_node_id"].(string); ok && i > 0 && head != "" {
				set[head] = true
			}
		}
	}
	return append([]string{}, sortedIDs(set)...)
}

func (m *model) contextCommits() map[string]map[string]any {
	out := map[string]map[string]any{}
	files, _ := filepath.Glob(filepath.Join(m.s.dir, "context", "commits", "*.json"))
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			if c := pyObject(b); c != nil {
				out[strings.TrimSuffix(filepath.Base(f), ".json")] = c
			}
		}
	}
	return out
}

// latestUser is the output of the last user node, nil without one.
func (m *model) latestUser() *string {
	for _, n := range slices.Backward(m.nodes) {
		if n.Role == "user" {
			text := n.output()
			return &text
		}
	}
	return nil
}

// leaf is get_deepest_leaf (reference 5.9); a node counts once, so that a loop
// ends.
func (m *model) leaf(from string) *string {
	type step struct {
		n     node
		depth int
	}
	var starts []node
	if from == "" {
		starts = slices.DeleteFunc(slices.Clone(m.nodes), func(n node) bool { return n.Pred != "" })
	} else if n, ok := m.last[from]; ok {
		starts = []node{n}
	}
	var best *string
	deepest, seen := -1, map[string]bool{}
	for _, start := range starts {
		for stack := []step{{start, 0}}; len(stack) > 0; {
			at := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if seen[at.n.ID] {
				continue
			}
			seen[at.n.ID] = true
			if at.depth > deepest {
				best, deepest = &at.n.ID, at.depth
			}
			for _, n := range m.nodes {
				if n.Pred == at.n.ID && !n.flag("structural") {
					stack = append(stack, step{n, at.depth + 1})
				}
			}
		}
	}
	return best
}

// descendants is get_descendants: who was called, through others too.
func (m *model) descendants(of string) []string {
	out := []string{}
	if _, ok := m.last[of]; !ok {
		return out
	}
	called := func(id string) []string {
		var ids []string
		for _, n := range m.nodes {
			if n.Caller == id {
				ids = append(ids, n.ID)
			}
		}
		return ids
	}
	for stack := called(of); len(stack) > 0; {
		id := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !slices.Contains(out, id) {
			out = append(out, id)
			stack = append(stack, called(id)...)
		}
	}
	return out
}
